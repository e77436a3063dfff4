#!/usr/bin/env python3
"""Every system call that can fail does: others are served, the failure has a name, and the pool fills up again by itself.

Each error once; the first of each call also for a while. HPZ_LONG=1: all of them for a while, and at the third call.
"""
import contextlib
import errno
import os
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_status, hpzctl, wait_until  # noqa: E402
from hpztest.fault import Fault  # noqa: E402

MIB = host.MIB
TIMEOUT = 13
HERTZ = os.sysconf("SC_CLK_TCK")
IS_LONG = bool(os.environ.get("HPZ_LONG"))
PERSISTENT_S = 2.0 if IS_LONG else 0.5  # and at least one round of leases
REACHED_S = 15    # a new hpzd learns and calibrates before it fills and clears
CPU_MAX = 0.4     # of one processor, hpzd's while everything fails: it must not spin
SETTLE_S = 60

# What the workload adds to leasing and returning: nothing; memory is never reused, so that it is filled again; the pool is
# drained; workers are killed, so that new ones are needed; hpzd starts; more is asked for than the largest segment has.
PLAIN, NEVER, DRAIN, KILL, START, GROW = "plain", "never", "drain", "kill", "start", "grow"

# What a failure must end in: a regular expression for each, found in what hpzd's log (log:), its status (status:), the state of the
# lease (state:) and whoever was refused (refused:) say; {} is the error's text. The second, if it is another, is what it must be
# when it goes on for a while, the third what it may be, too, when the third call fails: that can be one of a lease's end.
MADE = "log: pool two: cannot make a segment on .*: {}"
NOT_LENT = "log: pool two: a lease failed: {}"
RETURNING = "log: lease .*: its memory cannot be taken back: {}; it stays returning"
BACK = "log: pool two: segment .* goes back to the kernel: "
NO_PAGES = BACK + "the kernel has not enough pages for it now"
UNWRITTEN = "log: journal: lease .*: {}; a restart now would know less of it"
UNANSWERED = "log: a client of uid 0 cannot be answered: {}"
NO_JOB = "log: worker .* could not be given a job: {}"
NO_WORKER = "log: cannot start a worker: "
AT_ONCE = None  # tried again at once: nothing to be said of it

# operation, point, process, what it needs, errors, what they end in
FAULTS = [
    ("fallocate", "filling", "memory", NEVER, "ENOSPC ENOMEM", NO_PAGES),
    ("fallocate", "filling", "memory", NEVER, "EIO", "log: pool two: filling of segment .* failed: {}"),
    ("fallocate", "filling", "memory", NEVER, "EINTR", AT_ONCE),
    ("fallocate", "dirty", "memory", PLAIN, "ENOSPC", NO_PAGES),
    ("fallocate", "dirty", "memory", PLAIN, "EIO", "log: pool two: clearing of segment .* failed: {}"),
    ("fallocate", "dirty", "memory", PLAIN, "EINTR", AT_ONCE),
    ("fallocate", "punch", "helper", PLAIN, "EIO", "log: segment .*: its tail cannot be given back: {}"),
    ("mmap", "dirty", "memory", PLAIN, "ENOMEM", NO_PAGES),
    ("mmap", "dirty", "memory", PLAIN, "EPERM", "log: pool two: clearing of segment .* failed: {}"),
    ("truncate", "filling", "hpzd", NEVER, "EIO ENOSPC", MADE),
    ("open", "filling", "hpzd", NEVER, "EMFILE ENOSPC EIO", MADE),
    ("open", "dirty", "hpzd", PLAIN, "EMFILE EIO", "log: pool two: segment .* cannot be opened for clearing: {}"),
    ("open", "leased", "hpzd", PLAIN, "EMFILE ENFILE EIO", (NOT_LENT, NOT_LENT, AT_ONCE)),
    ("rename", "clean>leased", "hpzd", PLAIN, "EIO EPERM ENOSPC", NOT_LENT),
    ("rename", "leased>dirty", "hpzd", PLAIN, "EIO ENOSPC", "log: segment .* cannot be taken back: {}"),
    ("rename", "dirty>clean", "hpzd", PLAIN, "EIO", "log: pool two: segment .* is not whole after the work on it: {}"),
    ("rename", "filling>clean", "hpzd", NEVER, "EIO", "log: pool two: segment .* is not whole after the work on it: {}"),
    ("chown", "leased", "hpzd", PLAIN, "EPERM", NOT_LENT),
    ("chmod", "leased", "hpzd", PLAIN, "EPERM", NOT_LENT),
    ("chown", "leased", "helper", PLAIN, "EPERM EIO", (AT_ONCE, RETURNING)),
    ("chmod", "leased", "helper", PLAIN, "EPERM", (AT_ONCE, RETURNING)),
    ("mkdir", "out", "hpzd", PLAIN, "ENOSPC EMLINK", NOT_LENT),
    ("link", "out", "hpzd", PLAIN, "ENOSPC EMLINK EPERM", NOT_LENT),
    ("unlink", "out", "helper", PLAIN, "EIO", (AT_ONCE, RETURNING)),
    ("unlink", "out-dir", "helper", PLAIN, "EBUSY", (AT_ONCE, RETURNING)),
    ("unlink", "leased", "helper", NEVER, "EIO", (AT_ONCE, "state: returning")),
    ("unlink", "clean", "hpzd", DRAIN, "EIO", "log: pool two: a clean segment cannot be unlinked: {}"),
    ("write", "journal", "hpzd", PLAIN, "ENOSPC EIO", (NOT_LENT, NOT_LENT, UNWRITTEN)),
    ("write", "journal", "hpzd", PLAIN, "EINTR", AT_ONCE),
    ("write", "journal.new", "hpzd", START, "ENOSPC", ""),
    ("rename", "journal.new>journal", "hpzd", START, "EIO", ""),
    ("sendmsg", "reply", "hpzd", PLAIN, "ENOBUFS ETOOMANYREFS ENOMEM", UNANSWERED),
    ("sendmsg", "reply", "hpzd", PLAIN, "EINTR", AT_ONCE),
    ("sendmsg", "job", "hpzd", PLAIN, "ENOBUFS ETOOMANYREFS", NO_JOB),
    ("sendmsg", "done", "memory", PLAIN, "ENOBUFS", "log: memory worker .* died: .*; its job will be done again"),
    ("sendmsg", "done", "helper", PLAIN, "ENOBUFS", "log: helper worker .* died: .*; its job will be done again"),
    ("setlease", "leased", "helper", PLAIN, "EAGAIN EINVAL ENOMEM", AT_ONCE),  # with the full proof it decides nothing
    ("rename", "clean>filling", "hpzd", GROW, "EIO", NOT_LENT),
    ("mmap", "filling", "memory", GROW, "ENOMEM", NO_PAGES),
    ("mmap", "filling", "memory", GROW, "EPERM", "log: pool two: segment .* cannot be extended: {}"),
    ("unlink", "clean", "hpzd", GROW, "EIO", "log: pool two: .*segment .*cannot be unlinked: {}"),
    ("fork", "-", "hpzd", KILL, "EAGAIN ENOMEM", NO_WORKER),
    ("exec", "-", "hpzd", KILL, "ENOMEM", NO_WORKER),
]
# Whoever is lent nothing because of it is told so.
REFUSED = "refused: hpzd could not do it; its log says why"


class Faults(HpzTest):
    def setUp(self):
        super().setUp()
        self.fault = Fault(self.service.directory)
        self.addCleanup(self.fault.close)
        self.addCleanup(self.back_to_normal)
        self.service.stop()
        begin = len(self.service.get_log())
        self.service.start(self.fault.environment)
        self.wait_idle()
        # What it takes to see the ends of processes is open then.
        wait_until("the program is loaded", lambda: "ends of processes are seen by" in self.service.get_log(begin), 60)

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

    def try_leases(self, size):
        """One of each kind, ended in its own way; what is refused is refused with a reason."""
        refusals = []
        for options, way in (((), "leave"), (("--reopenable",), "release"), (("--path",), "release"), (("--path",), "leave"),
                             (("--unbound",), "release")):
            try:
                # 6M: the tail of a segment of 8M is punched; 20M: one of 16M becomes longer, others go for it.
                holder = Hold("--size", size, "--timeout", 100, "--label", "tried", *options)
            except HoldError as error:
                self.assertTrue(error.answer["error"], error.answer)
                # That memory is not clean again in time is what a busy machine does, too.
                if error.answer.get("hpz_error") != TIMEOUT:
                    refusals.append(error.answer["error"])
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
        """What was refused, and why."""
        if need == DRAIN:
            return [hpzctl("drain", "--timeout", 1, check=False).stderr.strip()]
        if need == KILL:
            host.end_processes(self.service.get_workers(), 0)
        return self.try_leases(20 * MIB if need == GROW else 6 * MIB)

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
            get_status()  # fails when it is not answered

    def check_recovery(self, descriptors):
        self.release_all()
        done = hpzctl("wait", "--timeout", SETTLE_S, check=False)
        self.assertEqual(done.returncode, 0, f"not full again after {SETTLE_S} s: {get_status()}")
        wait_until("the trials' leases end", lambda: not [lease for lease in get_leases() if lease["label"] == "tried"], 30)
        # Idle helpers go one after the other.
        try:
            wait_until(f"no more than {descriptors} descriptors are open again",
                       lambda: self.get_descriptors() <= descriptors, 30)
        except AssertionError as error:
            raise AssertionError(f"{error}, but: {self.tell_descriptors()}") from None

    def tell_descriptors(self):
        directory = Path(f"/proc/{self.service.get_pid()}")
        # A descriptor may go while they are listed.
        with contextlib.suppress(OSError):
            links = [os.readlink(path) for path in (directory / "fd").iterdir()]
            watched = [line for path in (directory / "fdinfo").iterdir() for line in path.read_text().split("\n") if line.startswith("Pid:")]
            return f"{sorted(links)}, processes {watched}"
        return "they changed meanwhile"

    def inject(self, fault, error, when):
        operation, point, process, need = fault[:4]
        self.prepare(need)
        descriptors, log = self.get_descriptors() + 2, len(self.service.get_log())  # a worker may have come to stay
        with Hold("--size", 4 * MIB, "--timeout", 15000, "--unbound", "--label", "other") as other:
            other.call("fill", 9)
            # Its receipt is written down, too: what fails is to be of those that are tried.
            wait_until("it has arrived", lambda: self.get_lease(other.id)["state"] == "leased")
            rule, = self.fault.set(f"{operation} {point} {process} {when} {error}")
            begin, cpu, evidence = time.monotonic(), self.get_cpu_seconds(), set()
            least = PERSISTENT_S if when == "1-" else 0
            while time.monotonic() < begin + least or (not self.fault.get_hits(rule) and time.monotonic() < begin + REACHED_S):
                evidence |= {f"refused: {refusal}" for refusal in self.work(need)}
                if point != "reply":
                    status = get_status()
                    evidence |= {f"status: {pool['message']}" for pool in status["pools"] if pool["message"]}
                    evidence |= {f"state: {lease['state']}" for lease in status["leases"] if lease["label"] == "tried"}
            wall, cpu = time.monotonic() - begin, self.get_cpu_seconds() - cpu
            if when != "1" or point != "reply":
                self.check_others(other, point)
            self.assertGreater(self.fault.get_hits(rule), 0, f"{fault[:3]} {error}: it never came to that call")
            self.fault.clear()
            self.assertLess(cpu, CPU_MAX * wall + 0.1, f"hpzd spins: {cpu:.2f} s of processor time in {wall:.2f} s")
            if need == DRAIN:
                self.service.reload()
            other.call("release")
        self.check_recovery(descriptors)
        evidence |= {f"log: {line.removeprefix('hpzd: ')}" for line in self.service.get_log(log).split("\n")}
        self.check_named(fault, error, when, evidence)

    def check_named(self, fault, error, when, evidence):
        """The state it must have ended in, by its name; the rest is check_recovery()'s."""
        ends = fault[5] if isinstance(fault[5], tuple) else (fault[5],)
        which = {"1": ends[:1], "1-": ends[1:2] or ends, "3": ends[:1] + ends[2:]}[when]
        self.assertTrue([end for end in which if self.has_ended(end, error, evidence)],
                        f"{fault[:3]} {error}: not {which}, but {sorted(evidence)}")

    @staticmethod
    def has_ended(end, error, evidence):
        if end is AT_ONCE:
            return not any(line.startswith("refused: ") for line in evidence)
        pattern = re.compile(end.replace("{}", re.escape(os.strerror(getattr(errno, error)))))
        # Who is lent nothing is told so; a record of the journal may have been another lease's.
        return any(pattern.match(line) for line in evidence) and (end is not NOT_LENT or REFUSED in evidence)

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

    if IS_LONG:
        def test_the_third(self):
            """Halfway through a round of leases."""
            self.run_all("3")

    def test_for_a_while(self):
        self.run_all("1-")

    def test_return_without_descriptors(self):
        """Memory that cannot even be looked at stays returning, says why, and is back when it can."""
        for need in (PLAIN, NEVER):
            with self.subTest(need):
                self.prepare(need)
                log = len(self.service.get_log())
                with Hold("--size", 6 * MIB, "--unbound", "--label", "tried") as holder:
                    self.fault.set("open leased hpzd 1- EMFILE")
                    holder.call("release")
                    said = re.compile(RETURNING.removeprefix("log: ").replace("{}", re.escape(os.strerror(errno.EMFILE))))
                    wait_until("it is said", lambda log=log, said=said: said.search(self.service.get_log(log)))
                    self.assertEqual(self.get_lease(holder.id)["state"], "returning")
                    self.fault.clear()
                self.wait_ended(holder.id)
                self.wait_clean()

    def test_at_start(self):
        """A journal that cannot be compacted is one that grows: hpzd serves all the same."""
        for fault in FAULTS:
            operation, point, process, need, errors, _ = fault
            if need != START:
                continue
            for error in errors.split():
                with self.subTest(f"{operation} {point} {error}"), Hold("--size", 4 * MIB, "--unbound") as other:
                    other.call("fill", 9)
                    log = len(self.service.get_log())
                    self.service.kill()
                    rule, = self.fault.set(f"{operation} {point} {process} 1- {error}")
                    self.service.start(self.fault.environment)
                    # It takes connections before it has adopted what there is.
                    wait_until("it fails", lambda rule=rule: self.fault.get_hits(rule))
                    wait_until("it is said", lambda log=log: "journal: cannot be compacted" in self.service.get_log(log))
                    # Killed before it read that the lease arrived, hpzd finds out by looking.
                    wait_until("it is known", lambda: self.get_lease(other.id)["state"] == "leased")
                    self.check_others(other, point)
                    self.fault.clear()


if __name__ == "__main__":
    main("--2m", "64", "--stock", "16M*2 8M*8 2M*rest")
