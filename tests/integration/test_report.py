#!/usr/bin/env python3
"""`hpzctl bench all`: the report of benchmarks that stand-ins play, whatever these do; and one small real run."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import hpzctl, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

LATER = 75
NR = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
# No benchmark: a script that prints what one would, by the name it is asked for.
STAND_IN = r"""#!/bin/bash
echo "$*" >>"$(dirname "$0")/asked"
play() { cat "$(dirname "$0")/$1.json"; }
case $2 in
mlock) play mlock ;;
lease) play lease; echo "hpzctl: bench lease: the rounds spread" >&2; exit 75 ;;
proof) echo "hpzctl: first" >&2; echo "hpzctl: bench proof: no pages" >&2; exit 75 ;;
clear) exit 1 ;;
alloc) kill -SEGV $$ ;;
recycle) echo started >"$(dirname "$0")/started"; exec sleep 1000 ;;
teardown) play teardown ;;
write-seq) echo "no JSON at all" ;;
vm) echo '{"schema":"hpz-bench-vm-1"}' ;;
esac
"""
FIGURES = {
    "mlock": {"schema": "hpz-bench-mlock-1", "page_size": 2 << 20, "ratio": 512.5, "rows": [
        {"page_size": 2 << 20, "gib": 2.0, "kernel_ms_per_gib": 123.456, "hpz_ms_per_gib": 0.2, "ratio": 512.5, "lease_ms": 0.05,
         "rounds": 20, "spread": 0.034},
        {"page_size": 1 << 30, "gib": 2.0, "kernel_ms_per_gib": None, "hpz_ms_per_gib": None, "ratio": None, "rounds": 0,
         "spread": None}]},
    "lease": {"schema": "hpz-bench-lease-1", "floor_us": 60.5, "lease_us": {"p50": 70.25, "p99": 1500}, "by_clients": [
        {"clients": 1, "p50": 60, "p99": 90}, {"clients": 64, "p50": 6000, "p99": 90000}]},
    # What would break a table, a picture or a terminal.
    "teardown": {"schema": "hpz-bench-teardown-1", "regime": {"name": "kvm:tlb rcu=always"}, "rows": [
        {"case": "puds|exit\n# x", "backing": "a\"b\\{c}_d\nEOD", "table_bytes": 12288, "median_s": 0.00123, "mean_s": 1.5, "runs": 7,
         "end": "exit"}],
        "missing": [{"case": "whole/kill", "backing": "1G", "why": "<b>no pages</b>"}]},
}
OUTCOMES = {"vm": "done", "clear": "failed", "mlock": "done", "alloc": "failed", "write-seq": "failed", "teardown": "done",
            "lease": "incomplete", "proof": "refused"}


class StandIns(unittest.TestCase):
    """The report alone: neither hpzd nor pages are asked for."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.report = self.directory / "report.md"
        self.program = self.directory / "stand-in"
        self.program.write_text(STAND_IN)
        self.program.chmod(0o755)
        for name, figures in FIGURES.items():
            (self.directory / f"{name}.json").write_text(json.dumps(figures))

    def run_all(self, *arguments):
        # The socket is for the stand-ins: nobody looks for one.
        return hpzctl("bench", "all", "--program", self.program, "--json", "--socket", "/nowhere", *arguments, check=False,
                      timeout=300)

    def check_picture(self, name):
        self.assertTrue(ElementTree.parse(self.directory / f"report-{name}.svg").getroot().tag.endswith("svg"))

    def test_report(self):
        """Nothing that one of them does hides another."""
        done = self.run_all("--markdown", self.report, *OUTCOMES)
        self.assertEqual(done.returncode, 1, done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual(set(got), {"schema", "version", "date", "command", "quick", "machine", "regime", "benchmarks", "seconds",
                                    "complete"})
        self.assertEqual((got["schema"], got["quick"], got["complete"]), ("hpz-bench-all-1", False, False))
        self.assertEqual(got["command"][:5], ["hpzctl", "bench", "all", "--program", str(self.program)])
        runs = {run["name"]: run for run in got["benchmarks"]}
        self.assertEqual({name: run["outcome"] for name, run in runs.items()}, OUTCOMES)
        self.assertEqual(runs["mlock"]["result"], FIGURES["mlock"])
        self.assertEqual((runs["alloc"]["signal"], runs["alloc"]["status"]), (signal.SIGSEGV, None))
        self.assertEqual(runs["proof"]["why"], "bench proof: no pages")
        self.assertIsNone(runs["mlock"]["why"])
        for run in runs.values():
            self.assertEqual(set(run["busy"]), {"before", "load", "steal"})
        for fact in got["regime"]["facts"]:
            self.assertEqual(set(fact), {"name", "value", "where"})
        self.check_asked()
        self.check_markdown(self.report.read_text())
        self.assertEqual({path.name for path in self.directory.glob("report*")},
                         {"report.md", *(f"report-{name}.svg" for name in FIGURES)})
        for name in FIGURES:
            self.check_picture(name)
        self.check_again(done.stdout)

    def check_asked(self):
        """Every benchmark once; those that need an hpzd were told of the one to take."""
        asked = [line.split() for line in (self.directory / "asked").read_text().splitlines()]
        self.assertEqual(sorted(words[1] for words in asked), sorted(OUTCOMES))
        for words in asked:
            self.assertEqual((words[0], words[2], "/nowhere" in words), ("bench", "--json", words[1] in ("vm", "recycle")), words)

    def check_markdown(self, text):
        for name in OUTCOMES:
            self.assertIn(f"\n## {name}\n", text)
        self.assertIn("| 2M | 2.000 | 123.5 | 0.2000 | 512.5 | 50.00 us | - | 20 | 3.4 % |", text)
        self.assertIn("| 1G | 2.000 | - | - | - | - | - | 0 | - |", text)
        self.assertIn("incomplete, because it says: bench lease: the rounds spread", text)
        self.assertIn("![mlock()](report-mlock.svg)", text)
        self.assertNotIn("report-clear.svg", text)
        self.assertIn("| lease, p99 | 1.500 ms |", text)
        self.assertIn(r"| puds\|exit # x | ", text)
        self.assertIn(r"\<b\>no pages\</b\>", text)
        self.assertIn("| 12K | 1.230 ms | 1.500 s |", text)
        self.assertIn("kvm:tlb rcu=always", text)

    def check_again(self, printed):
        """The same report, from what the run printed; with the same end."""
        text = self.report.read_text()
        self.report.unlink()
        earlier = self.directory / "earlier.json"
        earlier.write_text(printed)
        done = hpzctl("bench", "all", "--from", earlier, "--markdown", self.report, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(self.report.read_text(), text)
        self.assertRegex(done.stdout, r"(?m)^proof +refused +\d+\.\d +bench proof: no pages$")
        earlier.write_text('{"schema":"hpz-status-1"}')
        done = hpzctl("bench", "all", "--from", earlier, check=False)
        self.assertEqual((done.returncode, "no report of bench all" in done.stderr), (1, True))

    def test_limit(self):
        """One that hangs is ended, and said so."""
        done = self.run_all("--limit", 1, "--markdown", self.report, "recycle")
        self.assertEqual(done.returncode, LATER, done.stderr)
        (run,) = json.loads(done.stdout)["benchmarks"]
        self.assertEqual((run["outcome"], run["result"], run["signal"]), ("timeout", None, signal.SIGTERM))
        self.assertIn("not over after 1 s", self.report.read_text())

    def test_status(self):
        """The worst of them decides."""
        for names, status in ((["mlock"], 0), (["proof", "mlock"], LATER), (["proof", "clear"], 1),
                              (["--quick", "mlock"], LATER)):
            done = self.run_all(*names)
            self.assertEqual(done.returncode, status, (names, done.stderr))
        for arguments in (["nothing"], ["--limit", "x"], ["--markdown"]):
            self.assertEqual(hpzctl("bench", "all", *arguments, check=False).returncode, 2, arguments)
        done = hpzctl("bench", "all", "--program", self.directory / "none", "mlock", check=False)
        self.assertEqual((done.returncode, "No such file" in done.stderr), (1, True))
        done = hpzctl("bench", "all", "--markdown", self.report, "mlock", check=False, env={"PATH": "/nonexistent"})
        self.assertEqual((done.returncode, "needs gnuplot" in done.stderr), (1, True))

    def test_signal(self):
        """What runs ends with it, and no part of a report is taken for a whole one."""
        command = [f"{get_build_directory()}/client/hpzctl", "bench", "all", "--program", self.program, "--socket", "/nowhere",
                   "--markdown", self.report, "recycle"]
        for number in signal.SIGTERM, signal.SIGKILL:
            with contextlib.suppress(FileNotFoundError):
                (self.directory / "started").unlink()
            with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
                wait_until("the benchmark runs", (self.directory / "started").exists)
                (child,) = (int(pid) for pid in Path(f"/proc/{bench.pid}/task/{bench.pid}/children").read_text().split())
                bench.send_signal(number)
                self.assertEqual(bench.wait(60), -number)
                wait_until("it has ended, too", lambda pid=child: not Path(f"/proc/{pid}").exists())
            self.assertFalse(self.report.exists())


class Real(HpzTest):
    def test_quick(self):
        """Its own hpzd is gone afterwards, and so are the pages."""
        nr, mounts = NR.read_text(), Path("/proc/mounts").read_text()
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory, "report.md")
            # The socket is not for it: an hpzd of its own is what is looked at.
            done = hpzctl("bench", "all", "--quick", "--markdown", report, "--json", "vm", "proof", check=False, timeout=300,
                          env={name: value for name, value in os.environ.items() if name != "HPZ_SOCKET"})
            self.assertEqual(done.returncode, LATER, done.stderr)
            got = json.loads(done.stdout)
            self.assertEqual({run["name"]: run["outcome"] in ("done", "incomplete") for run in got["benchmarks"]},
                             {"vm": True, "proof": True}, done.stdout)
            self.assertEqual(got["benchmarks"][0]["result"]["size"], 16 << 20)
            self.assertIn("its figures mean nothing", report.read_text())
        self.assertEqual((NR.read_text(), Path("/proc/mounts").read_text()), (nr, mounts))


if __name__ == "__main__":
    main()
