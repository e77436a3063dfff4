#!/usr/bin/env python3
"""hpzd at rest wakes nobody and is small: no context switch in ten seconds, and 1 TiB of pool (simulated) in 10 MiB."""
import contextlib
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.simulated import SimulatedTest  # noqa: E402

MIB = host.MIB
IDLE_SECONDS = 10
RESIDENT_MAX = 10 * MIB
LEASES = 20


def get_field(pid, name):
    """The first number of a line of /proc/PID/status."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise AssertionError(f"no {name} of {pid}")


def get_switches(pids):
    """Every wake-up ends with a voluntary switch."""
    return {pid: get_field(pid, "voluntary_ctxt_switches") for pid in pids}


class Idle(HpzTest):
    def test_no_wake_up(self):
        """Also with a lease out, and after work for several workers."""
        with Hold("--size", 64 * MIB) as hold:
            hold.call("fill", 7)
            hold.call("release")
        self.wait_clean()
        hpzctl("calibrate", check=False)
        self.wait_clean()
        with Hold("--size", 64 * MIB):
            pids = [self.service.get_pid(), *self.service.get_workers()]
            self.assertGreater(len(pids), 1)
            # What is on its way to sleep has a moment for it.
            wait_until("everybody sleeps", lambda: self._is_quiet(pids), 30)
            before = get_switches(pids)
            time.sleep(IDLE_SECONDS)
            self.assertEqual(get_switches(pids), before)

    def _is_quiet(self, pids):
        before = get_switches(pids)
        time.sleep(1)
        return get_switches(pids) == before

    def test_resident_memory(self):
        """A worker touches hundreds of megabytes of others' memory; that does not count as its own afterwards."""
        hpzctl("calibrate", check=False)
        self.wait_clean()
        for pid in [self.service.get_pid(), *self.service.get_workers()]:
            self.assertLessEqual(get_field(pid, "VmRSS") * 1024, RESIDENT_MAX, pid)


class Simulated(SimulatedTest):
    def test_large_pool(self):
        status = self.get_status()
        pool = status["pools"][0]
        self.assertGreaterEqual(pool["clean"] * 2 * MIB, 1000 << 30, pool)
        self.assertIn("SIMULATED", pool["message"])
        segments = sum(1 for _ in (self.directory / "mnt/big/hpz/1/node0/clean").iterdir())
        self.assertGreaterEqual(segments, 10000)
        self.assertGreater(len(host.get_descendants(self.process.pid)), 0)
        # A worker that measures the methods has some memory of its own for that moment.
        wait_until("none of its processes has more than it may", self._is_small)

    def _is_small(self):
        sizes = []
        for pid in [self.process.pid, *host.get_descendants(self.process.pid)]:
            with contextlib.suppress(FileNotFoundError):  # a helper that ended meanwhile
                sizes.append(get_field(pid, "VmRSS") * 1024)
        return max(sizes) <= RESIDENT_MAX

    def test_leases(self):
        """They come and go as ever; nothing of it costs a page."""
        for _ in range(LEASES):
            lease = hpzctl_json("lease", "104M", "--path", "--socket", self.service.socket)
            self.assertEqual(os.stat(lease["segments"][0]["path"]).st_blocks, 0)
            self.hpzctl("release", lease["id"])
        self.hpzctl("wait")
        self.assertEqual(self.hpzctl("verify", check=False).returncode, 1)

    def test_nothing_is_zeroed_for_a_request(self):
        """What no clean segment serves is not extended: that would take real pages."""
        plan = json.loads(self.hpzctl("plan", "200M", "--json", check=False).stdout)
        self.assertEqual((plan["kind"], plan["zeroed"]), ("refuse", 0), plan)
        self.assertEqual(self.hpzctl("lease", "200M", "--path", check=False).returncode, 75)
        lease = hpzctl_json("lease", "200M", "--path", "--segments", "--socket", self.service.socket)
        self.assertEqual([os.stat(segment["path"]).st_blocks for segment in lease["segments"]], [0, 0])
        self.hpzctl("release", lease["id"])
        self.hpzctl("wait")

    def test_what_was_used_is_cut(self):
        """A page that a holder took does not stay: what is simulated is zero because it is a hole."""
        self.end()
        name = next((self.directory / "mnt/big/hpz/1/node0/clean").iterdir())
        name.rename(self.directory / "mnt/big/hpz/1/node0/dirty" / name.name)
        self.start()
        self.assertFalse((self.directory / "mnt/big/hpz/1/node0/dirty" / name.name).exists())
        self.assertEqual(self.get_status()["pools"][0]["dirty"], 0)


if __name__ == "__main__":
    main("--2m", "256", "--stock", "256M*1 64M*4")
