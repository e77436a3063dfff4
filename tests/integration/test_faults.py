#!/usr/bin/env python3
"""Every system call that can fail does: others are served, the failure has a name, and the pool fills up again by itself.

Each error once; the first of each call also for a while. HPZ_LONG=1: all of them for a while.
"""
import contextlib
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_status, hpzctl, wait_until  # noqa: E402
from hpztest.fault import Fault  # noqa: E402

MIB = host.MIB
HERTZ = os.sysconf("SC_CLK_TCK")
IS_LONG = bool(os.environ.get("HPZ_LONG"))
PERSISTENT_S = 1.0
REACHED_S = 15    # a new hpzd learns and calibrates before it fills and clears
CPU_MAX = 0.4     # of one processor, hpzd's while everything fails: it must not spin
SETTLE_S = 60

# What the workload adds to leasing and returning: nothing; memory is never reused, so that it is filled again; the pool is
# drained; workers are killed, so that new ones are needed; hpzd starts.
PLAIN, NEVER, DRAIN, KILL, START = "plain", "never", "drain", "kill", "start"

# operation, point, process, what it needs, errors
FAULTS = [
    ("fallocate", "filling", "memory", NEVER, "ENOSPC ENOMEM EIO EINTR"),
    ("fallocate", "dirty", "memory", PLAIN, "ENOSPC EIO EINTR"),
    ("fallocate", "punch", "helper", PLAIN, "EIO"),
    ("mmap", "dirty", "memory", PLAIN, "ENOMEM EPERM"),
    ("truncate", "filling", "hpzd", NEVER, "EIO ENOSPC"),
    ("open", "filling", "hpzd", NEVER, "EMFILE ENOSPC EIO"),
    ("open", "dirty", "hpzd", PLAIN, "EMFILE EIO"),
    ("open", "leased", "hpzd", PLAIN, "EMFILE ENFILE EIO"),
    ("rename", "clean>leased", "hpzd", PLAIN, "EIO EPERM ENOSPC"),
    ("rename", "leased>dirty", "hpzd", PLAIN, "EIO"),
    ("rename", "dirty>clean", "hpzd", PLAIN, "EIO"),
    ("rename", "filling>clean", "hpzd", NEVER, "EIO"),
    ("chown", "leased", "hpzd", PLAIN, "EPERM"),
    ("chmod", "leased", "hpzd", PLAIN, "EPERM"),
    ("chown", "leased", "helper", PLAIN, "EPERM EIO"),
    ("chmod", "leased", "helper", PLAIN, "EPERM"),
    ("mkdir", "out", "hpzd", PLAIN, "ENOSPC EMLINK"),
    ("link", "out", "hpzd", PLAIN, "ENOSPC EMLINK EPERM"),
    ("unlink", "out", "helper", PLAIN, "EIO"),
    ("unlink", "out-dir", "helper", PLAIN, "EBUSY"),
    ("unlink", "leased", "helper", NEVER, "EIO"),
    ("unlink", "clean", "hpzd", DRAIN, "EIO"),
    ("write", "journal", "hpzd", PLAIN, "ENOSPC EIO EINTR"),
    ("write", "journal.new", "hpzd", START, "ENOSPC"),
    ("rename", "journal.new>journal", "hpzd", START, "EIO"),
    ("sendmsg", "reply", "hpzd", PLAIN, "ENOBUFS ETOOMANYREFS ENOMEM EINTR"),
    ("sendmsg", "job", "hpzd", PLAIN, "ENOBUFS ETOOMANYREFS"),
    ("sendmsg", "done", "memory", PLAIN, "ENOBUFS"),
    ("sendmsg", "done", "helper", PLAIN, "ENOBUFS"),
    ("setlease", "leased", "helper", PLAIN, "EAGAIN EINVAL ENOMEM"),
    ("fork", "-", "hpzd", KILL, "EAGAIN ENOMEM"),
    ("exec", "-", "hpzd", KILL, "ENOMEM"),
]
# Tried again at once, or of no consequence: nothing needs to be said of it.
SILENT_ERRORS = {"EINTR"}
SILENT = {("setlease", "leased")}


class Faults(HpzTest):
    def setUp(self):
        super().setUp()
        self.fault = Fault(self.service.directory)
        self.addCleanup(self.fault.close)
        self.addCleanup(self.back_to_normal)
        self.service.stop()
        self.service.start(self.fault.environment)
        self.wait_idle()

    def back_to_normal(self):
        """The last hpzd of this test knew the shim; the next one does not."""
        self.fault.clear()
        if self.service.get_pid():
            self.service.stop()

    def get_descriptors(self):
        return len(os.listdir(f"/proc/{self.service.get_pid()}/fd"))

    def get_cpu_seconds(self):
        fields = Path(f"/proc/{self.service.get_pid()}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / HERTZ

    def try_leases(self):
        """One of each kind, ended in its own way; what is refused is refused with a reason."""
        refusals = []
        for options, way in (((), "leave"), (("--reopenable",), "release"), (("--path",), "release"), (("--path",), "leave"),
                             (("--unbound",), "release")):
            try:
                # 6M: the tail of a segment of 8M is punched.
                holder = Hold("--size", 6 * MIB, "--timeout", 100, "--label", "tried", *options)
            except HoldError as error:
                refusals.append(error.answer)
                self.assertTrue(error.answer["error"], error.answer)
                continue
            except AssertionError:
                continue
            self.assertTrue(holder.call("check-zero")["equal"])
            holder.call("fill", 1)
            if way == "release":
                with contextlib.suppress(HoldError):
                    holder.call("release")
            holder.end()
        return refusals

    def work(self, need):
        if need == DRAIN:
            hpzctl("drain", "--timeout", 1, check=False)
            return
        if need == KILL:
            host.end_processes(self.service.get_workers(), 0)
        self.try_leases()

    def release_all(self):
        for lease in get_leases():
            if lease["label"] == "tried":
                hpzctl("release", lease["id"])

    def prepare(self, need):
        self.set_config("pool two", "reuse", "never" if need == NEVER else "proven")
        self.service.reload()
        self.wait_idle()

    def check_others(self, other, point):
        """Whoever has nothing to do with it: the holder's memory, and a question, unless answers are what fails."""
        self.assertTrue(other.call("verify", 9)["equal"])
        if point != "reply":
            begin = time.monotonic()
            get_status()
            self.assertLess(time.monotonic() - begin, 2, "hpzd does not answer while something fails")

    def check_recovery(self, descriptors):
        self.release_all()
        done = hpzctl("wait", "--timeout", SETTLE_S, check=False)
        self.assertEqual(done.returncode, 0, f"not full again after {SETTLE_S} s: {get_status()}")
        wait_until("the trials' leases end", lambda: not [lease for lease in get_leases() if lease["label"] == "tried"], 30)
        # Idle helpers go one after the other.
        wait_until(f"no more than {descriptors} descriptors are open again",
                   lambda: self.get_descriptors() <= descriptors, 10)

    def inject(self, fault, error, when):
        operation, point, process, need, _ = fault
        self.prepare(need)
        descriptors, log = self.get_descriptors() + 2, len(self.service.get_log())  # a worker may have come to stay
        with Hold("--size", 4 * MIB, "--timeout", 15000, "--unbound", "--label", "other") as other:
            other.call("fill", 9)
            rule, = self.fault.set(f"{operation} {point} {process} {when} {error}")
            begin, cpu, messages = time.monotonic(), self.get_cpu_seconds(), set()
            least = PERSISTENT_S if when == "1-" else 0
            while time.monotonic() < begin + least or (not self.fault.get_hits(rule) and time.monotonic() < begin + REACHED_S):
                self.work(need)
                if point != "reply":
                    status = get_status()
                    messages |= {pool["message"] for pool in status["pools"]}
                    messages |= {lease["state"] for lease in status["leases"] if lease["label"] == "tried"}
            wall, cpu = time.monotonic() - begin, self.get_cpu_seconds() - cpu
            if when != "1" or point != "reply":
                self.check_others(other, point)
            self.assertGreater(self.fault.get_hits(rule), 0, f"{fault[:3]} {error}: it never came to that call")
            said = self.service.get_log(log)
            self.fault.clear()
            self.assertLess(cpu, CPU_MAX * wall + 0.1, f"hpzd spins: {cpu:.2f} s of processor time in {wall:.2f} s")
            if need == DRAIN:
                self.service.reload()
            other.call("release")
        self.check_recovery(descriptors)
        if error not in SILENT_ERRORS and (operation, point) not in SILENT:
            named = bool(messages - {"", "leased", "offered", None}) or any(
                word in said for word in (": ", "died", "could not"))
            self.assertTrue(named, f"{fault[:3]} {error}: neither status nor log says anything")

    def run_all(self, when):
        for fault in FAULTS:
            errors = fault[4].split()
            for error in errors if when == "1" or IS_LONG else errors[:1]:
                # Whoever tries again at once does so for ever when it never ends: no kernel does that.
                if fault[3] == START or (error == "EINTR" and when == "1-"):
                    continue
                with self.subTest(f"{fault[2]} {fault[0]} {fault[1]} {error}"):
                    self.inject(fault, error, when)
                self.fault.clear()

    def test_once(self):
        self.run_all("1")

    def test_for_a_while(self):
        self.run_all("1-")

    def test_at_start(self):
        """A journal that cannot be compacted is one that grows: hpzd serves all the same."""
        for fault in FAULTS:
            operation, point, process, need, errors = fault
            if need != START:
                continue
            for error in errors.split():
                with self.subTest(f"{operation} {point} {error}"), Hold("--size", 4 * MIB, "--unbound") as other:
                    other.call("fill", 9)
                    log = len(self.service.get_log())
                    self.service.kill()
                    rule, = self.fault.set(f"{operation} {point} {process} 1- {error}")
                    self.service.start(self.fault.environment)
                    self.assertGreater(self.fault.get_hits(rule), 0)
                    self.assertIn("journal: cannot be compacted", self.service.get_log(log))
                    # Killed before it read that the lease arrived, hpzd finds out by looking.
                    wait_until("it is known", lambda: self.get_lease(other.id)["state"] == "leased")
                    self.check_others(other, point)
                    self.fault.clear()


if __name__ == "__main__":
    main("--2m", "64", "--stock", "16M*2 8M*8 2M*rest")
