#!/usr/bin/env python3
"""The proof on other kernels: what it learns there, every attack, and hpzd from start to end, in emulated guests.

What is expected of each attack stands in hpz-security(7), as for the machine itself (integration/test_attack.py).
"""
import os
import re
import shutil
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import guest  # noqa: E402
from hpztest.case import run_tests  # noqa: E402
from hpztest.manual import SEEN, get_attacks  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

# The long run: also without BPF, and races on a preemptible kernel. Each takes a guest some minutes.
IS_LONG = bool(os.environ.get("HPZ_LONG"))
GUESTS = ThreadPoolExecutor(2)  # an emulated guest keeps about one CPU busy
TESTS = Path(__file__).resolve().parents[1]
SCRIPT = (TESTS / "guests/attacks.sh").read_text()
RACING = ("pin during the proof", "chmod spinner", "late mapper by path")
# Debian's kernels: references of a page of 2M and of 1G that nobody holds, and the index unit, as found there.
FACTS = {"6.1": {"2048": (1, 1), "1048576": (1, 1)}, "6.12": {"2048": (512, 512), "1048576": (262144, 262144)}}


# How these free page tables: Debian builds with PARAVIRT; the patch of January 2026 was carried back to both.
REGIME = {"name": "tcg rcu=paravirt", "hypervisor": "tcg", "signature": "TCGTCGTCGTCG", "pv_tlb_flush_used": "no",
          "rcu_table_free": "paravirt", "pmd_unshare_ipi": "fixed", "lazy_tlb": "refcount", "cpus": "2"}


def boot(kernel, words, memory_mib, limit):
    build = get_build_directory()
    programs = [build / "daemon/hpzd", build / "client/hpzctl", build / "tests/hold", build / "tests/attack",
                build / "tests/unit/test_paravirt", build / "tests/unit/test_exits", shutil.which("setpriv")]
    return guest.run_script(SCRIPT, programs, kernel, memory_mib, words, limit)


class OtherKernel:
    kernel = None
    # Test, what its guest is told, MiB of memory, seconds it may take.
    guests = {
        "test_attacks": ("hpz.pages=24", 1024, 900),
        "test_gigabyte": ("hugepagesz=1G hugepages=1 hpz.pages=1 hpz.gigabyte=yes", 4096, 900),
        "test_attacks_without_bpf": ("hpz.pages=24 hpz.bpf=no", 1024, 900),
        "test_races_on_a_preemptible_kernel": ("preempt=full hpz.pages=24 hpz.races=10", 1024, 900),
    }
    long_ones = ("test_attacks_without_bpf", "test_races_on_a_preemptible_kernel")
    runs = None

    @classmethod
    def setUpClass(cls):
        # Several at once: while one is looked at, the next boots.
        wanted = [name for name in cls.guests if hasattr(cls, name)]
        if len(sys.argv) > 1:
            wanted = [name for name in wanted if any(name in argument.split(".") for argument in sys.argv)] or wanted
        cls.runs = {name: GUESTS.submit(boot, cls.kernel, *cls.guests[name]) for name in wanted}

    def run_guest(self):
        try:
            status, lines = self.runs[self._testMethodName].result()
        except guest.NoKernel as reason:
            self.skipTest(str(reason))
        text = "\n".join(lines)
        self.assertEqual((status, "TEST PASSED" in lines), (0, True), text)
        return text

    def check_facts(self, text, size):
        facts = re.search(rf"TEST facts pages of {size} KiB have (\d+) references .*index unit (\d+)", text)
        self.assertIsNotNone(facts, text)
        self.assertEqual((int(facts[1]), int(facts[2])), FACTS[self.kernel][size], text)

    def check_attacks(self, text, source):
        seen = dict(re.findall(r"^TEST attack (.+?): (\w+)", text, re.MULTILINE))
        for name, row in get_attacks().items():
            if name in RACING or name == "O_PATH of the file":
                continue
            self.assertEqual(seen.get(name), "seen" if row[source] == SEEN else "over", f"{name}\n{text}")

    def check_regime(self, text):
        lines = [line.split() for line in re.findall(r"^TEST regime (.+)", text, re.MULTILINE)]
        facts = {line[0]: line[1] for line in lines[1:]} | {"name": " ".join(lines[0])}
        self.assertEqual({name: facts.get(name) for name in REGIME}, REGIME, text)

    def test_attacks(self):
        text = self.run_guest()
        # Both tell of a thread's end when it has left its address space.
        self.assertIn("TEST exits bpf; unknown: when a single thread that exits by itself began to\n", text)
        self.assertIn("TEST exits perf; unknown: when an end began, TLB flushes, steal time\n", text)
        self.check_regime(text)
        self.assertIn("TEST proof bpf", text)
        self.check_facts(text, "2048")
        self.check_attacks(text, "bpf")

    def test_attacks_without_bpf(self):
        text = self.run_guest()
        self.assertIn("TEST proof f_setlease", text)
        self.check_attacks(text, "f_setlease")

    def test_gigabyte(self):
        text = self.run_guest()
        self.assertIn("TEST proof bpf", text)
        self.check_facts(text, "1048576")

    def test_races_on_a_preemptible_kernel(self):
        """An open that passed its permission check before the shields and finishes after them: none may win."""
        self.run_guest()


if not IS_LONG:
    for long_one in OtherKernel.long_ones:
        delattr(OtherKernel, long_one)


class Linux_6_1(OtherKernel, unittest.TestCase):
    kernel = "6.1"


class Linux_6_12(OtherKernel, unittest.TestCase):
    kernel = "6.12"


if __name__ == "__main__":
    run_tests()
