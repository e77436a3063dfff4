#!/usr/bin/env python3
"""Clean memory that somebody else opens: it is noticed, proven free and cleared again before it is lent."""
import contextlib
import mmap
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, hpzctl, wait_until  # noqa: E402

MIB = host.MIB
PAGES = 8
NOTICED = "by somebody else"


class Sentry(HpzTest):
    def setUp(self):
        super().setUp()
        self.clean = Path(os.environ["HPZ_MOUNT_2M"], "hpz/1/node0/clean")
        self.begin = len(self.service.get_log())

    def count_noticed(self):
        return self.service.get_log()[self.begin:].count(NOTICED)

    def soil(self, file):
        descriptor = os.open(file, os.O_RDWR)
        with mmap.mmap(descriptor, 2 * MIB) as memory:
            memory[:] = b"\xa5" * len(memory)
        os.close(descriptor)

    def check_all_zero(self):
        self.assertEqual(self.wait_clean()["clean"], PAGES)
        with contextlib.ExitStack() as stack:
            for _ in range(PAGES):
                holder = stack.enter_context(Hold("--size", 2 * MIB))
                self.assertTrue(holder.call("check-zero")["equal"])

    def test_own_work_is_not_noticed(self):
        for _ in range(5):
            self.check_all_zero()
        with Hold("--size", 2 * MIB) as holder:
            hpzctl("release", holder.id)
        self.wait_clean()
        self.service.restart()
        self.check_all_zero()
        list(self.clean.iterdir())
        self.assertEqual(self.count_noticed(), 0)

    def test_read(self):
        file = next(self.clean.iterdir())
        os.close(os.open(file, os.O_RDONLY))
        wait_until("it is noticed", lambda: self.count_noticed() == 1)
        self.check_all_zero()

    def test_written(self):
        for file in list(self.clean.iterdir())[:3]:
            self.soil(file)
        wait_until("all are noticed", lambda: self.count_noticed() == 3)
        self.check_all_zero()

    def test_truncated_by_path(self):
        os.truncate(next(self.clean.iterdir()), 0)
        wait_until("it is noticed", lambda: self.count_noticed() == 1)
        self.check_all_zero()

    def test_held(self):
        """Whoever keeps it open keeps it for good: the kernel gets it, and the stock is filled with other memory."""
        before = {file.stat().st_ino for file in self.clean.iterdir()}
        file = next(self.clean.iterdir())
        descriptor = os.open(file, os.O_RDWR)
        try:
            wait_until("it goes back to the kernel", lambda: "goes back to the kernel" in self.service.get_log()[self.begin:])
            self.assertEqual(os.fstat(descriptor).st_nlink, 0)
            self.assertLess(get_pool()["clean"], PAGES)
        finally:
            os.close(descriptor)
        wait_until("it is replaced", lambda: get_pool()["clean"] == PAGES)
        self.assertNotEqual({file.stat().st_ino for file in self.clean.iterdir()}, before)
        self.check_all_zero()

    def test_held_across_a_death(self):
        """Noticed, and hpzd dies before it is proven free: the next one proves it, and does not just clear it."""
        file = next(self.clean.iterdir())
        descriptor = os.open(file, os.O_RDWR)
        try:
            with mmap.mmap(descriptor, 2 * MIB) as memory:
                wait_until("it is noticed", lambda: self.count_noticed() == 1)
                self.service.kill()
                dirty = {file.stat().st_ino for file in self.clean.with_name("dirty").iterdir()}
                self.begin = len(self.service.get_log())
                self.service.start()
                if os.fstat(descriptor).st_ino in dirty:  # not given to the kernel before the death
                    wait_until("it goes back to the kernel",
                               lambda: "goes back to the kernel" in self.service.get_log()[self.begin:])
                self.assertEqual(os.fstat(descriptor).st_nlink, 0)
                memory[:] = b"\xa5" * len(memory)
        finally:
            os.close(descriptor)
        wait_until("it is replaced", lambda: get_pool()["clean"] == PAGES)
        self.check_all_zero()

    def test_in_the_same_moment(self):
        """hpzd hears of the open and of a request at once: what was soiled is not what the request gets."""
        daemon = self.service.get_pid()
        for _ in range(5):
            os.kill(daemon, signal.SIGSTOP)
            answers = []
            try:
                asking = threading.Thread(target=lambda: answers.append(
                    subprocess.run([f"{self.service.program.parents[1]}/tests/hold", "--size", str(2 * MIB), "--timeout", "30000"],
                                   input="check-zero\n", capture_output=True, text=True, check=False)))
                asking.start()
                wait_until("it asks", lambda: host.find_processes(self.service.program.parents[1] / "tests" / "hold"))
                for file in self.clean.iterdir():
                    self.soil(file)
            finally:
                os.kill(daemon, signal.SIGCONT)
            asking.join()
            self.assertIn('"equal":true', answers[0].stdout, answers[0])
        self.check_all_zero()


if __name__ == "__main__":
    main("--2m", str(PAGES), "--stock", "2M*rest")
