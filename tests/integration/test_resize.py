#!/usr/bin/env python3
"""A pool made larger and smaller while it runs; nr_hugepages follows by differences, whoever dies in between."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import Hold, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.fault import Fault  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB
POOL_PAGES = 32
MAX_PAGES = 48


class KernelIsEmpty(HpzTest):
    """No page of the kernel's is free: what the pool grows by has to be raised."""

    def setUp(self):
        self.kernel = host.PagePool(PAGE)
        super().setUp()
        self.addCleanup(PageEater(self.kernel.get_free()).end)


class Resized(KernelIsEmpty):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.put_back)
        self.nr = self.kernel.get_nr()
        self.raised = get_pool()["raised"]

    def put_back(self):
        """As configured, whatever the test has left."""
        self.start_if_dead()
        hpzctl("resize", "two", f"{POOL_PAGES}pages", "--wait", "--timeout", 60)

    def resize(self, size, *options):
        return hpzctl_json("resize", "two", size, *options)

    def check_zero(self, pages):
        """A lease of so much is zero; all of it is written."""
        with Hold("--size", pages * PAGE, "--segments", "--timeout", 60000) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
            holder.call("fill", 1)
        self.wait_idle()

    def test_larger_and_smaller(self):
        """By what was asked, and nr_hugepages by the same."""
        got = self.resize("+16pages", "--wait")
        self.assertEqual((got["before"], got["target"], got["configured"], got["total"], got["done"]),
                         (POOL_PAGES, MAX_PAGES, POOL_PAGES, MAX_PAGES, True))
        pool = get_pool()
        self.assertEqual((pool["target"], pool["configured"], pool["clean"]), (MAX_PAGES, POOL_PAGES, MAX_PAGES))
        grown = self.kernel.get_nr() - self.nr
        self.assertEqual(pool["raised"] - self.raised, grown)
        self.check_zero(MAX_PAGES)
        got = self.resize("-32M", "--wait")
        self.assertEqual((got["before"], got["target"], got["total"], got["done"]), (MAX_PAGES, POOL_PAGES, POOL_PAGES, True))
        self.assertEqual(self.kernel.get_nr(), self.nr)
        got = self.resize("8M", "--wait")
        self.assertEqual((got["target"], got["total"]), (4, 4))
        pool = get_pool()
        self.assertEqual((pool["raised"], pool["give_back"]), (max(0, self.raised - 28), 0))
        self.check_zero(4)

    def test_never_beyond_its_most(self):
        for size, text in (("+17pages", "max_pages"), ("1T", "max_pages"), ("-33pages", "fewer"), ("3M", "no number")):
            with self.subTest(size):
                done = hpzctl("resize", "two", size, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, text)
        self.assertEqual(hpzctl("resize", "nobody", "1G", check=False).returncode, 1)
        for operands in ((), ("two",), ("two", "much"), ("two", "-"), ("two", "1G", "2G")):
            self.assertEqual(hpzctl("resize", *operands, check=False).returncode, 2, operands)
        self.assertEqual(get_pool()["target"], POOL_PAGES)

    def test_below_what_is_leased(self):
        """The holder notices nothing; what is clean goes at once, the rest with the lease."""
        with Hold("--size", 16 * PAGE) as holder:
            holder.call("fill", 1)
            got = self.resize("8pages")
            self.assertEqual((got["target"], got["done"], got["left"]["shrink"]), (8, False, 8), got)
            done = hpzctl("resize", "two", "8pages", "--wait", "--timeout", "0.2", check=False)
            self.assertEqual(done.returncode, 75)
            self.assertRegex(done.stderr, "8 more than wanted")
            wait_until("all that is clean is gone", lambda: get_pool()["total"] == 16)
            holder.call("verify", 1)
        wait_until("the rest goes with the lease", lambda: get_pool()["total"] == 8)
        self.assertEqual(self.wait_clean()["clean"], 8)
        self.check_zero(8)

    def test_until_the_configuration_says_otherwise(self):
        self.resize("40pages", "--wait")
        self.service.kill()
        self.service.start()
        self.assertEqual(get_pool()["target"], 40)
        self.service.reload()
        wait_until("reloaded", lambda: "reloaded" in self.service.get_log()[-300:])
        self.assertEqual(get_pool()["target"], 40)
        self.set_config("pool two", "pages", "24")
        self.service.reload()
        wait_until("it has as many as configured", lambda: get_pool()["target"] == 24)
        self.wait_idle()

    def test_raised_for_who_waits(self):
        """More than there is, and the kernel has no page free: within max_pages it is asked for more."""
        with Hold("--size", 44 * PAGE, "--segments", "--timeout", 60000) as hold:
            self.assertEqual(hold.got["size"], 44 * PAGE)
            self.assertTrue(hold.call("check-zero")["equal"])
            hold.call("fill", 1)
            self.assertEqual(get_pool()["raised"] - self.raised, 44 - POOL_PAGES)
        self.assertEqual(self.wait_clean()["target"], POOL_PAGES)
        self.wait_lowered()

    def wait_lowered(self):
        """What was raised for somebody who waited goes when he does."""
        wait_until("it is lowered", lambda: self.kernel.get_nr() == self.nr)
        pool = get_pool()
        self.assertEqual((pool["raised"], pool["give_back"], pool["total"]), (self.raised, 0, POOL_PAGES))

    def test_raised_for_cells(self):
        """Also for a lease of several parts, each of which lacks some."""
        lease = hpzctl_json("lease", "--cell", f"{22 * PAGE}:0", "--cell", f"{22 * PAGE}:0", "--path", "--wait", "60")
        self.assertEqual(lease["size"], 44 * PAGE)
        hpzctl("release", lease["id"], "--wait")
        self.wait_idle()
        self.wait_lowered()

    def test_raised_for_who_died(self):
        """Nor does it stay when hpzd dies meanwhile, or the client does before it has its lease."""
        with Hold("--size", 44 * PAGE, "--segments", "--timeout", 60000, "--unbound") as hold:
            self.service.kill()
            self.service.start()
            self.assertEqual(get_pool()["raised"] - self.raised, 44 - POOL_PAGES)
            hold.call("fill", 1)
        self.wait_idle()
        self.wait_lowered()
        waiting = subprocess.Popen([f"{get_build_directory()}/tests/hold", "--size", str(44 * PAGE), "--segments",
                                    "--timeout", "60000"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            wait_until("it is raised for him", lambda: self.kernel.get_nr() > self.nr)
        finally:
            waiting.kill()
            waiting.communicate()
        self.wait_idle()
        self.wait_lowered()

    def test_lowered_behind_us(self):
        """Pages that we hold become surplus: said, once in the log, and what is to be done."""
        # No page is free, so nobody loses one: those of other tests are surplus for a while, too.
        kept = POOL_PAGES - 8
        (self.kernel.directory / "nr_hugepages").write_text(str(kept))
        try:
            text = wait_until("it is said", lambda: get_pool()["message"])
            self.assertRegex(text, "surplus.*hpzctl resize")
            self.assertEqual(self.service.get_log().count("somebody lowered nr_hugepages"), 1)
            self.assertEqual(get_pool()["raised"], max(0, self.raised - (self.nr - kept)))
        finally:
            (self.kernel.directory / "nr_hugepages").write_text(str(self.nr))
        wait_until("nothing is to be said any more", lambda: get_pool()["message"] is None)


class ResizedByTheDead(KernelIsEmpty):
    """Killed before or after the kernel's number is written, or that cannot be: the next hpzd goes on from there."""

    def setUp(self):
        super().setUp()
        self.fault = Fault(self.service.directory)
        self.service.stop()
        self.service.start(environment=self.fault.environment)
        self.wait_idle()
        self.addCleanup(self.put_back)
        self.nr = self.kernel.get_nr()

    def put_back(self):
        self.fault.clear()
        self.start_if_dead()
        hpzctl("resize", "two", f"{POOL_PAGES}pages", "--wait", "--timeout", 60)
        self.service.stop()
        self.fault.close()

    def check_books_of_nr(self):
        """What the kernel keeps more than at first is what hpzd says it raised it by."""
        pool = get_pool()
        return self.kernel.get_nr() - self.nr == pool["raised"] - self.raised

    def run_and_die(self, size, action, target, point="nr_hugepages", call=1):
        self.raised = get_pool()["raised"]
        self.nr = self.kernel.get_nr()
        self.fault.set(f"write {point} hpzd {call} {action}")
        hpzctl("resize", "two", size, check=False)
        wait_until("it is dead", lambda: self.service.get_pid() is None)
        self.fault.clear()
        self.service.start(environment=self.fault.environment)
        hpzctl("resize", "two", f"{target}pages", "--wait", "--timeout", 60)
        self.assertEqual(get_pool()["total"], target)

    def test_raising(self):
        for action in ("kill-before", "kill-after"):
            with self.subTest(action):
                self.run_and_die("+8pages", action, 40)
                self.assertTrue(self.check_books_of_nr(), get_pool())
                hpzctl("resize", "two", f"{POOL_PAGES}pages", "--wait", "--timeout", 60)
                self.assertTrue(self.check_books_of_nr(), get_pool())

    def test_remembering(self):
        """After each record of the journal that a larger pool takes: its size, the intent, what came of it."""
        for call in (1, 2, 3):
            with self.subTest(call):
                self.run_and_die("+8pages", "kill-after", 40, "journal", call)
                self.assertTrue(self.check_books_of_nr(), get_pool())
                hpzctl("resize", "two", f"{POOL_PAGES}pages", "--wait", "--timeout", 60)

    def test_lowering(self):
        """Dead in between it may keep pages that nobody asked for, but never takes somebody else's."""
        for action in ("kill-before", "kill-after"):
            with self.subTest(action):
                hpzctl("resize", "two", "40pages", "--wait", "--timeout", 60)
                self.run_and_die("-8pages", action, 32)
                self.assertGreaterEqual(self.kernel.get_nr() - self.nr, get_pool()["raised"] - self.raised)

    def test_cannot_be_written(self):
        """It is said and tried again; meanwhile the rest works."""
        eater = PageEater(self.kernel.get_free())
        self.addCleanup(eater.end)
        self.fault.set("write nr_hugepages hpzd 1- EACCES")
        self.assertEqual(hpzctl_json("resize", "two", "+8pages")["done"], False)
        wait_until("it is said", lambda: get_pool()["message"])
        with Hold("--size", 2 * PAGE) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
        self.fault.clear()
        hpzctl("resize", "two", "40pages", "--wait", "--timeout", 60)  # asked again, it does not wait any more
        self.wait_idle()
        self.assertEqual(get_pool()["total"], 40)


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "32M*1 2M*rest", "--config-line", f"pool two.max_pages={MAX_PAGES}",
         "--config-line", "pool two.raise=yes")
