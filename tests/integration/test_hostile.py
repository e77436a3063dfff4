#!/usr/bin/env python3
"""Whatever one client does, the others are served as before: hpzd waits for nobody, and what it does for them is no more work.

Neither is a matter of time: what its loop sleeps for is in the kernel's trace of it (hpztest/sleeps.py), and its work is the processor
time it uses, which is the same on a machine that others keep busy.
"""
import array
import contextlib
import os
import random
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host, sleeps, wire  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_leases, get_status, hpzctl, wait_until  # noqa: E402
from hpztest.wire import Stranger  # noqa: E402

MIB = host.MIB
ROUNDS = 100  # fewer than there are single pages: nothing has to wait for clearing
# Of processor time beside the attack to that before it. Caches that others use make it more by half; to look at every connection, or
# at every page, for each request makes it some hundred times as much.
WORK_RATIO = 10


class Served(HpzTest):
    """The daemon under attack must be the same process as before it, and as quick."""

    def setUp(self):
        super().setUp()
        self.pid = self.service.get_pid()
        self.measure()
        self.quiet, _ = self.measure()

    def measure(self, leases=ROUNDS):
        """hpzd's processor time for each request (its loop is all there is of it), and the call it slept in that it must not sleep in."""
        pid = self.service.get_pid()
        clock = (~pid << 3) | 2  # of the process, as clock_getcpuclockid(3) has it
        with Hold("--size", 0) as holder, contextlib.ExitStack() as stack:
            try:
                trace = stack.enter_context(sleeps.Sleeps(self.service.directory, pid))
            except sleeps.NoTrace as error:
                self.skipTest(str(error))
            before = time.clock_gettime_ns(clock)
            if leases:
                holder.call("time-leases", 2 * MIB, leases)
            holder.call("time-status", ROUNDS)
            work = time.clock_gettime_ns(clock) - before
        return work / (leases + ROUNDS), trace.get_worst()

    def check_served(self, what, leases=ROUNDS):
        """Three attempts: others than the attacker may ask hpzd for something, too."""
        seen = []
        for _ in range(3):
            work, worst = self.measure(leases)
            if work < self.quiet * WORK_RATIO and (worst is None or worst.ns < sleeps.LOOP_MAX_NS):
                break
            seen.append(f"{work / 1000:.0f} us of work a request where {self.quiet / 1000:.0f} were enough, and {worst}")
        else:
            self.fail(f"beside {what}: {'; '.join(seen)}")
        self.assertEqual(self.service.get_pid(), self.pid, f"hpzd did not survive {what}")


class Messages(Served):
    def is_closed_or_refused(self, message, hello):
        with Stranger(hello=hello) as stranger:
            stranger.send(message)
            head, _ = stranger.receive()
            return head is None or head["error"] != 0

    def test_garbage(self):
        generator = random.Random(1)
        for length in (1, 3, 23, 24, 25, 100, 1000, 4096, 5000, 60000, 200000):
            for hello in (False, True):
                self.assertTrue(self.is_closed_or_refused(generator.randbytes(length), hello), length)
        self.check_served("garbage")

    def test_lying_sizes(self):
        good = wire.make_lease(2 * MIB)
        for message in (
                wire.make_message(wire.LEASE, good[24:], size=24), wire.make_message(wire.LEASE, good[24:], size=1 << 31),
                wire.make_message(wire.LEASE, good[24:], size=0), good[:100], good + bytes(8), good[:24],
                wire.make_message(wire.LEASE, struct.pack("<I", 0xffffffff) + good[28:]),
                wire.make_message(wire.LEASE, struct.pack("<I", 3) + good[28:]),
                wire.make_message(wire.LEASE, struct.pack("<I", 0) + good[28:])):
            self.assertTrue(self.is_closed_or_refused(message, True), message[:32])
        self.assertEqual(get_leases(), [])
        self.check_served("lying sizes")

    def test_cut_requests(self):
        """Shorter than any version had them: an owner that is not there is not root."""
        path = wire.make_lease(2 * MIB, deliver=1)[24:]
        requests = ((wire.LEASE, path), (wire.RELEASE, struct.pack("<IIQq", 24, 0, 77, 0)), (wire.LIST, struct.pack("<IIQ", 16, 0, 0)),
                    (wire.STATUS, struct.pack("<II", 8, 0)), (wire.ADOPT, struct.pack("<IIQiI", 24, 0, 77, 0, 0)),
                    (wire.ACK, struct.pack("<IIQ", 16, 0, 77)))
        for op, payload in requests:
            for length in {8, 16, 56, 64, 72, 80, 112, 240, len(payload) - 8, len(payload) - 1}:
                if 4 <= length < len(payload):
                    with self.subTest(op=op, length=length):
                        cut = struct.pack("<I", length) + payload[4:length]
                        with Stranger() as stranger:
                            stranger.send(wire.make_message(op, cut, request_id=9))
                            head, _ = stranger.receive()
                            self.assertTrue(head is None or head["error"] == 3, head)  # HPZ_ERR_PROTOCOL
        self.assertEqual(get_leases(), [])
        self.check_served("cut requests")

    def test_senseless_requests(self):
        for message in (
                wire.make_lease(0), wire.make_lease(1 << 63), wire.make_lease((1 << 64) - 1), wire.make_lease(2 * MIB, page_size=3),
                wire.make_lease(2 * MIB, node=-5), wire.make_lease(2 * MIB, flags=0xffff0000), wire.make_lease(2 * MIB, deliver=9),
                wire.make_lease(2 * MIB, timeout_ms=-7), wire.make_lease(2 * MIB, label=b"\xff\xfe"),
                wire.make_lease(2 * MIB, label=b"a\0b"), wire.make_lease(2 * MIB, label=b"\x1b[2J"), wire.make_lease(2 * MIB, count=254),
                wire.make_lease(2 * MIB, request_id=0), wire.make_message(99, bytes(8)), wire.make_message(0, bytes(8)),
                wire.make_message(wire.STATUS, struct.pack("<II", 8, 0), flags=wire.REPLY),
                wire.make_message(wire.STATUS, struct.pack("<II", 8, 7)),
                wire.make_message(wire.STATUS, struct.pack("<II", 8, 0), error=3)):
            self.assertTrue(self.is_closed_or_refused(message, True), message[:48])
        self.assertEqual(get_leases(), [])
        self.check_served("senseless requests")

    def test_hello(self):
        for message in (wire.make_hello(magic=1), wire.make_hello(version=0, compat=0), wire.make_hello(version=99, compat=99),
                        wire.make_empty(wire.STATUS), wire.make_lease(2 * MIB)):
            self.assertTrue(self.is_closed_or_refused(message, False), message[:40])

    def test_newer_client(self):
        """A struct that has grown is understood while the new part is zero, and refused when it is used."""
        for tail, refused in ((bytes(16), False), (b"\1" + bytes(15), True)):
            with Stranger() as stranger:
                stranger.send(wire.make_message(wire.STATUS, struct.pack("<II", 24, 0) + tail, request_id=9))
                head, _ = stranger.receive()
                self.assertEqual(head is None or head["error"] != 0, refused, tail)

    def test_mutations(self):
        """Every byte of good messages changed, one at a time and at random."""
        generator = random.Random(2)
        messages = [wire.make_hello(), wire.make_lease(2 * MIB, label=b"mutant"), wire.make_empty(wire.STATUS),
                    wire.make_message(wire.RELEASE, struct.pack("<IIQq", 24, 0, 77, 0)),
                    wire.make_message(wire.LIST, struct.pack("<IIQ", 16, 0, 0)),
                    wire.make_message(wire.ADOPT, struct.pack("<IIQiI", 24, 0, 77, 0, 0))]
        for number in range(1500):
            message = bytearray(generator.choice(messages))
            for _ in range(generator.choice((1, 1, 1, 4))):
                message[generator.randrange(len(message))] = generator.choice((0, 1, 0x7f, 0x80, 0xff, generator.randrange(256)))
            with Stranger(hello=number % 3 > 0) as stranger:
                with contextlib.suppress(OSError):
                    stranger.send(bytes(message[:generator.choice((len(message), generator.randrange(len(message) + 1)))]) or b"\0")
        self.wait_idle()
        for lease in get_leases():
            self.wait_ended(lease["id"])
        self.check_served("mutations")

    def test_hung_up_at_once(self):
        for _ in range(500):
            with Stranger(hello=False) as stranger:
                stranger.send(wire.make_hello())
                stranger.send(wire.make_lease(2 * MIB))
        wait_until("their leases end", lambda: not get_leases())
        self.check_served("clients that hang up")

    def test_descriptors_sent(self):
        """Clients never send descriptors: whoever does is disconnected, and hpzd keeps none."""
        before = self.count_descriptors()
        for _ in range(50):
            with Stranger() as stranger:
                file = os.open("/dev/null", os.O_RDONLY)
                with contextlib.suppress(OSError):
                    stranger.socket.sendmsg([wire.make_empty(wire.STATUS)],
                                            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file] * 20))])
                os.close(file)
                with contextlib.suppress(OSError):
                    stranger.receive()
        wait_until("hpzd holds no more descriptors than before", lambda: self.count_descriptors() <= before)
        self.check_served("descriptors")

    def count_descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))


class Crowds(Served):
    def test_thousand_connections(self):
        with contextlib.ExitStack() as stack:
            refused = 0
            for number in range(1000):
                try:
                    stack.enter_context(Stranger(hello=number % 2 == 0))
                except (OSError, AssertionError):
                    refused += 1
            self.assertLess(refused, 1000)
            self.check_served(f"{1000 - refused} connections")
        wait_until("they are gone", lambda: get_status()["connections"] <= 2)

    def test_clients_that_never_read(self):
        """Each asks for status again and again and reads no answer."""
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stranger = stack.enter_context(Stranger())
                stranger.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    for _ in range(2000):
                        stranger.send(wire.make_empty(wire.STATUS))
            self.check_served("clients that never read")

    def test_descriptors_left_unread(self):
        """Each leases and never reads the answer: its descriptors stay in flight."""
        with contextlib.ExitStack() as stack:
            for _ in range(12):
                stranger = stack.enter_context(Stranger())
                stranger.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    for number in range(20):
                        stranger.send(wire.make_lease(2 * MIB, request_id=number + 1))
            wait_until("one each is on its way", lambda: len(get_leases()) >= 12)
            time.sleep(0.5)
            self.assertEqual(len(get_leases()), 12, "more than one unread descriptor message a client")
            self.check_served("unread descriptors")
        wait_until("what was never taken comes back", lambda: not get_leases())

    def test_received_but_never_confirmed(self):
        with Stranger() as stranger:
            stranger.send(wire.make_lease(2 * MIB))
            head, _ = stranger.receive()
            self.assertEqual((head["error"], head["descriptors"]), (0, 1))
            self.assertEqual([lease["state"] for lease in get_leases()], ["offered"])
            self.check_served("a lease that is not confirmed")
        wait_until("it ends with its connection", lambda: not get_leases())

    def test_waiting_crowd(self):
        """Many wait for memory that is not there; others are served from what is."""
        with Hold("--size", 64 * MIB), contextlib.ExitStack() as stack:
            for _ in range(100):
                stranger = stack.enter_context(Stranger())
                stranger.send(wire.make_lease(64 * MIB, timeout_ms=60000))
            self.check_served("a waiting crowd", leases=0)
        wait_until("nobody waits", lambda: get_status()["pools"][0]["waiting"] == 0)


class Tenants(Served):
    """Clients that were given memory and do to it what they can."""

    def check_next_tenants(self):
        self.wait_idle()
        with Hold("--size", 64 * MIB, "--timeout", 30000) as holder:
            answer = holder.call("check-zero")
            self.assertTrue(answer["equal"], answer)

    def test_punching_loop(self):
        with Hold("--size", 64 * MIB, "--unbound") as holder:
            holder.send("loop-punch")
            self.check_served("a punching loop")
            self.service.restart()
            self.pid = self.service.get_pid()
            self.check_served("a punching loop, after a restart")
            self.assertGreater(holder.call("unmap")["rounds"], 0, "the answer of loop-punch comes first")
        self.check_next_tenants()

    def test_punching_loop_released(self):
        """Released while it goes on: the shields need the file's lock, and only a worker waits for it."""
        with Hold("--size", 64 * MIB, "--unbound") as holder:
            holder.send("loop-punch")
            hpzctl("release", holder.id)
            self.check_served("the shields of a punching loop")
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
        self.wait_ended(holder.id)
        self.check_next_tenants()

    def test_kept_open_after_release(self):
        with Hold("--size", 64 * MIB, "--reopenable") as holder:
            holder.call("fill", 1)
            holder.call("release")
            self.check_served("memory that is not let go")
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
            self.service.kill()
            self.service.start()
            self.pid = self.service.get_pid()
            self.check_served("memory that is not let go, after a restart")
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
            self.assertTrue(holder.call("verify", 1)["equal"], "cleared while it was held")
        self.wait_ended(holder.id)
        self.check_next_tenants()

    def test_file_lease_taken_while_hpzd_is_down(self):
        """F_SETLEASE makes whoever opens the file wait: hpzd must not."""
        with Hold("--size", 64 * MIB, "--unbound", "--reopenable") as holder:
            holder.call("fill", 1)
            holder.call("unmap")
            self.service.kill()
            holder.call("setlease")
            begin = time.monotonic()
            self.service.start()
            # Whoever waits for it does so until the kernel breaks it (45 s).
            self.assertLess(time.monotonic() - begin, int(host.Path("/proc/sys/fs/lease-break-time").read_text()) - 5)
            self.pid = self.service.get_pid()
            self.check_served("a file lease")
            self.assertEqual(self.get_lease(holder.id)["state"], "leased")
            hpzctl("release", holder.id)
            self.check_served("a file lease on what was released")
        self.wait_ended(holder.id, 120)
        self.check_next_tenants()

    def test_truncated_by_its_holder(self):
        with Hold("--size", 64 * MIB) as holder:
            holder.call("truncate", 0)
            self.check_served("a truncated file")
        self.check_next_tenants()

    def test_stopped_holder(self):
        """A process that is stopped neither reads, closes nor dies."""
        with Hold("--size", 64 * MIB, "--unbound") as holder:
            holder.process.send_signal(19)
            hpzctl("release", holder.id)
            self.check_served("a stopped holder")
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
            holder.process.send_signal(18)
        self.check_next_tenants()


if __name__ == "__main__":
    main("--2m", "192", "--stock", "64M*1 2M*rest")
