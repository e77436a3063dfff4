#!/usr/bin/env python3
"""hpzctl simulate: what it says on paper is what hpzd does with real memory, lease by lease; and its command line."""
import csv
import io
import json
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
PAGE = 2 * MIB
POOL_PAGES = 64
MAX_PAGES = 80
KERNEL_PAGES = 88  # more than the pool may hold
STEPS = 24
STEP_S = 1000  # longer than anything takes on paper
NO_MEMORY, TOO_LARGE = 8, 9
KINDS = {"exact": "exact", "trim": "trimmed", "several": "several", "extend": "extended"}


def make_trace(seed):
    """Starts one after the other, each with the place of its end among them: [(size, end step or None)]."""
    dice = random.Random(seed)
    return [(dice.choice((1, 2, 3, 4, 4, 4, 8, 8, 8, 10, 12, 20, 100)) * PAGE,
             None if dice.random() < 0.1 else step + dice.randrange(1, 8)) for step in range(STEPS)]


def write_trace(trace):
    # An end comes before the start that has its place.
    rows = [(step * STEP_S, "here", size, "any", "" if end is None else end * STEP_S - STEP_S // 2)
            for step, (size, end) in enumerate(trace)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([("time", "host", "size", "node", "end"), *rows])
    return out.getvalue()


class OnPaper(HpzTest):
    """The same starts and ends, simulated and real, with everything at rest in between."""

    def simulate(self, trace, *options):
        path = self.service.directory / "trace.csv"
        path.write_text(write_trace(trace))
        self.addCleanup(path.unlink)
        each = hpzctl("simulate", path, "--config", self.service.config, "--wait", "0", "--each", *options).stdout
        return [(row["outcome"], int(row["zeroed"])) for row in csv.DictReader(io.StringIO(each))]

    def rest(self):
        """Nothing is being worked on, at two looks one after the other."""
        def is_at_rest():
            pool = get_pool()
            return pool["dirty"] == 0 and pool["filling"] == 0
        wait_until("all work is done", lambda: is_at_rest() and is_at_rest())

    def end(self, holder):
        holder.end()
        wait_until("its lease has ended", lambda: self.get_lease(holder.id) is None)

    def start(self, size, *options):
        """(holder or None, what became of it, bytes zeroed for it)"""
        plan = hpzctl("plan", size, "--json", *options, check=False).stdout
        try:
            holder = Hold("--size", size, *options)
        except HoldError as error:
            return None, {NO_MEMORY: "refused", TOO_LARGE: "impossible"}[error.answer["hpz_error"]], 0
        self.addCleanup(holder.end)
        zeroed = holder.got["zeroed"]
        return holder, "extended" if zeroed else KINDS[json.loads(plan)["kind"]], zeroed

    def lease_all(self, trace, *options):
        holders, answers = {}, []
        for step, (size, end) in enumerate(trace):
            for holder in holders.pop(step, []):
                self.end(holder)
            self.rest()
            holder, outcome, zeroed = self.start(size, *options)
            answers.append((outcome, zeroed))
            if holder and end is not None:
                holders.setdefault(end, []).append(holder)
        return answers

    def compare(self, seed, *options):
        trace = make_trace(seed)
        paper, real = self.simulate(trace, *options), self.lease_all(trace, *options)
        self.assertEqual(real, paper, f"seed {seed}")
        return {outcome for outcome, _ in paper}

    def test_one_segment(self):
        self.assertLessEqual({"exact", "trimmed", "extended", "impossible"}, self.compare(1))

    def test_several_segments(self):
        self.assertLessEqual({"exact", "several"}, self.compare(3, "--segments"))


class CommandLine(HpzTest):
    def setUp(self):
        super().setUp()
        self.trace = self.service.directory / "starts.csv"
        self.trace.write_text("time,host,size,node,end\n0,a,8M,any,10\n1,b,16M,0,\n2,a,8M,1,\n")
        self.addCleanup(self.trace.unlink)

    def refuse(self, status, *arguments, says):
        done = hpzctl("simulate", *arguments, check=False)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(says, done.stderr)

    def test_json(self):
        got = hpzctl_json("simulate", self.trace, "--config", self.service.config, "--best")
        self.assertEqual((got["schema"], got["hosts"], got["seconds"], got["living_most"]), ("hpz-simulate-1", 2, 2, 3))
        result = got["result"]
        self.assertEqual((result["starts"], result["exact"], result["impossible"]), (3, 2, 1))
        self.assertEqual(result["pools"][0]["stock"], "16M*2 8M*2 2M*rest")
        self.assertIn(got["best"], [candidate["name"] for candidate in got["candidates"]])
        self.assertEqual(got["without"]["refused"], 1)
        self.assertIsNone(hpzctl_json("simulate", self.trace, "--pool-size", "1G")["best"])

    def test_tables(self):
        text = hpzctl("simulate", self.trace, "--pool-size", "1G", "--nodes", "2", "--best", "--clear-rate", "1G").stdout
        for part in ("3 starts on 2 hosts", "node 1, pages of 2M, 1 GiB, stock auto", "(as given)", "without hpz", "best of these: "):
            self.assertIn(part, text)

    def test_standard_input(self):
        done = subprocess.run([f"{get_build_directory()}/client/hpzctl", "simulate", "-", "--pool-size", "1G", "--json"],
                              input=self.trace.read_text(), capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(done.stdout)["result"]["starts"], 3)

    def test_refused(self):
        sized = ("--pool-size", "1G")
        self.refuse(2, says="which trace?")
        self.refuse(2, self.trace, self.trace, *sized, says="one trace at a time")
        self.refuse(2, self.trace, *sized, "--config", self.service.config, says="one of them")
        self.refuse(2, "-", *sized, "--best", says="give it as a file")
        self.refuse(2, self.trace, *sized, "--each", "--json", says="a format of its own")
        self.refuse(2, self.trace, *sized, "--stock", "2G*1", says="512 of `pages`")
        self.refuse(2, self.trace, *sized, "--page-size", "3M", says="not the size of a huge page")
        self.refuse(2, self.trace, "--pool-size", "3M", says="not whole pages")
        self.refuse(2, self.trace, *sized, "--clear-rate", "1K", says="below 1M a second")
        self.refuse(1, "/nowhere/trace.csv", *sized, says="/nowhere/trace.csv: No such file")
        self.refuse(1, self.trace, "--config", "/nowhere/hpzd.conf", says="--pool-size")
        self.refuse(1, "/dev/null", *sized, says="no start in it")
        self.trace.write_text("time,host,size\n5,a,1G\n4,a,1G\n")
        self.refuse(1, self.trace, *sized, says="starts.csv:3: time `4` is before that of line 2")


if __name__ == "__main__":
    main("--2m", str(KERNEL_PAGES), "--stock", "16M*2 8M*2 2M*rest", "--config-line", f"pool two.pages={POOL_PAGES}",
         "--config-line", f"pool two.max_pages={MAX_PAGES}")
