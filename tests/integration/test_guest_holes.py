#!/usr/bin/env python3
"""Guests that give pages back: what they punch is owed to them, filled again when the lease ends, and zero for the next tenant.

Free page reporting, the balloon, virtio-mem, the target of a postcopy migration and discard-data, with QEMU itself, on memory by
path and by descriptor. Meanwhile the kernel has no page for hpzd but those that are owed, and each test has hpzd asked for them.
"""
import contextlib
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.guest import Guest, NoKernel, get_command, get_image, get_modules, make_initrd  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB
GUEST_MIB = 256  # a guest reports nothing while it has less than 64 MiB free
SMALL_MIB = 128  # what virtio-mem plugs at least
POOL_PAGES = GUEST_MIB // 2 + 4
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_balloon", "virtio_mem")

# Does what a line of the serial port says, and says when it is done.
SCRIPT = "".join(f"insmod /files/{name}.ko || poweroff -f\n" for name in MODULES) + """
stty -echo </dev/ttyS0
mount -t tmpfs -o size=240m tmpfs /tmp
echo online_movable >/sys/devices/system/memory/auto_online_blocks
head -c 1m /dev/zero | tr '\\0' '\\245' >/run/block
# fill MIB: bytes that are not zero
fill() { i=0; while [ $((i += 1)) -le $1 ]; do cat /run/block; done >/tmp/fill; }
echo HPZ-GUEST ready
while read -r line </dev/ttyS0; do eval "$line"; echo "HPZ-GUEST done $?"; done
"""


def get_backend(path, size_mib, extra=""):
    return ["-object", f"memory-backend-file,id=leased,size={size_mib}M,mem-path={path},share=on{extra}"]


class Tests:
    """What both kinds of leases show; start_leased(): a guest on memory by path or by descriptor, and its lease."""

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        kernel, _ = get_image()
        try:
            cls.image = kernel, make_initrd(directory.name, [], SCRIPT, get_modules(kernel, MODULES))
        except NoKernel as reason:
            raise unittest.SkipTest(str(reason))

    def setUp(self):
        super().setUp()
        self.addCleanup(PageEater(host.PagePool(PAGE).get_free()).end)
        self.guests = contextlib.ExitStack()
        self.addCleanup(self.guests.close)
        self.free = get_pool()["kernel"]["free"]

    # ---- guests on leased memory ----

    def start(self, command):
        guest = self.guests.enter_context(Guest(command))
        guest.wait_greeting()
        return guest

    def start_by_path(self, command, size_mib=GUEST_MIB, extra=""):
        lease = hpzctl_json("lease", f"{size_mib}M", "--path")
        return lease["id"], self.start([*command, *get_backend(lease["path"], size_mib, extra)])

    def get_command(self, *words, size_mib=GUEST_MIB):
        """A guest whose memory is all leased."""
        return [*get_command(size_mib, image=self.image), "-machine", "memory-backend=leased", *words]

    def do(self, guest, line):
        guest.serial.sendall(line.encode() + b"\n")
        said, _ = guest.wait_line("HPZ-GUEST done")
        self.assertTrue(said.endswith("done 0"), f"{line}: {said}")

    # ---- what must hold ----

    def wait_holes(self, least, most=POOL_PAGES):
        wait_until(f"{least} to {most} holes are seen", lambda: least <= get_pool()["holes"] <= most)

    def check_owed(self):
        """Free pages are the guest's as far as it has holes: whoever asks hpzd for more than is left does not get it."""
        pool = get_pool()
        left = pool["kernel"]["free"] - pool["kernel"]["resv"] - pool["holes"]
        self.assertGreaterEqual(left, 0, pool)
        with self.assertRaises(HoldError):
            Hold("--size", (pool["clean"] + left + 1) * PAGE, "--segments").end()
        self.assertEqual(get_pool()["filling"], 0)

    def check_after(self, *leases):
        """Whole, zero to the last byte for the next tenant, and the kernel has what it had."""
        for lease in leases:
            hpzctl("release", lease)
            self.wait_ended(lease)
        pool = self.wait_clean()
        self.assertEqual((pool["clean"], pool["holes"], pool["kernel"]["free"]), (POOL_PAGES, 0, self.free))
        with Hold("--size", POOL_PAGES * PAGE, "--segments") as tenant:
            zero = tenant.call("check-zero")
            self.assertEqual((zero["equal"], zero["bytes"]), (True, POOL_PAGES * PAGE))
        self.wait_idle()

    # ---- the ways to give pages back ----

    def test_free_page_reporting(self):
        """What the guest frees it tells, and QEMU punches it; the guest takes it again when it likes."""
        lease, guest = self.start_leased(self.get_command("-device", "virtio-balloon-pci,free-page-reporting=on"))
        guest.wait_line("HPZ-GUEST ready")
        self.do(guest, "fill 120")
        full = get_pool()["holes"]
        self.do(guest, "rm /tmp/fill")
        self.wait_holes(full + 10)
        self.check_owed()
        self.do(guest, "fill 120")
        guest.quit()
        self.check_after(lease)

    def test_balloon(self):
        """QEMU 7.2 gives back no huge page of a balloon that is inflated; it works all the same."""
        lease, guest = self.start_leased(self.get_command("-device", "virtio-balloon-pci"))
        guest.wait_line("HPZ-GUEST ready")
        guest.call("balloon", value=SMALL_MIB * MIB)
        wait_until("it is inflated", lambda: guest.call("query-balloon")["actual"] == SMALL_MIB * MIB)
        print(f"balloon of {GUEST_MIB - SMALL_MIB} MiB: {get_pool()['holes']} holes", file=sys.stderr)
        self.check_owed()
        guest.call("balloon", value=GUEST_MIB * MIB)
        wait_until("it is deflated", lambda: guest.call("query-balloon")["actual"] == GUEST_MIB * MIB)
        self.do(guest, "fill 120")
        guest.quit()
        self.check_after(lease)

    def test_virtio_mem(self):
        """It begins with nothing plugged, so QEMU punches all of it; what is plugged is touched, then unplugged again."""
        pages = SMALL_MIB // 2
        command = get_command(SMALL_MIB, "swiotlb=noforce", self.image)
        command[command.index("-m") + 1] += ",slots=1,maxmem=1G"
        device = ["-device", "virtio-mem-pci,id=plug,memdev=leased,requested-size=0"]
        lease, guest = self.start_leased([*command, *device], SMALL_MIB)
        self.wait_holes(pages, pages)
        self.check_owed()
        guest.wait_line("HPZ-GUEST ready")
        self.plug(guest, SMALL_MIB)
        self.do(guest, "fill 100")
        self.wait_holes(0, pages - 10)
        self.check_owed()
        self.do(guest, "rm /tmp/fill")
        self.plug(guest, 0)
        self.wait_holes(pages, pages)
        self.check_owed()
        guest.quit()
        self.check_after(lease)

    def plug(self, guest, size_mib):
        guest.call("qom-set", path="/machine/peripheral/plug", property="requested-size", value=size_mib * MIB)
        wait_until(f"{size_mib} MiB are plugged", lambda: guest.call("query-memory-devices")[0]["data"]["size"] == size_mib * MIB)

    def test_postcopy(self):
        """Whoever takes a guest that is postcopied throws its memory away first, and gets page after page."""
        with tempfile.TemporaryDirectory() as directory:
            address = f"unix:{directory}/migration"
            command = self.get_command(size_mib=SMALL_MIB)
            source_lease, source = self.start_by_path(command, SMALL_MIB)
            source.wait_line("HPZ-GUEST ready")
            self.do(source, "fill 40")
            lease, target = self.start_leased([*command, "-incoming", "defer"], SMALL_MIB)
            for guest in (source, target):
                guest.call("migrate-set-capabilities", capabilities=[{"capability": "postcopy-ram", "state": True}])
            target.call("migrate-incoming", uri=address)
            source.call("migrate-set-parameters", **{"max-bandwidth": 4 * MIB})
            source.call("migrate", uri=address)
            self.wait_holes(10)
            self.check_owed()
            source.call("migrate-set-parameters", **{"max-bandwidth": 1 << 30})
            source.call("migrate-start-postcopy")
            wait_until("it is there", lambda: source.call("query-migrate")["status"] == "completed")
            wait_until("it is whole", lambda: target.call("query-migrate")["status"] == "completed")
            source.quit()
            self.do(target, "cmp -n 1048576 /tmp/fill /run/block && fill 60")
            target.quit()
            self.check_after(source_lease, lease)

    def test_discard_data(self):
        """QEMU punches all of it at its end."""
        lease, guest = self.start_leased(self.get_command(), extra=",discard-data=on")
        guest.wait_line("HPZ-GUEST ready")
        self.do(guest, "fill 40")
        guest.quit()
        self.check_after(lease)


class ByPath(Tests, HpzTest):
    start_leased = Tests.start_by_path


class ByDescriptor(Tests, HpzTest):
    test_balloon = None  # punches nothing, by path or by descriptor

    def start_leased(self, command, size_mib=GUEST_MIB, extra=""):
        guest = self.start(["hpzctl", "run", "--size", f"{size_mib}M", "--", *command, *get_backend("{hpz}", size_mib, extra)])
        return next(lease["id"] for lease in get_leases() if lease["pid"] == guest.process.pid), guest


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", f"{GUEST_MIB}M*1 2M*rest", "--config-line", "pool two.raise=no",
         "--config-line", f"pool two.max_pages={2 * POOL_PAGES}")
