#!/usr/bin/env python3
"""No huge pages on the host: hpzd runs all the same, says what is missing, and fills when pages appear."""
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_pool, get_status, hpzctl, wait_until  # noqa: E402

MIB = host.MIB
POOL_PAGES = 64


class NoPages(HpzTest):
    def setUp(self):
        super().setUp()
        self.kernel = host.PagePool(2 * MIB)

    def start_without_pages(self, leave=0):
        """hpzd on an empty mount while all pages but a few are somebody else's."""
        self.service.stop()
        shutil.rmtree(self.service.directory / "2M" / "hpz")
        eater = PageEater(self.kernel.get_free() - leave)
        self.addCleanup(eater.end)
        self.service.start()
        return eater

    def test_none(self):
        eater = self.start_without_pages()
        pool = get_pool()
        self.assertEqual((pool["total"], pool["clean"], pool["kernel"]["free"]), (0, 0, 0))
        text = wait_until("status says what is missing", lambda: get_pool()["message"] or get_status()["message"])
        self.assertRegex(text, "hugepages")
        self.assertIn(text, hpzctl("status").stdout)
        with self.assertRaises(HoldError):
            Hold("--size", 2 * MIB)
        self.assertEqual(hpzctl("wait", "--timeout", "0.1", check=False).returncode, 75)
        eater.end()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        with Hold("--size", 4 * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
        self.wait_idle()
        self.assertIsNone(get_pool()["message"])

    def test_some(self):
        """What there is is made use of."""
        eater = self.start_without_pages(leave=20)
        wait_until("20 pages are clean", lambda: get_pool()["clean"] == 20)
        with Hold("--size", 2 * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
        eater.end()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_reserved_pages_are_not_taken(self):
        """Pages somebody has reserved are free in the kernel's count and not ours to take: they would get SIGBUS."""
        self.service.stop()
        shutil.rmtree(self.service.directory / "2M" / "hpz")
        free = self.kernel.get_free()
        with PageEater(free - 40):
            import mmap
            reserved = mmap.mmap(-1, 30 * 2 * MIB, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000 | 21 << 26)
            self.service.start()
            wait_until("10 pages are clean", lambda: get_pool()["clean"] == 10)
            for page in range(30):
                reserved[page * 2 * MIB] = 1
            reserved.close()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_pages_taken_during_a_lease(self):
        """Others take what the kernel has; what hpz holds comes back and is lent again."""
        with PageEater(self.kernel.get_free()):
            for _ in range(3):
                with Hold("--size", 32 * MIB, "--timeout", 30000) as holder:
                    self.assertTrue(holder.call("check-zero")["equal"])
                    holder.call("fill", 1)
                self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "32M*1 2M*rest")
