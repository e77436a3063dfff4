#!/usr/bin/env python3
"""No dirty byte leaves: another process leases, reads all, writes all, gives back; again until it has seen every segment."""
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, get_status, hpzctl_json, wait_until  # noqa: E402

MIB = host.MIB
TIMES = 2 if os.environ.get("HPZ_LONG") else 1


class Zero(HpzTest):
    """Runs on the only pool there is, whatever its page size."""

    def setUp(self):
        super().setUp()
        self.pool = get_status()["pools"][0]["name"]
        self.page_size = get_pool(self.pool)["page_size"]
        self.tenant = random.randrange(1 << 30)

    def get_clean_sizes(self):
        """Sizes of all clean segments, as their files have them."""
        directory = self.service.directory / ("1G" if self.page_size == host.GIB else "2M") / "hpz/1/node0/clean"
        return sorted((file.stat().st_size for file in directory.iterdir()), reverse=True)

    def lease_all(self, *options):
        """One holder for every clean segment. They are ended with the test at the latest."""
        holders = []
        for size in self.get_clean_sizes():
            holders.append(Hold("--size", size, "--timeout", 30000, *options))
            self.addCleanup(holders[-1].end)
        self.assertEqual(get_pool(self.pool)["clean"], 0)
        return holders

    def assert_zero(self, holder):
        answer = holder.call("check-zero")
        self.assertTrue(answer["equal"], f"not zero: {answer} in {holder.got}")

    def soil(self, holder):
        """Writes to all of it and looks that it is really there."""
        self.tenant += 1
        holder.call("fill", self.tenant)
        self.assertTrue(holder.call("verify", self.tenant)["equal"])

    def check_all_zero(self):
        """Reads every segment of the pool in another process and gives them back dirty."""
        holders = self.lease_all()
        inodes = {segment["inode"] for holder in holders for segment in holder.got["segments"]}
        self.assertEqual(len(inodes), len(holders))
        for holder in holders:
            self.assert_zero(holder)
            self.soil(holder)
        for holder in holders:
            holder.end()
        pool = self.wait_clean(self.pool)
        self.assertEqual(pool["clean"], pool["target"])

    def test_fd(self):
        for _ in range(3):
            self.check_all_zero()

    def test_path(self):
        for _ in range(3):
            leases = []
            for size in self.get_clean_sizes():
                lease = hpzctl_json("lease", size, "--path", "--label", f"path {size}")
                leases.append(lease)
                with Hold("--open", lease["path"]) as holder:
                    self.assert_zero(holder)
                    self.soil(holder)
            for lease in leases:
                hpzctl_json("release", lease["id"])
                wait_until("its name is gone", lambda lease=lease: not os.path.exists(lease["path"]))
            self.wait_clean(self.pool)
        self.check_all_zero()

    def test_library_path(self):
        for holder in self.lease_all("--path"):
            self.assert_zero(holder)
            self.soil(holder)
            holder.call("unmap")
            holder.call("close")
            holder.call("release")
            holder.end()
        self.wait_clean(self.pool)
        self.check_all_zero()

    def test_release_waits(self):
        size = self.get_clean_sizes()[0]
        with Hold("--size", size) as holder:
            self.soil(holder)
            holder.call("close")
            holder.call("release", "wait")
            self.assertEqual(get_pool(self.pool)["dirty"], 0)
        self.check_all_zero()

    def test_bound_holder_killed(self):
        self.kill_holders()

    def test_unbound_holder_killed(self):
        self.kill_holders("--unbound")

    def kill_holders(self, *options):
        for _ in range(2):
            holders = self.lease_all(*options)
            for holder in holders:
                self.assert_zero(holder)
                self.soil(holder)
            for holder in holders:
                holder.kill()
            self.wait_clean(self.pool)
        self.check_all_zero()

    def soil_largest(self):
        """The largest segment, dirty and just given back: hpzd is about to clear it or does."""
        with Hold("--size", self.get_clean_sizes()[0]) as holder:
            self.soil(holder)

    def test_worker_killed_while_clearing(self):
        kills = 0
        for round_number in range(6 * TIMES):
            self.soil_largest()
            time.sleep(round_number * 0.006 / TIMES)
            for worker in self.service.get_workers():
                try:
                    os.kill(worker, signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
            self.wait_clean(self.pool)
            self.check_all_zero()
        self.assertGreater(kills, 0, "no worker was ever met")

    def test_daemon_killed_while_clearing(self):
        dirty = 0
        for round_number in range(5 * TIMES):
            self.soil_largest()
            time.sleep(round_number * 0.008 / TIMES)
            self.service.kill()
            directory = self.service.directory / ("1G" if self.page_size == host.GIB else "2M") / "hpz/1/node0"
            dirty += sum(1 for state in ("dirty", "leased") for _ in (directory / state).iterdir())
            self.service.start()
            self.wait_clean(self.pool)
            self.check_all_zero()
        self.assertGreater(dirty, 0, "hpzd was never killed before it had cleared")

    def test_daemon_killed_while_filling(self):
        """Whatever was being filled when hpzd died is zero when it is handed out."""
        for round_number in range(5):
            self.service.stop()
            directory = self.service.directory / ("1G" if self.page_size == host.GIB else "2M") / "hpz/1/node0/clean"
            for file in directory.iterdir():
                file.unlink()
            self.service.start()
            time.sleep(round_number * 0.01)
            self.service.kill()
            self.service.start()
            self.wait_clean(self.pool)
            self.check_all_zero()


if __name__ == "__main__":
    main("--2m", "192", "--stock", "256M*1 16M*6 2M*rest")
