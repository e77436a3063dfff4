#!/usr/bin/env python3
"""A stock that learns: sizes that are asked for become stock, within bounds, gently, and stay over a restart."""
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402

MIB = host.MIB
POOL_PAGES = 128
ODD = 10 * MIB  # 5 pages: of no stock but a learned one


def get_demand():
    return hpzctl_json("demand")["pools"][0]


def get_size(size):
    """What is known of a size; None when that is nothing."""
    return next((entry for entry in get_demand()["sizes"] if entry["size"] == size), None)


class Stock(HpzTest):
    def setUp(self):
        """Nothing is known of what the test before asked for."""
        super().setUp()
        self.addCleanup(self.forget)
        self.forget()

    def forget(self):
        """As at the first start; the memory, too: a fixed stock is put together at once."""
        self.service.stop()
        (self.service.directory / "run" / "journal").unlink()
        self.set_config("pool two", "stock", "mixed")
        self.service.start()
        self.wait_idle()
        self.service.config.write_text(self._config)
        self.service.reload()
        self.wait_idle()

    def hold(self, count, size=ODD):
        """So many leases at once, for a while; what they were served with."""
        holders = []
        try:
            for _ in range(count):
                holders.append(Hold("--size", size, "--timeout", 30000))
                self.assertTrue(holders[-1].call("check-zero")["equal"])
        finally:
            for holder in holders:
                holder.end()
        self.wait_idle()
        return [(holder.got["ready"], holder.got["zeroed"]) for holder in holders]

    def wait_stock(self, size, count):
        wait_until(f"{count} segments of {size // MIB}M are clean", lambda: get_size(size)["clean"] == count)


class Learn(Stock):
    def test_what_is_asked_for_becomes_stock(self):
        """The second round is exact, from clean memory, and changes nothing any more."""
        self.hold(3)
        self.wait_stock(ODD, 4)
        size = get_size(ODD)
        self.assertEqual((size["out"], size["wanted"], size["proposed"], size["reason"]), (0, 4, 4, "enough"))
        self.assertEqual(size["peak"], 3)
        before = sorted(os.listdir(self.service.directory / "2M/hpz/1/node0/clean"))
        plan = hpzctl_json("plan", "10M")
        self.assertEqual((plan["kind"], plan["ready"]), ("exact", ODD))
        self.assertEqual(self.hold(3), [(ODD, 0)] * 3)
        self.assertAlmostEqual(get_size(ODD)["asked"]["exact"] - size["asked"]["exact"], 3, delta=0.1)
        after = sorted(os.listdir(self.service.directory / "2M/hpz/1/node0/clean"))
        self.assertEqual([name.split(".")[0] for name in after], [name.split(".")[0] for name in before])
        self.assertEqual(get_pool()["clean"], POOL_PAGES)
        self.assertIn("4 of 10 MiB", hpzctl("status").stdout)
        self.assertEqual(hpzctl_json("status")["demand"], hpzctl_json("demand")["pools"])

    def test_once_is_not_enough(self):
        before = hpzctl_json("plan", "90M")
        self.hold(1, 90 * MIB)
        size = get_size(90 * MIB)
        self.assertEqual((size["proposed"], size["reason"]), (0, "rare"))
        self.assertEqual(hpzctl_json("plan", "90M"), before)

    def test_bounds(self):
        """Two of three are more than the share; a fourth size alone is."""
        demand = get_demand()
        self.assertEqual(demand["most"], POOL_PAGES * 80 // 100 * 2 * MIB)
        self.hold(2, 80 * MIB)
        for _ in range(2):
            self.hold(1, 230 * MIB)
        demand = get_demand()
        self.assertEqual((get_size(80 * MIB)["proposed"], get_size(80 * MIB)["reason"]), (2, "crowded"))
        self.assertEqual((get_size(230 * MIB)["proposed"], get_size(230 * MIB)["reason"]), (0, "too_large"))
        self.assertEqual(demand["learned"], 160 * MIB)
        self.assertLessEqual(demand["learned"], demand["most"])

    def test_several_teach_nothing(self):
        for _ in range(3):
            with Hold("--size", ODD, "--segments"):
                pass
        self.assertEqual(get_demand()["sizes"], [])

    def test_refused(self):
        """Counted, but who asks again and again is counted once."""
        for _ in range(3):
            self.assertEqual(hpzctl("lease", "300M", "--path", check=False).returncode, 1)
        with Hold("--size", 200 * MIB):
            for _ in range(5):
                self.assertEqual(hpzctl("lease", "100M", "--path", check=False).returncode, 75)
        size = get_size(100 * MIB)
        self.assertEqual((size["asked"]["refused"], size["peak"], size["reason"]), (1, 1, "rare"))
        self.assertIsNone(get_size(300 * MIB), "more than the pool can ever give is no demand")

    def test_fixed_beside(self):
        """Two that are always kept count for what is wanted."""
        self.set_config("pool two", "stock", "10M*2 auto")
        self.service.reload()
        self.wait_idle()
        self.hold(3)
        self.wait_stock(ODD, 4)
        size = get_size(ODD)
        self.assertEqual((size["wanted"], size["fixed"], size["proposed"]), (4, 2, 2))

    def test_fixed_stock_says_what_would_be(self):
        self.set_config("pool two", "stock", "mixed")
        self.service.reload()
        self.hold(3)
        demand = get_demand()
        self.assertFalse(demand["learns"])
        self.assertEqual((get_size(ODD)["proposed"], get_size(ODD)["there"]), (4, 0))


class Remember(Stock):
    def test_restart(self):
        """What is out is counted again, what was asked for is remembered; after a death what was written down is."""
        self.hold(3)
        with Hold("--size", ODD, "--unbound") as holder:
            before = get_size(ODD)
            self.service.restart()
            after = get_size(ODD)
            for key in ("out", "wanted", "proposed", "reason"):
                self.assertEqual(after[key], before[key], key)
            self.assertAlmostEqual(sum(after["asked"].values()), 4, delta=0.1)
            self.assertAlmostEqual(after["peak"], 3, delta=0.1)
            self.service.kill()
            self.service.start()
            self.assertEqual((get_size(ODD)["out"], get_size(ODD)["proposed"]), (1, 4))
        self.wait_ended(holder.id)
        self.wait_stock(ODD, 4)
        self.assertEqual(self.hold(4), [(ODD, 0)] * 4)


class Gently(Stock):
    def test_share(self):
        """A stock that wants other lengths is rebuilt, and never more than the share of it is not clean."""
        self.set_config("pool two", "stock", "mixed")
        self.service.reload()
        self.hold(6)
        self.wait_clean()
        self.set_config("pool two", "stock", "auto")
        self.set_config("clear", "reshape", "5")
        self.set_config("clear", "rate", "32M")  # so that it can be watched
        least, is_over = [POOL_PAGES], threading.Event()

        def watch():
            while not is_over.is_set():
                least.append(get_pool()["clean"])

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self.service.reload()
            self.wait_stock(ODD, 7)
        finally:
            is_over.set()
            watcher.join()
        self.assertGreaterEqual(min(least), POOL_PAGES - POOL_PAGES * 5 // 100)
        self.assertLess(min(least), POOL_PAGES, "nobody saw it being rebuilt")
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_not_without_a_share(self):
        self.set_config("clear", "reshape", "0")
        self.set_config("pool two", "stock", "mixed")
        self.service.reload()
        self.hold(3)
        self.wait_clean()
        self.set_config("pool two", "stock", "auto")
        self.service.reload()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        self.assertEqual((get_size(ODD)["proposed"], get_size(ODD)["there"]), (4, 0))

    def test_odd_lengths_are_not_cleared(self):
        """A length that is not kept goes back to the kernel as it is."""
        with Hold("--size", 150 * MIB) as holder:
            self.assertEqual(holder.got["zeroed"], 22 * MIB)
            holder.call("fill", 3)
            before = get_status()["bytes_cleared"]
        self.wait_ended(holder.id)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        self.assertEqual(get_status()["bytes_cleared"], before)
        self.assertEqual(self.hold(1, 150 * MIB)[0][0], 128 * MIB)


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "auto", "--config-line", "clear.reshape=10", "--config-line", "clear.rate=none")
