#!/usr/bin/env python3
"""Two NUMA nodes with pages of 2M and 1G, in an emulated guest: nodes.sh makes the machine, nodes.c tries it."""
import os
import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import guest  # noqa: E402
from hpztest.case import run_tests  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

HERE = Path(__file__).resolve().parent
# As `nodes` has them; that none is missing, or new, is a test of its own.
TESTS = ("every_page", "strict", "preferred", "interleave", "cells", "cells_as_paths", "all_or_none", "opposite_order",
         "moved_away", "workers", "killed", "killed_meanwhile", "gigabytes", "hpzctl", "hook")


class TwoNodes(unittest.TestCase):
    status, lines, missing = None, [], ""

    @classmethod
    def setUpClass(cls):
        build = get_build_directory()
        programs = [build / "daemon/hpzd", build / "client/hpzctl", build / "client/hpz-libvirt-hook", build / "tests/nodes"]
        try:
            cls.status, cls.lines = guest.run_script(
                (HERE / "nodes.sh").read_text(), programs, "6.1", words="hugepagesz=1G hugepages=0:1,1:1 no_timer_check", limit=890,
                nodes=(4096, 3072))
        except guest.NoKernel as reason:
            cls.missing = str(reason)

    def setUp(self):
        if self.missing:
            self.skipTest(self.missing)

    def test_ends_well(self):
        text = "\n".join(self.lines)
        self.assertEqual((self.status, self.lines[-1:]), (0, ["TEST PASSED"]), text)
        self.assertEqual(tuple(re.findall(r"^TEST (\w+) ok", text, re.MULTILINE)), TESTS)


def make_test(name):
    def test(self):
        text = "\n".join(self.lines)
        self.assertRegex(text, rf"(?m)^TEST {name} ok", text)
    return test


for one in TESTS:
    setattr(TwoNodes, f"test_{one}", make_test(one))


if __name__ == "__main__":
    run_tests()
