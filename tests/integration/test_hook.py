#!/usr/bin/env python3
"""hpz-libvirt-hook, called as libvirt calls it: memory at start begin, the door at started begin, the end, and what happens without
hpzd. libvirt and QEMU are played here: the one makes a directory for each domain, the other opens its file in it."""
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import get_leases, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
HOOK = get_build_directory() / "client" / "hpz-libvirt-hook"
QEMU_UID = 64055
SHARED = "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"
# Opens its file as QEMU does, making it if it is not there; reads all of it, writes to it, and waits.
QEMU = """
import mmap, os, sys
path, size = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
was = os.fstat(fd).st_size
if was == 0:
    os.ftruncate(fd, size)
memory = mmap.mmap(fd, size)
zero = memory[:] == bytes(size)
memory[0:4] = b"used"
print(was, zero, flush=True)
sys.stdin.read()
"""


def get_command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
    except OSError:
        return ""


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&apos;")


class Domain:
    """One start of a domain in one libvirtd, whose backing directory is `base`."""

    ids = iter(range(1, 1 << 30))

    def __init__(self, test, name, size=16 * MIB, base=None, own=None, more="", backing=SHARED, metadata=""):
        self.test, self.name, self.size, self.base = test, name, size, Path(base or test.base)
        self.uuid = own or str(uuid.uuid4())
        self.more, self.backing, self.metadata = more, backing, metadata
        self.id = next(self.ids)
        self.directory = self.base / f"{self.id}-{name[:20]}"
        self.qemu = None

    def make_xml(self, with_id=True):
        number = f" id='{self.id}'" if with_id else ""
        return (f"<domain type='kvm'{number}><name>{escape(self.name)}</name><uuid>{self.uuid}</uuid>{self.metadata}"
                f"<memory unit='b'>{self.size}</memory>{self.backing}{self.more}"
                f"<os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os></domain>")

    def make_directory(self):
        self.directory.mkdir(mode=0o700)
        os.chown(self.directory, QEMU_UID, QEMU_UID)

    def hook(self, operation, step, xml=None, status=0):
        """Calls the hook; what it says. It never prints anything that libvirt would take for XML."""
        done = self.test.call_hook(self.name, operation, step, xml or self.make_xml(operation in ("start", "started", "reconnect")))
        self.test.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        return done.stderr

    def start(self, status=0):
        self.make_directory()
        return self.hook("start", "begin", status=status)

    def run_qemu(self, alias="pc.ram", size=None):
        """(length that its file had, whether it was zero)"""
        self.qemu = subprocess.Popen(["/usr/bin/python3", "-c", QEMU, str(self.directory / alias), str(size or self.size)], text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=QEMU_UID, group=QEMU_UID, extra_groups=[])
        self.test.addCleanup(self.end_qemu)
        was, zero = self.qemu.stdout.readline().split()
        return int(was), zero == "True"

    def end_qemu(self):
        if self.qemu:
            self.qemu.stdin.close()
            self.qemu.kill()
            self.qemu.wait()
            self.qemu.stdout.close()
            self.qemu = None

    def stop(self):
        """The end, as libvirt has it: QEMU, the directory, the hooks."""
        self.end_qemu()
        shutil.rmtree(self.directory, ignore_errors=True)
        return self.hook("stopped", "end") + self.hook("release", "end")


class HookTest(HpzTest):
    """`base` is on the pool's own mount, as `memory_backing_dir = MOUNT` has it."""

    def setUp(self):
        super().setUp()
        self.temp = Path(tempfile.mkdtemp(prefix="hpz-hook-"))
        self.temp.chmod(0o711)
        self.addCleanup(shutil.rmtree, self.temp, ignore_errors=True)
        self.mount = self.service.directory / "2M"
        self.addCleanup(self.remove_bases)
        self.base = self.make_base(self.mount)
        self.set_libvirt()

    def make_base(self, root):
        base = root / "libvirt" / "qemu"
        base.mkdir(parents=True, mode=0o711)
        return base

    def remove_bases(self):
        for base in (self.mount, self.temp):
            for directory in base.glob("libvirt/qemu/*"):
                for path in (*directory.glob("*"), directory):
                    while subprocess.run(["umount", path], capture_output=True, check=False).returncode == 0:
                        pass
            shutil.rmtree(base / "libvirt", ignore_errors=True)
        shutil.rmtree(self.service.directory / "run" / "libvirt", ignore_errors=True)

    def set_libvirt(self, name="hook", root=None, **keys):
        """A configuration for the hook alone, as that of another libvirtd may be."""
        lines = {"memory_backing_dir": root or self.mount, "deadline": "10s", **keys}
        self.hook_config = self.temp / f"{name}.conf"
        self.hook_config.write_text(self.service.config.read_text() + "\n[libvirt]\n"
                                    + "".join(f"{key} = {value}\n" for key, value in lines.items()))

    def call_hook(self, *arguments):
        xml = arguments[-1]
        return subprocess.run([HOOK, *arguments[:-1], "-"], input=xml, text=isinstance(xml, str), capture_output=True, check=False,
                              timeout=60, env={**os.environ, "HPZ_CONFIG": str(self.hook_config)})

    def get_states(self):
        return sorted((self.service.directory / "run" / "libvirt").glob("*"))

    def get_one_lease(self):
        leases = get_leases()
        self.assertEqual(len(leases), 1, leases)
        return leases[0]

    def is_closed(self, path):
        st = os.stat(path)
        return (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (0, 0, 0)


class Life(HookTest):
    def test_one_file(self):
        """From start to end: the same memory as before, and a door that is open only while QEMU starts."""
        before = get_pool()
        domain = Domain(self, "web1")
        self.assertIn("its memory is lease", domain.start())
        lease = self.get_one_lease()
        self.assertEqual((lease["label"], lease["size"], lease["uid"]), ("web1", 16 * MIB, 0))
        st = os.stat(domain.directory / "pc.ram")
        self.assertEqual((st.st_uid, st.st_gid, st.st_mode & 0o7777, st.st_size), (QEMU_UID, QEMU_UID, 0o600, 16 * MIB))
        inside = self.service.directory / "2M" / "hpz" / "1" / "node0" / "leased"
        self.assertIn(st.st_ino, [os.stat(path).st_ino for path in inside.iterdir()])
        self.assertEqual(domain.run_qemu(), (16 * MIB, True))
        self.assertEqual(domain.hook("started", "begin"), "")
        self.assertEqual(list(domain.directory.iterdir()), [])
        self.assertTrue(self.is_closed(next(path for path in inside.iterdir() if path.stat().st_ino == st.st_ino)))
        self.assertEqual(self.get_lease(lease["id"])["state"], "leased")
        domain.hook("reconnect", "begin")
        self.assertEqual(self.get_lease(lease["id"])["state"], "leased")
        self.assertEqual(hpzctl_json("check")["findings"], [])
        self.assertEqual(domain.stop(), "")
        self.wait_ended(lease["id"])
        after = self.wait_clean()
        self.assertEqual(*((pool["clean"], pool["total"], pool["kernel"]["nr"] - pool["kernel"]["free"]) for pool in (before, after)))
        self.assertEqual(self.get_states(), [])

    def test_cells_and_dimm(self):
        """A file for each, all of one lease; a name of more than 20 characters and of other letters."""
        numa = "<cpu><numa><cell id='0' memory='8' unit='MiB'/><cell id='1' memory='4' unit='MiB'/></numa></cpu>" \
               "<numatune><memory mode='strict' nodeset='0'/></numatune>" \
               "<devices><memory model='dimm'><target><size unit='MiB'>6</size></target><alias name='dimm0'/></memory></devices>"
        domain = Domain(self, "ä <&> 5678901234567890abc", size=18 * MIB, more=numa)
        domain.start()
        lease = self.get_one_lease()
        self.assertEqual((lease["label"], len(lease["segments"])), ("ä <&> 5678901234567890abc", 3))
        for alias, size in (("ram-node0", 8), ("ram-node1", 4), ("dimm0", 6)):
            self.assertGreaterEqual(os.stat(domain.directory / alias).st_size, size * MIB)
            self.assertTrue(domain.run_qemu(alias, size * MIB)[1])
            domain.end_qemu()
        domain.hook("started", "begin")
        self.assertEqual(list(domain.directory.iterdir()), [])
        domain.stop()
        self.wait_ended(lease["id"])

    def test_again(self):
        """The same start asked for twice is the same lease; another start, and another libvirtd, have one of their own."""
        domain = Domain(self, "twice")
        domain.start()
        first = self.get_one_lease()["id"]
        domain.hook("start", "begin")
        self.assertEqual(self.get_one_lease()["id"], first)
        self.assertEqual(domain.run_qemu(), (16 * MIB, True))
        domain.hook("started", "begin")
        # The same domain arrives at another libvirtd of this host.
        root = self.mount / "other"
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        there = Domain(self, "twice", base=self.make_base(root), own=domain.uuid)
        here_config = self.hook_config
        self.set_libvirt("other", root=root)
        there_config = self.hook_config
        there.start()
        self.assertEqual(len(get_leases()), 2)
        there.run_qemu()
        there.hook("started", "begin")
        self.hook_config = here_config
        domain.stop()
        self.wait_ended(first)
        self.assertEqual(self.get_one_lease()["state"], "leased")
        self.hook_config = there_config
        there.stop()
        wait_until("all are gone", lambda: get_leases() == [])

    def test_failed_start(self):
        """QEMU never came: libvirt calls stopped and release without started."""
        domain = Domain(self, "failed")
        domain.start()
        domain.stop()
        wait_until("the lease ends", lambda: get_leases() == [])
        self.assertEqual(self.get_states(), [])

    def test_other_file_system(self):
        """Where a link cannot be, the file is mounted; the mount goes when QEMU has it."""
        domain = Domain(self, "else", base=self.make_base(self.temp))
        self.set_libvirt(root=self.temp)
        self.assertIn("its memory is lease", domain.start())
        self.assertTrue(os.path.samefile(domain.directory / "pc.ram", self.get_one_lease()["segments"][0]["path"]))
        self.assertEqual(domain.run_qemu(), (16 * MIB, True))
        domain.hook("started", "begin")
        self.assertEqual(list(domain.directory.iterdir()), [])
        self.assertNotIn(str(domain.directory), Path("/proc/self/mounts").read_text())
        lease = self.get_one_lease()["id"]
        domain.stop()
        self.wait_ended(lease)
        # Without `started`: libvirt finds its directory busy.
        domain = Domain(self, "busy", base=domain.base)
        domain.start()
        domain.stop()
        self.assertFalse(domain.directory.exists())
        self.assertNotIn(str(domain.directory), Path("/proc/self/mounts").read_text())
        wait_until("the lease ends", lambda: get_leases() == [])

    def test_left_alone(self):
        """Domains whose memory is no file in the directory: nothing is done, and nothing said."""
        for domain in (Domain(self, "plain", backing=""),
                       Domain(self, "huge", backing="<memoryBacking><hugepages/><source type='file'/></memoryBacking>"),
                       Domain(self, "memfd", backing="<memoryBacking><source type='memfd'/></memoryBacking>")):
            self.assertEqual(domain.start(), "")
            self.assertEqual(list(domain.directory.iterdir()), [])
        self.assertEqual((get_leases(), self.get_states()), ([], []))

    def test_mistakes(self):
        """A configuration with a mistake keeps nobody from starting; the defaults count, and it says so."""
        domain = Domain(self, "mistake")
        self.set_libvirt(deadline="soon")
        self.assertIn("deadline = soon", domain.start())
        for arguments in ((), ("x",), ("x", "start")):
            self.assertEqual(subprocess.run([HOOK, *arguments], capture_output=True, check=False).returncode, 2)
        for option in ("--help", "--version"):
            self.assertEqual(subprocess.run([HOOK, option], capture_output=True, check=False).returncode, 0)
        named = Domain(self, "--help")
        self.set_libvirt()
        self.assertIn("its memory is lease", named.start())
        named.stop()

    def test_killed(self):
        """Whenever the hook dies, the next start has clean memory, and nothing stays behind: of links, and of mounts."""
        name, dice = str(uuid.uuid4()), random.Random(6)
        for root, base in ((self.mount, self.base), (self.temp, self.make_base(self.temp))):
            self.set_libvirt(root=root)
            for _ in range(10):
                domain = Domain(self, "killed", own=name, base=base)
                self.kill_start(domain, dice.random() * 0.03)
                domain.stop()
                self.assertFalse(domain.directory.exists())
            domain = Domain(self, "killed", own=name, base=base)
            domain.start()
            self.assertEqual(domain.run_qemu(), (16 * MIB, True))
            domain.stop()
        self.assertNotIn(str(self.temp), Path("/proc/self/mounts").read_text())

    def kill_start(self, domain, seconds):
        domain.make_directory()
        with subprocess.Popen([HOOK, domain.name, "start", "begin", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env={**os.environ, "HPZ_CONFIG": str(self.hook_config)}) as hook:
            hook.stdin.write(domain.make_xml().encode())
            hook.stdin.close()
            time.sleep(seconds)
            hook.kill()
        # Its children die with it, a moment later.
        wait_until("they are gone", lambda: not any(str(HOOK) in get_command(pid) for pid in os.listdir("/proc") if pid.isdigit()))


class Without(HookTest):
    """What happens when memory cannot be had."""

    @contextlib.contextmanager
    def no_free_pages(self):
        with PageEater(host.PagePool(2 * MIB).get_free()):
            yield

    @contextlib.contextmanager
    def more_pages(self, count):
        """The lock of the tests is ours."""
        pages = host.PagePool(2 * MIB)
        added = pages.add(count)
        try:
            self.assertEqual(added, count)
            yield
        finally:
            pages.remove(added)

    def test_dead(self):
        """hpzd is dead: its clean memory is taken by a rename; the next hpzd finds the lease, and takes it back."""
        before = get_pool()
        self.service.kill()
        domain = Domain(self, "dead")
        self.assertIn("without hpzd", domain.start())
        self.assertEqual(domain.run_qemu(), (16 * MIB, True))
        domain.hook("started", "begin")
        self.assertEqual(list(domain.directory.iterdir()), [])
        self.service.start()
        lease = self.get_one_lease()
        self.assertEqual(lease["size"], 16 * MIB)
        domain.hook("reconnect", "begin")
        self.assertEqual(self.get_one_lease()["id"], lease["id"])
        domain.stop()
        self.wait_ended(lease["id"])
        self.assertEqual(self.wait_clean()["clean"], before["clean"])

    def test_mute(self):
        """hpzd is stopped: whatever else there is, within the deadline, and hpzd's memory is left alone."""
        self.set_libvirt(deadline="500ms")
        os.kill(self.service.get_pid(), signal.SIGSTOP)
        try:
            with self.no_free_pages():
                domain = Domain(self, "mute")
                self.assertIn("ordinary memory", domain.start())
                self.assertEqual(domain.run_qemu(), (0, True))
                domain.hook("started", "begin")
                self.assertEqual(list(domain.directory.iterdir()), [])  # of the mount there was before
                domain.stop()
                self.assertFalse(domain.directory.exists())
                refused = Domain(self, "mute2", metadata=self.get_metadata("refuse"))
                self.assertIn("does not answer", refused.start(status=1))
                refused.stop()
        finally:
            os.kill(self.service.get_pid(), signal.SIGCONT)
        self.assertNotIn("tmpfs " + str(self.base), Path("/proc/self/mounts").read_text())

    def test_mute_at_the_end(self):
        """hpzd is stopped when a domain ends: the calls come to their end, and the next start is none the worse for it."""
        self.set_libvirt(deadline="1s")
        domain = Domain(self, "again")
        self.assertIn("its memory is lease", domain.start())
        domain.run_qemu()
        domain.hook("started", "begin")
        os.kill(self.service.get_pid(), signal.SIGSTOP)
        try:
            with self.no_free_pages():
                self.assertNotIn("not done within", domain.stop())
                self.assertEqual(list((self.service.directory / "run/libvirt").iterdir()), [])
                second = Domain(self, "again", own=domain.uuid)
                self.assertIn("ordinary memory", second.start())
                second.stop()
        finally:
            os.kill(self.service.get_pid(), signal.SIGCONT)
        wait_until("the lease ends by itself", lambda: not get_leases(), 60)
        self.wait_clean()

    def get_metadata(self, on_failure):
        return f"<metadata><hpz:memory xmlns:hpz='https://hpz.dev/domain/1' on-failure='{on_failure}'/></metadata>"

    def test_empty(self):
        """The pool is used up: the kernel's pages if it has some, else ordinary memory; or refused, and why."""
        self.set_libvirt(deadline="500ms")
        everything = hpzctl_json("lease", str(get_pool()["clean"] * 2 * MIB), "--path", "--segments")["id"]
        with self.no_free_pages():
            domain = Domain(self, "empty")
            self.assertIn("ordinary memory", domain.start())
            self.assertEqual(domain.run_qemu(), (0, True))
            domain.hook("started", "begin")
            domain.stop()
            self.set_libvirt(deadline="500ms", on_failure="refuse")
            refused = Domain(self, "refused")
            said = refused.start(status=1)
            self.assertRegex(said, "^hpz: domain refused gets no memory from the pool")
            self.assertEqual(len(said.strip().split("\n")), 1)
            self.assertEqual(list(refused.directory.iterdir()), [])
            fallback = Domain(self, "fallback", metadata=self.get_metadata("fallback"))
            self.assertIn("ordinary memory", fallback.start())
            for operation, step in (("started", "begin"), ("reconnect", "begin"), ("stopped", "end"), ("release", "end")):
                fallback.hook(operation, step)
            self.assertNotIn(str(fallback.directory), Path("/proc/self/mounts").read_text())
        with self.more_pages(8):
            # The mount of the pool holds no more than the pool.
            host.mount_hugetlbfs(self.temp / "huge", 2 * MIB, "64M")
            self.addCleanup(subprocess.run, ["umount", self.temp / "huge"], check=False)
            self.set_libvirt(root=self.temp / "huge", deadline="500ms")
            own = Domain(self, "own", base=self.make_base(self.temp / "huge"))
            self.assertIn("takes huge pages from the kernel", own.start())
            self.assertEqual(own.run_qemu(), (0, True))
            own.hook("started", "begin")
            own.stop()
        hpzctl("release", everything)

    def test_not_asked(self):
        """Domains that get nothing because of what they are must be able to start where their directory is on huge pages."""
        private = "<memoryBacking><source type='file'/></memoryBacking>"
        out = "<metadata><h:memory xmlns:h='https://hpz.dev/domain/1' pool='no'/></metadata>"
        with self.no_free_pages():
            for domain, enabled, reason in ((Domain(self, "private", backing=private), "yes", "not shared"),
                                            (Domain(self, "out", metadata=out), "yes", "pool='no'"),
                                            (Domain(self, "off"), "no", "enabled = no")):
                self.set_libvirt(enabled=enabled)
                said = domain.start()
                self.assertIn("ordinary memory", said)
                self.assertIn(reason, said)
                self.assertEqual(domain.run_qemu(), (0, True))
                domain.hook("started", "begin")
                domain.stop()
                self.assertFalse(domain.directory.exists())
        self.assertEqual(get_leases(), [])

    def test_left_out(self):
        """A memory device that QEMU makes itself finds room beside the pool's files."""
        more = "<devices><memory model='virtio-mem'><target><size unit='MiB'>4</size></target></memory></devices>"
        domain = Domain(self, "left", size=20 * MIB, more=more)
        with self.no_free_pages():
            said = domain.start()
            self.assertIn("run on ordinary memory", said)
            self.assertIn("its memory is lease", said)
            self.assertEqual(domain.run_qemu(size=16 * MIB), (16 * MIB, True))
            first, domain.qemu = domain.qemu, None
            try:
                self.assertEqual(domain.run_qemu("virtiomem0", 4 * MIB), (0, True))
                domain.hook("started", "begin")
                self.assertEqual(list(domain.directory.iterdir()), [])
            finally:
                first.stdin.close()
                first.kill()
                first.wait()
                first.stdout.close()
            domain.stop()
        wait_until("the lease ends", lambda: get_leases() == [])
        self.assertNotIn(str(domain.directory), Path("/proc/self/mounts").read_text())

    def test_no_directory(self):
        """libvirt makes its directories elsewhere: said, and why that may be."""
        domain = Domain(self, "elsewhere")
        self.assertIn("memory_backing_dir", domain.hook("start", "begin"))
        self.set_libvirt(on_failure="refuse")
        self.assertIn("memory_backing_dir", domain.hook("start", "begin", status=1))
        self.assertEqual(get_leases(), [])


class Nobody(HookTest):
    def test_dead_to_the_end(self):
        """hpzd is dead until the domain has ended: what was taken comes back at its next start."""
        before = get_pool()
        self.service.kill()
        domains = [Domain(self, f"dead{i}") for i in range(3)]
        for domain in domains:
            domain.start()
            self.assertEqual(domain.run_qemu(), (16 * MIB, True))
            domain.hook("started", "begin")
        for domain in domains:
            self.assertIn("ends by itself", domain.stop())
        self.service.start()
        wait_until("the leases end", lambda: get_leases() == [], 120)
        self.assertEqual(self.wait_clean()["clean"], before["clean"])


class Hostile(HookTest):
    def list_all(self):
        skipped = self.mount / "hpz"
        return sorted(str(path) for root in (self.mount, self.temp) for path in root.rglob("*") if skipped not in path.parents)

    def test_xml(self):
        """No crash, no file outside the domain's own directory, no lease for another domain."""
        victim = Domain(self, "victim")
        victim.make_directory()
        good = victim.make_xml()
        number = str(victim.id)
        hostile = [
            "", "<", "<domain/>", good[:-9], good * 2, "x" * 5000000, "<a>" * 100000, "\0", "\xff" * 100,
            good.replace("<name>victim", "<name>../victim"), good.replace("<name>victim", "<name>" + "v" * 300),
            good.replace("<name>victim", "<name>vic\ntim"), good.replace(victim.uuid, "../../../../../../../../../../etc/pass"),
            good.replace(f"id='{number}'", "id='-1'"), good.replace(f"id='{number}'", "id='../7'"),
            "<!DOCTYPE d [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>" + good.replace("<name>victim", "<name>&e;"),
            good.replace(f">{16 * MIB}<", ">-1<"), good.replace(f">{16 * MIB}<", ">0<"),
            good.replace("</domain>", "<devices><memory model='dimm'><target><size>2048</size></target>"
                                      "<alias name='../../../../escape'/></memory></devices></domain>"),
        ]
        before = self.list_all()
        for xml in hostile:
            done = self.call_hook("victim", "start", "begin", xml.encode("latin-1", "replace"))
            self.assertEqual((done.returncode, done.stdout), (0, b""), xml[:300])
            self.assertIn(b"hpz: a domain is left as it is", done.stderr) if "-1<" not in xml and ">0<" not in xml else None
        other = self.call_hook("other", "start", "begin", good)
        self.assertIn("another domain", other.stderr)
        self.assertEqual(get_leases(), [])
        self.assertEqual([path for path in self.list_all() if "/run/" not in path], before)

    def test_directory(self):
        """What is in the directory already is QEMU's, and believed in nothing; a link is no directory."""
        outside = self.temp / "outside"
        outside.mkdir()
        (outside / "pc.ram").write_text("mine")
        domain = Domain(self, "links", base=self.make_base(self.temp))
        self.set_libvirt(root=self.temp)
        domain.directory.symlink_to(outside)
        self.assertIn("has made no directory", domain.hook("start", "begin"))
        self.assertEqual((outside / "pc.ram").read_text(), "mine")
        domain.directory.unlink()
        domain.make_directory()
        (domain.directory / "pc.ram").symlink_to(outside / "pc.ram")
        self.assertIn("its memory is lease", domain.hook("start", "begin"))
        self.assertEqual((outside / "pc.ram").read_text(), "mine")
        # Before it starts QEMU swaps its file for somebody else's.
        subprocess.run(["umount", domain.directory / "pc.ram"], check=False)
        (domain.directory / "pc.ram").unlink()
        os.link(outside / "pc.ram", domain.directory / "pc.ram")
        domain.hook("started", "begin")
        self.assertEqual(((outside / "pc.ram").read_text(), os.stat(outside / "pc.ram").st_mode & 0o777), ("mine", 0o644))
        domain.stop()


main("--2m", "96", "--stock", "32M*1 16M*3 8M*2 2M*rest")
