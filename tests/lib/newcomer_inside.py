"""The part of tests/newcomer that runs inside a clean Debian with libvirt: what README and hpz-libvirt(7) tell an operator to do."""
import json
import os
import re
import sys
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from debian_inside import (CONFIG, EXAMPLE, MOUNT, MOUNT_UNIT, SOURCES, THEIRS, apt, get_kernel, get_property, list_files, run,  # noqa: E402
                           use_repository)
from hpztest.case import run_tests  # noqa: E402
from hpztest.client import wait_until  # noqa: E402

PAGES = int(os.environ["HPZ_PAGES"])
MIB = 1 << 20
SIZE = 128 * MIB
QEMU_CONF = Path("/etc/libvirt/qemu.conf")
CONSOLE = Path("/var/log/libvirt/qemu/guest-console.log")
DOMAIN = f"""
<domain type='qemu'>
  <name>guest</name>
  <memory unit='b'>{SIZE}</memory>
  <memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>
  <os><type arch='x86_64' machine='q35'>hvm</type>
    <kernel>/srv/guest/vmlinuz</kernel><initrd>/srv/guest/initrd</initrd><cmdline>console=ttyS0 panic=-1 quiet hpz.sleep</cmdline></os>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='{CONSOLE}'/></serial>
  </devices>
</domain>
"""
# What libvirt keeps of a domain that was.
LEFT_BY_LIBVIRT = re.compile(THEIRS.pattern + r"|/var/lib/libvirt/(qemu|boot|dnsmasq)(/|$)|/etc/libvirt/(qemu|secrets)(/|$)")


def hpzctl(*arguments, **options):
    return run("hpzctl", *arguments, **options).stdout


class Newcomer(unittest.TestCase):
    """In this order: one host."""
    before: set = set()
    kernel: dict = {}

    @classmethod
    def setUpClass(cls):
        Newcomer.before = list_files(LEFT_BY_LIBVIRT)
        Newcomer.kernel = get_kernel()

    def test_1_install(self):
        use_repository("repository")
        apt("install", "hpzd", "hpz-libvirt")
        self.assertIn("No pools", hpzctl())
        self.assertEqual(get_kernel(), Newcomer.kernel, "installing takes no memory")

    def test_2_one_edit(self):
        """A pool, on a mount that systemd makes, because libvirt shall see it."""
        MOUNT_UNIT.write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
        with CONFIG.open("a", encoding="utf-8") as config:
            config.write(f"\n[pool vm]\npage_size = 2M\npages = {PAGES * 2}M\nmount = {MOUNT}\n")
        run("hpzd", "--check", str(CONFIG))
        run("systemctl", "enable", "--now", MOUNT_UNIT.name)
        run("systemctl", "restart", "hpzd")
        hpzctl("wait", "--timeout", "60")
        pool, = json.loads(hpzctl("status", "--json"))["pools"]
        self.assertEqual((pool["clean"], pool["message"]), (PAGES, None))

    def test_3_libvirt(self):
        with QEMU_CONF.open("a", encoding="utf-8") as config:
            config.write(f'memory_backing_dir = "{MOUNT}/libvirt"\n')
        run("systemctl", "restart", "libvirtd")
        Path("/tmp/guest.xml").write_text(DOMAIN, encoding="ascii")
        run("virsh", "-q", "define", "/tmp/guest.xml")
        self.assertEqual(run("hpzctl", "domain", "check", "guest", check=False).returncode, 0,
                         run("hpzctl", "domain", "check", "guest", check=False).stdout)

    def test_4_domain(self):
        """The guest's memory is the pool's, and it runs on it."""
        run("virsh", "-q", "start", "guest")
        lease, = json.loads(hpzctl("status", "--json"))["leases"]
        self.assertEqual((lease["label"], lease["size"], lease["state"]), ("guest", SIZE, "leased"))
        wait_until("the guest's init has begun", lambda: "HPZ-GUEST up=" in CONSOLE.read_text(errors="replace"), 120)
        pid = int(Path("/run/libvirt/qemu/guest.pid").read_text(encoding="ascii"))
        self.assertIn(str(MOUNT), Path(f"/proc/{pid}/maps").read_text(encoding="utf-8"))

    def test_5_look(self):
        self.assertRegex(hpzctl("top", "--once"), r"(?m)^\d+ +leased +128 MiB +\S+ +guest ")
        self.assertIn("guest", hpzctl("leases"))
        run("systemctl", "enable", "--now", "hpz-metrics.socket")
        with urllib.request.urlopen("http://127.0.0.1:9977/metrics", timeout=60) as answer:
            scraped = answer.read().decode()
        self.assertIn("\nhpz_up 1\n", scraped)
        self.assertIn(f'hpz_pool_bytes{{pool="vm",node="0",page_size="2M",state="leased"}} {SIZE}\n', scraped)

    def test_6_end(self):
        """Its memory is clean again."""
        run("virsh", "-q", "destroy", "guest")
        run("virsh", "-q", "undefine", "guest")
        wait_until("the lease ends", lambda: json.loads(hpzctl("status", "--json"))["leases"] == [])
        hpzctl("wait", "--timeout", "60")
        self.assertIn(" guest", hpzctl("teardown"))

    def test_7_remove(self):
        """What the operator made he takes away; of hpz nothing is left."""
        apt("purge", "hpzd", "hpz-libvirt", "libhpz0")
        QEMU_CONF.write_text(QEMU_CONF.read_text(encoding="utf-8").replace(f'memory_backing_dir = "{MOUNT}/libvirt"\n', ""), encoding="utf-8")
        run("systemctl", "restart", "libvirtd")
        run("systemctl", "disable", "--now", MOUNT_UNIT.name)
        MOUNT_UNIT.unlink()
        MOUNT.rmdir()
        MOUNT.parent.rmdir()
        SOURCES.unlink()
        self.assertEqual(get_kernel(), Newcomer.kernel)
        self.assertEqual(get_property("ActiveState", "hpz-metrics.socket"), "inactive")
        self.assertEqual(sorted(list_files(LEFT_BY_LIBVIRT) ^ Newcomer.before), [])


if __name__ == "__main__":
    run_tests()
