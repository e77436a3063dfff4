#!/usr/bin/env python3
"""Guest memory lands in no core dump, and nobody of the same uid looks into hpzd's processes.

Everything that makes dumps likely is switched on (no limit on their size, a filter that wants shared huge pages, too), and a
process that is not protected is dumped first: so it is seen that a dump, with the guest's bytes, would be found.
"""
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_status, hpzctl, wait_until  # noqa: E402

MIB = host.MIB
SIZE = 128 * MIB
EVERYTHING = "0x7f"
# A process of root's without a capability: the same uid, and nothing else.
POWERLESS = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")
PROBE = """
import ctypes, json, os, sys
pid, address = int(sys.argv[1]), int(sys.argv[2])
libc, got = ctypes.CDLL(None, use_errno=True), []
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
bytes_ = ctypes.create_string_buffer(64)
if libc.process_vm_readv(pid, ctypes.byref(Piece(ctypes.addressof(bytes_), 64)), 1, ctypes.byref(Piece(address, 64)), 1, 0) > 0:
    got.append("process_vm_readv")
def attempt(what, function):
    try:
        function()
        got.append(what)
    except OSError:
        pass
attempt("mem", lambda: os.pread(os.open(f"/proc/{pid}/mem", os.O_RDONLY), 64, address))
attempt("fd", lambda: [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")])
attempt("maps", lambda: open(f"/proc/{pid}/maps").read(1))
SYS_pidfd_getfd, PTRACE_SEIZE = 438, 0x4206
for number in range(10):
    if libc.syscall(SYS_pidfd_getfd, os.pidfd_open(pid), number, 0) >= 0:
        got.append("pidfd_getfd")
        break
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
    got.append("ptrace")
print(json.dumps(got))
"""


def set_dumped(pid):
    """Whatever it may dump it dumps."""
    resource.prlimit(pid, resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    Path(f"/proc/{pid}/coredump_filter").write_text(EVERYTHING)


def find_mapping(pid, word):
    """The address of a mapping; None. A process that ends meanwhile has none."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if word in line:
                return int(line.split("-")[0], 16)
    return None


def read_memory(pid, address, length):
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(address)
        return memory.read(length)


class Dumps(HpzTest):
    def setUp(self):
        super().setUp()
        self.directory = Path(tempfile.mkdtemp(prefix="hpz-dump."))
        self.addCleanup(shutil.rmtree, self.directory)
        self.check_that_dumps_are_made()
        self.service.stop()
        self.service.start(prefix=("env", "-C", str(self.directory), "prlimit", "--core=unlimited:unlimited", "sh", "-c",
                                   f"echo {EVERYTHING} >/proc/self/coredump_filter; exec \"$@\"", "sh"))
        self.addCleanup(self.service.stop)
        self.assertEqual(os.readlink(f"/proc/{self.service.get_pid()}/cwd"), str(self.directory))
        self.wait_idle()

    def get_dumps(self):
        return [file for file in self.directory.iterdir() if file.stat().st_size > 0]

    def check_that_dumps_are_made(self):
        """The tenant itself is dumped, with its memory: else nothing that is missed below says anything."""
        here = os.getcwd()
        os.chdir(self.directory)
        try:
            with Hold("--size", 2 * MIB) as holder:
                holder.call("fill", 7)
                mark = read_memory(holder.pid, find_mapping(holder.pid, "/hpz/1/"), 64)
                set_dumped(holder.pid)
                os.kill(holder.pid, signal.SIGSEGV)
                holder.process.wait(60)
        finally:
            os.chdir(here)
        dumps = self.get_dumps()
        if not dumps:
            pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
            self.skipTest(f"this machine leaves no core dumps in the working directory (core_pattern {pattern})")
        self.assertTrue(any(mark in dump.read_bytes() for dump in dumps), "a dump without the memory: the test sees nothing")
        for dump in dumps:
            dump.unlink()
        self.wait_idle()

    def check_no_dump(self, mark):
        for dump in self.get_dumps():
            self.assertNotIn(mark, dump.read_bytes(), f"guest memory in {dump}")
        self.assertEqual(self.get_dumps(), [], "hpzd's processes are not to be dumped at all")

    def get_memory_worker(self):
        return next((pid for pid in self.service.get_workers()
                     if Path(f"/proc/{pid}/comm").read_text().strip() == "hpzd-memory"), None)

    def catch_worker(self):
        """A stopped worker that has a tenant's memory mapped, and what is there; its job goes on with SIGCONT."""
        for _ in range(40):
            worker = wait_until("there is a worker", self.get_memory_worker)
            with Hold("--size", SIZE) as holder:
                holder.call("fill", 7)
                mark = read_memory(holder.pid, find_mapping(holder.pid, "/hpz/1/") + SIZE - 4096, 64)
                os.kill(worker, signal.SIGSTOP)
            # It comes back to a worker that is stopped; from now on a millisecond at a time.
            for _ in range(400):
                os.kill(worker, signal.SIGCONT)
                time.sleep(0.001)
                os.kill(worker, signal.SIGSTOP)
                if find_mapping(worker, "/hpz/1/"):
                    self.addCleanup(self.let_go_on, worker)
                    return worker, mark
                if not get_status()["leases"] and get_status()["pools"][0]["dirty"] == 0:
                    break
            os.kill(worker, signal.SIGCONT)
            self.wait_idle()
        self.fail("no worker was met at its work")
        return None

    def let_go_on(self, worker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)

    def kill_worker(self, number):
        worker, mark = self.catch_worker()
        address = find_mapping(worker, "/hpz/1/")
        self.assertTrue(read_memory(worker, address, 1), "it has the memory: it would be dumped")
        self.assertEqual(os.readlink(f"/proc/{worker}/cwd"), str(self.directory))
        pidfd = host.open_pidfd(worker)
        try:
            os.kill(worker, number)
            os.kill(worker, signal.SIGCONT)
            self.assertTrue(host.wait_pidfd(pidfd, 60))
        finally:
            os.close(pidfd)
        self.check_no_dump(mark)
        self.wait_clean()
        with Hold("--size", SIZE) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])

    def test_worker_segv(self):
        self.kill_worker(signal.SIGSEGV)

    def test_worker_abort(self):
        self.kill_worker(signal.SIGABRT)

    def test_each_barrier(self):
        """No limit on dumps is left to a worker, no kind of memory is to be in one, and its /proc is root's."""
        worker, _ = self.catch_worker()
        try:
            self.assertEqual(resource.prlimit(worker, resource.RLIMIT_CORE), (0, 0))
            self.assertEqual(int(Path(f"/proc/{worker}/coredump_filter").read_text(), 16), 0)
            flags = [line.split()[1:] for line in Path(f"/proc/{worker}/smaps").read_text().split("/hpz/1/")[1].splitlines()
                     if line.startswith("VmFlags:")][0]
            self.assertIn("dd", flags, "the mapping itself is not marked MADV_DONTDUMP")
        finally:
            os.kill(worker, signal.SIGCONT)
        self.wait_clean()

    def test_hpzd(self):
        """With memory out and a worker in the middle of its work."""
        for number in (signal.SIGSEGV, signal.SIGABRT):
            with self.subTest(number.name), Hold("--size", 2 * MIB, "--unbound") as holder:
                holder.call("fill", 9)
                worker, mark = self.catch_worker()
                daemon = self.service.get_pid()
                set_dumped(daemon)
                os.kill(daemon, number)
                wait_until("it is gone", lambda: host.get_start_time(daemon) is None)
                self.let_go_on(worker)  # it dies with hpzd
                self.check_no_dump(mark)
                self.service.kill()
                self.service.start(prefix=("env", "-C", str(self.directory)))
                self.assertTrue(holder.call("verify", 9)["equal"])
            self.wait_clean()

    def probe(self, pid, address):
        done = subprocess.run([*POWERLESS, sys.executable, "-c", PROBE, str(pid), str(address)], capture_output=True, text=True,
                              check=True, timeout=60)
        return json.loads(done.stdout)

    def test_same_uid(self):
        """Neither memory nor descriptors of a worker can be had by another process of its uid; of others they can."""
        ordinary = subprocess.Popen([*POWERLESS, "sleep", "600"])
        try:
            wait_until("it sleeps", lambda: Path(f"/proc/{ordinary.pid}/comm").read_text().strip() == "sleep")
            got = self.probe(ordinary.pid, find_mapping(ordinary.pid, "sleep"))
        finally:
            ordinary.kill()
            ordinary.wait()
        if not {"process_vm_readv", "mem", "fd", "maps", "pidfd_getfd", "ptrace"} <= set(got):
            self.skipTest(f"on this machine a process may look into another one of its uid only by {got}")
        worker, _ = self.catch_worker()
        try:
            self.assertEqual(self.probe(worker, find_mapping(worker, "/hpz/1/")), [])
        finally:
            os.kill(worker, signal.SIGCONT)
        self.assertEqual(self.probe(self.service.get_pid(), find_mapping(self.service.get_pid(), "hpzd")), [])
        hpzctl("wait")


if __name__ == "__main__":
    # What hpzd finds at its start ends when it was unused twice.
    main("--2m", "80", "--stock", "128M*1 2M*rest", "--config-line", "hpzd.grace=1s")
