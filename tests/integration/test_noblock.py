#!/usr/bin/env python3
"""Nothing a holder does to its memory, directories or process makes hpzd's loop wait for it: the loop never sleeps for a holder.

The kernel's trace of the loop's thread, taken while others lease and ask beside an attack, says in which system calls it slept and
for how long. What the machine is busy with does not come into it: a loop that nobody runs is not one that waits. Each attack is
measured in several rounds, and the median counts. HPZ_LONG=1 measures more of them.
"""
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host, sleeps  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
LEASES, ROUNDS = 100, 9 if os.environ.get("HPZ_LONG") else 3
SEGMENTS_PAGES, POOL_PAGES = 24, 192
TENANT, NICE = 61001, 10


class Attack:
    """Under way from its beginning to its end; what counts its rounds (None: it has none) shows that it is."""

    def get_rounds(self):
        return None

    def end(self):
        pass


class Block(Attack):
    def __init__(self, kind, path, user=None):
        self.process = subprocess.Popen([f"{get_build_directory()}/tests/block", kind, path], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user,
                                        extra_groups=[] if user is not None else None)
        self.line = self.process.stdout.readline().strip()
        for thread in self.get_threads():  # it loses its CPU with the locks in its hands, and gets it back late
            os.setpriority(os.PRIO_PROCESS, thread, NICE)

    def get_threads(self):
        with contextlib.suppress(OSError):
            return [int(thread) for thread in os.listdir(f"/proc/{self.process.pid}/task")]
        return []

    def get_rounds(self):
        self.process.stdin.write("\n")
        return int(self.process.stdout.readline())

    def end(self):
        if self.process.stdin.closed:
            return
        for thread in self.get_threads():  # else it takes its time to die beside busy processes
            with contextlib.suppress(OSError):
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, thread, 0)
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class NoBlock(HpzTest):
    def wait_stock(self):
        """A lease that is returning may stay so: not everything has to be clean."""
        wait_until("there is stock for a round", lambda: get_pool()["clean"] >= SEGMENTS_PAGES + ROUNDS, 120)

    def trace(self, thread):
        return sleeps.Sleeps(self.service.directory, thread)

    def measure(self, attack):
        """Others lease and ask beside an attack until it, too, has done something; the trace."""
        before = attack.get_rounds()
        with Hold("--size", 0) as holder, self.trace(self.service.get_pid()) as trace:
            holder.call("time-leases", 2 * MIB, LEASES)
            holder.call("time-status", LEASES)
            wait_until("the attacker has a turn", lambda: before is None or attack.get_rounds() > before
                       or not holder.call("time-status", 1), 300)
        self.assertGreater(trace.events["sys_exit"], 10 * LEASES, "that was not the loop")
        return trace

    def lease(self):
        lease = hpzctl_json("lease", "16M", "--path", "--owner", f"{TENANT}:{TENANT}", "--keep", "--wait", "60")
        self.addCleanup(hpzctl, "release", lease["id"])
        return lease["id"], lease["path"]

    def watch(self, what, start):
        """`start` starts the attack and returns something to end."""
        daemon, worst = self.service.get_pid(), []
        for _ in range(ROUNDS):
            self.wait_stock()
            attack = start()
            try:
                worst.append(self.measure(attack).get_worst())
            except sleeps.NoTrace as error:
                self.skipTest(str(error))
            finally:
                attack.end()
        host.note(f"{what}: the loop's longest sleeps: {'; '.join(map(str, worst))}")
        median_ns = statistics.median(call.ns if call else 0 for call in worst)
        self.assertLess(median_ns, sleeps.LOOP_MAX_NS, f"beside {what} the loop waits: {'; '.join(map(str, worst))}")
        self.assertEqual(self.service.get_pid(), daemon)

    def block(self, kind):
        _, path = self.lease()

        def start():
            block = Block(kind, path, TENANT)
            self.assertEqual(block.line, "ready")
            return block
        self.watch(kind, start)

    def test_punch(self):
        self.block("punch")

    def test_fault(self):
        self.block("fault")

    def test_map(self):
        self.block("map")

    def test_returning(self):
        """Ended, while it goes on: now helpers want the locks of its file and of its address space."""
        for kind in ("punch", "map"):
            with self.subTest(kind):
                lease, path = self.lease()

                def start(kind=kind, lease=lease, path=path):
                    if not os.path.exists(path):
                        lease, path = self.lease()
                    block = Block(kind, path, TENANT)
                    self.assertEqual(block.line, "ready")
                    hpzctl("release", lease)
                    return block
                self.watch(f"{kind}, returning", start)

    def see(self, block, victim, path):
        """Python that does what hpzd must not do is seen to sleep by the same trace."""
        with running([sys.executable, "-c", f"import os, sys\npath = sys.argv[1]\nwhile True: {victim}", path]) as process:
            def is_seen():
                with self.trace(process.pid) as trace:
                    time.sleep(0.3)
                call = trace.get_worst()
                return call if call and call.ns >= sleeps.LOOP_MAX_NS else None
            try:
                return wait_until("it sleeps", is_seen, 300)
            except sleeps.NoTrace as error:
                return self.skipTest(str(error))
            finally:
                process.kill()
                block.end()  # only then it ends

    def test_the_limit_can_fail(self):
        """Who takes the lock of a file or of a directory that is held, or that of an address space, is seen to sleep."""
        _, path = self.lease()
        chmod, read = "os.chmod(path, 0o700)", "open(path).read()"
        for kind, victim, held in (("punch", chmod, path), ("map", read, path), ("directory", chmod, os.path.dirname(path))):
            with self.subTest(kind):
                block = Block(kind, held, TENANT if held == path else None)
                self.addCleanup(block.end)
                if block.line != "ready" and kind == "directory":
                    self.skipTest(block.line)
                self.assertEqual(block.line, "ready")
                call = self.see(block, victim, f"/proc/{block.process.pid}/smaps_rollup" if victim == read else held)
                host.note(f"{kind}, who waits for its lock: {call}")

    def hold_directory(self, kind):
        """The lock of a hand-over directory is held for good: only a helper waits for it."""
        lease, path = self.lease()
        block = Block(kind, os.path.dirname(path))
        self.addCleanup(block.end)
        if block.line != "ready":
            self.skipTest(block.line)
        wait_until("the directory is being read", lambda: self.is_waiting(block.process.pid))

        class Released(Attack):
            def __init__(self):
                hpzctl("release", lease)
            def end(self):
                pass
        self.watch(f"a directory that is held ({kind})", Released)
        self.assertEqual(self.get_lease(lease)["state"], "returning")
        # A helper that waits for the lock cannot even be killed: not one more for each look.
        self.assertLess(len(self.service.get_workers()), 12, "helpers pile up behind the lock")
        block.end()
        self.wait_ended(lease)

    def is_waiting(self, pid):
        """A thread of it is in the fault that nobody answers."""
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/wchan", encoding="utf-8") as wchan:
                if wchan.read() in ("request_wait_answer", "handle_userfault"):
                    return True
        return False

    def test_directory(self):
        self.hold_directory("directory")

    def test_directory_fuse(self):
        """The page that the kernel writes the entries to is of a FUSE file, and its server never answers."""
        self.hold_directory("fuse")

    def test_stopped_process(self):
        """Holds memory that has ended, is stopped, and its /proc is read for holders again and again."""
        with Hold("--size", 16 * MIB, "--unbound") as holder:
            def start():
                os.kill(holder.pid, signal.SIGSTOP)
                hpzctl("release", holder.id)
                wait_until("hpzd says what holds it", lambda: re.search(
                    rf"lease {holder.id} .*still held by", self.service.get_log()))

                class Stopped(Attack):
                    def end(self):
                        os.kill(holder.pid, signal.SIGCONT)
                return Stopped()
            self.watch("a stopped process", start)
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "16M*3 2M*rest")
