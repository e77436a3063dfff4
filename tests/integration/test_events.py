#!/usr/bin/env python3
"""hpzctl events: what happens is told as it does, once, across a restart, and to each what he may know."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, hpzctl, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
SOMEBODY = 65534


class Events(HpzTest):
    @contextlib.contextmanager
    def follow(self, *arguments, user=None):
        """A list that grows."""
        seen = []
        with running([get_build_directory() / "client/hpzctl", "events", "--json", *arguments], stdin=subprocess.DEVNULL,
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, user=user, group=user,
                     extra_groups=[] if user is not None else None) as process:
            reader = threading.Thread(target=lambda: seen.extend(map(json.loads, process.stdout)))
            reader.start()
            try:
                # It follows when it tells of something.
                wait_until("it follows", lambda: seen or self.be_refused(user))
                yield seen, process
            finally:
                process.send_signal(signal.SIGINT)
                self.status = process.wait(60)
                self.said = process.stderr.read()
                reader.join()

    @staticmethod
    def be_refused(user):
        identity = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        hpzctl("lease", "1T", "--path", check=False, **identity)

    @staticmethod
    def pick(seen, lease):
        return [event for event in list(seen) if event["lease"] == lease]

    def test_life(self):
        """A lease from the first to the last, with who has it; numbered without a gap."""
        with self.follow() as (seen, _):
            with Hold("--size", 16 * MIB, "--label", "web1") as holder:
                holder.call("fill", 1)
                lease = holder.id
            wait_until("it is back", lambda: any(event["kind"] == "returned" for event in self.pick(seen, lease)))
        self.assertEqual(self.status, 0)
        life = self.pick(seen, lease)
        self.assertEqual([event["kind"] for event in life], ["granted", "ended", "returned"])
        self.assertEqual({(event["label"], event["bytes"], event["uid"], event["pid"]) for event in life[:2]}, {("web1", 16 * MIB, 0, holder.pid)})
        numbers = [event["sequence"] for event in seen]
        self.assertEqual(numbers, list(range(numbers[0], numbers[0] + len(numbers))))
        refusal = next(event for event in seen if event["kind"] == "refused")
        self.assertIn("pool", refusal["text"])
        self.assertEqual(refusal["uid"], 0)

    def test_restart(self):
        """It goes on with the next hpzd, whose first words are news."""
        with self.follow() as (seen, _):
            self.service.kill()
            self.service.start()
            wait_until("the new one is heard", lambda: any("serves" in (event["text"] or "") for event in list(seen)))
            with Hold("--size", 2 * MIB, "--label", "later") as holder:
                wait_until("its lease is told", lambda: self.pick(seen, holder.id))
        self.assertIn("hpzd is gone; waiting for it", self.said)

    def test_last_and_ends(self):
        with Hold("--size", 2 * MIB, "--label", "early"):
            said = hpzctl("events", "--last", 50, "--timeout", 0.3).stdout
            self.assertRegex(said, r"(?m)^\d\d:\d\d:\d\d\.\d{3} granted +\d+ early, 2 MiB$")
            self.assertEqual(len(hpzctl("events", "--last", 50, "--count", 1).stdout.splitlines()), 1)
        self.assertEqual(hpzctl("events", "operand", check=False).returncode, 2)

    def test_who_may(self):
        """Who may only lease sees its own, and no line of the log."""
        self.service.stop()
        self.set_config("hpzd", "socket_mode", "0666")
        with self.service.config.open("a", encoding="utf-8") as config:
            config.write(f"\n[access somebody]\nusers = {SOMEBODY}\nallow = lease\n")
        self.service.start()
        self.wait_idle()
        with self.follow(user=SOMEBODY) as (seen, _):
            with Hold("--size", 2 * MIB, "--label", "root's") as other, Hold("--size", 2 * MIB, "--label", "own", user=SOMEBODY) as own:
                self.service.reload()
                wait_until("its own lease is told", lambda: self.pick(seen, own.id))
            wait_until("its end is told", lambda: any(event["kind"] == "returned" for event in self.pick(seen, own.id)))
        self.assertEqual(self.pick(seen, other.id), [])
        self.assertEqual({event["uid"] for event in seen}, {SOMEBODY})


main("--2m", "32", "--stock", "16M*1 2M*rest")
