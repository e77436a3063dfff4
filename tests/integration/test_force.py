#!/usr/bin/env python3
"""Memory that somebody will not let go of is given up: the lease ends, its holder goes on, its pages are orphans."""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402

MIB = host.MIB
NOBODY = 65534


def get_orphans():
    return hpzctl_json("leases")["orphans"]


class Force(HpzTest):
    def check_orphan(self, lease, pages, reason, label="?"):
        orphan, = (orphan for orphan in get_orphans() if orphan["lease"] == lease)
        self.assertEqual((orphan["size"], orphan["reason"]), (pages * 2 * MIB, reason), orphan)
        self.assertEqual(get_pool()["orphan_pages"], pages)

    def test_running_holder_goes_on(self):
        """The lease is over at once; what the holder has stays as it is, until it ends itself."""
        with Hold("--size", 16 * MIB, "--unbound", "--label", "runs on") as holder:
            holder.call("fill", 7)
            holder.send("loop-verify", 7)
            hpzctl("release", "--force", "--wait=20", holder.id)
            self.assertIsNone(self.get_lease(holder.id))
            self.check_orphan(holder.id, 8, "a descriptor or mapping")
            self.assertEqual(hpzctl_json("leases")["orphans"][0]["label"], "runs on")
            self.assertIn("are orphaned", self.service.get_log())
            time.sleep(1.2)  # a look of hpzd's
            answer = holder.call("verify", 7)  # the answer of loop-verify comes first
            self.assertTrue(answer["equal"], answer)
            self.assertGreater(answer["rounds"], 0)
            self.assertTrue(holder.get_answer()["equal"])
            pool = get_pool()
            self.assertGreaterEqual(pool["kernel"]["nr"] - pool["kernel"]["free"], pool["total"] + pool["orphan_pages"])
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)
        self.assertEqual(get_orphans(), [])

    def test_of_a_returning_lease(self):
        with Hold("--size", 4 * MIB, "--reopenable") as holder:
            hpzctl("release", holder.id)
            wait_until("it is known what holds it", lambda: self.get_lease(holder.id)["reason"])
            self.assertEqual(self.get_lease(holder.id)["reason"], "a descriptor or mapping")
            wait_until("and who", lambda: self.get_lease(holder.id)["holders"])
            self.assertEqual({one["pid"] for one in self.get_lease(holder.id)["holders"]}, {holder.pid})
            self.assertIn(f"{holder.id} has ended, and its memory is held by a descriptor or mapping",
                          hpzctl("leases").stdout)
            hpzctl("release", "--force", "--wait=20", holder.id)
            self.check_orphan(holder.id, 2, "a descriptor or mapping")
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)

    def test_path_links_are_removed(self):
        lease = hpzctl_json("lease", "4M", "--path", "--keep")
        self.assertTrue(os.path.exists(lease["path"]))
        with Hold("--open", lease["path"]):
            hpzctl("release", "--force", "--wait=20", lease["id"])
            self.assertFalse(os.path.exists(os.path.dirname(lease["path"])))
            self.check_orphan(lease["id"], 2, "a descriptor or mapping")
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)

    def test_held_name_keeps_no_pages(self):
        """Nobody has it open: it is cut, and the name has nothing behind it."""
        lease = hpzctl_json("lease", "4M", "--path", "--keep", "--owner", NOBODY)
        with Hold("--size", 0) as holder:
            holder.call("hold-name", lease["path"])
            hpzctl("release", lease["id"])
            reason = wait_until("it is known what holds it", lambda: self.get_lease(lease["id"])["reason"])
            self.assertIn(reason, ("a held name (O_PATH, a mount, an unfinished open)", "another name"))
            hpzctl("release", "--force", "--wait=20", lease["id"])
            self.assertEqual(get_orphans(), [])
            self.wait_idle()

    def test_pinned_page(self):
        """A page in a pipe: its file is watched until the pipe is gone."""
        with Hold("--size", 8 * MIB) as holder:
            holder.call("fill", 3)
            holder.call("pin", 4 * MIB)
            holder.call("close")
            hpzctl("release", holder.id)
            wait_until("it is known what holds it", lambda: (self.get_lease(holder.id) or {}).get("reason"))
            self.assertEqual(self.get_lease(holder.id)["reason"], "a pinned page")
            hpzctl("release", "--force", "--wait=20", holder.id)
            self.check_orphan(holder.id, 4, "a pinned page")
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)

    def test_free_memory_is_not_lost(self):
        """Nobody holds it any more: force is a release like any other."""
        with Hold("--size", 4 * MIB, "--unbound") as holder:
            holder.call("close")
            hpzctl("release", "--force", "--wait=20", holder.id)
            self.assertEqual(get_orphans(), [])
        self.assertEqual(hpzctl("release", "--force", holder.id).returncode, 0, "one that has ended")

    def test_restart(self):
        """hpzd's descriptor dies with it, not what it knew; the holder does not notice, and the stock is filled again."""
        with Hold("--size", 4 * MIB, "--unbound") as holder:
            holder.call("fill", 9)
            hpzctl("release", "--force", "--wait=20", holder.id)
            self.service.restart()
            orphan, = get_orphans()
            self.assertEqual((orphan["lease"], orphan["size"]), (holder.id, 4 * MIB), orphan)
            self.assertTrue(holder.call("verify", 9)["equal"])


if __name__ == "__main__":
    main("--2m", "64", "--stock", "16M*2 8M*2 4M*2 2M*rest")
