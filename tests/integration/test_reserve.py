#!/usr/bin/env python3
"""Memory kept for leases to come, many leases in one exchange, another size for a lease, priority of those who wait."""
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host, wire  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB
POOL_PAGES = 32
INVALID, DENIED, UNKNOWN, ENDED = 2, 7, 11, 12
LEASED = struct.Struct("<IIQQQQIIQ")  # size segments id asked given ready deliver reserved zeroed
DAY_MS = 86400000


def get_reservations():
    return get_status()["reservations"]


def close_all(fds):
    """Once: what is closed is not in the list any more."""
    while fds:
        os.close(fds.pop())


class ReserveTest(HpzTest):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_reservations)

    def end_reservations(self):
        for reservation in get_reservations():
            hpzctl("unreserve", reservation["id"])

    def reserve(self, size, *options):
        return hpzctl_json("reserve", size, "--ttl", 300, *options)

    def refuse(self, status, word, *arguments, **run):
        done = hpzctl(*arguments, check=False, **run)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertIn(word, done.stderr)


class Reserved(ReserveTest):
    def test_kept(self):
        """All that is clean: nobody gets a page of it but with the reservation, and that in several leases."""
        reservation = self.reserve("64M", "--segments", "--label", "arriving")
        self.assertEqual((reservation["size"], reservation["ready"]), (64 * MIB, 64 * MIB))
        self.assertEqual(get_pool()["reserved"], POOL_PAGES)
        listed, = get_reservations()
        self.assertEqual((listed["id"], listed["label"], listed["size"], listed["uid"]), (reservation["id"], "arriving", 64 * MIB, 0))
        self.refuse(75, "requests wait", "lease", "2M", "--path")
        leases = [hpzctl_json("lease", size, "--path", "--reservation", reservation["id"]) for size in ("16M", "2M")]
        leases.append(hpzctl_json("lease", "46M", "--path", "--segments", "--reservation", reservation["id"]))
        for lease in leases:
            for segment in lease["segments"]:
                with Hold("--open", segment["path"]) as holder:
                    self.assertTrue(holder.call("check-zero")["equal"])
        self.assertEqual(get_reservations(), [])
        self.refuse(1, "has ended", "lease", "2M", "--path", "--reservation", reservation["id"])
        hpzctl("unreserve", reservation["id"])

    def test_cut_and_filled_up(self):
        """A lease that cuts the only segment: the rest is made ready again."""
        reservation = self.reserve("16M")
        lease = hpzctl_json("lease", "6M", "--path", "--reservation", reservation["id"])
        with Hold("--open", lease["path"]) as holder:
            holder.call("fill", 5)
        rest = hpzctl_json("lease", "10M", "--path", "--wait", 60, "--reservation", reservation["id"])
        with Hold("--open", rest["path"]) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])

    def test_survives(self):
        """hpzd is killed and, later, stopped: the reservation stands, and its memory is still nobody else's."""
        reservation = self.reserve("64M", "--segments")
        hpzctl("lease", "8M", "--path", "--keep", "--reservation", reservation["id"])
        for end in (self.service.kill, self.service.stop):
            end()
            self.service.start()
            listed, = get_reservations()
            self.assertEqual((listed["id"], listed["size"], listed["asked"]), (reservation["id"], 56 * MIB, 64 * MIB))
            self.assertLess(listed["ttl_ms"], 300000)
            self.refuse(75, "requests wait", "lease", "2M", "--path")
        self.assertEqual(hpzctl_json("lease", "56M", "--path", "--segments", "--wait", 60, "--reservation",
                                     reservation["id"])["size"], 56 * MIB)

    def test_ends_with_its_time(self):
        """Also while hpzd is not there; who waits gets the memory."""
        hpzctl("reserve", "64M", "--segments", "--ttl", "0.2")
        self.assertEqual(hpzctl_json("lease", "16M", "--path", "--wait", 60)["size"], 16 * MIB)
        self.assertEqual(get_reservations(), [])
        self.wait_idle_without("16M")
        hpzctl("reserve", "8M", "--ttl", "0.5")
        self.service.kill()
        self.service.start()
        wait_until("the time is over", lambda: not get_reservations())

    def wait_idle_without(self, size):
        for lease in get_status()["leases"]:
            hpzctl("release", "--wait", lease["id"])
        self.wait_idle()
        self.assertEqual(hpzctl_json("plan", size)["kind"], "exact")

    def test_waits(self):
        """It waits as a lease would, before those that came later."""
        with Hold("--size", 64 * MIB, "--segments"):
            self.refuse(75, "requests wait", "reserve", "8M")
            waiter = subprocess.Popen([f"{get_build_directory()}/client/hpzctl", "reserve", "64M", "--segments", "--wait", "60",
                                       "--ttl", "300", "--json"], stdout=subprocess.PIPE, text=True)
            self.addCleanup(waiter.wait)
            wait_until("it waits", lambda: get_pool()["waiting"] == 1)
        self.assertEqual(json.loads(waiter.communicate(timeout=60)[0])["size"], 64 * MIB)
        self.assertEqual(get_pool()["reserved"], POOL_PAGES)

    def test_drained(self):
        self.reserve("16M")
        hpzctl("drain")
        self.assertEqual(get_reservations(), [])
        self.service.reload()


class Many(ReserveTest):
    def ask(self, stranger, count, size=PAGE, **more):
        """The ids and descriptors of a bulk."""
        stranger.send(wire.make_lease(size, count=count, **more))
        message, fds, _, _ = socket.recv_fds(stranger.socket, 1 << 18, 253)
        self.addCleanup(close_all, fds)
        head = wire.HEAD.unpack_from(message)
        self.assertEqual((head[4], head[5]), (0, count))
        self.assertEqual(len(fds), count)
        ids, at = [], wire.HEAD.size
        for _ in range(count):
            leased = LEASED.unpack_from(message, at)
            self.assertEqual((leased[1], leased[4]), (1, size))
            ids.append(leased[2])
            at += leased[0]
            at += struct.unpack_from("<I", message, at)[0]
        self.assertEqual(at, len(message))
        return ids, fds

    def test_each_is_its_own(self):
        """Every descriptor is other memory, and all of it is zero; confirmed by one ACK, released one by one."""
        with wire.Stranger() as stranger:
            ids, fds = self.ask(stranger, 12)
            stranger.send(wire.make_ack(ids[0], 12))
            maps = [mmap.mmap(fd, PAGE) for fd in fds]
            close_all(fds)
            try:
                for number, memory in enumerate(maps):
                    self.assertEqual(memory[:].count(0), PAGE)
                    memory[:] = bytes([number + 1]) * PAGE
                self.assertTrue(all(memory[:].count(number + 1) == PAGE for number, memory in enumerate(maps)))
            finally:
                for memory in maps:
                    memory.close()
            wait_until("all are leased", lambda: {self.get_lease(lease)["state"] for lease in ids} == {"leased"})
            hpzctl("release", "--wait", *ids[:5])
            self.assertEqual([lease["id"] for lease in get_status()["leases"]], ids[5:])
        for lease in ids:
            self.wait_ended(lease)

    def test_lost_reply(self):
        """Nothing is confirmed and the connection is closed: nothing is lost. Half confirmed: that half stays until its end."""
        with wire.Stranger() as stranger:
            ids, fds = self.ask(stranger, 8)
            close_all(fds)
            self.assertEqual({self.get_lease(lease)["state"] for lease in ids}, {"offered"})
        for lease in ids:
            self.wait_ended(lease)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_paths(self):
        bulk = hpzctl_json("lease", "8M", "--path", "--count", 3, "--label", "vm")
        self.assertEqual(len({lease["path"] for lease in bulk["leases"]}), 3)
        self.assertEqual(sum(lease["ready"] + lease["zeroed"] for lease in bulk["leases"]), 24 * MIB)
        for lease in bulk["leases"]:
            with Hold("--open", lease["path"]) as holder:
                self.assertTrue(holder.call("check-zero")["equal"])

    def test_all_or_none(self):
        self.refuse(75, "requests wait", "lease", "8M", "--path", "--count", 8)
        self.refuse(1, "asked, but no pool", "lease", "8M", "--path", "--count", 253)
        self.refuse(2, "at most 253", "lease", "8M", "--path", "--count", 254)
        self.assertEqual(get_status()["leases"], [])
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)


class Changed(ReserveTest):
    """A lease that grows and shrinks."""

    def test_path(self):
        lease = hpzctl_json("lease", "4M", "--path", "--keep")
        grown = hpzctl_json("grow", lease["id"], "12M")
        self.assertEqual((grown["size"], grown["ready"] + grown["zeroed"], len(grown["added"])), (12 * MIB, 8 * MIB, 1))
        path = grown["added"][0]["path"]
        with Hold("--open", path) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
            holder.call("fill", 3)
        self.assertEqual(self.get_lease(lease["id"])["size"], 12 * MIB)
        hpzctl("check")
        shrunk = hpzctl_json("shrink", lease["id"], "2M")
        self.wait_ended(shrunk["returning"])
        wait_until("the link is gone", lambda: not os.path.exists(path))
        wait_until("its end is the kernel's", lambda: get_pool()["leased"] == 1)
        self.assertEqual((self.get_lease(lease["id"])["size"], os.path.exists(lease["path"])), (2 * MIB, True))
        again = hpzctl_json("grow", lease["id"], "4M")["added"][0]["path"]
        with Hold("--open", again) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
        hpzctl("check")
        self.refuse(1, "hpzctl shrink", "grow", lease["id"], "1M")
        self.refuse(1, "hpzctl grow", "shrink", lease["id"], "1G")
        hpzctl("release", "--wait", lease["id"])
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_held(self):
        """What its holder has not let go stays out of stock, and growing waits for it."""
        lease = hpzctl_json("lease", "4M", "--path", "--keep")
        path = hpzctl_json("grow", lease["id"], "8M")["added"][0]["path"]
        with Hold("--open", path) as holder:
            holder.call("fill", 9)
            rest = hpzctl_json("shrink", lease["id"], "4M")["returning"]
            self.refuse(75, "not back yet", "grow", lease["id"], "8M")
            self.assertEqual(self.get_lease(rest)["state"], "returning")
            holder.call("verify", 9)
        self.wait_ended(rest)
        hpzctl("grow", lease["id"], "8M")

    def test_survives(self):
        """hpzd is killed with a grown lease out, and with one that is being given back."""
        lease = hpzctl_json("lease", "4M", "--path", "--keep")
        path = hpzctl_json("grow", lease["id"], "12M")["added"][0]["path"]
        with Hold("--open", path) as holder:
            holder.call("fill", 4)
            self.service.kill()
            self.service.start()
            self.assertEqual(self.get_lease(lease["id"])["size"], 12 * MIB)
            rest = hpzctl_json("shrink", lease["id"], "4M")["returning"]
            self.service.kill()
            self.service.start()
            self.assertEqual((self.get_lease(lease["id"])["size"], self.get_lease(lease["id"])["state"]), (4 * MIB, "leased"))
            self.assertEqual((self.get_lease(rest)["size"], self.get_lease(rest)["state"]), (8 * MIB, "returning"))
            hpzctl("check")
            holder.call("verify", 4)
        self.wait_ended(rest)
        hpzctl("release", "--wait", lease["id"])
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)


class Hostile(ReserveTest):
    def expect(self, stranger, message, error):
        stranger.send(message)
        head, _ = stranger.receive()
        self.assertEqual(head["error"], error)

    def test_senseless(self):
        reservation = self.reserve("4M")["id"]
        with wire.Stranger() as stranger:
            for ttl_ms in (0, DAY_MS + 1, 2**64 - 1):
                self.expect(stranger, wire.make_lease(PAGE, op=wire.RESERVE, ttl_ms=ttl_ms), INVALID)
            self.expect(stranger, wire.make_lease(PAGE, op=wire.RESERVE, ttl_ms=1, key=b"k"), INVALID)
            self.expect(stranger, wire.make_lease(PAGE, count=2**32 - 1), INVALID)
            self.expect(stranger, wire.make_lease(PAGE, count=2, reservation=reservation), INVALID)
            self.expect(stranger, wire.make_lease(PAGE, count=2, key=b"k"), INVALID)
            self.expect(stranger, wire.make_lease(PAGE, priority=2**31 - 1), INVALID)
            self.expect(stranger, wire.make_lease(PAGE, reservation=2**64 - 1), UNKNOWN)
        self.assertEqual(get_pool()["reserved"], 2)
        self.assertEqual(get_status()["leases"], [])

    def test_foreign(self):
        """Another user's reservation is neither used nor ended, and nobody jumps a queue he may not jump."""
        self.set_config("hpzd", "socket_mode", "0666")
        text = self.service.config.read_text() + "\n[access all]\nusers = *\nallow = status lease\nquota_bytes = 8M\n"
        self.service.config.write_text(text)
        self.service.restart()
        self.wait_idle()
        reservation = self.reserve("4M")["id"]
        alice = {"user": 1000, "group": 1000, "extra_groups": []}
        self.refuse(1, "belongs to uid 0", "lease", "2M", "--path", "--reservation", reservation, **alice)
        self.refuse(1, "belongs to uid 0", "unreserve", reservation, **alice)
        self.refuse(1, "priority of at most 0", "lease", "2M", "--path", "--priority", 1, **alice)
        self.refuse(75, "quota_bytes", "reserve", "10M", **alice)
        lease = hpzctl_json("lease", "4M", "--path", "--keep")["id"]
        self.refuse(1, "belongs to uid 0", "shrink", lease, "2M", **alice)
        self.refuse(1, "belongs to uid 0", "grow", lease, "8M", **alice)
        own = json.loads(hpzctl("reserve", "8M", "--json", **alice).stdout)["id"]
        self.refuse(75, "quota_bytes", "lease", "2M", "--path", **alice)
        hpzctl("lease", "8M", "--path", "--reservation", own, **alice)
        self.assertEqual([line["id"] for line in get_reservations()], [reservation])


class Priority(ReserveTest):
    def test_order(self):
        """All wait for the same memory; the most urgent is served first, whenever it came."""
        served = []

        def lease(priority):
            done = hpzctl_json("lease", "64M", "--path", "--segments", "--wait", 60, "--priority", priority)
            served.append(priority)
            hpzctl("release", done["id"])

        threads = []
        with Hold("--size", 64 * MIB, "--segments"):
            for number, priority in enumerate((0, -3, 7), 1):
                threads.append(threading.Thread(target=lease, args=(priority,)))
                threads[-1].start()
                wait_until("it waits", lambda number=number: get_pool()["waiting"] == number)
        for thread in threads:
            thread.join()
        self.assertEqual(served, [7, 0, -3])


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES + 8), "--stock", "16M*2 8M*2 2M*rest", "--config-line", f"pool two.pages={POOL_PAGES}",
         "--config-line", f"pool two.max_pages={POOL_PAGES}")
