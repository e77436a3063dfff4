#!/usr/bin/env python3
"""Holes belong to their holder: what it punched and may touch again is never used for stock. Growth is cut at return."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_pool, wait_until  # noqa: E402

MIB = host.MIB
POOL_PAGES = 64


class Holes(HpzTest):
    def setUp(self):
        super().setUp()
        # Nobody else's pages help: what hpzd took for stock would be missing for the holder.
        eater = PageEater(host.PagePool(2 * MIB).get_free())
        self.addCleanup(eater.end)

    def test_punched_page_is_owed(self):
        with Hold("--size", 64 * MIB) as holder:
            holder.call("fill", 1)
            holder.call("punch", 0, 8 * MIB)
            wait_until("hpzd sees the holes", lambda: get_pool()["holes"] == 4)
            self.service.reload()
            time.sleep(12)  # hpzd looks every 10 s while it is short
            pool = get_pool()
            self.assertEqual((pool["kernel"]["free"], pool["filling"]), (4, 0), "stock was made of pages that are owed")
            for page in range(4):
                holder.call("touch", page * 2 * MIB)
            self.assertEqual(get_pool()["kernel"]["free"], 0)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_holes_survive_a_restart(self):
        with Hold("--size", 64 * MIB, "--unbound") as holder:
            holder.call("punch", 4 * MIB, 6 * MIB)
            self.service.kill()
            self.service.start()
            wait_until("hpzd sees the holes", lambda: get_pool()["holes"] == 3)
            time.sleep(2)
            for page in range(2, 5):
                holder.call("touch", page * 2 * MIB)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_lease_is_not_extended_into_holes(self):
        """Somebody else asks for more than is clean while the only free pages are owed."""
        with Hold("--size", 64 * MIB) as holder:
            holder.call("punch", 0, 8 * MIB)
            wait_until("hpzd sees the holes", lambda: get_pool()["holes"] == 4)
            with self.assertRaises(HoldError):
                Hold("--size", 68 * MIB)
            for page in range(4):
                holder.call("touch", page * 2 * MIB)

    def test_returned_with_holes(self):
        """A segment that comes back with holes is whole and zero again before it is lent."""
        with Hold("--size", 64 * MIB) as holder:
            holder.call("fill", 1)
            holder.call("punch", 0, 32 * MIB)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        with Hold("--size", 64 * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])

    def test_truncated(self):
        with Hold("--size", 64 * MIB) as holder:
            holder.call("fill", 1)
            holder.call("truncate", 0)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        with Hold("--size", 64 * MIB) as holder:
            self.assertEqual(holder.got["size"], 64 * MIB)
            self.assertTrue(holder.call("check-zero")["equal"])


class Growth(HpzTest):
    def test_grown_file_is_cut(self):
        before = get_pool()["kernel"]["free"]
        with Hold("--size", 16 * MIB) as holder:
            try:
                holder.call("truncate", 24 * MIB)
                holder.call("allocate", 16 * MIB, 8 * MIB)
            except HoldError:
                pass  # the mount's lid held
        pool = self.wait_clean()
        self.assertEqual((pool["clean"], pool["kernel"]["free"]), (POOL_PAGES, before))


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "64M*1 16M*2 2M*rest", "--config-line", f"pool two.max_pages={POOL_PAGES + 8}")
