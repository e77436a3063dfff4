"""A libvirtd of one's own with real domains: nothing of it is seen by the host's, and nothing is left of it.

It runs in mount and network namespaces of its own, where the directories of libvirt (/etc/libvirt, /run/libvirt, /var/...)
are directories of the claim, and where it has a user libvirt-qemu and, if there is a /dev/kvm, one that libvirt accepts.
A `keeper` process holds the namespaces while libvirtd is killed and started again. Several can live beside each other.
Only inside tests/with-daemon.
"""
import contextlib
import mmap
import os
import re
import shutil
import stat
import subprocess
import unittest
import uuid as uuids
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from hpztest import host
from hpztest.case import HpzTest
from hpztest.client import get_leases, wait_until
from hpztest.guest import get_image
from hpztest.service import get_build_directory

MIB = host.MIB
USER, USER_ID = "libvirt-qemu", 64055  # as Debian has it
EMULATOR = shutil.which("qemu-system-x86_64") or "/usr/bin/qemu-system-x86_64"
# Directories of libvirt, compiled into it: each becomes one of ours.
DIRECTORIES = {"etc": "/etc/libvirt", "run": "/run/libvirt", "lib": "/var/lib/libvirt", "cache": "/var/cache/libvirt",
               "log": "/var/log/libvirt"}
# What makes the namespaces: mounts are given as pairs in its arguments. No D-Bus, so no machined and no polkit of the host's; no
# cgroups, and in /sys no network devices but those of the namespace.
KEEPER = """
set -e
mount --make-rshared /
for pair; do mount --bind "${pair%%:*}" "${pair#*:}"; done
umount -R /sys/fs/cgroup 2>/dev/null || :
mount -t sysfs sysfs /sys
[ ! -d /run/dbus ] || mount -t tmpfs -o mode=0755 tmpfs /run/dbus
echo ready
exec sleep infinity
"""
# Bytes from the end of a cell to its slot: above the kernel in 64 MiB, and below the initramfs.
SLOT_OFFSET = 4 * MIB
SLOT = 64  # bytes that the guest reads at each of its addresses (lib/guest-init, hpz.listen)


class VirtError(Exception):
    pass


class NoLibvirtd(VirtError):
    """There can be none on this machine."""


class Libvirtd:
    """`mount` is the mount of a pool, or one of huge pages beside it, `hook` the text of a hook program (none without it); `qemu`:
    lines of qemu.conf in place of ours."""

    def __init__(self, directory, name, mount, hook=None, qemu=None):
        self.directory, self.name, self.mount = Path(directory) / name, name, Path(mount)
        self.qemu = {"user": f'"{USER}"', "group": f'"{USER}"', "remember_owner": "0", **(qemu or {})}
        self.backing = self.mount / f"vm-{name}"
        self.keeper = self.daemon = None
        self.log = self.directory / "libvirtd.log"
        self._make_directories()
        self._make_config()
        if hook is not None:
            self.install_hook(hook)

    # ---- set-up ----

    def _make_directories(self):
        self.directory.mkdir(mode=0o711, parents=True)
        for name in (*DIRECTORIES, "guest"):
            (self.directory / name).mkdir(mode=0o755)
        os.chown(self.directory / "guest", USER_ID, -1)

    def _make_config(self):
        own = "\n".join(f"{key} = {value}" for key, value in self.qemu.items())
        (self.directory / "etc/qemu.conf").write_text(f"""
{own}
security_driver = "none"
stdio_handler = "file"
hugetlbfs_mount = "{self.mount}"
memory_backing_dir = "{self.backing}"
""")
        (self.directory / "libvirtd.conf").write_text(f"""
host_uuid = "{uuids.uuid4()}"
auth_unix_rw = "none"
log_filters = "1:util.hook 3:*"
log_outputs = "1:file:{self.log}"
""")

    def install_hook(self, text, name="hpz"):
        """libvirtd looks for the directory only at its start."""
        directory = self.directory / "etc/hooks/qemu.d"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)

    def remove_hook(self, name="hpz"):
        (self.directory / "etc/hooks/qemu.d" / name).unlink()

    def _add_user(self):
        """Pairs for the keeper: files with our user, where the host has none (its package would start a libvirtd)."""
        pairs = []
        for file, line in (("passwd", f"{USER}:x:{USER_ID}:{USER_ID}::/:/usr/sbin/nologin"), ("group", f"{USER}:x:{USER_ID}:")):
            text = Path("/etc", file).read_text(encoding="utf-8")
            if not re.search(rf"^{USER}:", text, re.MULTILINE):
                own = self.directory / file
                own.write_text(text.rstrip("\n") + f"\n{line}\n", encoding="utf-8")
                pairs.append(f"{own}:/etc/{file}")
        return pairs

    def _make_kvm(self):
        """One that libvirt believes usable, as udev makes it; or it asks QEMU anew what it can do at every start of a domain."""
        if not Path("/dev/kvm").exists():
            return []
        node = self.directory / "kvm"
        with contextlib.suppress(OSError):
            os.mknod(node, 0o660 | stat.S_IFCHR, os.makedev(10, 232))
            os.chown(node, 0, USER_ID)
            return [f"{node}:/dev/kvm"]
        return []

    # ---- life ----

    def start(self):
        if self.keeper is None:
            self._start_keeper()
        command = [*self._enter(), "libvirtd", "-f", str(self.directory / "libvirtd.conf"), "-p", str(self.directory / "libvirtd.pid")]
        with open(self.directory / "libvirtd.out", "ab") as out:
            self.daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/")
        wait_until("libvirtd answers", self._is_served)
        return self

    def _start_keeper(self):
        for target in DIRECTORIES.values():
            Path(target).mkdir(parents=True, exist_ok=True)
        pairs = [f"{self.directory / name}:{target}" for name, target in DIRECTORIES.items()]
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", KEEPER, str(self.directory / "keeper"), *pairs,
             *self._add_user(), *self._make_kvm()],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True, cwd="/")
        if self.keeper.stdout.readline() != b"ready\n":
            raise NoLibvirtd("no namespaces for a libvirtd can be made here")

    def _enter(self):
        return ["nsenter", "-t", str(self.keeper.pid), "-m", "-n"]

    def run_inside(self, *command, **run):
        """In its mount namespace."""
        return subprocess.run([*self._enter(), *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, **{"timeout": 60, **run})

    def _is_served(self):
        if self.daemon.poll() is not None:
            raise VirtError(f"libvirtd ended with status {self.daemon.returncode}: {(self.directory / 'libvirtd.out').read_text()}")
        return self.virsh("list", check=False).returncode == 0

    def kill(self):
        """SIGKILL for libvirtd alone: its domains run on."""
        self.daemon.kill()
        self.daemon.wait()

    def restart(self):
        if self.daemon.poll() is None:
            host.end_process(self.daemon.pid, grace=30)
            self.daemon.wait()
        self.start()

    def end(self):
        """Domains, libvirtd, and whatever else lives in the namespaces."""
        for pid in self.get_qemus():
            host.end_process(pid, grace=0)
        for process in (self.daemon, self.keeper):
            if process is not None and process.poll() is None:
                host.end_process(process.pid, grace=20)
                process.wait()
        if self.keeper is not None:
            self.keeper.stdout.close()

    def get_qemus(self, uuid=""):
        """Its domains, or those that came from one beside it: all name the claim; or those with a uuid."""
        marks, found = (os.fsencode(f"{self.directory.parent}/"), uuid.encode()), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (process / "cmdline").read_bytes()
                if b"qemu-system" in line.split(b"\0")[0] and all(mark in line for mark in marks):
                    found.append(int(process.name))
        return found

    # ---- words ----

    @property
    def uri(self):
        return f"qemu+unix:///system?socket={self.directory}/run/libvirt-sock"

    def virsh(self, *arguments, check=True, **run):
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=False, errors="replace", **{"timeout": 120, **run})
        if check and done.returncode != 0:
            raise VirtError(f"virsh {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()}\n{self.get_log()[-3000:]}")
        return done

    def get_log(self):
        with contextlib.suppress(OSError):
            return self.log.read_text(encoding="utf-8", errors="replace")
        return ""

    def get_hook_log(self):
        """What hooks have said, where they redirect it to hook.log of the directory."""
        with contextlib.suppress(OSError):
            return (self.directory / "hook.log").read_text(encoding="utf-8", errors="replace")
        return ""

    def get_domains(self, *options):
        """Their uuids."""
        return self.virsh("list", "--uuid", *options).stdout.split()

    def remove_domains(self):
        """Whatever a test has left."""
        for uuid in self.get_domains("--all"):
            self.virsh("destroy", uuid, check=False)
            self.virsh("undefine", uuid, "--managed-save", "--snapshots-metadata", check=False)

    def define(self, name, **settings):
        domain = Domain(self, name, **settings)
        file = self.directory / f"{uuids.uuid4()}.xml"
        file.write_text(domain.get_xml(), encoding="utf-8")
        try:
            self.virsh("define", file)
        finally:
            file.unlink()
        return domain


class Domain:
    """A guest of lib/guest-image; `cells`: MiB of each of its NUMA nodes, `dimms`: of memory devices; `has_slots`: more can
    be plugged. It listens at an address in each cell (SLOT)."""

    def __init__(self, libvirtd, name, memory_mib=128, cells=(), words="", backing="file", metadata="", emulator=EMULATOR,
                 devices="", dimms=(), has_slots=False, uuid=None, seclabel=""):
        self.libvirtd, self.name = libvirtd, name
        self.uuid = uuid or str(uuids.uuid4())
        self.cells = tuple(cells) or (memory_mib,)
        self.is_cells = bool(cells)
        self.words, self.backing, self.metadata, self.emulator = words, backing, metadata, emulator
        self.seclabel = seclabel
        self.devices, self.dimms, self.has_slots = devices, dimms, has_slots or bool(dimms)
        self.console = libvirtd.directory / "guest" / f"{self.uuid}.console"

    # ---- what it is ----

    BACKINGS = {
        "file": "<source type='file'/><access mode='shared'/>",
        "private": "<source type='file'/>",
        "hugepages": "<hugepages/><access mode='shared'/>",
        "memfd": "<hugepages/><source type='memfd'/><access mode='shared'/>",
        "discard": "<source type='file'/><access mode='shared'/><discard/>",
        "none": "",
    }

    def get_size(self):
        return (sum(self.cells) + sum(self.dimms)) * MIB

    def get_slots(self):
        """Guest addresses of the slots."""
        begin, slots = 0, []
        for cell in self.cells:
            slots.append((begin + cell) * MIB - SLOT_OFFSET)
            begin += cell
        return slots

    def write(self, memory, index, text):
        """Into the slot of a cell, from outside."""
        memory.write(index, self.cells[index] * MIB - SLOT_OFFSET, text)

    def _get_image(self):
        """Kernel and initramfs where libvirt-qemu can read them."""
        files = []
        for source in get_image():
            copy = self.libvirtd.directory / "guest" / os.path.basename(source)
            if not copy.exists():
                new = copy.with_suffix(f".{os.getpid()}")
                shutil.copy(source, new)
                new.rename(copy)
            files.append(copy)
        return files

    def get_xml(self):
        kernel, initrd = self._get_image()
        slots = self.get_slots()
        # Where memory can be plugged, Linux keeps 64 MiB for devices that reach no more than 4 GiB, which is all that a small guest has.
        plug = "swiotlb=noforce memhp_default_state=online_movable" if self.has_slots else ""
        words = " ".join([f"memmap=1M${slot:#x}" for slot in slots] + [plug, self.words, f"hpz.listen={','.join(map(hex, slots))}"])
        numa = "".join(f"<cell id='{index}' cpus='{index}' memory='{cell}' unit='MiB'/>" for index, cell in enumerate(self.cells))
        numa = f"<numa>{numa}</numa>" if self.is_cells else ""
        maximum = "<maxMemory slots='16' unit='GiB'>1</maxMemory>" if self.has_slots else ""
        dimms = "".join(f"<memory model='dimm'><target><size unit='MiB'>{dimm}</size><node>0</node></target></memory>"
                        for dimm in self.dimms)
        return f"""<domain type='qemu'>
  <name>{escape(self.name)}</name><uuid>{self.uuid}</uuid>
  <metadata>{self.metadata}</metadata>
  {maximum}
  <memory unit='MiB'>{self.get_size() // MIB}</memory>
  <memoryBacking>{self.BACKINGS[self.backing]}</memoryBacking>
  <vcpu>{len(self.cells)}</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd>
    <cmdline>{escape(f"console=ttyS0 panic=-1 quiet {words}")}</cmdline></os>
  <features><acpi/><apic/></features>
  <cpu mode='custom' match='exact'><model fallback='allow'>qemu64</model>{numa}</cpu>
  <on_poweroff>destroy</on_poweroff><on_reboot>destroy</on_reboot><on_crash>destroy</on_crash>
  <devices>
    <emulator>{self.emulator}</emulator>
    <serial type='file'><source path={quoteattr(str(self.console))}/></serial>
    <controller type='usb' model='none'/>
    <memballoon model='{"virtio" if "hpz.balloon" in self.words else "none"}'/>
    {dimms}{self.devices}
  </devices>
  {self.seclabel}
</domain>"""

    # ---- life ----

    def virsh(self, verb, *arguments, **run):
        return self.libvirtd.virsh(verb, self.uuid, *arguments, **run)

    def start(self, *options, **run):
        return self.virsh("start", *options, **run)

    def get_state(self):
        return self.virsh("domstate").stdout.strip()

    def wait_state(self, state, limit=120):
        wait_until(f"{self.name} is {state}", lambda: self.get_state() == state, limit)

    def destroy(self, *options, **run):
        return self.virsh("destroy", *options, **run)

    def undefine(self):
        self.virsh("undefine")

    def get_pid(self):
        """Its QEMU."""
        return self.libvirtd.get_qemus(self.uuid)[0]

    def get_lease(self):
        """Of the domain's name; None without."""
        leases = [lease for lease in get_leases() if lease["label"] == self.name and lease["state"] != "returning"]
        if len(leases) > 1:
            raise AssertionError(f"{self.name} has more than one lease: {leases}")
        return leases[0] if leases else None

    def wait_line(self, mark, limit=120):
        """The first line of its console with `mark` in it."""
        def find():
            with contextlib.suppress(OSError):
                text = self.console.read_text(encoding="utf-8", errors="replace")
                return next((line for line in text.split("\n")[:-1] if mark in line), None)
            return None
        return wait_until(f"{self.name} says {mark}", find, limit)

    def is_tainted(self):
        log = self.libvirtd.directory / "log/qemu" / f"{self.name}.log"
        return "tainted" in (log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")


class Memory:
    """The files of a lease, as root sees them in the pool."""

    def __init__(self, mount, lease_id):
        files = [file for state in ("leased", "dirty") for file in Path(mount).glob(f"hpz/1/node*/{state}/*.{lease_id}.*")]
        self.files = sorted(files, key=lambda file: int(file.name.rsplit(".", 1)[1]))

    def get_inodes(self):
        return [file.stat().st_ino for file in self.files]

    def get_blocks(self):
        return [file.stat().st_blocks for file in self.files]

    def write(self, index, offset, text):
        """Through a mapping: files of hugetlbfs cannot be written."""
        page = 2 * MIB
        with open(self.files[index], "r+b") as file:
            with mmap.mmap(file.fileno(), page, offset=offset // page * page) as memory:
                memory[offset % page:offset % page + SLOT] = text.encode().ljust(SLOT, b"\0")

    def read(self, index, offset, length):
        page = 2 * MIB
        with open(self.files[index], "r+b") as file:
            with mmap.mmap(file.fileno(), page, offset=offset // page * page) as memory:
                return memory[offset % page:offset % page + length]


def get_mapped(pid):
    """Inodes of hugetlbfs files that a process has mapped."""
    found = set()
    for line in Path(f"/proc/{pid}/smaps").read_text().split("\n"):
        fields = line.split(None, 5)
        if re.match(r"[0-9a-f]+-[0-9a-f]+$", fields[0] if fields else ""):
            inode = int(fields[4])
        elif line.startswith("KernelPageSize:") and int(fields[1]) >= 2048:
            found.add(inode)
    return found


_libvirtds = {}


def _get_hook(log):
    """The hook as it is installed, but with the configuration of the hpzd under test; what it says is kept."""
    return (f"#!/bin/bash\nexport HPZ_CONFIG={os.environ['HPZ_CONFIG']}\n"
            f"{get_build_directory()}/client/hpz-libvirt-hook \"$@\" 2> >(exec tee -a {log} >&2)\n")


def get_libvirtd(name="main", mount=None, qemu=None):
    """One for all tests of a program; another for what moves, or is set up in another way."""
    if name not in _libvirtds:
        directory = Path(os.environ["HPZ_RUN_DIR"], "virt")
        libvirtd = Libvirtd(directory, name, mount or os.environ["HPZ_MOUNT_2M"], _get_hook(directory / name / "hook.log"), qemu)
        unittest.addModuleCleanup(libvirtd.end)
        _libvirtds[name] = libvirtd.start()
    return _libvirtds[name]


class LibvirtTest(HpzTest):
    def setUp(self):
        super().setUp()
        try:
            self.libvirtd = get_libvirtd()
        except NoLibvirtd as reason:
            self.skipTest(str(reason))
        self.addCleanup(self.libvirtd.remove_domains)
        self.pages = host.PagePool(2 * MIB)
