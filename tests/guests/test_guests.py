#!/usr/bin/env python3
"""The proof on other kernels: what it learns there, every attack, and hpzd from start to end, in emulated guests.

What is expected of each attack stands in hpz-security(7), as for the machine itself (integration/test_attack.py).
"""
import os
import re
import shutil
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import guest  # noqa: E402
from hpztest.case import run_tests  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

TESTS = Path(__file__).resolve().parents[1]
SCRIPT = (TESTS / "guests/attacks.sh").read_text()
RACING = ("pin during the proof", "chmod spinner", "late mapper by path")
# Debian's kernels: references of a page of 2M and of 1G that nobody holds, and the index unit, as found there.
FACTS = {"6.1": {"2048": (1, 1), "1048576": (1, 1)}, "6.12": {"2048": (512, 512), "1048576": (262144, 262144)}}


def get_table():
    rows = re.findall(r"^\.It (?!Sy)(.+?) Ta (.+?) Ta (.+)$", (TESTS.parent / "man/hpz-security.7").read_text(), re.MULTILINE)
    return {name: (bpf, lease) for name, bpf, lease in rows}


class OtherKernel:
    kernel = None

    def run_guest(self, words, memory_mib=1024, limit=420):
        build = get_build_directory()
        programs = [build / "daemon/hpzd", build / "client/hpzctl", build / "tests/hold", build / "tests/attack",
                    shutil.which("setpriv")]
        try:
            status, lines = guest.run_script(SCRIPT, programs, self.kernel, memory_mib, words, limit)
        except guest.NoKernel as reason:
            self.skipTest(str(reason))
        text = "\n".join(lines)
        self.assertEqual((status, "TEST PASSED" in lines), (0, True), text)
        return text

    def check_facts(self, text, size):
        facts = re.search(rf"TEST facts pages of {size} KiB have (\d+) references .*index unit (\d+)", text)
        self.assertIsNotNone(facts, text)
        self.assertEqual((int(facts[1]), int(facts[2])), FACTS[self.kernel][size], text)

    def check_attacks(self, text, column):
        seen = dict(re.findall(r"^TEST attack (.+?): (\w+)", text, re.MULTILINE))
        for name, row in get_table().items():
            if name in RACING or name == "O_PATH of the file":
                continue
            self.assertEqual(seen.get(name), "seen" if row[column] == "seen" else "over", f"{name}\n{text}")

    def test_attacks(self):
        text = self.run_guest("hpz.pages=24")
        self.assertIn("TEST proof bpf", text)
        self.check_facts(text, "2048")
        self.check_attacks(text, 0)

    def test_attacks_without_bpf(self):
        text = self.run_guest("hpz.pages=24 hpz.bpf=no")
        self.assertIn("TEST proof f_setlease", text)
        self.check_attacks(text, 1)

    def test_gigabyte(self):
        text = self.run_guest("hugepagesz=1G hugepages=1 hpz.pages=1 hpz.gigabyte=yes", 4096)
        self.assertIn("TEST proof bpf", text)
        self.check_facts(text, "1048576")

    def test_races_on_a_preemptible_kernel(self):
        """An open that passed its permission check before the shields and finishes after them: none may win."""
        self.run_guest("preempt=full hpz.pages=24 hpz.races=10", limit=900)


class Linux_6_1(OtherKernel, unittest.TestCase):
    kernel = "6.1"


class Linux_6_12(OtherKernel, unittest.TestCase):
    kernel = "6.12"


if __name__ == "__main__":
    run_tests()
