#!/usr/bin/env python3
"""What hpzd sees of the end of those who had memory: once each, and as the kernel's own trace has it."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import run_tests  # noqa: E402
from hpztest.client import hpzctl_json, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402
from hpztest.simulated import SimulatedTest  # noqa: E402

# As the issue has it: times agree within 10 % or 1 ms. Whoever loses its CPU between two looks at one moment is later than that, so
# one try of several must.
MARGIN, MARGIN_NS, TRIES = 0.1, 1_000_000, 6
AT_ONCE = 20
_SEEN = re.compile(r"exit: process (\d+) (ended|exited with|killed by) (-?\d+), address space gone at (\d+) ns, took (\d+ ns|unknown), by (\w+)")
_EVENT = re.compile(r"^.{16}-(\d+) .*? (\d+)\.(\d{6}): (sched_process_exit|exit_mmap):", re.MULTILINE)
# Its end takes a few milliseconds.
HOLDER = "import time; memory = b'x' * (64 << 20); print('ready', flush=True); time.sleep(600)"
SEEN_BY = "ends of processes are seen by"
OPENER = "import sys, time; file = open(sys.argv[1], 'r+b'); print('ready', flush=True); time.sleep(600)"

# A file, and children that have it open, too.
OPENERS = """
import os, sys, time
file = open(sys.argv[1], "r+b")
for _ in range(int(sys.argv[2]) - 1):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
OPENED_BY, WATCHED_MAX = 48, 32  # HOLDERS_MAX in daemon/handoff_exits.c


class ExitsTest(SimulatedTest):
    HPZD = "log_level = debug"
    POOL = "pages = 8G\nstock = 104M*rest"

    def get_log(self):
        return (self.directory / "hpzd.log").read_text(encoding="utf-8", errors="replace")

    def get_seen(self, pid):
        """[(how, code, gone_ns, took_ns or None, source)] of a process."""
        return [(how, int(code), int(gone), None if took == "unknown" else int(took.split()[0]), source)
                for number, how, code, gone, took, source in _SEEN.findall(self.get_log()) if int(number) == pid]

    def get_leases(self):
        return hpzctl_json("leases", "--socket", self.service.socket)["leases"]

    def wait_seen(self, pid):
        wait_until(f"the end of {pid} is seen", lambda: self.get_seen(pid), 60)
        seen = self.get_seen(pid)
        self.assertEqual(len(seen), 1, seen)
        return seen[0]

    @contextlib.contextmanager
    def holder(self, *command, wait=True):
        """A process that leases and then is what the command says."""
        process = subprocess.Popen([f"{get_build_directory()}/client/hpzctl", "run", "--socket", self.service.socket, "--size", "104M",
                                    "--", *command], stdout=subprocess.PIPE, text=True)
        try:
            if wait:
                self.assertEqual(process.stdout.readline(), "ready\n")
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                host.end_process(process.pid)
            process.wait(60)
            process.stdout.close()


class Exits(ExitsTest):
    def setUp(self):
        super().setUp()
        wait_until("the source is there", lambda: SEEN_BY in self.get_log(), 120)
        self.assertIn(f"{SEEN_BY} bpf", self.get_log())

    def test_exit_after_exec(self):
        """The address space that leased ends with the exec of `hpzctl run`: that is no end of the process."""
        with self.holder("sh", "-c", "exit 5", wait=False) as process:
            process.wait(60)
            how, code, _, took, source = self.wait_seen(process.pid)
        self.assertEqual((how, code, source), ("exited with", 5, "bpf"))
        self.assertIsNotNone(took)

    def test_restart(self):
        """hpzd is killed and comes back: both kinds of holders are watched again. A path lease names no owner: who opens it is
        found, and is not what the lease ends with."""
        lease = hpzctl_json("lease", "104M", "--path", "--keep", "--socket", self.service.socket)
        with self.holder(sys.executable, "-c", HOLDER) as owner, subprocess.Popen(
                [sys.executable, "-c", OPENER, lease["segments"][0]["path"]], stdout=subprocess.PIPE, text=True) as opener:
            self.addCleanup(opener.kill)
            opener.stdout.readline()
            wait_until("it is found", lambda: f"process {opener.pid} (python3) has it open" in self.get_log(), 60)
            self.process.kill()
            self.process.wait(60)
            self.start()
            wait_until("it is found again", lambda: self.get_log().count(f"process {opener.pid} (python3) has it open") == 2, 60)
            wait_until("the source is there again", lambda: self.get_log().count(SEEN_BY) == 2, 120)
            for process in (owner, opener):
                process.kill()
                process.wait(60)
                how, code, _, took, source = self.wait_seen(process.pid)
                self.assertEqual((how, code, source), ("killed by", signal.SIGKILL, "bpf"))
                self.assertIsNotNone(took)
        wait_until("the owner's lease is over", lambda: len(self.get_leases()) < 2, 60)
        self.assertEqual([row["id"] for row in self.get_leases()], [lease["id"]])
        self.hpzctl("release", lease["id"])

    def test_many_have_it_open(self):
        """Anybody may start thousands: of those who have a path lease open some are watched, each costs hpzd descriptors."""
        lease = hpzctl_json("lease", "104M", "--path", "--keep", "--socket", self.service.socket)
        self.process.send_signal(signal.SIGSTOP)  # it looks when all have it
        with subprocess.Popen([sys.executable, "-c", OPENERS, lease["segments"][0]["path"], str(OPENED_BY)],
                              stdout=subprocess.PIPE, text=True, start_new_session=True) as openers:
            try:
                self.assertEqual(openers.stdout.readline(), "ready\n")
                self.process.send_signal(signal.SIGCONT)
                wait_until("some are found", lambda: self.get_log().count("has it open") >= WATCHED_MAX, 60)
            finally:
                self.process.send_signal(signal.SIGCONT)
                os.killpg(openers.pid, signal.SIGKILL)
        wait_until("their ends are told", lambda: len(_SEEN.findall(self.get_log())) >= WATCHED_MAX, 60)
        self.hpzctl("release", lease["id"])
        wait_until("the lease is over", lambda: not self.get_leases(), 60)
        self.assertEqual(self.get_log().count("has it open"), WATCHED_MAX)

    def test_many_at_once(self):
        with contextlib.ExitStack() as stack:
            holders = [stack.enter_context(self.holder("sh", "-c", "echo ready; exec sleep 600")) for _ in range(AT_ONCE)]
            for holder in holders:
                holder.kill()
            for holder in holders:
                holder.wait(60)
                self.assertEqual(self.wait_seen(holder.pid)[:2], ("killed by", signal.SIGKILL))
        wait_until("all leases are over", lambda: not self.get_leases(), 60)

    # ---- as the kernel's trace has it ----

    @contextlib.contextmanager
    def trace(self):
        """A function that returns when a process began to end and when its address space was gone."""
        claim = self.directory / "claim"
        claim.mkdir(exist_ok=True)
        try:
            instance = host.make_trace_instance(claim)
        except OSError as error:
            self.skipTest(f"no tracefs: {error}")
        try:
            (instance / "trace_clock").write_text("mono")
            for event in ("sched/sched_process_exit", "mmap/exit_mmap"):
                (instance / "events" / event / "enable").write_text("1")

            def find(pid):
                times = {name: int(second) * 10**9 + int(micro) * 1000 for task, second, micro, name in
                         _EVENT.findall((instance / "trace").read_text(errors="replace")) if int(task) == pid}
                return times["sched_process_exit"], times["exit_mmap"]
            yield find
        finally:
            host.remove_trace_instances(claim)
            host.unmount(claim / "tracing")

    def test_as_the_trace_has_it(self):
        tries = []
        with self.trace() as find:
            for _ in range(TRIES):
                with self.holder(sys.executable, "-c", HOLDER) as holder:
                    holder.kill()
                    holder.wait(60)
                _, _, gone, took, source = self.wait_seen(holder.pid)
                self.assertEqual(source, "bpf")
                begun, ended = find(holder.pid)
                tries.append({"took": took, "traced": ended - begun, "late": gone - ended})
                if self.agrees(tries[-1]):
                    return
        self.fail(tries)

    @staticmethod
    def agrees(figures):
        margin = max(MARGIN * figures["traced"], MARGIN_NS)
        return abs(figures["took"] - figures["traced"]) <= margin and abs(figures["late"]) <= margin


class Off(ExitsTest):
    HPZD = ExitsTest.HPZD + "\nteardown = off"

    def test_nobody_is_watched(self):
        """And memory comes back all the same."""
        with self.holder("sh", "-c", "echo ready; exec sleep 600") as holder:
            holder.kill()
            holder.wait(60)
        wait_until("the lease is over", lambda: "its owner process is gone" in self.get_log(), 60)
        self.assertEqual(self.get_seen(holder.pid), [])


class Namespace(unittest.TestCase):
    def test_pids_of_another_namespace(self):
        """Where hpzd has numbers of its own for processes, the program goes by them."""
        build = get_build_directory()
        done = subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", build / "tests/unit/test_exits", "test_best_source"],
                              env={**os.environ, "HPZ_TEST_HPZD": str(build / "daemon/hpzd")}, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# exits bpf", done.stdout)


if __name__ == "__main__":
    run_tests()
