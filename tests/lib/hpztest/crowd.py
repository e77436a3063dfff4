"""Clients that lease, read all of it, write, verify, release, die: what hpzd's death must not harm.

Each is a thread that drives `hold` processes and chooses by a generator of its own, so that a seed gives the same choices.
"""
import contextlib
import random
import subprocess
import threading
import time

from hpztest import wire
from hpztest.client import Hold, HoldError, hpzctl, running
from hpztest.host import MIB
from hpztest.service import get_build_directory

SIZES = (2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB, 16 * MIB, 20 * MIB)  # 6M: of a segment of 8M, whose tail is punched; 20M: extended
KINDS = ((), ("--unbound",), ("--reopenable",), ("--unbound", "--reopenable"), ("--path",),
         ("--unbound", "--segments"), ("--path", "--segments"))
HOLDINGS_MAX = 2
VERIFY_PAUSE_MS = 20


class Book:
    """What the crowd found out."""

    def __init__(self):
        self._lock = threading.Lock()
        self.leases = self.bytes = self.dirty_bytes = self.disturbed = 0
        self.findings = []

    def note_lease(self, answer):
        with self._lock:
            self.leases += 1
            self.bytes += answer["bytes"]
            self.dirty_bytes += answer["dirty"]
            if answer["dirty"]:
                self.findings.append(f"dirty at hand-out: {answer}")

    def note_disturbed(self, what):
        with self._lock:
            self.disturbed += 1
            self.findings.append(f"disturbed: {what}")


class Holding:
    """A lease in the hands of a process that verifies its pattern all the time."""

    def __init__(self, hold, tenant, book, is_path):
        self.hold, self.tenant, self.book, self.is_path = hold, tenant, book, is_path
        book.note_lease(hold.call("check-zero"))
        hold.call("fill", tenant)
        hold.send("loop-verify", tenant, VERIFY_PAUSE_MS)

    @property
    def id(self):
        return self.hold.id

    def _get_equal(self):
        try:
            answer = self.hold.get_answer()
        except (HoldError, AssertionError) as error:
            answer = {"equal": False, "error": str(error)}
        return answer["equal"], answer

    def stop_verifying(self):
        """Once more, from beginning to end."""
        self.hold.send("verify", self.tenant)
        for _ in range(2):
            is_equal, answer = self._get_equal()
            if not is_equal:
                self.book.note_disturbed(f"lease {self.id}, process {self.hold.pid}: {answer}")

    def verify(self):
        self.stop_verifying()
        self.hold.send("loop-verify", self.tenant, VERIFY_PAUSE_MS)

    def release(self):
        """False when hpzd could not be told: it is dead, or dies again and again."""
        for _ in range(4):
            with contextlib.suppress(HoldError):
                self.hold.call("release")
                return True
            time.sleep(0.03)
            with contextlib.suppress(HoldError):
                self.hold.call("reconnect")
        return False


class Client(threading.Thread):
    def __init__(self, number, seed, book, gate):
        super().__init__(name=f"client {number}", daemon=True)
        self.random = random.Random(f"{seed}/client {number}")
        self.book, self.gate = book, gate
        self.holdings = []
        self.error = None

    def run(self):
        try:
            while self.gate.pass_through():
                self.act()
        except Exception as error:  # a mistake of the driver's own: the main thread reports it
            self.error = error
            self.gate.leave()
            raise

    def act(self):
        choice = self.random.random()
        if len(self.holdings) < HOLDINGS_MAX and choice < 0.5:
            self.lease()
        elif self.holdings and choice < 0.8:
            self.end(self.holdings.pop(self.random.randrange(len(self.holdings))))
        elif choice < 0.88:
            self.die_in_request()
        elif self.holdings and choice < 0.94:
            self.change(self.random.choice(self.holdings))
        else:
            self.drop_request()
        time.sleep(self.random.random() * 0.01)

    def lease(self):
        kind = self.random.choices(KINDS, (3, 3, 3, 3, 5, 3, 3))[0]
        size, tenant = self.random.choice(SIZES), self.random.randrange(1 << 30)
        try:
            hold = Hold("--size", size, "--timeout", 500, "--label", self.name, *kind)
        except (HoldError, AssertionError):
            time.sleep(0.02)  # hpzd is dead, or has nothing
            return
        self.holdings.append(Holding(hold, tenant, self.book, "--path" in kind))

    def end(self, holding):
        way = self.random.choice(("release", "release", "cling", "leave", "kill"))
        holding.stop_verifying()
        if way == "release":
            holding.hold.call("close")
            holding.release()
        elif way == "cling" and holding.release():
            for _ in range(3):
                answer = holding.hold.call("verify", holding.tenant)
                if not answer["equal"]:
                    self.book.note_disturbed(f"lease {holding.id}, released but mapped: {answer}")
                time.sleep(0.01)
        elif way == "kill":
            holding.hold.kill()
            return
        holding.hold.end()

    def die_in_request(self):
        kind, wait = self.random.choice(KINDS), self.random.random() * 0.006
        with running([f"{get_build_directory()}/tests/hold", "--size", self.random.choice(SIZES), *kind],
                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL):
            time.sleep(wait)

    def change(self, holding):
        """More, and as much as before again, without its holder, who does not notice."""
        size = holding.hold.got["size"]
        hpzctl("grow", holding.id, size + self.random.choice((2, 8)) * MIB, check=False)
        if self.random.random() < 0.8:
            hpzctl("shrink", holding.id, size, check=False)

    def drop_request(self):
        """Asks and goes before the answer, or without reading it, or without confirming it."""
        size, patience = self.random.choice(SIZES), self.random.choice((0, 0.002, None))
        with contextlib.suppress(OSError, AssertionError, TypeError), wire.Stranger() as stranger:
            stranger.socket.settimeout(2)
            op, ttl_ms = self.random.choice(((wire.LEASE, 0), (wire.LEASE, 0), (wire.RESERVE, 200)))
            deliver, count = (0, 0) if op == wire.RESERVE else (self.random.randrange(2), self.random.choice((0, 0, 3)))
            stranger.send(wire.make_lease(size, label=b"dropped", deliver=deliver, count=count, op=op, ttl_ms=ttl_ms))
            if patience is None:
                stranger.receive()
            else:
                time.sleep(patience)

    def end_all(self):
        while self.holdings:
            holding = self.holdings.pop()
            holding.stop_verifying()
            holding.hold.end()


class Gate:
    """Lets the clients through, or holds all of them between two actions."""

    def __init__(self, clients):
        self._condition = threading.Condition()
        self._is_open, self._is_over = False, False
        self._inside = clients
        self._waiting = 0

    def pass_through(self):
        with self._condition:
            self._waiting += 1
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._is_open or self._is_over)
            self._waiting -= 1
            return not self._is_over

    def leave(self):
        with self._condition:
            self._inside -= 1
            self._condition.notify_all()

    def open(self):
        with self._condition:
            self._is_open = True
            self._condition.notify_all()

    def close(self, limit=60):
        """Returns when every client stands before it."""
        with self._condition:
            self._is_open = False
            if not self._condition.wait_for(lambda: self._waiting >= self._inside, limit):
                raise AssertionError(f"a client does not come back within {limit} s")

    def end(self):
        with self._condition:
            self._is_over = True
            self._condition.notify_all()


class Crowd:
    def __init__(self, seed, size):
        self.book = Book()
        self.gate = Gate(size)
        self.clients = [Client(number, seed, self.book, self.gate) for number in range(size)]
        for client in self.clients:
            client.start()

    def resume(self):
        self.gate.open()

    def pause(self):
        """All stand still; whoever holds memory has verified it. The first mistake of a client is raised."""
        self.gate.close()
        for client in self.clients:
            if client.error is not None:
                raise client.error
        for holding in self.get_holdings():
            holding.verify()

    def get_holdings(self):
        return [holding for client in self.clients for holding in client.holdings]

    def end_holdings(self):
        """Only while paused."""
        for client in self.clients:
            client.end_all()

    def end(self):
        self.gate.end()
        for client in self.clients:
            client.join(60)
        self.end_holdings()
