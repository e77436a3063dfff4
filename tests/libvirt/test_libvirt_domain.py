#!/usr/bin/env python3
"""hpzctl domain and hpz-libvirt with a real libvirtd: domains changed, memory plugged, a libvirtd that comes and goes."""
import contextlib
import fcntl
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import main  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402
from hpztest.virt import LibvirtTest, Memory, get_mapped  # noqa: E402

MIB = host.MIB
GUEST_MIB, DIMM_MIB = 96, 128  # a Linux guest uses whole blocks of 128 MiB
FILLED = b"\xa5" * 4096  # lib/guest-init
GONE = "11111111-2222-3333-4444-5555555555ee"


class DomainTest(LibvirtTest):
    def run_domain(self, *words):
        return self.libvirtd.run_inside(get_build_directory() / "client/hpzctl", "domain", *words, "--json", timeout=300)

    def hpzctl_domain(self, *words, status=0):
        """Where libvirtd has its files; what it says."""
        done = self.run_domain(*words)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout) if done.stdout else done.stderr

    def get_row(self, domain):
        return next(row for row in self.hpzctl_domain("list")["domains"] if row["uuid"] == domain.uuid)

    def get_inodes(self, *leases):
        return {inode for lease in leases for inode in Memory(self.libvirtd.mount, lease).get_inodes()}


class Change(DomainTest):
    def test_enable_and_disable(self):
        domain = self.libvirtd.define("plain", memory_mib=16, backing="none", devices="<graphics type='vnc' passwd='sesame'/>")
        before = domain.virsh("dumpxml", "--security-info").stdout
        said = self.hpzctl_domain("check", domain.name, status=1)
        self.assertFalse(said["planned"])

        said = self.hpzctl_domain("enable", domain.name, "--dry-run")
        self.assertEqual((said["changes"], said["applied"]), (True, False))
        self.assertEqual([line for line in said["difference"].splitlines()[2:] if line[0] == "-"], [])
        self.assertIn('+    <source type="file"/>', said["difference"])
        self.assertNotIn("sesame", said["difference"])
        self.assertFalse(self.hpzctl_domain("enable", domain.name, status=1)["applied"])
        self.assertEqual(domain.virsh("dumpxml", "--security-info").stdout, before)

        self.assertTrue(self.hpzctl_domain("enable", domain.name, "--yes")["applied"])
        self.assertFalse(self.hpzctl_domain("enable", domain.name, "--yes")["changes"])
        said = self.hpzctl_domain("check", domain.name)
        self.assertEqual((said["pooled"], said["problems"], [file["alias"] for file in said["files"]]), (True, [], ["pc.ram"]))
        self.assertEqual(self.get_row(domain)["lease"], None)
        domain.start("--paused")
        row = self.get_row(domain)
        self.assertEqual((row["active"], row["lease"], row["leased"], row["why"]), (True, domain.get_lease()["id"], 16 * MIB, None))
        self.assertEqual(get_mapped(domain.get_pid()), self.get_inodes(row["lease"]))

        self.assertTrue(self.hpzctl_domain("disable", domain.name, "--yes")["applied"])
        self.assertEqual(self.get_row(domain)["lease"], row["lease"])  # it runs as it is
        domain.destroy()
        self.assertEqual(domain.virsh("dumpxml", "--security-info").stdout, before)
        domain.start("--paused")
        self.assertEqual((self.get_row(domain)["lease"], self.get_row(domain)["leased"]), (None, 0))


    def test_check_sees_the_host(self):
        """What of the host keeps domains from the pool is said as long as it is so. (What this machine lacks: tests/unit/test_domain_host.c)"""
        domain, conf = self.libvirtd.define("checked", memory_mib=16), self.libvirtd.directory / "etc/qemu.conf"
        hook, config = self.libvirtd.directory / "etc/hooks/qemu.d/hpz", self.service.config
        text, script, settings = conf.read_text(), hook.read_text(), config.read_text()
        for file, was in ((conf, text), (hook, script)):
            self.addCleanup(file.write_text, was)
        self.addCleanup(hook.chmod, 0o755)

        def check(kind, words, pooled=False):
            said = self.hpzctl_domain("check", domain.name, status=0 if pooled else 1)
            self.assertTrue(any(words in one for one in said[kind]), said)
            self.assertEqual(said["pooled"], pooled)
            conf.write_text(text)
            config.write_text(settings)
            hook.write_text(script)
            hook.chmod(0o755)
            said = self.hpzctl_domain("check", domain.name)
            self.assertFalse(any(words in one for one in said["problems"] + said["notes"]), said)

        hook.chmod(0o644)
        check("problems", "libvirt cannot run its hook")
        conf.write_text(text.replace(str(self.libvirtd.backing), str(self.libvirtd.mount)))
        check("notes", "is a pool's mount itself", pooled=True)
        conf.write_text(text.replace("memory_backing_dir", "#memory_backing_dir"))
        check("notes", "is not on hugetlbfs", pooled=True)
        conf.write_text(text + "dynamic_ownership = 0\n")
        check("problems", "dynamic_ownership = 0")
        config.write_text(settings + "[libvirt]\nmemory_backing_dir = /elsewhere\n")
        check("problems", "is not that of qemu.conf")
        config.write_text(settings + "[libvirt]\nenabled = no\n")
        check("problems", "enabled = no")


class Plug(DomainTest):
    def test_attach(self):
        domain = self.libvirtd.define("plugged", cells=(32,), has_slots=True)
        domain.start("--paused")
        leases, free = [domain.get_lease()["id"]], self.pages.get_free()
        for index in range(2):
            said = self.hpzctl_domain("attach-memory", domain.name, "64M")
            self.assertEqual((said["uuid"], said["dimm"], said["done"], said["size"]), (domain.uuid, f"dimm{index}", "attached", 64 * MIB))
            leases.append(said["lease"])
            self.assertEqual(get_mapped(domain.get_pid()), self.get_inodes(*leases), "QEMU's memory is not the pool's")
        self.assertEqual(self.pages.get_free(), free, "pages of the kernel's were taken")
        for file in Memory(self.libvirtd.mount, leases[1]).files:
            self.assertEqual((file.stat().st_uid, file.stat().st_mode & 0o777, file.stat().st_nlink <= 2), (0, 0, True), file)
        self.assertEqual([str(file) for file in self.libvirtd.backing.rglob("*") if file.is_file()], [])
        self.assertEqual(self.get_row(domain)["leased"], 160 * MIB)
        self.assertEqual([lease["label"] for lease in get_leases()], [domain.name] * 3)
        # The guest stands still, so it lets go of nothing; and its memory stays its own.
        self.hpzctl_domain("detach-memory", domain.name, "dimm1", "--wait", "0.5", status=75)
        self.assertIn("no lease of its own", self.hpzctl_domain("detach-memory", domain.name, "dimm7", status=1))
        self.assertEqual(get_mapped(domain.get_pid()), self.get_inodes(*leases))
        domain.destroy()
        wait_until("no lease is left", lambda: get_leases() == [])

    def test_a_guest_that_uses_it(self):
        """It sees the memory, fills it, and lets go of it with what is in it; in its slot then is other memory, and all zero."""
        domain = self.libvirtd.define("running", cells=(GUEST_MIB,), has_slots=True)
        domain.start()
        domain.wait_line("HPZ-GUEST up=")
        memory, free = Memory(self.libvirtd.mount, domain.get_lease()["id"]), self.pages.get_free()

        def tell(text, answer):
            domain.write(memory, 0, text)
            return domain.wait_line(f"HPZ-GUEST {answer}=").partition("=")[2].strip()

        before = int(tell("memory 1", "memory1"))
        said = self.hpzctl_domain("attach-memory", domain.name, f"{DIMM_MIB}M")
        plugged = Memory(self.libvirtd.mount, said["lease"])
        wait_until("the guest has it", lambda count=iter(range(2, 9999)): int(tell(f"memory {(n := next(count))}", f"memory{n}")) > before + 100 * 1024)
        # Pages that can be moved come from there first.
        tell("fill 8", "filled_mib")
        total = tell("sum 1", "sum1")
        wait_until("its bytes are in it", lambda: any(plugged.read(0, offset * MIB, 4096) == FILLED for offset in range(0, DIMM_MIB, 2)))

        # Each of these is a question more: what lets go of it takes as long as it takes.
        done = wait_until("the guest lets go of it", lambda: self.try_detach(domain, said["dimm"]))
        self.assertEqual((done["uuid"], done["dimm"], done["done"], done["lease"]), (domain.uuid, said["dimm"], "detached", said["lease"]))
        self.assertEqual(tell("sum 2", "sum2"), total, "what was in it was lost")
        self.wait_ended(said["lease"])
        self.assertEqual([lease["id"] for lease in get_leases()], [domain.get_lease()["id"]])
        self.wait_idle()
        self.assertEqual(get_pool()["leased"], domain.get_size() // (2 * MIB))
        self.assertEqual(self.pages.get_free(), free, "pages of the kernel's were taken")
        domain.destroy()
        wait_until("no lease is left", lambda: get_leases() == [])
        pages = self.wait_clean()["clean"]
        with Hold("--size", pages * 2 * MIB, "--segments") as tenant:
            self.assertTrue(tenant.call("check-zero")["equal"])

    def try_detach(self, domain, dimm):
        done = self.run_domain("detach-memory", domain.name, dimm)
        self.assertIn(done.returncode, (0, 75), done.stderr)
        return done.returncode == 0 and json.loads(done.stdout)

    def test_devices_of_before(self):
        """A device of an earlier start, or one that was in the slot before, is not the one that is attached now."""
        domain = self.libvirtd.define("again", cells=(16,), has_slots=True)
        domain.start("--paused")
        whole = domain.get_lease()
        prefix, _, start = whole["key"].rpartition(":")
        leases = [hpzctl_json("lease", "2M", "--path", "--label", "before", "--key", f"{prefix}:dimm0:{key}")["id"] for key in ("1-2-3.4", start)]
        row = self.get_row(domain)
        self.assertEqual((row["lease"], row["leased"]), (whole["id"], 18 * MIB))
        directory, = (self.libvirtd.backing / "libvirt/qemu").iterdir()
        with contextlib.ExitStack() as stack:
            held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertIn("somebody else attaches", self.hpzctl_domain("attach-memory", domain.name, "16M", status=75))
        said = self.hpzctl_domain("attach-memory", domain.name, "16M")
        self.assertEqual((said["dimm"], said["lease"] in leases), ("dimm0", False))
        self.wait_ended(leases[1])
        self.assertEqual(self.get_row(domain)["leased"], 32 * MIB)
        self.assertEqual(get_mapped(domain.get_pid()), self.get_inodes(whole["id"], said["lease"]))
        self.hpzctl_domain("detach-memory", domain.name, "dimm0", "--wait", "0.1", status=75)
        self.assertIsNotNone(self.get_lease(leases[0]), "that of another start was touched")
        domain.destroy()
        # Of the same key, in the next start.
        domain.start("--paused")
        self.assertIn("no lease of its own", self.hpzctl_domain("detach-memory", domain.name, "dimm0", status=1))
        self.assertEqual(self.get_row(domain)["leased"], 16 * MIB)

    def test_attach_fails(self):
        """libvirt refuses it, or hpzd: nothing is left."""
        domain = self.libvirtd.define("fixed", memory_mib=16)
        self.assertIn("does not run", self.hpzctl_domain("attach-memory", domain.name, "64M", status=1))
        domain.start("--paused")
        lease = domain.get_lease()["id"]
        self.assertIn("libvirt does not attach", self.hpzctl_domain("attach-memory", domain.name, "64M", status=1))
        self.hpzctl_domain("attach-memory", domain.name, "100T", status=1)
        wait_until("its lease is gone", lambda: [lease["id"] for lease in get_leases()] == [lease])
        self.assertEqual([str(file) for file in self.libvirtd.backing.rglob("*") if file.is_file()], [])


class Watch(DomainTest):
    @contextlib.contextmanager
    def watcher(self):
        self.log = self.libvirtd.directory / "watcher.log"
        with open(self.log, "wb") as log, running([*self.libvirtd._enter(), get_build_directory() / "client/hpz-libvirt", "--grace", "1"],
                                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            yield
            process.terminate()
            process.wait(60)

    def wait_said(self, what, count=1):
        wait_until(f"it says {what}", lambda: self.log.read_text().count(what) >= count)

    def test_libvirtd_comes_and_goes(self):
        """What runs keeps its memory; what does not, whatever the reason, is ended."""
        domain = self.libvirtd.define("watched", memory_mib=16)
        domain.start("--paused")
        lease = domain.get_lease()["id"]

        def add_lost():
            return hpzctl_json("lease", "2M", "--path", "--label", "lost", "--key", f"libvirt:{GONE}:1-1")["id"]

        lost = add_lost()
        with self.watcher():
            self.wait_said("connected to libvirt")
            self.wait_ended(lost)
            self.libvirtd.kill()
            self.wait_said("no connection to libvirt")
            lost = add_lost()
            self.libvirtd.restart()
            self.wait_said("connected to libvirt", 2)
            self.wait_ended(lost)
            self.assertEqual(domain.get_lease()["id"], lease)
            # An event: a domain that has ended is looked after.
            lost = add_lost()
            domain.destroy()
            self.wait_ended(lost)
            self.wait_ended(lease)
        self.assertEqual(self.log.read_text().count("released lease"), 3)


if __name__ == "__main__":
    main()
