"""The part of tests/package that runs inside a clean Debian, where systemd is the first process: apt installs, upgrades, removes."""
import os
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from debian_inside import (CONFIG, EXAMPLE, MOUNT, MOUNT_UNIT, SOURCES, apt, get_kernel, get_property, list_files, run,  # noqa: E402
                           use_repository)
from hpztest.case import run_tests  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, get_status, hpzctl, wait_until  # noqa: E402
from hpztest.host import MIB  # noqa: E402

PAGES = int(os.environ["HPZ_PAGES"])
SIZE = 8 * MIB
OURS = ["hpzd", "hpz-libvirt", "libhpz-dev", "libhpz0"]


class Package(unittest.TestCase):
    """In this order: one installation, from the first to the last."""
    before: set = set()
    kernel: dict = {}
    holder = None
    daemon_pid = ""

    @classmethod
    def setUpClass(cls):
        # What the tests call by the names of a build.
        for link, target in {"client/hpzctl": "/usr/bin/hpzctl", "tests/hold": "/srv/build/tests/hold"}.items():
            path = Path(os.environ["HPZ_BUILD"]) / link
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
        Package.before = list_files()
        Package.kernel = get_kernel()

    @classmethod
    def tearDownClass(cls):
        if Package.holder:
            Package.holder.end()

    def test_1_installed(self):
        """It runs, and takes no memory."""
        use_repository("repository")
        apt("install", *OURS)
        for unit in ("hpzd.socket", "hpzd.service", "hpz-libvirt.service"):
            self.assertEqual((get_property("ActiveState", unit), get_property("UnitFileState", unit)), ("active", "enabled"), unit)
        self.assertEqual(get_property("UnitFileState", "hpz-stock.service"), "disabled")
        self.assertEqual(get_status()["pools"], [])
        self.assertEqual(get_kernel(), Package.kernel)
        self.assertIn("hpz:", run("getent", "group", "hpz").stdout)
        self.assertEqual(MOUNT.parent.stat().st_mode & 0o7777, 0o755)
        self.assertEqual(run("dpkg-query", "-W", "-f", "${Conffiles}", "hpzd").stdout.split()[0], str(CONFIG))

    def test_2_given_a_pool(self):
        MOUNT_UNIT.write_text(EXAMPLE.read_text(encoding="utf-8").replace("size=8G", f"size={PAGES * 2}M"), encoding="utf-8")
        with CONFIG.open("a", encoding="utf-8") as config:
            config.write(f"\n[pool two]\npage_size = 2M\nnode = 0\npages = {PAGES}\nmount = {MOUNT}\nraise = no\nstock = 8M*2 2M*rest\n")
        run("systemctl", "daemon-reload")
        run("systemctl", "enable", "--now", MOUNT_UNIT.name)
        run("systemctl", "restart", "hpzd.service")
        hpzctl("wait", "--timeout", 60)
        self.assertEqual(get_pool()["clean"], PAGES)
        holder = Package.holder = Hold("--size", SIZE, "--label", "vm")
        self.assertTrue(holder.call("check-zero")["equal"])
        holder.call("fill", 5)

    def check_lease(self):
        lease, = get_leases()
        self.assertEqual((lease["id"], lease["label"], lease["state"]), (Package.holder.id, "vm", "leased"))
        self.assertTrue(Package.holder.call("verify", 5)["equal"])

    def test_3_upgraded_under_a_lease(self):
        before = get_property("MainPID")
        use_repository("repository-next")
        apt("-o", "Dpkg::Options::=--force-confold", "dist-upgrade")
        for package in OURS:
            self.assertEqual(run("dpkg-query", "-W", "-f", "${Version}", package).stdout, os.environ["HPZ_NEXT"], package)
        self.assertNotEqual(get_property("MainPID"), before)
        self.assertEqual(get_property("ActiveState"), "active")
        self.assertIn("[pool two]", CONFIG.read_text(encoding="utf-8"))
        hpzctl("wait", "--timeout", 60)
        self.check_lease()

    def test_4_not_removed_under_a_lease(self):
        done = apt("remove", "hpzd", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("these leases are out", done.stdout + done.stderr)
        self.assertIn("vm", done.stdout + done.stderr)
        self.assertEqual(get_property("ActiveState"), "active")
        self.check_lease()
        # It serves on: the pools that were drained fill again.
        hpzctl("wait", "--timeout", 60)
        with Hold("--size", SIZE) as another:
            self.assertTrue(another.call("check-zero")["equal"])

    def test_5_removed(self):
        """Also when it was stopped before: what it kept for its next start goes back."""
        Package.holder.end()
        Package.holder = None
        wait_until("the leases end", lambda: not get_leases())
        hpzctl("wait", "--timeout", 60)
        run("systemctl", "stop", "hpzd.socket", "hpzd.service")
        self.assertEqual(get_kernel()["free_hugepages"], Package.kernel["free_hugepages"] - PAGES)
        apt("remove", "hpzd")
        self.assertEqual(get_kernel(), Package.kernel)
        self.assertNotEqual(get_property("ActiveState"), "active")
        self.assertTrue(CONFIG.exists())

    def test_6_purged(self):
        """Nothing is left but what the operator made."""
        run("systemctl", "disable", "--now", MOUNT_UNIT.name)
        MOUNT_UNIT.unlink()
        apt("purge", *OURS)
        SOURCES.unlink()
        self.assertFalse(Path("/run/hpz").exists())
        self.assertEqual(sorted(list_files() - Package.before), [])
        self.assertEqual(sorted(Package.before - list_files()), [])
        self.assertEqual(get_kernel(), Package.kernel)


if __name__ == "__main__":
    run_tests()
