#!/usr/bin/env python3
"""reuse = never: memory goes back to the kernel; what names or pins keep of it is counted until it is let go."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402

MIB = host.MIB


class Never(HpzTest):
    """Each lease ends with its memory at the kernel, and the stock is filled anew."""
    def test_let_go(self):
        with Hold("--size", 8 * MIB) as holder:
            holder.call("fill", 1)
        self.wait_ended(holder.id)
        self.wait_idle()
        self.assertEqual(get_pool()["orphan_pages"], 0)
        with Hold("--size", 8 * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
            self.assertEqual(holder.got["segments"][0]["generation"], 1, "memory was reused")

    def test_waits_while_mapped(self):
        with Hold("--size", 8 * MIB) as holder:
            hpzctl("release", holder.id)
            wait_until("it is known what holds it", lambda: self.get_lease(holder.id)["reason"])
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
        self.wait_ended(holder.id)

    def test_pin(self):
        """The lease does not wait for the pin; the pages are orphans until it is gone."""
        with Hold("--size", 8 * MIB, "--label", "pinned") as holder:
            holder.call("pin", 0)
            holder.call("close")
            hpzctl("release", holder.id)
            self.wait_ended(holder.id)
            orphan, = hpzctl_json("leases")["orphans"]
            self.assertEqual((orphan["label"], orphan["size"], orphan["reason"], orphan["uid"]),
                             ("pinned", 8 * MIB, "a pinned page", 0), orphan)
            pool = get_pool()
            self.assertEqual((pool["orphans"], pool["orphan_pages"]), (1, 4))
            self.assertIn("orphaned", hpzctl("leases").stdout)
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)
        self.wait_idle()

    def kill(self):
        self.service.kill()
        self.service.start()

    def test_across_a_restart_and_a_death(self):
        """Its owner's, counted and told of as before; gone when the kernel has the pages."""
        wait_until("the full proof is in force", lambda: get_status()["proof"] == "bpf")
        with Hold("--size", 8 * MIB, "--label", "pinned") as holder:
            holder.call("pin", 0)
            holder.call("close")
            hpzctl("release", holder.id)
            self.wait_ended(holder.id)
            before, = hpzctl_json("leases")["orphans"]
            for death in (self.service.restart, self.kill):
                death()
                after, = hpzctl_json("leases")["orphans"]
                for key in ("lease", "label", "uid"):
                    self.assertEqual(after[key], before[key], key)
                self.assertIn("restarted", after["reason"])
                self.assertEqual(get_pool()["orphans"], 1)
            # Our descriptor went with hpzd, and with it what nobody pinned: 1 page of 4 is still held.
            wait_until("it is known that 3 pages are back", lambda: get_pool()["orphan_pages"] == 1)
            time.sleep(12)
            self.assertEqual(get_pool()["orphan_pages"], 1, "forgotten while it is held")
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)
        self.wait_idle()
        self.kill()
        self.assertEqual(get_pool()["orphans"], 0)

    def test_name(self):
        """A held name keeps nothing: the file is cut first."""
        lease = hpzctl_json("lease", "8M", "--path", "--keep")
        with Hold("--size", 0) as holder:
            holder.call("hold-name", lease["path"])
            hpzctl("release", lease["id"])
            self.wait_ended(lease["id"])
            self.assertEqual(hpzctl_json("leases")["orphans"], [])
            self.wait_idle()


if __name__ == "__main__":
    main("--2m", "32", "--stock", "8M*4", "--config-line", "pool two.reuse=never")
