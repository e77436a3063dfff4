#!/usr/bin/env python3
"""hpz-libvirt, the watcher: which leases it ends and which never. libvirt's test driver has one domain, which runs."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import hpzctl_json, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

PROGRAM = get_build_directory() / "client" / "hpz-libvirt"
RUNS = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # the domain of test:///default
GONE = "11111111-2222-3333-4444-5555555555{:02x}"


def get_switches(pid):
    """How often the process has gone to sleep."""
    count = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        count += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status.read_text(), re.MULTILINE)[1])
    return count


class Watcher(HpzTest):
    def setUp(self):
        super().setUp()
        self.log = self.service.directory / "watcher.log"
        self.log.write_text("")

    @contextlib.contextmanager
    def watcher(self, uri="test:///default", grace="0.3"):
        with open(self.log, "ab") as log, running([PROGRAM, "--connect", uri, "--grace", grace], stdin=subprocess.DEVNULL,
                                                  stdout=log, stderr=log,
                                                  env={**os.environ, "HPZ_SOCKET": str(self.service.socket)}) as process:
            yield process
            process.terminate()
            self.assertEqual(process.wait(60), 0)

    def lease(self, key, *more):
        return hpzctl_json("lease", "2M", "--path", "--key", key, "--label", "vm", *more)["id"]

    def wait_said(self, *words):
        wait_until(f"it says {words}", lambda: all(word in self.log.read_text() for word in words))

    def test_what_ends_and_what_stays(self):
        ended = [self.lease("libvirt:" + GONE.format(1)), self.lease("libvirt:" + GONE.format(1) + ":dimm0")]
        kept = [self.lease("libvirt:" + RUNS), self.lease("libvirt:" + RUNS.upper() + ":dimm0"), self.lease("libvirt:x"),
                self.lease("mine"), hpzctl_json("lease", "2M", "--path")["id"], self.lease("mine:libvirt:" + GONE.format(2))]
        with self.watcher():
            for lease in ended:
                self.wait_ended(lease)
            self.wait_said(f"released lease {ended[0]} (vm)", f"released lease {ended[1]} (vm)")
            # Further looks find nothing more.
            late = self.lease("libvirt:" + GONE.format(3))
            self.assertIsNotNone(self.get_lease(late))
            self.look_until(late)
        self.assertEqual([self.get_lease(lease)["state"] for lease in kept], ["leased"] * len(kept))

    def look_until(self, lease):
        """What came later is found by the looks that somebody asks for."""
        def look():
            subprocess.run(["kill", "-HUP", str(self.get_watcher())], check=True)
            time.sleep(0.2)
            return self.get_lease(lease) is None
        wait_until(f"lease {lease} ends", look)

    def get_watcher(self):
        """Its pid: our only child of that name."""
        return next(pid for pid in host.get_descendants(os.getpid()) if Path(f"/proc/{pid}/comm").read_text() == "hpz-libvirt\n")

    def test_a_process_that_libvirt_does_not_know(self):
        """Another libvirtd's domain, or one that libvirtd lost: as long as it runs it has its memory."""
        uuid = GONE.format(4)
        lease, other = self.lease("libvirt:" + uuid), self.lease("libvirt:" + GONE.format(5))
        with running(["sleep", "600"], executable="/bin/sleep") as plain, \
                running(["python3", "-c", "import time; time.sleep(600)", "-uuid", uuid]) as emulator, self.watcher():
            self.wait_ended(other)
            for _ in range(5):
                os.kill(self.get_watcher(), signal.SIGHUP)
                time.sleep(0.2)
            self.assertEqual(self.get_lease(lease)["state"], "leased")
            emulator.kill()
            emulator.wait()
            self.look_until(lease)
            self.assertIsNone(plain.poll())

    def test_a_process_that_holds_its_reader(self):
        """Nothing is ended while one process lets nobody read its command line; that is said, and nothing else waits for it."""
        lease = self.lease("libvirt:" + GONE.format(9))
        with running([get_build_directory() / "tests/block", "lock", "/tmp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as block:
            self.addCleanup(block.stdout.close)
            said = block.stdout.readline().strip()
            if said != "ready":
                self.skipTest(said)
            with self.watcher():
                self.wait_said(f"processes: process {block.pid} lets nobody read its command line")
                self.assertEqual(self.get_lease(lease)["state"], "leased")
                block.stdin.close()
                self.assertEqual(block.wait(60), 0)
                self.wait_said("compares leases with domains again")
                self.wait_ended(lease)

    def test_a_young_lease_is_let_alone(self):
        """Its domain may be about to start."""
        lease = self.lease("libvirt:" + GONE.format(6))
        with self.watcher(grace="3600") as process:
            self.wait_said("connected")
            for _ in range(5):
                process.send_signal(signal.SIGHUP)
                time.sleep(0.1)
            self.assertEqual(self.get_lease(lease)["state"], "leased")
        self.assertNotIn("released", self.log.read_text())

    def test_without_hpzd(self):
        """It says so once, and goes on when hpzd is there."""
        lease = self.lease("libvirt:" + GONE.format(7))
        self.service.stop()
        with self.watcher():
            self.wait_said("cannot compare leases with domains: hpzd")
            time.sleep(1)
            self.service.start()
            self.wait_said("compares leases with domains again")
            self.wait_ended(lease)
        self.assertEqual(self.log.read_text().count("cannot compare"), 1)

    def test_without_libvirt(self):
        """Nothing is ended because nobody can be asked."""
        lease = self.lease("libvirt:" + GONE.format(8))
        with self.watcher(uri="qemu+unix:///system?socket=/nonexistent/hpz") as process:
            self.wait_said("no connection to libvirt")
            process.send_signal(signal.SIGHUP)
            time.sleep(1)
            self.assertEqual(self.get_lease(lease)["state"], "leased")
        self.assertEqual(self.log.read_text().count("no connection"), 1)

    def test_idle_is_asleep(self):
        with self.watcher() as process:
            self.wait_said("connected")
            # The first look, and the pool's threads that go to sleep after it.
            wait_until("it sleeps", lambda: (get_switches(process.pid), time.sleep(0.5))[0] == get_switches(process.pid))
            before = get_switches(process.pid)
            time.sleep(2)
            self.assertEqual(get_switches(process.pid), before)


if __name__ == "__main__":
    main()
