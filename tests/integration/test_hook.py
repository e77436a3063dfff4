#!/usr/bin/env python3
"""hpz-libvirt-hook, called as libvirt calls it: memory at start begin, the door at started begin, the end, and what happens without
hpzd. libvirt and QEMU are played here: the one makes a directory for each domain, the other opens its file in it."""
import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import get_leases, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
HOOK = get_build_directory() / "client" / "hpz-libvirt-hook"
MUTE_NAMES = get_build_directory() / "tests/fault"  # of libnss_hpz_mute.so.2, which never answers
QEMU_UID = 64055
NO_POOL = "<metadata><h:memory xmlns:h='https://hpz.dev/domain/1' pool='no'/></metadata>"
SHARED = "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"
# Opens its file as QEMU does, making it if it is not there; reads all of it, writes to it, and waits. Without pages for a file of
# its own it ends as QEMU does.
QEMU = """
import mmap, os, sys
path, size = sys.argv[1], int(sys.argv[2])
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
was = os.fstat(fd).st_size
if was == 0:
    os.ftruncate(fd, size)
try:
    memory = mmap.mmap(fd, size)
except OSError as error:
    sys.exit(f"unable to map backing store for guest RAM: {error.strerror}")
zero = memory[:] == bytes(size)
memory[0:4] = b"used"
print(was, zero, flush=True)
sys.stdin.read()
"""

# Moves a directory from the first of these places on, and round. (With two, who looks for a name waits until it is there again.)
MOVER = """
import os, sys
places = sys.argv[1:]
print("moving", flush=True)
while True:
    for place, following in zip(places, places[1:] + places[:1]):
        os.rename(place, following)
"""

# Of QEMU's user: puts a link in the place of each domain's file, and one directory in the place of another.
SWAPPER = """
import contextlib, os, sys
base, target = sys.argv[1:]
while True:
    for name in os.listdir(base):
        directory = os.path.join(base, name)
        for step in (lambda: os.symlink(target, directory + "/link"), lambda: os.rename(directory + "/link", directory + "/pc.ram"),
                     lambda: os.rename(directory, directory + "x"), lambda: os.symlink(os.path.dirname(target), directory),
                     lambda: os.unlink(directory), lambda: os.rename(directory + "x", directory)):
            with contextlib.suppress(OSError):
                step()
"""


STEPS_OF_UNDOING = (("started", "begin"), ("stopped", "end"))


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
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                     user=QEMU_UID, group=QEMU_UID, extra_groups=[])
        self.test.addCleanup(self.end_qemu)
        said = self.qemu.stdout.readline()
        self.test.assertRegex(said, r"^\d+ (True|False)$", "QEMU did not start")
        was, zero = said.split()
        return int(was), zero == "True"

    def try_qemu(self):
        """The same where it may find no pages: what it says then, else ""."""
        done = subprocess.run(["/usr/bin/python3", "-c", QEMU, str(self.directory / "pc.ram"), str(self.size)], text=True, input="",
                              capture_output=True, check=False, user=QEMU_UID, group=QEMU_UID, extra_groups=[])
        self.test.assertIn(done.returncode, (0, 1), done.stderr)
        return done.stderr

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

    def call_hook(self, *arguments, under=(), **environment):
        xml = arguments[-1]
        return subprocess.run([*under, HOOK, *arguments[:-1], "-"], input=xml, text=isinstance(xml, str), capture_output=True, check=False,
                              timeout=60, env={**os.environ, "HPZ_CONFIG": str(self.hook_config), **environment})

    def mount_pages(self, lid):
        """A hugetlbfs besides the pool's, as a second page size would be on, with libvirt's directory."""
        mount = self.temp / f"pages-{lid}"
        host.mount_hugetlbfs(mount, 2 * MIB, lid)
        self.addCleanup(subprocess.run, ["umount", "-l", mount], check=False)
        self.set_libvirt(root=mount)
        return self.make_base(mount)

    @contextlib.contextmanager
    def more_pages(self, count):
        """The lock of the tests is ours."""
        pages = host.PagePool(2 * MIB)
        added = pages.add(count)
        try:
            self.assertEqual(added, count)
            yield pages
        finally:
            pages.remove(added)

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

    def test_other_page_size(self):
        """The directory is on huge pages, but not on the pool's mount, as that of another page size is; 2M stands in for 1G
        (numa/nodes.sh has both). Nothing of this mount is used up."""
        domain = Domain(self, "size", base=self.mount_pages("64M"))
        before = os.statvfs(domain.base).f_bavail
        self.assertIn("its memory is lease", domain.start())
        lease = self.get_one_lease()
        self.assertTrue(os.path.samefile(domain.directory / "pc.ram", lease["segments"][0]["path"]))
        self.assertEqual(domain.run_qemu(), (16 * MIB, True))
        self.assertEqual(os.statvfs(domain.base).f_bavail, before)
        domain.hook("started", "begin")
        self.assertEqual(list(domain.directory.iterdir()), [])
        domain.stop()
        self.wait_ended(lease["id"])

    def test_earlier_boot(self):
        """What was noted before the host was booted is not believed: the numbers mean others now."""
        domain = Domain(self, "boot")
        domain.start()
        lease = self.get_one_lease()["id"]
        domain.run_qemu()
        state, = self.get_states()
        text = state.read_text()
        self.assertIn("\nboot " + Path("/proc/sys/kernel/random/boot_id").read_text(), text)
        state.write_text("".join(f"boot {uuid.uuid4()}\n" if line.startswith("boot ") else line for line in text.splitlines(True)))
        domain.hook("started", "begin")
        self.assertEqual([path.name for path in domain.directory.iterdir()], ["pc.ram"])
        domain.hook("stopped", "end")
        self.assertEqual((self.get_one_lease()["state"], self.get_states()), ("leased", []))
        domain.stop()
        hpzctl("release", lease)
        self.wait_ended(lease)

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


class Without(HookTest):
    """What happens when memory cannot be had."""

    @contextlib.contextmanager
    def no_free_pages(self):
        with PageEater(host.PagePool(2 * MIB).get_free()):
            yield

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
        self.set_grace(1)
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
        hpzctl("release", everything)

    def test_not_asked(self):
        """Domains that get nothing because of what they are must be able to start where their directory is on huge pages."""
        private = "<memoryBacking><source type='file'/></memoryBacking>"
        with self.no_free_pages():
            for domain, enabled, reason in ((Domain(self, "private", backing=private), "yes", "not shared"),
                                            (Domain(self, "out", metadata=NO_POOL), "yes", "pool='no'"),
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

    def test_mute_log(self):
        """A log that nobody reads holds up nothing, also where something is said before the memory is placed."""
        device = self.temp / "dev"
        (device / "shm").mkdir(parents=True)
        os.mknod(device / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        log = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        log.bind(str(device / "log"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as writer, self.assertRaises(BlockingIOError):
            writer.setblocking(False)
            for _ in range(100000):
                writer.sendto(b"full", str(device / "log"))
        more = "<devices><memory model='virtio-mem'><target><size unit='MiB'>4</size></target></memory></devices>"
        domain = Domain(self, "log", size=20 * MIB, more=more)
        domain.make_directory()
        with self.no_free_pages():
            # Its mounts go with its namespace.
            done = self.call_hook("log", "start", "begin", domain.make_xml(), under=(
                "unshare", "--mount", "--propagation", "private", "sh", "-c", 
                f"mount --rbind /dev/shm {device}/shm && mount --rbind {device} /dev && exec \"$@\"", "sh"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"\A.*run on ordinary memory\n.*its memory is lease \d+\n\Z")
        domain.stop()
        wait_until("the lease ends", lambda: get_leases() == [])

    def test_mute_names(self):
        """Whoever knows the names of users does not answer: what this machine's files have needs him not, and of others the start
        goes on with what the directory says, or without, and says so."""
        (self.temp / "nsswitch").write_text("passwd: hpz_mute files\ngroup: hpz_mute files\n")
        under = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
                 f"mount --bind {self.temp}/nsswitch /etc/nsswitch.conf && exec \"$@\"", "sh")
        # Of the configuration it is asked at once, of the domain later.
        for user, label, owner, wanted in (("root:root", "nobody-knows:root", QEMU_UID, 0), ("auto", "root:root", QEMU_UID, 0),
                                           ("auto", "nobody-knows:root", QEMU_UID, QEMU_UID), ("auto", "nobody-knows:root", 0, 0)):
            with self.subTest(user=user, label=label, owner=owner):
                self.set_libvirt(deadline="4s", user=user)
                domain = Domain(self, "names", more=f"<seclabel type='static' model='dac'><label>{label}</label></seclabel>")
                domain.make_directory()
                os.chown(domain.directory, owner, owner)
                done = self.call_hook("names", "start", "begin", domain.make_xml(), under=under, LD_LIBRARY_PATH=MUTE_NAMES)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("its memory is lease", done.stderr)
                self.assertEqual(os.stat(domain.directory / "pc.ram").st_uid, wanted)
                self.assertEqual("is not known" in done.stderr, user == "auto" and label != "root:root" and owner == 0, done.stderr)
                domain.stop()
                wait_until("the lease ends", lambda: get_leases() == [])

    def test_no_directory(self):
        """libvirt makes its directories elsewhere: said, and why that may be."""
        domain = Domain(self, "elsewhere")
        self.assertIn("memory_backing_dir", domain.hook("start", "begin"))
        self.set_libvirt(on_failure="refuse")
        self.assertIn("memory_backing_dir", domain.hook("start", "begin", status=1))
        self.assertEqual(get_leases(), [])


class Held(HookTest):
    """Huge pages of the kernel's, which nobody takes away between the hook and QEMU."""

    def setUp(self):
        super().setUp()
        self.pages = self.enterContext(self.more_pages(16))
        self.first = self.pages.get_free()  # what others have not taken
        self.other = self.mount_pages("64M")
        self.set_libvirt(root=self.other.parent.parent, deadline="1s")

    def check_held(self, domain):
        """Whoever else wants pages gets them, but for those."""
        own = domain.directory / "pc.ram"
        st = os.stat(own)
        self.assertEqual((st.st_uid, st.st_gid, st.st_mode & 0o7777, st.st_size), (QEMU_UID, QEMU_UID, 0o600, 16 * MIB))
        self.assertEqual(self.pages.get_free(), self.first - 8)
        with PageEater(self.first - 8):
            with self.assertRaises(OSError):
                PageEater(1).end()
            self.assertEqual(domain.run_qemu(), (16 * MIB, True))
        domain.hook("started", "begin")
        self.assertEqual(list(domain.directory.iterdir()), [])
        domain.stop()
        self.assertEqual((self.pages.get_free(), self.get_states()), (self.first, []))

    def start_held(self, name, **settings):
        domain = Domain(self, name, base=self.other, **settings)
        self.assertIn("takes huge pages from the kernel, which are held for it", domain.start())
        return domain

    def test_empty(self):
        everything = hpzctl_json("lease", str(get_pool()["clean"] * 2 * MIB), "--path", "--segments")["id"]
        self.check_held(self.start_held("empty"))
        hpzctl("release", everything)

    def test_given_back(self):
        """A start that fails gives them back: libvirt removes the directory, or, where it cannot, the hook does."""
        failed = self.start_held("failed", metadata=NO_POOL)
        failed.stop()
        self.assertEqual(self.pages.get_free(), self.first)
        left = self.start_held("left", metadata=NO_POOL)
        left.hook("stopped", "end")
        self.assertFalse(left.directory.exists())
        self.assertEqual(self.pages.get_free(), self.first)
        # Nobody tells us of its end: the next start of the domain does it.
        lost = self.start_held("lost", metadata=NO_POOL)
        again = self.start_held("lost", metadata=NO_POOL, own=lost.uuid)
        self.assertEqual(self.pages.get_free(), self.first - 8)
        self.assertFalse(lost.directory.exists())
        # Asked for twice it is held once.
        self.assertIn("held for it", again.hook("start", "begin"))
        self.check_held(again)

    def test_mute(self):
        os.kill(self.service.get_pid(), signal.SIGSTOP)
        try:
            self.check_held(self.start_held("mute"))
        finally:
            os.kill(self.service.get_pid(), signal.SIGCONT)

    def test_dead(self):
        """And nothing of its memory fits."""
        everything = hpzctl_json("lease", str(get_pool()["clean"] * 2 * MIB), "--path", "--segments")["id"]
        self.service.kill()
        self.check_held(self.start_held("dead"))
        self.service.start()
        hpzctl("release", everything)

    def test_cells(self):
        """Each its own file; and what does not fit below the lid of the mount is held nowhere."""
        cells = "<cpu><numa><cell id='0' memory='8' unit='MiB'/><cell id='1' memory='4' unit='MiB'/></numa></cpu>" \
                "<devices><memory model='dimm'><target><size unit='MiB'>6</size></target><alias name='dimm0'/></memory></devices>"
        domain = Domain(self, "cells", size=18 * MIB, base=self.other, more=cells, metadata=NO_POOL)
        self.assertIn("held for it", domain.start())
        self.assertEqual({path.name: path.stat().st_size for path in domain.directory.iterdir()},
                         {"ram-node0": 8 * MIB, "ram-node1": 4 * MIB, "dimm0": 6 * MIB})
        self.assertEqual(self.pages.get_free(), self.first - 9)
        domain.stop()
        self.assertEqual(self.pages.get_free(), self.first)
        domain = Domain(self, "lid", base=self.mount_pages("14M"), metadata=NO_POOL)
        self.assertIn("ordinary memory", domain.start())
        self.assertEqual((self.pages.get_free(), domain.run_qemu()), (self.first, (0, True)))
        domain.hook("started", "begin")
        domain.stop()


class Killed(HookTest):
    """The hook dies at each of its steps: the domain starts, or QEMU says that it has no memory; and nothing stays behind."""

    MOST = 30  # of one step in a call

    def check_step(self, operation, step, number, make_domain):
        """False: a call makes no such step so often."""
        domain = make_domain()
        domain.make_directory()
        if operation == "started":
            domain.hook("start", "begin")
        done = self.call_hook(domain.name, operation, "begin", domain.make_xml(), under=(
            "strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={step}", "-e", f"inject={step}:signal=SIGKILL:when={number}"))
        is_killed = done.returncode != 0 or "was not done" in done.stderr or "does not answer" in done.stderr
        if is_killed and operation == "start":
            self.assertIn(domain.try_qemu(), ("", "unable to map backing store for guest RAM: Cannot allocate memory\n"))
        domain.stop()
        self.assertFalse(domain.directory.exists())
        self.assertEqual(self.get_states(), [])
        return is_killed

    def check_steps(self, operation, steps, make_domain):
        """At least once each."""
        for step in steps:
            with self.subTest(operation=operation, step=step):
                number = 1
                while number < self.MOST and self.check_step(operation, step, number, make_domain):
                    number += 1
                self.assertIn(number, range(2, self.MOST))
        self.assertNotIn(str(self.temp), "".join(line for line in Path("/proc/self/mounts").open() if " hugetlbfs " not in line))
        wait_until("leases end", lambda: len(get_leases()) <= self.unnoted, 120)

    unnoted = 0  # leases that only their time limit ends, which is of minutes: the hook died before it had noted them

    def test_link(self):
        self.set_libvirt(deadline="2s")
        self.unnoted = 1
        self.check_steps("start", ("renameat", "linkat"), lambda: Domain(self, "link"))
        hpzctl("release", self.get_one_lease()["id"])

    def test_bind(self):
        base = self.make_base(self.temp)
        self.set_libvirt(root=self.temp, deadline="2s")
        self.check_steps("start", ("linkat", "open_tree", "move_mount"), lambda: Domain(self, "bind", base=base))
        self.check_steps("started", ("fchownat", "umount2", "unlinkat"), lambda: Domain(self, "bind", base=base))


    def test_hold(self):
        """Pages that were promised are free again."""
        with self.more_pages(8) as pages:
            first, base = pages.get_free(), self.mount_pages("16M")
            self.check_steps("start", ("ftruncate", "munmap", "linkat"), lambda: Domain(self, "hold", base=base, metadata=NO_POOL))
            self.assertEqual(pages.get_free(), first)

    def test_ordinary(self):
        base = self.mount_pages("2M")  # and no more
        self.check_steps("start", ("fsopen", "fsmount", "move_mount"), lambda: Domain(self, "ordinary", base=base, metadata=NO_POOL))
        self.check_steps("started", ("umount2",), lambda: Domain(self, "ordinary", base=base, metadata=NO_POOL))


class Untidy(HookTest):
    """What was mounted goes, if not at once then later."""

    def get_ordinary(self):
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if f" {self.temp}" in line and " tmpfs " in line]

    def test_unnoted(self):
        """Where nothing can be noted the domain starts all the same, and leaves nothing mounted."""
        base = self.mount_pages("2M")  # and no more
        blocker = self.service.directory / "run" / "libvirt"
        shutil.rmtree(blocker, ignore_errors=True)
        blocker.write_text("no directory")
        self.addCleanup(blocker.unlink, missing_ok=True)
        for ends in (("started", "stopped"), ("stopped",), ("reconnect", "release")):
            domain = Domain(self, "unnoted", base=base, metadata=NO_POOL)
            self.assertRegex(domain.start(), "(?s)cannot note.*ordinary memory")
            self.assertEqual(len(self.get_ordinary()), 1)
            for operation in ends:
                domain.hook(operation, "begin" if operation in ("started", "reconnect") else "end")
                self.assertEqual(self.get_ordinary(), [])
            domain.stop()

    def test_later(self):
        """A mount that cannot be undone at one call is at the next, be it that of the next start."""
        base = self.mount_pages("2M")
        for later in (("release", "end"), ("start", "begin")):
            domain = Domain(self, "later", base=base, metadata=NO_POOL)
            self.assertIn("ordinary memory", domain.start())
            failing = ("stopped",) if later[0] == "release" else ("stopped", "release")
            for operation in failing:
                done = self.call_hook(domain.name, operation, "end", domain.make_xml(False), under=(
                    "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=umount2", "-e", "inject=umount2:error=EIO"))
                self.assertEqual(done.returncode, 0)
                self.assertIn("cannot be tidied up", done.stderr)
            self.assertEqual(len(self.get_ordinary()), 1)
            following = domain if later[0] == "release" else Domain(self, "later", base=base, metadata=NO_POOL, own=domain.uuid)
            if following is not domain:
                following.make_directory()
            following.hook(*later)
            self.assertEqual(len(self.get_ordinary()), 0 if following is domain else 1)
            following.stop()
            self.assertEqual((self.get_ordinary(), self.get_states(), domain.directory.exists()), ([], [], False))


class Nobody(HookTest):
    def test_dead_to_the_end(self):
        """hpzd is dead until the domain has ended: what was taken comes back at its next start."""
        before = get_pool()
        self.set_config("hpzd", "grace", "1s")
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

    def test_moved(self):
        """QEMU's user renames the directory with what is mounted in it: the mount is found there, or the memory never came back."""
        base = self.make_base(self.temp)
        self.set_libvirt(root=self.temp)
        for operation, step in STEPS_OF_UNDOING:
            domain = Domain(self, "moved", base=base)
            domain.start()
            aside = base / "a side"
            domain.directory.rename(aside)
            self.assertIn(str(self.temp), Path("/proc/self/mounts").read_text())
            domain.hook(operation, step)
            self.assertNotIn(str(self.temp), Path("/proc/self/mounts").read_text())
            domain.stop()
            shutil.rmtree(aside)
            wait_until("the lease ends", lambda: get_leases() == [])
        self.wait_clean()

    def test_moved_name(self):
        """The same where it is a name and no mount: in another directory, and called otherwise."""
        for operation, step in STEPS_OF_UNDOING:
            with self.subTest(operation=operation):
                domain = Domain(self, "moved")
                domain.start()
                file = domain.directory / "pc.ram"
                aside = self.base / "a side"
                domain.directory.rename(aside)
                (aside / file.name).rename(aside / "other")
                domain.hook(operation, step)
                self.assertFalse((aside / "other").exists())
                domain.stop()
                shutil.rmtree(aside)
                wait_until("the lease ends", lambda: get_leases() == [])
        self.wait_clean()

    def test_hidden_name(self):
        """It is where nobody looks: it is told, its memory is nobody's, and comes back with the name."""
        domain = Domain(self, "hidden")
        domain.start()
        deep = self.base / "deep" / "deeper"
        deep.mkdir(parents=True)
        hidden = deep / "name"
        (domain.directory / "pc.ram").rename(hidden)
        self.assertIn("has been moved and is not found", domain.hook("stopped", "end"))
        domain.stop()
        self.assertEqual(self.get_states(), [])
        wait_until("hpzd says what holds it", lambda: get_leases()[0]["reason"] == "another name")
        hidden.unlink()
        wait_until("the lease ends", lambda: get_leases() == [])
        self.wait_clean()

    def test_moving(self):
        """He renames it all the time: the mount is looked for until it is found."""
        base = self.make_base(self.temp)
        self.set_libvirt(root=self.temp)
        for number in range(8):
            domain = Domain(self, "moving", base=base)
            domain.start()
            places = [base / f"{side} side" for side in "abcde"]
            domain.directory.rename(places[0])
            with subprocess.Popen(["/usr/bin/python3", "-c", MOVER, *places], stdout=subprocess.PIPE) as mover:
                try:
                    mover.stdout.readline()
                    domain.hook(*(("started", "begin") if number % 2 else ("stopped", "end")))
                finally:
                    mover.kill()
            # Whoever is quicker than all looks keeps it mounted for now; what is left is undone at the end.
            domain.stop()
            self.assertNotIn(str(self.temp), Path("/proc/self/mounts").read_text())
            for place in places:
                shutil.rmtree(place, ignore_errors=True)
            self.assertEqual(self.get_states(), [])
            wait_until("the lease ends", lambda: get_leases() == [])

    def test_swapped(self):
        """Somebody of the same user, whose libvirt's directory is, swaps names all the time: no file of others is given away, closed
        or removed, no start fails, and no lease, note or mount is left."""
        outside = self.temp / "outside"
        outside.mkdir(mode=0o711)
        for root in (self.mount, self.temp):
            base = self.base if root is self.mount else self.make_base(root)
            os.chown(base, QEMU_UID, QEMU_UID)
            self.set_libvirt(root=root, deadline="5s")
            (outside / "file").write_text("mine")
            with subprocess.Popen(["/usr/bin/python3", "-c", SWAPPER, str(base), str(outside / "file")], user=QEMU_UID, group=QEMU_UID,
                                  extra_groups=[]) as swapper:
                try:
                    for number in range(4):
                        domain = Domain(self, f"swap{number}", base=base)
                        domain.make_directory()
                        for operation, step in (("start", "begin"), ("started", "begin"), ("stopped", "end"), ("release", "end")):
                            domain.hook(operation, step)
                finally:
                    swapper.kill()
            st = os.stat(outside / "file")
            self.assertEqual(((outside / "file").read_text(), st.st_uid, st.st_mode & 0o7777, st.st_nlink), ("mine", 0, 0o644, 1))
            self.assertEqual(os.listdir(outside), ["file"])
            self.assertEqual(self.get_states(), [])
        wait_until("leases end", lambda: get_leases() == [], 120)
        self.assertEqual(hpzctl_json("check")["findings"], [])
        self.wait_clean()


main("--2m", "96", "--stock", "32M*1 16M*3 8M*2 2M*rest")
