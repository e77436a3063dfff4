#!/usr/bin/env python3
"""Any size: what is clean, what is zeroed for a request, several segments, who waits; each reply says what it was.

HPZ_LONG=1: 10,000 random leases instead of 400.
"""
import json
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_pool, hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB
POOL_PAGES = 64
MAX_PAGES = 96
KERNEL_PAGES = 104  # more than the pool may hold
NO_MEMORY, TIMEOUT = 8, 13
IS_LONG = bool(os.environ.get("HPZ_LONG"))
LEASES = 10000 if IS_LONG else 400
PATIENCE_MS = 60000


def get_plan(size, *options):
    """The plan, whatever the exit status says of it."""
    return json.loads(hpzctl("plan", size, "--json", *options, check=False).stdout)


def get_clean_names(service):
    return sorted(os.listdir(service.directory / "2M/hpz/1/node0/clean"))


class Planned(HpzTest):
    """Each way to serve a request: the plan says it, the lease is it, and all of it is zero."""

    def lease(self, size, *options):
        """A lease as planned; its holder."""
        plan = get_plan(f"{size // MIB}M", *(option for option in options if option == "--segments"))
        holder = Hold("--size", size, *options)
        self.addCleanup(holder.end)
        got = holder.got
        self.assertEqual((got["size"], got["ready"], got["zeroed"], len(got["segments"])),
                         (plan["size"], plan["ready"], plan["zeroed"], plan["segments"]), plan)
        self.assertEqual(got["ready"] + got["zeroed"], got["size"])
        self.assertEqual(sum(segment["size"] for segment in got["segments"]), size)
        zero = holder.call("check-zero")
        self.assertEqual((zero["equal"], zero["bytes"]), (True, size))
        holder.call("fill", 1)
        return holder, plan

    def leave_free(self, pages):
        """So many of the kernel's pages are nobody's."""
        eater = PageEater(host.PagePool(PAGE).get_free() - pages)
        self.addCleanup(eater.end)

    def test_exact(self):
        _, plan = self.lease(16 * MIB)
        self.assertEqual((plan["kind"], plan["ready"]), ("exact", 16 * MIB))

    def test_trim(self):
        """The tail of the larger one goes back to the kernel, and comes back with the lease."""
        holder, plan = self.lease(6 * MIB)
        self.assertEqual((plan["kind"], plan["ready"]), ("trim", 6 * MIB))
        wait_until("the tail is given back", lambda: get_pool()["leased"] == 3)
        holder.end()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_extend_by_free_pages(self):
        self.leave_free(8)
        before = get_clean_names(self.service)
        _, plan = self.lease(24 * MIB)
        self.assertEqual((plan["kind"], plan["ready"], plan["zeroed"]), ("extend", 16 * MIB, 8 * MIB))
        self.assertEqual(plan["from"], {"free": 8 * MIB, "dirty": 0, "clean": 0})
        gone = set(before) - set(get_clean_names(self.service))
        self.assertEqual(len(gone), 1, "one segment grew, no other was touched")

    def test_extend_by_clean_ones(self):
        """The kernel has nothing left: small segments are unlinked for it, no more than are needed."""
        self.leave_free(0)
        _, plan = self.lease(24 * MIB)
        self.assertEqual((plan["kind"], plan["ready"], plan["zeroed"]), ("extend", 16 * MIB, 8 * MIB))
        self.assertEqual(plan["from"], {"free": 0, "dirty": 0, "clean": 8 * MIB})
        pool = get_pool()
        self.assertEqual((pool["leased"], pool["total"]), (12, POOL_PAGES))

    def test_extend_in_parallel(self):
        """Large enough for several workers at once; what a lower one leaves out shows as a hole or dirt."""
        self.leave_free(32)
        _, plan = self.lease(160 * MIB)
        self.assertEqual((plan["kind"], plan["zeroed"]), ("extend", 144 * MIB))

    def test_extended_comes_back(self):
        """As stock of the lengths that are configured."""
        names = len(get_clean_names(self.service))
        holder, _ = self.lease(24 * MIB)
        holder.end()
        pool = self.wait_clean()
        self.assertEqual((pool["clean"], pool["clean_segments"]), (POOL_PAGES, names))

    def test_several(self):
        _, plan = self.lease(40 * MIB, "--segments")
        self.assertEqual((plan["kind"], plan["ready"], plan["segments"]), ("several", 40 * MIB, 3))

    def test_several_and_the_rest(self):
        """All that is clean and a new segment for what is missing: 64 pages in 38 segments, and 4 more."""
        self.leave_free(4)
        holder, plan = self.lease(136 * MIB, "--segments")
        self.assertEqual((plan["kind"], plan["ready"], plan["zeroed"]), ("several", 128 * MIB, 8 * MIB))
        self.assertEqual(plan["from"], {"free": 8 * MIB, "dirty": 0, "clean": 0})
        holder.call("verify", 1)
        holder.end()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_several_as_paths(self):
        self.set_grace(2)
        lease = hpzctl_json("lease", "40M", "--path", "--segments")
        self.assertEqual((lease["size"], lease["ready"], lease["zeroed"], lease["path"]), (40 * MIB, 40 * MIB, 0, None))
        paths = [segment["path"] for segment in lease["segments"]]
        self.assertEqual(len(set(paths)), 3)
        for path in paths:
            with Hold("--open", path) as holder:
                self.assertTrue(holder.call("check-zero")["equal"])
        # Held by its last segment only: that is in use all the same, longer than the grace time.
        with Hold("--open", paths[-1]):
            time.sleep(5)
            self.assertEqual(self.get_lease(lease["id"])["state"], "leased")
        self.wait_ended(lease["id"])
        self.assertFalse(any(os.path.exists(path) for path in paths))

    def test_several_survive_a_restart(self):
        with Hold("--size", 40 * MIB, "--segments", "--unbound") as holder:
            holder.call("fill", 7)
            self.service.kill()
            self.service.start()
            self.assertEqual(len(self.get_lease(holder.id)["segments"]), 3)
            self.assertTrue(holder.call("verify", 7)["equal"])
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_plan_takes_nothing(self):
        before = get_clean_names(self.service), get_pool()
        for size in ("2M", "6M", "40M", f"{POOL_PAGES * 2}M"):
            for options in ((), ("--segments",), ("--wait", "5")):
                get_plan(size, *options)
        self.assertEqual((get_clean_names(self.service), get_pool()), before)

    def test_verified_first(self):
        """Read before it is handed out: the extended one whole, several all of them."""
        self.set_config("pool two", "verify", "full")
        self.service.restart()
        self.wait_idle()
        verified = get_pool()["verified_pages"]
        self.lease(24 * MIB)
        self.assertEqual(get_pool()["verified_pages"] - verified, 12)
        self.lease(18 * MIB, "--segments")
        self.assertEqual(get_pool()["verified_pages"] - verified, 21)


class Short(HpzTest):
    """The stock is gone."""

    def hold_all(self, *options):
        """All that is clean, in one lease."""
        holder = Hold("--size", get_pool()["clean"] * PAGE, "--segments", *options)
        self.addCleanup(holder.end)
        self.assertEqual(get_pool()["clean"], 0)
        return holder

    def leave_free(self, pages):
        eater = PageEater(host.PagePool(PAGE).get_free() - pages)
        self.addCleanup(eater.end)

    def test_served_slower(self):
        """The kernel could still serve it: it is served, and the reply says that it was zeroed for it."""
        self.hold_all()
        self.leave_free(10)
        with Hold("--size", 16 * MIB) as holder:
            self.assertEqual((holder.got["ready"], holder.got["zeroed"]), (0, 16 * MIB))
            self.assertTrue(holder.call("check-zero")["equal"])
            self.assertEqual(get_pool()["leased"], POOL_PAGES + 8)
        self.wait_idle()
        lease = hpzctl("lease", "8M", "--path").stdout
        self.assertRegex(lease, "8 MiB was zeroed")
        self.assertEqual(hpzctl("run", "--size", "2M", "--", "true").stderr.count("had to be zeroed"), 1)
        for line in get_leases():
            if line["deliver"] == "path":
                hpzctl("release", line["id"])

    def refuse(self, size):
        done = hpzctl("lease", size, "--path", check=False)
        self.assertEqual(done.returncode, 75, done.stdout)
        for part in ("pool two", "node 0", "2M", f"{size[:-1]} MiB asked", "is clean", "requests wait"):
            self.assertIn(part, done.stderr)
        plan = get_plan(size)
        self.assertEqual((plan["kind"], plan["size"], plan["ready"], plan["zeroed"]), ("refuse", 0, 0, 0))
        return done.stderr

    def test_exhausted(self):
        self.hold_all()
        self.leave_free(3)
        self.assertRegex(self.refuse("8M"), "raise nr_hugepages")

    def test_the_lid(self):
        """The kernel has the pages; max_pages says no."""
        self.hold_all()
        self.assertGreater(host.PagePool(PAGE).get_free(), MAX_PAGES - POOL_PAGES)
        self.assertRegex(self.refuse(f"{(MAX_PAGES - POOL_PAGES + 1) * 2}M"), "max_pages")
        with Hold("--size", (MAX_PAGES - POOL_PAGES) * PAGE) as holder:
            self.assertEqual(holder.got["zeroed"], (MAX_PAGES - POOL_PAGES) * PAGE)

    def test_nothing_is_zeroed_while_that_is_off(self):
        """Workers would stand still over it, however long: refused at once, or it waits until they may go on."""
        self.hold_all()
        self.addCleanup(hpzctl, "set", "enabled=yes")
        hpzctl("set", "enabled=no")
        self.assertRegex(self.refuse("8M"), "enabled=yes")
        with running([f"{get_build_directory()}/client/hpzctl", "lease", "8M", "--path", "--wait", "60", "--json"],
                     stdout=subprocess.PIPE, text=True) as waiting:
            wait_until("somebody waits", lambda: get_pool()["waiting"] == 1)
            hpzctl("set", "enabled=yes")
            lease = json.loads(waiting.communicate(timeout=90)[0])
        self.assertEqual(lease["zeroed"], 8 * MIB)
        hpzctl("release", lease["id"])

    def test_holes_are_never_spent(self):
        holder = self.hold_all()
        self.leave_free(0)
        holder.call("punch", 0, 8 * MIB)
        wait_until("hpzd sees the holes", lambda: get_pool()["holes"] == 4)
        self.assertEqual(host.PagePool(PAGE).get_free(), 4)
        self.refuse("2M")
        for page in range(4):
            holder.call("touch", page * PAGE)

    def test_waits_for_what_comes(self):
        holder = self.hold_all()
        self.leave_free(0)
        self.assertEqual(get_plan("4M", "--wait", "30")["kind"], "wait")
        with running([f"{get_build_directory()}/client/hpzctl", "lease", "4M", "--path", "--wait", "30", "--json"],
                     stdout=subprocess.PIPE, text=True) as waiting:
            wait_until("somebody waits", lambda: get_pool()["waiting"] == 1)
            holder.end()
            lease = json.loads(waiting.communicate(timeout=60)[0])
        self.assertEqual(lease["ready"], 0, "it had to wait, so nothing was ready")
        hpzctl("release", lease["id"])

    def test_large_is_not_starved(self):
        """Small requests without end, and one that needs more than is ever clean at once while they go on."""
        self.leave_free(0)
        stop = threading.Event()

        def hammer(number):
            while not stop.is_set():
                try:
                    with Hold("--size", 8 * MIB, "--timeout", 5000) as small:
                        small.call("fill", number)
                        stop.wait(0.02)
                except HoldError:
                    stop.wait(0.02)

        threads = [threading.Thread(target=hammer, args=(number,)) for number in range(14)]
        for thread in threads:
            thread.start()
        try:
            wait_until("they have most of it", lambda: get_pool()["leased"] >= 32)
            with Hold("--size", 112 * MIB, "--timeout", 60000) as large:
                self.assertTrue(large.call("check-zero")["equal"])
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def test_whoever_waits_and_leaves(self):
        """A request whose memory is being zeroed loses its client: nothing is lost with it."""
        self.leave_free(16)
        for _ in range(5):
            process = subprocess.Popen([f"{get_build_directory()}/tests/hold", "--size", str(144 * MIB)],
                                       stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
            time.sleep(random.random() * 0.05)
            process.kill()
            process.communicate()
            self.wait_idle()
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)


class Crowd(HpzTest):
    """Random leases of random sizes, with a pool that is too small half the time."""

    def setUp(self):
        super().setUp()
        eater = PageEater(host.PagePool(PAGE).get_free() - 12)
        self.addCleanup(eater.end)
        self.lock = threading.Lock()
        self.left, self.served, self.refused, self.findings = LEASES, 0, 0, []
        self.zeroed = self.several = self.waited = 0

    def draw(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def check(self, got, zero, patience):
        size, ready, zeroed = got["size"], got["ready"], got["zeroed"]
        if not zero["equal"]:
            self.findings.append(f"dirty: {got} {zero}")
        if ready + zeroed > size or (patience == 0 and ready + zeroed != size):
            self.findings.append(f"a reply that does not add up: {got}")
        if sum(segment["size"] for segment in got["segments"]) != size:
            self.findings.append(f"segments that do not add up: {got}")
        with self.lock:
            self.served += 1
            self.zeroed += zeroed > 0
            self.several += len(got["segments"]) > 1
            self.waited += ready + zeroed < size

    def lease(self, dice, patience):
        pages = dice.choice((1, 2, 3, 5, 8, 9, 12, 16, 20, 28))
        options = ["--segments"] if dice.random() < 0.3 else []
        try:
            holder = Hold("--size", pages * PAGE, "--timeout", patience, *options)
        except HoldError as error:
            answer = error.answer
            with self.lock:
                self.refused += 1
            if answer["hpz_error"] != NO_MEMORY or patience:
                self.findings.append(f"{pages} pages, {patience} ms: {answer}")
            return None
        self.check(holder.got, holder.call("check-zero"), patience)
        holder.call("fill", dice.randrange(1 << 30))
        return holder

    def run_client(self, seed):
        dice, holders = random.Random(seed), []
        try:
            while self.draw():
                patience = dice.choice((0, 0, PATIENCE_MS))
                # Whoever waits has nothing that another may wait for.
                while holders and (patience or len(holders) > 1 or dice.random() < 0.4):
                    holders.pop(dice.randrange(len(holders))).end()
                holder = self.lease(dice, patience)
                if holder:
                    holders.append(holder)
        except Exception as error:
            self.findings.append(f"client {seed}: {error!r}")
        finally:
            for holder in holders:
                holder.end()

    def test_random_leases(self):
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        threads = [threading.Thread(target=self.run_client, args=(f"{seed}/{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{self.served} served, {self.refused} refused, {self.zeroed} with pages zeroed for them, {self.several} in several "
              f"segments, {self.waited} waited", file=sys.stderr)
        self.assertEqual(self.findings, [], f"seed {seed}")
        self.assertEqual(self.served + self.refused, LEASES)
        self.assertGreater(self.zeroed, 0)
        self.assertGreater(self.several, 0)
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        self.assertEqual(hpzctl("check", check=False).returncode, 0, "the books do not balance")


if __name__ == "__main__":
    main("--2m", str(KERNEL_PAGES), "--stock", "16M*2 8M*4 2M*rest", "--config-line", f"pool two.pages={POOL_PAGES}",
         "--config-line", f"pool two.max_pages={MAX_PAGES}")
