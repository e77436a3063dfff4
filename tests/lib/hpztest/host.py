"""The machine: page pools, mounts and processes, and claims: what one run of the tests holds of them.

A claim is a directory on tmpfs named after its owner process. Whatever the run changes on the machine is noted there
first, so that a run that was killed can be cleaned up after by the next one (sweep()).
"""
import contextlib
import ctypes
import json
import mmap
import os
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
SIZES = {"2M": 2 * MIB, "1G": GIB}

_NODES = Path("/sys/devices/system/node")
_MAP_HUGETLB = 0x40000
_MAP_POPULATE = 0x8000
_SYS_SET_MEMPOLICY = 238  # x86-64
_MPOL_BIND = 2
_PR_SET_CHILD_SUBREAPER = 36
_UMOUNT_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def note(text):
    """Says something to whoever watches; standard output belongs to results."""
    import sys
    print(text, file=sys.stderr, flush=True)


# ---- page pools ----

class PagePool:
    """The kernel's pool of huge pages of one size on one node."""

    def __init__(self, page_size, node=0):
        self.page_size = page_size
        self.node = node
        self.directory = _NODES / f"node{node}" / "hugepages" / f"hugepages-{page_size // 1024}kB"

    def exists(self):
        return self.directory.is_dir()

    def _get(self, name):
        return int((self.directory / name).read_text())

    def get_nr(self):
        return self._get("nr_hugepages")

    def get_free(self):
        """Free pages, as far as we know without those reserved for a mapping (the kernel counts these for all nodes together)."""
        reserved = Path(f"/sys/kernel/mm/hugepages/{self.directory.name}/resv_hugepages")
        return max(0, self._get("free_hugepages") - int(reserved.read_text()))

    def add(self, pages):
        """Raises the pool by so many pages and returns by how many it really grew."""
        before = self.get_nr()
        for attempt in range(3):
            if attempt > 0 or self.page_size >= GIB:
                compact_memory()
            with contextlib.suppress(OSError):
                (self.directory / "nr_hugepages").write_text(str(before + pages))
            if self.get_nr() >= before + pages:
                break
        return self.get_nr() - before

    def remove(self, pages):
        """Lowers the pool by so many pages: by a difference, because others may have raised it, too."""
        if pages > 0:
            (self.directory / "nr_hugepages").write_text(str(max(0, self.get_nr() - pages)))

    def touch_free(self):
        """Has the kernel write to every free page once: the first touch after a raise may cost seconds per GiB."""
        free = self.get_free()
        shares = [free - free // 2, free // 2] if os.cpu_count() > 1 else [free]
        children = [self._start_touching(pages) for pages in shares if pages > 0]
        for child in children:
            os.waitpid(child, 0)

    def _start_touching(self, pages):
        child = os.fork()
        if child:
            return child
        try:
            mask = ctypes.c_ulong(1 << self.node)
            _libc.syscall(_SYS_SET_MEMPOLICY, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(64))
            mmap.mmap(-1, pages * self.page_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_HUGETLB
                      | _MAP_POPULATE | (self.page_size.bit_length() - 1) << 26)
        finally:
            os._exit(0)


def compact_memory():
    with contextlib.suppress(OSError):
        Path("/proc/sys/vm/compact_memory").write_text("1")


def get_page_pools():
    """Every pool this kernel offers, on every node."""
    pools = []
    for directory in sorted(_NODES.glob("node*/hugepages/hugepages-*kB")):
        node = int(re.search(r"node(\d+)", str(directory)).group(1))
        pools.append(PagePool(int(re.search(r"-(\d+)kB", directory.name).group(1)) * 1024, node))
    return pools


# ---- processes ----

def get_start_time(pid):
    """The start time of a process in clock ticks since boot, None when there is no such process (a zombie counts as gone)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def open_pidfd(pid):
    """A pidfd, or None when there is no such process."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def wait_pidfd(pidfd, seconds):
    """True when the process has ended in time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(max(0, seconds) * 1000))


def end_process(pid, first=signal.SIGTERM, grace=10.0, start_time=None):
    """Ends a process by its pidfd: `first`, and after `grace` seconds SIGKILL. True when it obeyed the first signal.

    With start_time only the process that was started then, not a later one with the same number.
    """
    pidfd = open_pidfd(pid)
    if pidfd is None:
        return True
    try:
        if start_time is not None and get_start_time(pid) != start_time:
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, first)
        if wait_pidfd(pidfd, grace):
            return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not wait_pidfd(pidfd, 120):
            note(f"process {pid} has not ended two minutes after SIGKILL")
        return False
    finally:
        os.close(pidfd)


def get_children():
    """A dictionary: parent -> its children, zombies left out."""
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    return children


def get_descendants(pid):
    children, found, todo = get_children(), [], [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found


def find_processes(below):
    """Processes whose program lies below a directory (deleted programs, too), or is that very file."""
    found = []
    for link in Path("/proc").glob("[0-9]*/exe"):
        with contextlib.suppress(OSError):
            if Path(os.readlink(link).removesuffix(" (deleted)")).is_relative_to(below):
                found.append(int(link.parent.name))
    return found


def find_processes_of_claim(claim):
    """Processes that were started for a claim: its directory stands in their environment or command line."""
    found, mark = [], os.fsencode(str(claim))
    for directory in Path("/proc").glob("[0-9]*"):
        if int(directory.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if b"HPZ_RUN_DIR=" + mark + b"\0" in (directory / "environ").read_bytes() \
                    or mark + b"/" in (directory / "cmdline").read_bytes():
                found.append(int(directory.name))
    return found


def become_subreaper():
    """From now on orphans among our descendants become our children instead of init's: none escapes the clean-up."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def end_processes(pids, grace=2.0):
    """Asks all at once, then insists."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace
    for pid in pids:
        end_process(pid, signal.SIGTERM, max(0, deadline - time.monotonic()))


# ---- mounts ----

def get_mounts(below="/"):
    """Mount points at or below a directory, the deepest first."""
    points = []
    with open("/proc/self/mountinfo", encoding="utf-8") as mountinfo:
        for line in mountinfo:
            point = line.split()[4].encode().decode("unicode_escape")
            if point == str(below) or point.startswith(str(below).rstrip("/") + "/"):
                points.append(point)
    return sorted(points, key=len, reverse=True)


def mount_hugetlbfs(point, page_size, size):
    Path(point).mkdir(mode=0o711)
    subprocess.run(["mount", "-t", "hugetlbfs", "-o", f"pagesize={page_size},size={size},mode=0711", "hpz-test", str(point)],
                   check=True)


def unmount(point):
    """Unmounts, waits a little for those who are about to let go, and detaches the mount when nobody does."""
    for _ in range(50):
        if _libc.umount2(os.fsencode(point), 0) == 0:
            return True
        time.sleep(0.1)
    note(f"{point} is still in use: detached")
    _libc.umount2(os.fsencode(point), _UMOUNT_DETACH)
    return False


# ---- the kernel's trace ----

def make_trace_instance(claim):
    """A trace of its own, which the release of the claim removes, if nobody does before; its directory. OSError: none to be had."""
    point = Path(claim) / "tracing"
    if not point.exists():
        point.mkdir(mode=0o700)
        done = subprocess.run(["mount", "-t", "tracefs", "hpz-test", str(point)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            point.rmdir()
            raise OSError(f"no tracefs: {done.stderr.strip()}")
    directory = point / "instances" / f"hpz-test-{Path(claim).name}"
    directory.mkdir()
    return directory


def remove_trace_instances(claim):
    for directory in Path(claim).glob("tracing/instances/hpz-test-*"):
        if directory.name == f"hpz-test-{Path(claim).name}":
            directory.rmdir()


# ---- claims ----

def _get_boot_id():
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def get_claims_directory():
    """A directory for claims on tmpfs: hpzd's journal belongs there, and a reboot empties it."""
    for base in ("/run", "/dev/shm", "/tmp"):
        kind = subprocess.run(["stat", "-f", "-c", "%T", base], capture_output=True, text=True, check=False).stdout.strip()
        if kind == "tmpfs" or base == "/tmp":
            break
    directory = Path(base) / "hpz-tests"
    directory.mkdir(mode=0o711, exist_ok=True)
    return directory


class Claim:
    """A directory named BOOT.PID.STARTTIME; `raised.json` in it says by how much each page pool was raised."""

    def __init__(self, directory):
        self.directory = Path(directory)

    @classmethod
    def create(cls, pid):
        claim = cls(get_claims_directory() / f"{_get_boot_id()}.{pid}.{get_start_time(pid)}")
        claim.directory.mkdir(mode=0o711)
        return claim

    def is_alive(self):
        boot, pid, start_time = self.directory.name.split(".")
        return boot == _get_boot_id() and get_start_time(int(pid)) == int(start_time)

    def get_raised(self):
        try:
            return json.loads((self.directory / "raised.json").read_text())
        except OSError:
            return {}

    def _set_raised(self, raised):
        new = self.directory / "raised.json.new"
        new.write_text(json.dumps(raised))
        new.rename(self.directory / "raised.json")

    def ensure_free(self, page_size, pages, node=0, touch=True):
        """Raises a pool until `pages` pages are free in it, touches them if it grew, and returns how many are free now."""
        pool = PagePool(page_size, node)
        missing = pages - pool.get_free()
        if missing > 0:
            key, raised = f"{page_size}:{node}", self.get_raised()
            grown = pool.add(missing)
            if grown > 0:
                raised[key] = raised.get(key, 0) + grown
                self._set_raised(raised)
                if touch:
                    pool.touch_free()
        return pool.get_free()

    def release(self):
        """Ends what is left of the claim's processes, unmounts, gives the pages back by their number, removes the directory."""
        end_processes(find_processes_of_claim(self.directory))
        remove_trace_instances(self.directory)
        clean = True
        for point in get_mounts(self.directory):
            clean = unmount(point) and clean
        if self.directory.name.startswith(_get_boot_id()):
            for key, pages in self.get_raised().items():
                page_size, node = map(int, key.split(":"))
                PagePool(page_size, node).remove(pages)
        shutil.rmtree(self.directory, ignore_errors=True)
        return clean


def sweep():
    """Cleans up after runs whose process is gone without having done so. Only for the owner of the host's lock."""
    for directory in get_claims_directory().iterdir():
        claim = Claim(directory)
        if not claim.is_alive():
            note(f"cleaning up after an earlier run that was killed: {directory.name}")
            claim.release()


def get_snapshot(build):
    """What the tests must leave as they found it, one fact a line. Processes: those whose program is in the build directory."""
    lines = []
    for pool in get_page_pools():
        for name in ("nr_hugepages", "free_hugepages", "surplus_hugepages"):
            lines.append(f"node {pool.node} {pool.page_size // 1024} kB {name} {pool._get(name)}")
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        lines += [f"mount {line.split()[2]} at {line.split()[1]}" for line in mounts
                  if line.split()[2] == "hugetlbfs" or "/hpz-tests" in line]
    lines += [f"process {pid} of {build}" for pid in find_processes(build)]
    lines += [f"claim {directory.name}" for directory in get_claims_directory().iterdir()]
    return lines
