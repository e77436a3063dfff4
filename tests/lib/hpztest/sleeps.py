"""Where one thread sleeps in the kernel, and for how long: what it waits for, not how slow the machine is.

The kernel's own trace of that thread, in an instance of tracefs that belongs to the claim: its system calls, when it leaves a
CPU because it has to wait for something (not because somebody else gets the CPU), and when it could go on. The time until it
really goes on is the scheduler's and does not count.
"""
import collections
import contextlib
import re
import time
from pathlib import Path

from hpztest import host

# Of hpzd's loop beside four busy processes nothing but what is meant slept at all, in 24 rounds. What it shares with its own helpers
# (the directories of the pools) may be held by one that has just lost its CPU: not as long as that, and not again and again.
LOOP_MAX_NS = 20_000_000
OUTSIDE = "no system call"
_BUFFER_KIB = 8192  # of each CPU: 100,000 events
_EVENTS = (("raw_syscalls/sys_enter", "common_pid"), ("raw_syscalls/sys_exit", "common_pid"), ("sched/sched_switch", "prev_pid"),
           ("sched/sched_waking", "pid"))
_LINE = re.compile(r"^.{16}-(\d+) +\[\d+\] +\S+ +(\d+)\.(\d{6}): (\w+): (.*)$")
_SCHEDULER = ("__schedule", "schedule", "schedule_preempt_disabled", "schedule_timeout", "io_schedule")
_HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"


class NoTrace(Exception):
    """This kernel has no such trace, or we may not use it."""


class Call(collections.namedtuple("Call", "name sleeps ns stack")):
    """A system call that slept: how often, for how long in all, and where it did so the longest, the innermost function first."""

    def __str__(self):
        return f"{self.name} slept {self.ns / 1e6:.1f} ms ({self.sleeps} times) in {' < '.join(self.stack[:6])}"


def is_meant(call):
    """Of hpzd's loop: waiting for work, and for the exec of a helper just forked (uv_spawn), which nobody else can prolong."""
    return call.name.startswith("epoll_") or call.name == "read" and "pipe_read" in (call.stack or ["pipe_read"])[0]


def _get_names():
    with contextlib.suppress(OSError):
        return {int(number): name for name, number in re.findall(r"#define __NR_(\w+) (\d+)", Path(_HEADER).read_text())}
    return {}


class Sleeps:
    """The trace of a thread in a with block; then `calls`, those that slept, the longest first, and how many `events` of each kind."""

    def __init__(self, claim, thread):
        self.claim, self.thread = claim, thread
        self.directory = None
        self.calls, self.events = [], {}

    def get_worst(self):
        """The call that slept longest of those that must not, or None."""
        return next((call for call in self.calls if not is_meant(call)), None)

    def _set(self, name, value):
        (self.directory / name).write_text(value)

    def __enter__(self):
        try:
            self.directory = host.make_trace_instance(self.claim)
            self._set("buffer_size_kb", str(_BUFFER_KIB))
            self._set("trace_clock", "mono")
            self._set("events/sched/sched_switch/trigger", f"stacktrace if prev_pid == {self.thread} && prev_state != 0")
            for event, whose in _EVENTS:
                self._set(f"events/{event}/filter", f"{whose} == {self.thread}")
                self._set(f"events/{event}/enable", "1")
        except OSError as error:
            host.remove_trace_instances(self.claim)
            raise NoTrace(str(error)) from error
        return self

    def __exit__(self, *_):
        try:
            self._set("tracing_on", "0")
            self._read((self.directory / "trace").read_text(errors="replace").splitlines(), time.monotonic_ns())
        finally:
            host.remove_trace_instances(self.claim)

    def _read(self, lines, end_ns):
        kept, written = re.search(r"entries-in-buffer/entries-written: (\d+)/(\d+)", "\n".join(lines[:5])).groups()
        if kept != written:
            raise RuntimeError(f"of the kernel's trace {kept} of {written} events are left: make the buffer larger")
        reader = _Reader(self.thread)
        for line in lines:
            if line.startswith(" => "):
                reader.stack.append(line[4:].split("+")[0])
            elif match := _LINE.match(line):
                reader.take(int(match[1]), int(match[2]) * 10**9 + int(match[3]) * 1000, match[4], match[5])
        reader.wake(end_ns)
        reader.end()
        self.events = dict(reader.events)
        self.calls = sorted(reader.calls, key=lambda call: -call.ns)


class _Reader:
    """What the events say, one after the other."""

    def __init__(self, thread):
        self.thread, self.names = thread, _get_names()
        self.calls, self.events = [], collections.Counter()
        self._begin(None)

    def _begin(self, number):
        self.number = number
        self.sleeps = self.ns = self.longest_ns = 0
        self.asleep_since, self.stack, self.longest_stack = None, [], []

    def end(self):
        """Of a system call, or of what is between two of them."""
        if self.sleeps:
            name = OUTSIDE if self.number is None else self.names.get(self.number, f"system call {self.number}")
            # Without what belongs to the trace and to the scheduler.
            inner = max((i for i, frame in enumerate(self.longest_stack) if frame in _SCHEDULER), default=-1)
            self.calls.append(Call(name, self.sleeps, self.ns, tuple(self.longest_stack[inner + 1:])))
        self._begin(None)

    def wake(self, now_ns):
        if self.asleep_since is None:
            return
        ns = now_ns - self.asleep_since
        self.sleeps += 1
        self.ns += ns
        if ns >= self.longest_ns:
            self.longest_ns, self.longest_stack = ns, self.stack
        self.asleep_since = None

    def take(self, current, now_ns, event, text):
        self.events[event] = self.events[event] + 1
        if event == "sched_waking":
            self.wake(now_ns)
        elif current != self.thread:
            return
        elif event == "sched_switch":
            if re.search(r"prev_state=[SD]", text):
                self.asleep_since, self.stack = now_ns, []
        elif event in ("sys_enter", "sys_exit"):
            self.wake(now_ns)
            self.end()
            if event == "sys_enter":
                self._begin(int(re.match(r"NR (-?\d+)", text)[1]))
