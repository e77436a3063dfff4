#!/usr/bin/env python3
"""A byte that is not zero in clean memory is found before it is handed out, and by `hpzctl verify`; and faults of memory
cost a segment, not the service."""
import contextlib
import mmap
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Verify(HpzTest):
    def get_clean(self, size=None):
        """Files of clean segments of that size: what only root can touch, and only a test does."""
        clean = self.service.directory / "2M/hpz/1/node0/clean"
        return sorted(file for file in clean.iterdir() if size is None or file.stat().st_size == size)

    def open_unseen(self, file):
        """By another name, which hpzd does not watch: else it is cleared again before anybody reads it."""
        link = self.service.directory / "2M/own-link"
        os.link(file, link)
        try:
            return open(link, "r+b")
        finally:
            link.unlink()

    def spoil(self, file, offset, length=1):
        with self.open_unseen(file) as opened, mmap.mmap(opened.fileno(), 0) as memory:
            memory[offset:offset + length] = b"\xa5" * length

    def get_memory_workers(self):
        return [worker for worker in self.service.get_workers()
                if Path("/proc", str(worker), "comm").read_text(encoding="ascii").strip() == "hpzd-memory"]

    def set_verify(self, how):
        self.set_config("pool two", "verify", how)
        self.service.reload()
        self.wait_idle()

    def check_retired(self, before, hits, pages):
        pool = get_pool()
        self.assertEqual((pool["verify_hits"] - before["verify_hits"], pool["retired_pages"] - before["retired_pages"]),
                         (hits, pages), pool)

    # ---- hpzctl verify ----

    def test_all_is_zero(self):
        result = hpzctl_json("verify")
        self.assertEqual((result["pages"], result["hits"], result["left"]), (get_pool()["clean"], 0, 0), result)
        self.assertEqual(result["bytes"], result["pages"] * PAGE)

    def test_one_byte(self):
        before = get_pool()
        self.spoil(self.get_clean(32 * MIB)[0], 31 * MIB + 12345)
        done = hpzctl("verify", "--pool", "two", "--json", check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn(f'"offset":{31 * MIB + 12345}', done.stdout)
        self.assertIn('"hits":1', done.stdout)
        self.assertIn(f"NOT ZERO at offset {31 * MIB + 12345}", self.service.get_log())
        self.wait_idle()
        self.check_retired(before, 1, 16)
        self.assertIn(f"NOT ZERO at offset {31 * MIB + 12345}", get_pool()["message"])
        self.assertEqual(hpzctl("verify").returncode, 0)

    def test_pool_that_is_not_there(self):
        self.assertEqual(hpzctl("verify", "--pool", "three", check=False).returncode, 1)

    def test_leases_in_the_middle(self):
        """Leases are served while all of it is read again and again, quickly, and what they get is zero."""
        stop, results = threading.Event(), []

        def verify():
            while not stop.is_set():
                results.append(hpzctl_json("verify"))

        with Hold("--size", 0) as holder:
            quiet = holder.call("time-leases", 32 * MIB, 100)
            thread = threading.Thread(target=verify)
            thread.start()
            try:
                beside = holder.call("time-leases", 32 * MIB, 100)
            finally:
                stop.set()
                thread.join()
        self.assertGreater(len(results), 0)
        self.assertTrue(all(result["hits"] == 0 for result in results), results)
        self.assertLess(beside["p90_ns"], quiet["p90_ns"] + 100_000_000, "leases waited for the reading")
        self.wait_idle()

    def test_its_client_goes(self):
        with Hold("--size", 0):
            with contextlib.suppress(Exception):
                hpzctl("verify", timeout=0.002)
        self.assertEqual(hpzctl_json("verify")["hits"], 0)

    # ---- before hand-over ----

    def test_full(self):
        self.set_verify("full")
        before = get_pool()
        files = self.get_clean(32 * MIB)
        for file in files[:-1]:
            self.spoil(file, 17 * MIB + 1)
        with Hold("--size", 32 * MIB, "--timeout", 30000) as holder:
            answer = holder.call("check-zero")
            self.assertTrue(answer["equal"], answer)
        self.wait_idle()
        self.assertLessEqual(get_pool()["verify_hits"] - before["verify_hits"], len(files) - 1)
        done = hpzctl("verify", "--json", check=False)
        self.wait_idle()
        self.check_retired(before, len(files) - 1, 16 * (len(files) - 1))
        self.assertIn(done.returncode, (0, 1))

    def test_no_time_limit(self):
        """Whoever does not want to wait gets what is clean, after it was read."""
        self.set_verify("full")
        with Hold("--size", 32 * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
        for file in self.get_clean():
            self.spoil(file, 100)
        # Either there is nothing, or one that was filled meanwhile.
        try:
            with Hold("--size", 32 * MIB) as holder:
                self.assertTrue(holder.call("check-zero")["equal"])
        except HoldError as error:
            self.assertEqual(error.answer["hpz_error"], 8, error)
        self.wait_idle()
        hpzctl("verify", check=False)
        self.wait_idle()

    def test_sample(self):
        """A page full of something is found, wherever the samples fall; reading them costs little."""
        self.set_verify("sample")
        before = get_pool()
        spoiled = self.get_clean(32 * MIB)
        for file in spoiled:
            self.spoil(file, 10 * PAGE, PAGE)
        with Hold("--size", 32 * MIB, "--timeout", 30000) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
        self.wait_idle()
        self.assertGreaterEqual(get_pool()["verify_hits"] - before["verify_hits"], 1)
        hpzctl("verify", check=False)
        self.wait_idle()

    def test_others_do_not_wait(self):
        """While memory is read for one lease, by a worker that does not come to its end, status is answered as before."""
        self.set_verify("full")
        with Hold("--size", 0) as one, Hold("--size", 0) as other:
            with contextlib.ExitStack() as stack:
                for worker in wait_until("there is a memory worker", self.get_memory_workers):
                    stack.enter_context(stopped(worker))
                one.send("time-leases", 32 * MIB, 1)
                for _ in range(20):
                    other.call("time-status", 10)
                # Nobody else has read it, either.
                self.assertEqual(select.select([one.process.stdout], [], [], 0)[0], [])
            self.assertEqual(one.get_answer()["rounds"], 1)

    def test_client_gone_while_it_is_read(self):
        self.set_verify("full")
        for _ in range(20):
            with contextlib.suppress(Exception):
                hpzctl("lease", "32M", "--path", timeout=0.004)
        self.service.reload()
        for lease in hpzctl_json("leases")["leases"]:
            hpzctl("release", lease["id"])
        self.wait_idle()
        self.assertEqual(hpzctl_json("verify")["hits"], 0)

    # ---- faults ----

    def test_hole_in_clean_memory(self):
        """A page that is gone is no zero page: the segment is retired, and reading it allocates nothing."""
        before = get_pool()
        file = self.get_clean(32 * MIB)[0]
        with self.open_unseen(file) as opened:
            os.truncate(opened.fileno(), 30 * MIB)
        self.assertEqual(hpzctl("verify", check=False).returncode, 1)
        self.wait_idle()
        self.check_retired(before, 1, 16)

    def test_no_memory_of_guests_in_dumps(self):
        """Worker processes dump nothing: no mapping is in the filter, and the limit is 0."""
        for worker in wait_until("there is a memory worker", self.get_memory_workers):
            proc = Path("/proc", str(worker))
            self.assertEqual(int((proc / "coredump_filter").read_text(encoding="ascii"), 16), 0, worker)
            self.assertRegex((proc / "limits").read_text(encoding="ascii"), r"Max core file size +0 +0 ")

    def test_worker_that_dies_of_sigbus(self):
        """A stand-in for broken memory: SIGBUS from outside. It costs the worker and its job; the service goes on."""
        deaths = hpzctl_json("status")["worker_deaths"]
        for worker in wait_until("there is a memory worker", self.get_memory_workers):
            os.kill(worker, signal.SIGBUS)
        wait_until("its death is seen", lambda: hpzctl_json("status")["worker_deaths"] > deaths)
        with Hold("--size", 32 * MIB, "--timeout", 30000) as holder:
            holder.call("fill", 1)
        time.sleep(0.1)
        self.wait_idle()
        self.assertEqual(hpzctl_json("verify")["hits"], 0)


if __name__ == "__main__":
    main("--2m", "64", "--stock", "32M*3 8M*2 2M*rest")
