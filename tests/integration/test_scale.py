#!/usr/bin/env python3
"""Size costs nothing: 10,000 segments and 1,000 leases (simulated); random leases of a pool too small half the time.

What a lease costs is counted in system calls of hpzd, not in time. HPZ_LONG=1: 10,000 random leases instead of 1,000.
"""
import json
import mmap
import os
import random
import re
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.calls import Counter  # noqa: E402
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import get_leases, get_pool, hpzctl, wait_until  # noqa: E402
from hpztest.simulated import SimulatedTest  # noqa: E402
from hpztest.wire import Tenant, WireError  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB
SEGMENTS, LEASES = 10000, 1000
COUNTED = 50
RESIDENT_MAX = 24 * MIB
POOL_PAGES, MAX_PAGES, KERNEL_PAGES = 32, 48, 56
RANDOM_LEASES = 10000 if os.environ.get("HPZ_LONG") else 1000
CLIENTS = 4
PATIENCE_MS = 60000
NO_MEMORY = 8
PLACES = (0, 64, PAGE // 2 - 8, PAGE - 8)  # of each page: what a tenant reads and writes


def get_resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) * 1024


class Large(SimulatedTest):
    POOL = f"pages = {SEGMENTS}\nstock = 2M*rest"

    def lease_many(self, tenant, count):
        held = [tenant.lease(PAGE, flags=0) for _ in range(count)]
        for lease in held:
            lease.close()
        return [lease.id for lease in held]

    def count_calls(self, tenant):
        """For a lease, and for its release with all that follows."""
        self.hpzctl("wait")
        with Counter(self.process.pid) as lease:
            ids = self.lease_many(tenant, COUNTED)
        with Counter(self.process.pid) as release:
            for left, lease_id in reversed(list(enumerate(ids))):
                tenant.release(lease_id)
                # One at a time, so that the looks that follow are as many each time.
                wait_until("it is clean", lambda left=left: self.count_files("clean") == SEGMENTS - self.lent - left)
        return [sum(counter.calls.values()) / COUNTED for counter in (lease, release)], lease.calls, release.calls

    def count_files(self, state):
        return len(os.listdir(self.directory / "mnt/big/hpz/1/node0" / state))

    lent = 0

    def test_cost(self):
        """A lease costs the same few system calls whatever else is there."""
        with Tenant(self.service.socket) as tenant:
            few, *before = self.count_calls(tenant)
            ids = self.lease_many(tenant, LEASES)
            self.lent = LEASES
            many, *after = self.count_calls(tenant)
            print(f"a lease: {few[0]:.1f} system calls, with {LEASES} out {many[0]:.1f}; a return: {few[1]:.1f}, {many[1]:.1f}",
                  file=sys.stderr)
            self.assertLessEqual(abs(many[0] - few[0]), 3, (before[0], after[0]))
            self.assertLessEqual(abs(many[1] - few[1]), 12, (before[1], after[1]))
            self.assertLessEqual(many[0], 40, after[0])
            self.assertEqual(len(ids), LEASES)

    def test_all_of_it_works(self):
        """Status, list, check; death and restart, with every lease as it was; memory that is bounded."""
        with Tenant(self.service.socket) as tenant:
            ids = []
            for number in range(LEASES):
                lease = tenant.lease(PAGE, flags=2, label=f"vm {number}".encode())
                lease.close()
                ids.append(lease.id)
            self.check_all(ids)
            self.process.kill()
            self.process.wait(60)
            self.start()
            self.check_all(ids)
        with Tenant(self.service.socket) as tenant:
            for lease_id in ids:
                tenant.release(lease_id)
        self.hpzctl("wait")
        pool = self.get_pool()
        self.assertEqual((pool["clean"], pool["leased"], pool["dirty"]), (SEGMENTS, 0, 0))

    def check_all(self, ids):
        status = self.get_status()
        self.assertEqual(sorted(lease["id"] for lease in status["leases"]), sorted(ids))
        pool = status["pools"][0]
        self.assertEqual((pool["clean"], pool["leased"]), (SEGMENTS - LEASES, LEASES))
        check = json.loads(self.hpzctl("check", "--json").stdout)
        self.assertEqual((check["differences"], check["segments"], check["leases"]), (0, SEGMENTS, LEASES))
        for pid in [self.process.pid, *host.get_descendants(self.process.pid)]:
            self.assertLessEqual(get_resident(pid), RESIDENT_MAX, pid)


class Random(HpzTest):
    """Small, real, and too small half the time: nobody starves, the books balance, each reply adds up."""

    def setUp(self):
        super().setUp()
        eater = PageEater(host.PagePool(PAGE).get_free() - 6)
        self.addCleanup(eater.end)
        self.lock = threading.Lock()
        self.left, self.served, self.refused, self.findings = RANDOM_LEASES, 0, 0, []
        self.zeroed = self.several = self.waited = 0

    def draw(self):
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def note(self, lease):
        with self.lock:
            self.served += 1
            self.zeroed += lease.zeroed > 0
            self.several += len(lease.segments) > 1
            self.waited += lease.ready + lease.zeroed < lease.size

    def use(self, lease):
        """Nobody else's mark, and ours from now on: some places of every page."""
        mark = lease.id.to_bytes(8, "little")
        for size, descriptor in lease.segments:
            with mmap.mmap(descriptor, size) as memory:
                for at in (page + place for page in range(0, size, PAGE) for place in PLACES):
                    if memory[at:at + 8] != bytes(8):
                        self.findings.append(f"lease {lease.id}: {memory[at:at + 8].hex()} at {at}")
                    memory[at:at + 8] = mark

    def end(self, tenant, lease):
        """All of it is as it was left."""
        mark = lease.id.to_bytes(8, "little")
        for size, descriptor in lease.segments:
            with mmap.mmap(descriptor, size) as memory:
                if any(memory[page + place:page + place + 8] != mark for page in range(0, size, PAGE) for place in PLACES):
                    self.findings.append(f"lease {lease.id}: somebody else wrote to it")
        lease.close()
        tenant.release(lease.id)

    def check(self, lease, pages, patience):
        if lease.size != pages * PAGE or sum(size for size, _ in lease.segments) != lease.size:
            self.findings.append(f"{pages} pages asked, {lease.size} bytes given in {lease.segments}")
        if lease.ready + lease.zeroed > lease.size or (patience == 0 and lease.ready + lease.zeroed != lease.size):
            self.findings.append(f"of {lease.size} bytes {lease.ready} were ready, {lease.zeroed} zeroed")

    def lease(self, tenant, dice, patience):
        pages = dice.choice((1, 1, 1, 2, 2, 3, 4, 5, 8, 12))
        try:
            lease = tenant.lease(pages * PAGE, timeout_ms=patience, flags=8 if dice.random() < 0.3 else 0)
        except WireError as error:
            with self.lock:
                self.refused += 1
            if error.error != NO_MEMORY or patience:
                self.findings.append(f"{pages} pages, {patience} ms: {error}")
            return None
        self.check(lease, pages, patience)
        self.use(lease)
        self.note(lease)
        return lease

    def run_client(self, seed):
        dice, held = random.Random(seed), []
        try:
            with Tenant() as tenant:
                while self.draw():
                    patience = dice.choice((0, PATIENCE_MS))
                    # Whoever waits has nothing that another may wait for.
                    while held and (patience or len(held) > 2 or dice.random() < 0.3):
                        self.end(tenant, held.pop(dice.randrange(len(held))))
                    lease = self.lease(tenant, dice, patience)
                    if lease:
                        held.append(lease)
                while held:
                    self.end(tenant, held.pop())
        except Exception as error:
            self.findings.append(f"client {seed}: {error!r}")

    def test_random_leases(self):
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr)
        threads = [threading.Thread(target=self.run_client, args=(f"{seed}/{number}",)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"{self.served} served, {self.refused} refused, {self.zeroed} with pages zeroed for them, {self.several} in several "
              f"segments, {self.waited} waited", file=sys.stderr)
        self.assertEqual(self.findings[:10], [], f"seed {seed}")
        self.assertEqual(self.served + self.refused, RANDOM_LEASES)
        for count in self.zeroed, self.several, self.waited, self.refused:
            self.assertGreater(count, 0)
        wait_until("all is back", lambda: get_leases() == [])
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        self.assertEqual(hpzctl("check", check=False).returncode, 0, "the books do not balance")
        self.assertEqual(get_pool()["verify_hits"], 0)


if __name__ == "__main__":
    main("--2m", str(KERNEL_PAGES), "--stock", "16M*1 8M*2 2M*rest", "--config-line", f"pool two.pages={POOL_PAGES}",
         "--config-line", f"pool two.max_pages={MAX_PAGES}")
