#!/usr/bin/env python3
"""hpzctl doctor on this host: what it says is so, and every check is in the manual page."""
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest.case import HpzTest, PageEater, main  # noqa: E402
from hpztest.client import get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402

TOP = Path(__file__).resolve().parents[2]
KERNEL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")


def examine(**options):
    return {check["check"]: check for check in hpzctl_json("doctor", **options)["checks"]}


class Doctor(HpzTest):
    def test_page(self):
        page = (TOP / "man/hpzctl.1").read_text()
        section = page[page.index(".Ss doctor\n"):]
        section = section[:section.index("\n.Ss ")]
        self.assertEqual(re.findall(r"^\.It Cm ([\w-]+)$", section, re.MULTILINE), list(examine()))

    def test_well(self):
        """What hpzd and the kernel say."""
        done = hpzctl("doctor")
        self.assertEqual(done.returncode, 0)
        self.assertTrue(all(len(line) > 25 for line in done.stdout.splitlines()))
        checks = examine()
        for check in ("hpzd", "version", "message", "stock", "held", "memory", "books", "mounts", "numa"):
            self.assertEqual((checks[check]["verdict"], checks[check]["cure"]), ("ok", None), checks[check])
        self.assertEqual(checks["proof"]["verdict"], "ok" if get_status()["proof"] == "bpf" else "warn")
        self.assertEqual(checks["btf"]["verdict"], "ok" if os.path.exists("/sys/kernel/btf/vmlinux") else "warn")
        self.assertIn(f"2M: {int((KERNEL / 'nr_hugepages').read_text())}, ", checks["pages"]["evidence"])
        self.assertIn("32 are of pools", checks["capacity"]["evidence"])

    def test_hpzd_away(self):
        """That is a finding, and everything else is looked at all the same."""
        self.service.kill()
        done = hpzctl("doctor", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^fail +hpzd +hpzd does not answer: .*\n +systemctl start hpzd")
        self.assertRegex(done.stdout, r"(?m)^unseen +proof ")
        self.assertRegex(done.stdout, r"(?m)^ok +pages +2M: ")

    def test_short(self):
        """A pool that cannot have what it is to hold."""
        self.service.stop()
        self.set_config("pool two", "pages", "100000")
        self.set_config("pool two", "max_pages", "100000")
        with PageEater(0):
            self.service.start()
            wait_until("hpzd says so", lambda: get_status()["pools"][0]["message"])
            checks = examine()
        self.assertEqual(checks["stock"]["verdict"], "warn")
        self.assertIn("pool two: ", checks["stock"]["evidence"])
        self.assertEqual(checks["fragmentation"]["verdict"], "warn", checks["fragmentation"])

    def test_elsewhere(self):
        """Nothing is there."""
        checks = {check["check"]: check for check in hpzctl_json("doctor", "--root", "/nowhere", check=False)["checks"]}
        self.assertEqual(checks["pages"]["verdict"], "fail")
        self.assertEqual(checks["kernel-leases"]["verdict"], "unseen")


main("--2m", "32")
