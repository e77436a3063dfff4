#!/usr/bin/env python3
"""Real domains of a real libvirtd on pooled memory: from start to end, and what can go wrong meanwhile."""
import json
import os
import shutil
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import PageEater, main  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.guest import has_balloon  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402
from hpztest.virt import USER, USER_ID, LibvirtTest, Memory, VirtError, get_libvirtd, get_mapped  # noqa: E402

MIB = host.MIB
SMALL_MIB = 16  # a domain that is never let run
NAMESPACE = "xmlns:hpz='https://hpz.dev/domain/1'"
REFUSE = f"<hpz:memory {NAMESPACE} on-failure='refuse'/>"
NO_POOL = f"<hpz:memory {NAMESPACE} pool='no'/>"
MANY = 20
SPARE_PAGES = 80  # of the kernel's, for a guest that boots
BALLOON_MIB = 80       # what the guest of 128 MiB keeps
BALLOON_FILL_MIB = 44  # more than it had free then


class VirtTest(LibvirtTest):
    def setUp(self):
        super().setUp()
        self.before = get_pool()["clean"], self.pages.get_free()

    def define(self, name, memory_mib=SMALL_MIB, **settings):
        return self.libvirtd.define(name, memory_mib=memory_mib, **settings)

    def define_guest(self, name, **settings):
        """One that boots."""
        return self.libvirtd.define(name, **settings)

    def get_memory(self, domain):
        return Memory(self.libvirtd.mount, domain.get_lease()["id"])

    def check_pooled(self, domain, uid=0):
        """QEMU has mapped the files of its lease, and nothing else of huge pages; the lease."""
        lease = domain.get_lease()
        self.assertIsNotNone(lease, f"{domain.name} has no lease: {get_leases()}")
        self.assertEqual((lease["size"], lease["uid"]), (domain.get_size(), uid), lease)
        self.assertEqual(get_mapped(domain.get_pid()), set(self.get_memory(domain).get_inodes()), "QEMU's memory is not the pool's")
        return lease

    def check_said(self, domain, word):
        """What is written into the pool's files is what the guest reads."""
        memory = self.get_memory(domain)
        for index, slot in enumerate(domain.get_slots()):
            domain.write(memory, index, f"say {word} {index}")
            domain.wait_line(f"at={slot:#x} heard={word} {index}")

    def check_as_before(self):
        """Nothing leased, everything clean, no page more or less in use."""
        wait_until("no lease is left", lambda: get_leases() == [])
        self.assertEqual((self.wait_clean()["clean"], self.pages.get_free()), self.before)


class Life(VirtTest):
    def check_life(self, domain):
        domain.start()
        lease = self.check_pooled(domain)
        self.assertEqual(self.pages.get_free(), self.before[1], "pages of the kernel's were taken")
        self.check_closed(domain)
        domain.wait_line("HPZ-GUEST up=")
        self.check_said(domain, domain.uuid)
        memory = self.get_memory(domain)
        self.assertEqual(memory.get_blocks(), [cell * MIB // 512 for cell in domain.cells])
        domain.write(memory, 0, "off")
        domain.wait_state("shut off")
        self.wait_ended(lease["id"])
        self.check_as_before()
        self.assertFalse(domain.is_tainted())

    def check_closed(self, domain):
        """No other QEMU of the same user can open the memory of this one."""
        for file in self.get_memory(domain).files:
            found = file.stat()
            self.assertEqual((found.st_uid, found.st_mode & 0o777), (0, 0), file)
        self.assertEqual([str(file) for file in self.libvirtd.backing.rglob("*") if file.is_file()], [])

    def test_one_cell(self):
        self.check_life(self.define_guest("one"))

    def test_two_cells(self):
        self.check_life(self.define_guest("two", cells=(64, 64)))

    def test_save_and_restore(self):
        """The memory is given back while the domain is a file, and the guest goes on where it was, on other memory."""
        domain = self.define_guest("saved")
        domain.start()
        domain.wait_line("HPZ-GUEST up=")
        self.check_said(domain, "before")
        file = self.libvirtd.directory / "saved"
        self.addCleanup(file.unlink, missing_ok=True)
        domain.virsh("save", file)
        self.check_as_before()
        self.libvirtd.virsh("restore", file)
        self.check_pooled(domain)
        self.check_said(domain, "after")
        domain.destroy()
        self.check_as_before()

    def test_migration(self):
        """To another libvirtd; both here, so the domain is there twice for a moment, with two leases."""
        other = get_libvirtd("other")
        self.addCleanup(other.remove_domains)
        domain = self.define_guest("moving")
        domain.start()
        domain.wait_line("HPZ-GUEST up=")
        first = self.check_pooled(domain)
        domain.virsh("migrate", "--live", "--persistent", "--undefinesource", "--desturi", other.uri, "--migrateuri",
                     f"unix://{self.libvirtd.directory}/guest/moving")
        self.wait_ended(first["id"])
        domain.libvirtd = other
        second = self.check_pooled(domain)
        self.assertNotEqual(second["id"], first["id"])
        self.check_said(domain, "arrived")
        domain.destroy()
        self.check_as_before()

    def test_dimm(self):
        """A memory device of the XML is a file of the lease, too."""
        domain = self.define("dimm", cells=(SMALL_MIB,), dimms=(SMALL_MIB, SMALL_MIB))
        domain.start("--paused")
        self.check_pooled(domain)
        self.assertEqual(len(self.get_memory(domain).files), 3)
        domain.destroy()
        self.check_as_before()

    def test_discard(self):
        """QEMU punches everything out at its end: pages that are hpzd's, and filled again."""
        domain = self.define("discard", backing="discard")
        domain.start("--paused")
        self.check_pooled(domain)
        domain.destroy("--graceful")
        self.check_as_before()

    def test_balloon(self):
        """Inflated and deflated under libvirt the guest lives on and the books hold: a balloon of small pages gives back a huge
        page only when it has all of it, so there may be no hole (test_guest_holes has free page reporting, which makes some)."""
        if not has_balloon():
            self.skipTest("the guest's kernel was kept without its modules, and cannot be downloaded")
        domain = self.define_guest("balloon", words="hpz.balloon")
        domain.start()
        domain.wait_line("HPZ-GUEST up=")
        lease = self.check_pooled(domain)
        domain.virsh("setmem", f"{BALLOON_MIB}M", "--live")
        wait_until("the balloon is full", lambda: f"actual {BALLOON_MIB * 1024}" in domain.virsh("dommemstat").stdout)
        holes = self.get_lease(lease["id"])["holes"]
        self.assertEqual(self.pages.get_free(), self.before[1] + holes, "what was given back is the kernel's, and owed")
        self.assertEqual(get_pool()["clean"], self.before[0] - sum(domain.cells) // 2)
        domain.virsh("setmem", f"{sum(domain.cells)}M", "--live")
        wait_until("the balloon is empty", lambda: f"actual {sum(domain.cells) * 1024}" in domain.virsh("dommemstat").stdout)
        domain.write(self.get_memory(domain), 0, f"fill {BALLOON_FILL_MIB}")
        domain.wait_line(f"HPZ-GUEST filled_mib={BALLOON_FILL_MIB}")
        self.assertLessEqual(self.get_lease(lease["id"])["holes"], holes)
        domain.destroy()
        self.check_as_before()

    def test_not_asked(self):
        """Domains that do not want pooled memory, or cannot have it, start as ever."""
        for settings in ({"backing": "none"}, {"backing": "private"}, {"metadata": NO_POOL}):
            domain = self.define("plain", **settings)
            domain.start("--paused")
            self.assertEqual(get_leases(), [], settings)
            domain.destroy()
            domain.undefine()
        self.check_as_before()


class Wrapper(VirtTest):
    """Domains of huge pages, by hpz-qemu in the place of QEMU."""

    def setUp(self):
        super().setUp()
        # As socket_group = 64055 does it, in the middle of the tests.
        os.chown(self.service.socket, 0, USER_ID)
        os.chmod(self.service.socket, 0o660)

    def make_emulator(self):
        """As it is installed, but where QEMU's user can run it, and with our configuration, which libvirt does not pass on."""
        directory = self.libvirtd.directory / "guest"
        for file in (get_build_directory() / "client/hpz-qemu", get_build_directory() / "lib/libhpz.so.0"):
            shutil.copy(file, directory)
        emulator = directory / "emulator"
        emulator.write_text(f"#!/bin/sh\nexport HPZ_CONFIG={self.service.config} LD_LIBRARY_PATH={directory}\n"
                            f"exec {directory}/hpz-qemu \"$@\"\n")
        emulator.chmod(0o755)
        return emulator

    def test_boot(self):
        domain = self.define_guest("huge", backing="hugepages", emulator=self.make_emulator())
        domain.start()
        self.check_pooled(domain, USER_ID)
        domain.wait_line("HPZ-GUEST up=")
        self.check_said(domain, "huge")
        domain.destroy()
        self.check_as_before()
        self.assertFalse(domain.is_tainted())

    def test_memfd(self):
        domain = self.define("memfd", backing="memfd", emulator=self.make_emulator())
        domain.start("--paused")
        self.check_pooled(domain, USER_ID)
        domain.destroy()
        self.check_as_before()

    def run_bench(self, emulator):
        """What `hpzctl bench vm` says, and how many leases there were for it."""
        granted = get_status()["leases_granted"]
        done = hpzctl("bench", "vm", "--size", f"{SMALL_MIB}M", "--rounds", 1, "--libvirt", self.libvirtd.uri, "--hpz-qemu", emulator,
                      "--json", check=False)
        self.assertEqual(done.returncode, 75, done.stderr)
        self.assertIn("--rounds 5 at least", done.stderr)
        self.assertEqual(self.libvirtd.get_domains("--all"), [])
        self.check_as_before()
        return json.loads(done.stdout), get_status()["leases_granted"] - granted

    def test_bench(self):
        got, leases = self.run_bench(self.make_emulator())
        self.assertIsNone(got["libvirt_reason"])
        self.assertEqual((set(got["libvirt"]), got["libvirt"]["rounds"]), ({"prealloc_ms", "hpz_ms", "rounds"}, 1))
        self.assertGreater(min(got["libvirt"]["prealloc_ms"], got["libvirt"]["hpz_ms"]), 0)
        # One that does not count and one that does: of QEMU alone, and of libvirt's.
        self.assertEqual(leases, 4)

    def test_bench_without_lease(self):
        """A start that came to its memory in another way is no figure of hpz's."""
        got, leases = self.run_bench(shutil.which(f"qemu-system-{os.uname().machine}"))
        self.assertIsNone(got["libvirt"])
        self.assertIn("got no lease", got["libvirt_reason"])
        self.assertEqual(leases, 2)


class Many(VirtTest):
    def setUp(self):
        super().setUp()
        # This libvirtd does not ask each QEMU for 300 properties of its CPU one by one, 0.7 s of processor time. Its domains
        # count as tainted: the other tests are of one that asks.
        self.libvirtd = get_libvirtd("many", qemu={"capability_filters": '[ "cpu-unavailable-features" ]'})
        self.addCleanup(self.libvirtd.remove_domains)

    def test_in_a_row(self):
        domain = self.define("again")
        seen = set()
        for _ in range(MANY):
            domain.start("--paused")
            lease = self.check_pooled(domain)
            self.assertNotIn(lease["id"], seen)
            seen.add(lease["id"])
            domain.destroy()
        self.check_as_before()

    def test_at_once(self):
        domains = [self.define(f"many{index}") for index in range(MANY)]
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda domain: domain.start("--paused"), domains))
            self.assertEqual(len({self.check_pooled(domain)["id"] for domain in domains}), MANY)
            self.assertEqual(len(get_leases()), MANY)
            list(threads.map(lambda domain: domain.destroy(), domains))
        self.check_as_before()

    def test_names(self):
        """Whatever a name is made of, the lease has it, and no file lies outside of its directory."""
        names = ["a b", "-rf", "..", "$(touch /x)", "\"quoted' & <more>", "n\u00e4me \U0001f600", "x" * 200, "a\\b", "%s%n", "#1;2|3"]
        outside, seen = set(os.listdir(self.libvirtd.mount)), []
        for name in names:
            try:
                domain = self.define(name)
            except VirtError:
                continue  # libvirt has rules of its own
            seen.append(name)
            domain.start("--paused")
            lease = max(get_leases(), key=lambda lease: lease["id"])
            self.assertEqual(get_mapped(domain.get_pid()), set(Memory(self.libvirtd.mount, lease["id"]).get_inodes()), name)
            self.assertTrue(name.startswith(lease["label"]) if len(name) > 120 else lease["label"] == name, (name, lease))
            domain.destroy()
            domain.undefine()
        self.assertGreater(len(seen), len(names) // 2, seen)
        self.assertEqual(set(os.listdir(self.libvirtd.mount)), outside)
        self.check_as_before()


class Deaths(VirtTest):
    def test_qemu_is_killed(self):
        domain = self.define("killed")
        domain.start("--paused")
        lease, pid = self.check_pooled(domain), domain.get_pid()
        os.kill(pid, 9)
        domain.wait_state("shut off")
        self.check_as_before()
        self.check_end(lease, pid)

    def check_end(self, lease, pid):
        """What the end of it cost is in the statistics: nobody named QEMU as the owner, so it was found."""
        record = wait_until("its end is complete", lambda: next(
            (end for end in hpzctl_json("teardown")["records"] if end["lease"] == lease["id"] and end["complete"]), None))
        self.assertEqual((record["how"], record["code"], record["pid"]), ("kill", 9, pid), record)
        self.assertEqual((record["label"], record["size"]), (lease["label"], lease["size"]))
        self.assertGreaterEqual(record["proven_ns"], record["gone_ns"])

    def test_libvirtd_is_killed(self):
        """The domain lives on, and so does its lease; a restarted libvirtd, whose hook is told so, ends it with the domain."""
        domain = self.define("orphan")
        domain.start("--paused")
        lease = self.check_pooled(domain)
        self.libvirtd.kill()
        self.addCleanup(self.restart_libvirtd)
        self.libvirtd.start()
        wait_until("it is known again", lambda: domain.get_state() == "paused")
        self.assertEqual(self.check_pooled(domain)["id"], lease["id"])
        domain.destroy()
        self.check_as_before()

    def restart_libvirtd(self):
        if self.libvirtd.daemon.poll() is not None:
            self.libvirtd.start()

    def test_domain_dies_without_libvirtd(self):
        """No hook is ever called for its end."""
        domain = self.define("unseen")
        domain.start("--paused")
        lease = self.check_pooled(domain)
        pid = domain.get_pid()
        self.set_grace(1)
        self.libvirtd.kill()
        self.addCleanup(self.restart_libvirtd)
        os.kill(pid, 9)
        self.wait_ended(lease["id"], 120)
        self.libvirtd.start()
        self.check_as_before()

    def test_hpzd_is_killed(self):
        """Under a domain that runs, and away when it ends."""
        domain = self.define("steady")
        domain.start("--paused")
        lease = self.check_pooled(domain)
        self.service.kill()
        self.service.start()
        self.assertEqual(self.check_pooled(domain)["id"], lease["id"])
        self.service.kill()
        domain.destroy()
        self.set_config("hpzd", "grace", "1s")
        self.service.start()
        self.wait_ended(lease["id"], 120)
        self.check_as_before()


class Failure(VirtTest):
    """hpzd is mute, dead, or has nothing: what may fall back starts, what may not does not, and says why."""

    def check_refused(self, domain):
        done = domain.start("--paused", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("hpz", done.stderr)
        self.assertEqual(domain.get_state(), "shut off")
        return done.stderr

    def check_ordinary(self, domain):
        """No huge pages, and what was mounted for the start is gone."""
        domain.start("--paused")
        self.assertEqual(domain.get_state(), "paused")
        self.assertEqual(get_mapped(domain.get_pid()), set(), self.libvirtd.get_hook_log())
        self.assertNotIn(f"{self.libvirtd.backing}/", self.libvirtd.run_inside("cat", "/proc/self/mountinfo").stdout)

    def test_mute(self):
        fallback, refuse = self.define("fallback"), self.define("refuse", metadata=REFUSE)
        pid = self.service.get_pid()
        os.kill(pid, 19)
        try:
            self.check_refused(refuse)
            self.check_ordinary(fallback)
            fallback.destroy()
        finally:
            os.kill(pid, 18)
        self.check_as_before()

    def test_dead(self):
        """The hook takes a clean segment itself; hpzd finds it at its next start, and gets it back."""
        fallback, refuse = self.define("fallback"), self.define("refuse", metadata=REFUSE)
        self.service.kill()
        for domain in (fallback, refuse):
            domain.start("--paused")
            mapped = get_mapped(domain.get_pid())
            leased = {file.stat().st_ino for file in Path(self.libvirtd.mount).glob("hpz/1/node0/leased/*")}
            self.assertTrue(mapped and mapped <= leased, (mapped, leased))
        self.service.start()
        self.assertEqual(len(get_leases()), 2)
        fallback.destroy()
        refuse.destroy()
        wait_until("they are back", lambda: get_leases() == [], 120)
        self.check_as_before()

    def test_empty(self):
        """Nothing in stock, and no page left in the kernel: ordinary memory."""
        pool = get_pool()
        fallback, refuse = self.define("fallback"), self.define("refuse", metadata=REFUSE)
        with Hold("--size", pool["clean"] * 2 * MIB, "--segments"), PageEater(self.pages.get_free()):
            self.assertEqual(get_pool()["clean"], 0)
            self.check_refused(refuse)
            self.check_ordinary(fallback)
            fallback.destroy()
        self.check_as_before()


class Kernel(VirtTest):
    """A libvirtd whose memory_backing_dir is on huge pages beside the pool: a domain gets the pool's memory by a mount, and without
    it the kernel's own pages."""

    def setUp(self):
        super().setUp()
        self.added = self.pages.add(SPARE_PAGES)
        self.addCleanup(lambda: self.pages.remove(self.added))
        mount = Path(self.libvirtd.directory.parent, "pages")
        if not mount.exists():
            host.mount_hugetlbfs(mount, 2 * MIB, f"{2 * SPARE_PAGES}M")
            unittest.addModuleCleanup(host.unmount, mount)
        # Owners are kept in xattrs by default, which huge pages do not have.
        self.libvirtd = get_libvirtd("kernel", mount, {"remember_owner": "1"})
        self.addCleanup(self.libvirtd.remove_domains)
        self.before = get_pool()["clean"], self.pages.get_free()

    def check_kernel(self, domain):
        """QEMU has its memory in huge pages that are nobody else's, and no name leads there."""
        domain.start("--paused")
        self.assertEqual(self.libvirtd.run_inside("find", self.libvirtd.backing, "-type", "f").stdout, "")
        inode, = get_mapped(domain.get_pid())
        self.assertNotIn(inode, {file.stat().st_ino for file in Path(os.environ["HPZ_MOUNT_2M"]).glob("hpz/1/node0/*/*")})
        self.assertEqual(self.pages.get_free(), self.before[1] - domain.get_size() // (2 * MIB))
        self.assertIn(f"domain {domain.name}: no memory from the pool, QEMU takes huge pages from the kernel, which are held for it",
                      self.libvirtd.get_hook_log())

    def destroy(self, domain):
        domain.destroy()
        wait_until("the pages are back", lambda: self.pages.get_free() == self.before[1])

    def test_pooled(self):
        domain = self.define("mounted")
        domain.start("--paused")
        memory = Memory(os.environ["HPZ_MOUNT_2M"], domain.get_lease()["id"])
        self.assertEqual(get_mapped(domain.get_pid()), set(memory.get_inodes()))
        self.assertNotIn(f"{self.libvirtd.backing}/", self.libvirtd.run_inside("cat", "/proc/self/mountinfo").stdout)
        domain.destroy()
        self.check_as_before()

    def test_mute(self):
        domain = self.define_guest("mute")
        pid = self.service.get_pid()
        os.kill(pid, 19)
        try:
            self.check_kernel(domain)
            domain.virsh("resume")
            domain.wait_line("HPZ-GUEST up=")
            self.destroy(domain)
        finally:
            os.kill(pid, 18)
        self.check_as_before()

    def test_empty_and_dead(self):
        domain = self.define("empty")
        everything = hpzctl_json("lease", str(get_pool()["clean"] * 2 * MIB), "--path", "--segments")["id"]
        self.check_kernel(domain)
        self.destroy(domain)
        self.service.kill()
        self.check_kernel(domain)
        self.destroy(domain)
        self.service.start()
        hpzctl("release", everything)
        self.check_as_before()


class Owners(VirtTest):
    """What a domain's label says of who QEMU runs as, and of owners."""

    def check_label(self, label, relabel, uid):
        domain = self.define("label", seclabel=f"<seclabel type='static' model='dac' relabel='{relabel}'><label>{label}</label></seclabel>")
        domain.start("--paused")
        self.check_pooled(domain)
        self.assertEqual(os.stat(f"/proc/{domain.get_pid()}").st_uid, uid)
        domain.destroy()
        self.check_as_before()

    def test_root(self):
        self.check_label("+0:+0", "yes", 0)

    def test_unchanged(self):
        """libvirt changes no owner, as with dynamic_ownership = 0; by name, too."""
        self.check_label(f"{USER}:{USER}", "no", USER_ID)


if __name__ == "__main__":
    # hpz-qemu runs as QEMU's user, and leases as such.
    main("--2m", "512", "--stock", "128M*3 64M*2 16M*20 2M*rest", "--config-line", f"access libvirt.users={USER_ID}",
         "--config-line", "access libvirt.allow=lease")
