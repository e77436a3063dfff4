#!/usr/bin/env python3
"""hpzctl's benchmarks: what they say, how they end, what they leave. Not how fast anything is."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

LATER = 75
NR = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
KEYS = {"schema", "methods", "chosen", "kernel_gb_per_s", "engine_gb_per_s", "ratio_to_best", "ratio_to_mapped", "ratio_to_kernel",
        "neighbour", "stop_us", "end_us", "batch_us", "rounds", "gib", "complete", "rows"}
ROW_KEYS = {"kind", "name", "page_size", "bytes", "gb_per_s", "us", "clearing_gb_per_s", "ratio", "rounds", "spread"}
NEIGHBOUR_KEYS = {"alone_us", "kernel_us", "hpz_us", "clearing_gb_per_s", "passes", "kernel_ratio", "hpz_ratio", "kernel_after",
                  "hpz_after"}


def get_nr():
    return int(NR.read_text())


def get_free():
    return int(NR.with_name("free_hugepages").read_text())


class BenchClear(HpzTest):
    def setUp(self):
        super().setUp()
        self.nr = get_nr()
        self.addCleanup(lambda: self.assertEqual(get_nr(), self.nr))

    def test_json_and_picture(self):
        with tempfile.TemporaryDirectory() as directory:
            picture = Path(directory, "clear.svg")
            done = hpzctl("bench", "clear", "--rounds", 1, "--svg", picture, "--json", check=False, timeout=300)
            self.assertEqual(done.returncode, LATER, done.stderr)
            self.assertIn("--rounds 5 at least", done.stderr)
            self.assertTrue(ElementTree.parse(picture).getroot().tag.endswith("svg"))
            self.assertEqual(os.listdir(directory), ["clear.svg"])
        got = json.loads(done.stdout)
        self.assertEqual(set(got), KEYS)
        self.assertEqual((got["schema"], got["rounds"], got["gib"], got["complete"]), ("hpz-bench-clear-1", 1, 1, False))
        self.check_methods(got)
        for row in got["rows"]:
            self.assertEqual(set(row), ROW_KEYS, row)
            self.assertEqual((row["gb_per_s"] is None, row["us"] is None),
                             (is_time := row["kind"] in ("neighbour", "after"), not is_time), row)
            self.assertEqual(row["ratio"] is None, not is_time, row)
        self.check_neighbour(got)
        for latency in got["stop_us"], got["end_us"]:
            self.assertEqual(set(latency), {"p50", "p99"})
        self.assertGreater(got["batch_us"], 0)

    def check_neighbour(self, got):
        neighbour = got["neighbour"]
        self.assertEqual(set(neighbour), NEIGHBOUR_KEYS)
        self.assertEqual([len(neighbour[key]) for key in ("kernel_after", "hpz_after")], [neighbour["passes"]] * 2)
        rows = {(row["kind"], row["name"], row["bytes"]): row for row in got["rows"]}
        self.assertLessEqual({name for kind, name, _ in rows if kind == "neighbour"},
                             {"alone", "lookup", "fallocate", "stosb", "hpz", "fallocate/4", "hpz/4"})
        # In one round, others may have had the CPU all the time.
        missing = {"us": None, "ratio": None}
        self.assertEqual(neighbour["hpz_us"], rows.get(("neighbour", "hpz/4", 1 << 20), missing)["us"])
        self.assertEqual(neighbour["hpz_after"], [rows.get(("after", f"hpz {i}", 1 << 20), missing)["ratio"] for i in (1, 2, 3, 4)])

    def check_methods(self, got):
        methods = {(method["name"], method["page_size"]): method for method in got["methods"]}
        self.assertEqual(len(methods), len(got["methods"]))
        self.assertIn(got["chosen"], {name for name, _ in methods})
        for name in "memset", "plain":
            self.assertIn((name, 2 << 20), methods)
        for method in got["methods"]:
            self.assertEqual(method["gb_per_s"] is None, "why" in method, method)

    def test_words(self):
        for arguments in (["--rounds", "0"], ["--rounds", "1001"], ["--gib", "x"], ["--svg"], ["what"]):
            self.assertEqual(hpzctl("bench", "clear", *arguments, check=False).returncode, 2, arguments)
        help_text = hpzctl("bench", "clear", "--help").stdout
        for option in "--gib", "--rounds", "--svg", "--json":
            self.assertIn(option, help_text)

    def test_no_gnuplot(self):
        done = hpzctl("bench", "clear", "--svg", "/tmp/none.svg", check=False, env={"PATH": "/nonexistent"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("gnuplot-nox", done.stderr)
        self.assertFalse(Path("/tmp/none.svg").exists())

    def test_too_much(self):
        done = hpzctl("bench", "clear", "--gib", 900000, check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("more pages are needed", done.stderr)

    def test_signal(self):
        """Whenever it comes, the kernel's pool is what it was."""
        for delay in 0, 1, 4:
            free = get_free()
            with running([f"{get_build_directory()}/client/hpzctl", "bench", "clear", "--rounds", "500"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL) as bench:
                # Those that are free already, or new ones.
                wait_until("it takes pages", lambda: get_nr() > self.nr or get_free() < free or bench.poll() is not None)
                time.sleep(delay)
                bench.terminate()
                self.assertEqual(bench.wait(120), -signal.SIGTERM)
            self.assertEqual((get_nr(), get_free()), (self.nr, free))


class OwnDaemons(HpzTest):
    """On hpzd's of its own, that nobody else sees; the one under test has nothing to do with it."""

    def setUp(self):
        super().setUp()
        self.mounts = Path("/proc/mounts").read_text()
        self.granted = hpzctl_json("status")["leases_granted"]
        self.pages = get_nr(), get_free()
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self):
        wait_until("its hpzd's have ended", lambda: not self.find_daemons())
        self.assertEqual(Path("/proc/mounts").read_text(), self.mounts)
        self.assertEqual(hpzctl_json("status")["leases_granted"], self.granted)
        self.assertEqual((get_nr(), get_free()), self.pages)

    def find_daemons(self):
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if entry.read_bytes().startswith((b"hpzd\0--simulate\0--config\0/run/", b"hpzd\0--config\0/run/")):
                    found.append(entry)
        return found

    def check_program(self, name, *arguments):
        """What is to be measured does not exist, or is something else."""
        for program, said in ("/nonexistent", "/nonexistent"), ("/bin/false", "does not serve"):
            done = hpzctl("bench", name, *arguments, "--hpzd", program, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)

    def check_signals(self, name, numbers, *arguments):
        for number in numbers:
            with subprocess.Popen([f"{get_build_directory()}/client/hpzctl", "bench", name, *arguments], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL) as bench:
                wait_until("it has begun", lambda: self.find_daemons() or bench.poll() is not None)
                bench.send_signal(number)
                self.assertEqual(bench.wait(120), -number)
            wait_until("its hpzd's have ended", lambda: not self.find_daemons())


    def run_once(self, *arguments):
        """One round, which counts for nothing."""
        done = hpzctl("bench", *arguments, "--rounds", 1, "--json", check=False, timeout=300)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("--rounds 5 at least", done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual((got["rounds"], got["complete"]), (1, False))
        return got


class BenchLease(OwnDaemons):
    def test_json(self):
        done = hpzctl("bench", "lease", "--rounds", 1, "--json", check=False, timeout=300)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("--rounds 5 at least", done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual(set(got), {"schema", "floor_us", "lease_us", "release_us", "ratio", "pinned", "by_size", "by_segments",
                                    "by_clients", "bulk"})
        self.assertEqual(got["schema"], "hpz-bench-lease-1")
        self.assertEqual([set(got[key]) for key in ("lease_us", "release_us", "pinned", "bulk")],
                         [{"p50", "p99"}, {"p50", "p99"}, {"floor_us", "lease_us", "added_us"}, {"count", "us_each"}])
        self.assertEqual([row["size"] for row in got["by_size"]], [size << 20 for size in (2, 16, 128, 1024, 8192)])
        self.assertEqual([row["segments"] for row in got["by_segments"]], [10, 100, 1000, 10000])
        self.assertEqual([row["clients"] for row in got["by_clients"]], [1, 2, 4, 8, 16, 32, 64])
        for row in got["by_size"] + got["by_segments"] + got["by_clients"] + [got["lease_us"], got["release_us"]]:
            self.assertGreater(row["p50"], 0, row)
        self.assertAlmostEqual(got["pinned"]["added_us"], got["pinned"]["lease_us"] - got["pinned"]["floor_us"], places=1)

    def test_words(self):
        for arguments in (["--rounds", "0"], ["--rounds", "1001"], ["what"]):
            self.assertEqual(hpzctl("bench", "lease", *arguments, check=False).returncode, 2, arguments)
        self.check_program("lease")

    def test_signal(self):
        self.check_signals("lease", (signal.SIGTERM, signal.SIGKILL))


class BenchMlock(OwnDaemons):
    SMALL = ["--size", "31M", "--page-size", "2M"]

    def test_json(self):
        done = hpzctl("bench", "mlock", *self.SMALL, "--rounds", 1, "--json", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("--rounds 5 at least", done.stderr)
        got = json.loads(done.stdout)
        shared = {"page_size", "gib", "kernel_ms_per_gib", "hpz_ms_per_gib", "ratio", "rounds", "spread"}
        self.assertEqual(set(got), shared | {"schema", "complete", "rows"})
        self.assertEqual((got["schema"], got["complete"], len(got["rows"])), ("hpz-bench-mlock-1", False, 1))
        row = got["rows"][0]
        self.assertEqual(set(row), shared | {"kernel_map_ms_per_gib", "kernel_mlock_ms_per_gib", "hpz_map_ms_per_gib",
                                             "hpz_mlock_ms_per_gib", "lease_ms", "ratio_with_lease"})
        self.assertEqual({key: got[key] for key in shared}, {key: row[key] for key in shared})
        self.assertEqual((row["page_size"], row["gib"], row["rounds"]), (2 << 20, 0.031, 1))
        # Of one round, everything adds up.
        for side in "kernel", "hpz":
            both = row[f"{side}_map_ms_per_gib"] + row[f"{side}_mlock_ms_per_gib"]
            self.assertAlmostEqual(row[f"{side}_ms_per_gib"], both, places=3)
            self.assertGreater(row[f"{side}_mlock_ms_per_gib"], 0)
        self.assertAlmostEqual(row["ratio"], row["kernel_ms_per_gib"] / row["hpz_ms_per_gib"], places=1)
        self.assertLess(row["ratio_with_lease"], row["ratio"])
        self.assertGreater(row["lease_ms"], 0)

    def test_table(self):
        done = hpzctl("bench", "mlock", *self.SMALL, "--rounds", 1, check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        for word in "MLOCK", "kernel", "hpz", "32 MiB", "times as fast", "with the lease":
            self.assertIn(word, done.stdout)

    def test_failures(self):
        for arguments in (["--rounds", "0"], ["--rounds", "1001"], ["--page-size", "4M"], ["--node", "any"], ["--size", "x"],
                          ["--size", "900000G"], ["what"]):
            self.assertEqual(hpzctl("bench", "mlock", *arguments, check=False).returncode, 2, arguments)
        self.check_program("mlock", *self.SMALL)
        done = hpzctl("bench", "mlock", "--size", "9000G", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("more pages are needed", done.stderr)

    def test_limit(self):
        """Of what one may lock; said before anything is taken."""
        done = subprocess.run(["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock", "prlimit", "--memlock=1048576",
                               f"{get_build_directory()}/client/hpzctl", "bench", "mlock", *self.SMALL],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("CAP_IPC_LOCK", done.stderr)

    def test_signal(self):
        self.check_signals("mlock", (signal.SIGTERM,), *self.SMALL, "--rounds", "1000")


class BenchAlloc(OwnDaemons):
    def test_json(self):
        done = hpzctl("bench", "alloc", "--pages", 40, "--rounds", 1, "--json", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("--rounds 5 at least", done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual(set(got), {"schema", "cpus", "page_size", "pages", "rounds", "waited", "complete", "rows"})
        self.assertEqual((got["schema"], got["pages"], got["rounds"], got["complete"]), ("hpz-bench-alloc-1", 48, 1, False))
        self.assertEqual(got["cpus"], len(os.sched_getaffinity(0)))
        self.assertEqual([(row["threads"], row["bulk"]) for row in got["rows"]], [(1, 16), (2, 16), (4, 12), (8, 6), (16, 3), (24, 2)])
        for row in got["rows"]:
            self.assertEqual(set(row), {"threads", "over_cpus", "bulk", "kernel_us", "hpz_us", "bulk_us"})
            self.assertEqual(row["over_cpus"], row["threads"] > got["cpus"])
            for key in "kernel_us", "hpz_us", "bulk_us":
                self.check_series(row[key])
            self.assertEqual((row["kernel_us"]["ratio"], row["kernel_us"]["spread"]), (1, 0))

    def check_series(self, series):
        self.assertEqual(set(series), {"p50", "p99", "free_p50", "free_p99", "pages_per_s", "ratio", "spread"})
        self.assertGreater(series["p50"], 0)
        self.assertGreater(series["free_p50"], 0)
        self.assertLessEqual(series["p50"], series["p99"])
        self.assertLessEqual(series["free_p50"], series["free_p99"])
        self.assertGreater(series["pages_per_s"], 0)
        self.assertGreater(series["ratio"], 0)

    def test_table(self):
        done = hpzctl("bench", "alloc", "--pages", 48, "--rounds", 1, check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        for word in "THREADS", "kernel", "hpz", "bulk", f"{len(os.sched_getaffinity(0))} CPU", "leases had to wait for clearing":
            self.assertIn(word, done.stdout)

    def test_failures(self):
        for arguments in (["--rounds", "0"], ["--rounds", "101"], ["--pages", "10001"], ["--node", "any"], ["what"]):
            self.assertEqual(hpzctl("bench", "alloc", *arguments, check=False).returncode, 2, arguments)
        self.check_program("alloc", "--pages", "48")

    def test_signal(self):
        self.check_signals("alloc", (signal.SIGINT,), "--pages", "48", "--rounds", "100")


class BenchTeardown(OwnDaemons):
    ROW_KEYS = {"case", "backing", "table_bytes", "mean_s", "stddev_s", "runs", "rounds", "median_s", "spread", "exit_mmap_s", "cycle_s", "method",
                "end", "page_size", "sharers", "mapped", "touched"}

    def test_json(self):
        got = self.run_once("teardown", "--size", "2M", "--repeats", 1)
        self.assertEqual(set(got), {"schema", "regime", "rows", "missing", "pairs", "size", "rounds", "exit_mmap_why", "complete"})
        self.assertEqual((got["schema"], got["size"]), ("hpz-bench-teardown-1", 2 << 20))
        self.assertEqual(set(got["regime"]), {"name", "facts"})
        self.assertNotEqual(got["regime"]["facts"], [])
        # Each case on each memory, once: a row, or why there is none.
        methods, ends = ("puds", "middle", "whole"), ("exit", "munmap", "kill")
        backings = "4K", "THP", "2M", "1G", "2M-shared-1", "2M-shared-2", "2M-shared-8"
        wanted = [(f"{method}/{end}", backing) for method in methods for end in ends for backing in backings]
        wanted += [(f"whole/{end}", "2M-hpz") for end in ends]
        self.assertEqual(sorted((row["case"], row["backing"]) for row in got["rows"] + got["missing"]), sorted(wanted))
        self.assertTrue(all(missing["why"] for missing in got["missing"]))
        self.check_missing(got["missing"])
        rows = {(row["case"], row["backing"]): row for row in got["rows"]}
        for row in got["rows"]:
            self.check_row(row, got)
        for pair in got["pairs"]:
            self.assertEqual((pair["kernel_s"], pair["hpz_s"]),
                             (rows[pair["case"], "2M"]["median_s"], rows[pair["case"], "2M-hpz"]["median_s"]))
            self.assertAlmostEqual(pair["ratio"] * pair["hpz_s"], pair["kernel_s"], delta=pair["hpz_s"] / 500)
        # Each small page of its own has a table or two more than one page has.
        many, one = rows["puds/exit", "4K"], rows["middle/exit", "4K"]
        self.assertGreaterEqual(many["table_bytes"] - one["table_bytes"], 2 * 4096 * (many["touched"] - 2))

    def check_missing(self, missing):
        """What there is everywhere is missing nowhere."""
        self.assertLessEqual({entry["backing"] for entry in missing}, {"1G", "THP", "2M-shared-2", "2M-shared-8"})
        free = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages")
        if not free.exists() or int(free.read_text()) == 0:
            self.assertEqual(len([entry for entry in missing if entry["backing"] == "1G"]), 9)

    def check_row(self, row, got):
        self.assertEqual(set(row), self.ROW_KEYS)
        self.assertEqual(row["case"], f"{row['method']}/{row['end']}")
        self.assertEqual((row["runs"], row["rounds"], row["stddev_s"]), (1, 1, None), row)
        for key in "table_bytes", "mean_s", "median_s", "cycle_s":
            self.assertGreater(row[key], 0, row)
        if row["end"] == "munmap" or got["exit_mmap_why"]:
            self.assertIsNone(row["exit_mmap_s"], row)
        elif row["exit_mmap_s"] is not None:
            # A part of what the parent sees, on the same clock.
            self.assertLess(row["exit_mmap_s"], row["mean_s"], row)

    def test_one_row(self):
        done = hpzctl("bench", "teardown", "--size", "2M", "--rounds", 5, "--repeats", 3, "--case", "whole", "--memory", "2M-hpz", "--json",
                      check=False)
        self.assertIn(done.returncode, (0, LATER), done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual([(row["end"], row["backing"]) for row in got["rows"]],
                         [(end, "2M-hpz") for end in ("exit", "munmap", "kill")])
        self.assertEqual((got["pairs"], got["missing"], got["rounds"]), ([], [], 5))
        self.assertEqual(got["complete"], done.returncode == 0)
        for row in got["rows"]:
            self.assertIn(row["runs"], (5, 15))
            self.assertGreater(row["stddev_s"], 0)

    def test_rows_and_time(self):
        """Several cases and memories; without --rounds as many rounds as lie close together, and none for which there is no time."""
        rows = "--case", "middle", "--case", "whole", "--memory", "4K", "--memory", "2M"
        wanted = [(f"{case}/{end}", memory) for case in ("middle", "whole") for memory in ("4K", "2M") for end in ("exit", "munmap", "kill")]
        for seconds, rounds in (("20", range(5, 26)), ("0.001", [0])):
            done = hpzctl("bench", "teardown", "--size", "2M", "--repeats", 1, "--time", seconds, *rows, "--json", check=False)
            self.assertIn(done.returncode, (0, LATER), done.stderr)
            got = json.loads(done.stdout)
            self.assertEqual([(row["case"], row["backing"]) for row in got["rows"]], wanted)
            for row in got["rows"]:
                self.assertIn(row["rounds"], rounds)
                self.assertEqual(row["runs"], row["rounds"])
            self.assertEqual(got["rounds"], min(row["rounds"] for row in got["rows"]))
        self.assertEqual((got["complete"], done.returncode), (False, LATER))
        self.assertIn("12 of 12 rows there was time for fewer than 5 rounds", done.stderr)

    def test_words(self):
        for arguments in (["--rounds", "0"], ["--rounds", "1001"], ["--time", "x"], ["--size", "x"], ["--statistics"], ["--statistics", "x"], ["--case", "x"], ["--memory", "3M"], ["what"]):
            self.assertEqual(hpzctl("bench", "teardown", *arguments, check=False).returncode, 2, arguments)
        done = hpzctl("bench", "teardown", "--size", "900000G", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.check_program("teardown", "--size", "2M")

    def test_signal(self):
        self.check_signals("teardown", (signal.SIGTERM, signal.SIGINT), "--size", "4M", "--rounds", "900")


class BenchWriteSeq(OwnDaemons):
    def test_json(self):
        got = self.run_once("write-seq", "--size", "15M", "--tasks", 3)
        self.assertEqual(set(got), {"schema", "tasks", "cpus", "bytes", "page_size", "kernel", "hpz", "change_pct", "change_pct_low",
                                    "change_pct_high", "background_s", "rounds", "spread", "complete"})
        # Whole pages, as many for each.
        self.assertEqual((got["schema"], got["tasks"], got["bytes"], got["page_size"]), ("hpz-bench-write-seq-1", 3, 12 << 20, 2 << 20))
        figures = [f"{name}_s" for name in ("stime", "utime", "wall")]
        for side in "kernel", "hpz":
            self.assertLessEqual(set(figures), set(got[side]))
            self.assertGreater(got[side]["wall_s"], 0)
        for key in figures:
            kernel, hpz = got["kernel"][key], got["hpz"][key]
            if got["change_pct"][key] is None:
                self.assertEqual(kernel, 0, key)
            else:
                self.assertAlmostEqual(got["change_pct"][key], (hpz - kernel) / kernel * 100, delta=abs(got["change_pct"][key]) / 20 + 1)

    def test_table(self):
        done = hpzctl("bench", "write-seq", "--size", "4M", "--tasks", 1, "--rounds", 1, check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        for word in "1 task write", "TIME", "stime", "utime", "wall", "in the background":
            self.assertIn(word, done.stdout)

    def test_words(self):
        for arguments in (["--rounds", "0"], ["--rounds", "1001"], ["--tasks", "257"], ["--size", "x"], ["what"]):
            self.assertEqual(hpzctl("bench", "write-seq", *arguments, check=False).returncode, 2, arguments)
        done = hpzctl("bench", "write-seq", "--size", "900000G", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)

    def test_signal(self):
        self.check_signals("write-seq", (signal.SIGTERM, signal.SIGINT), "--size", "8M", "--rounds", "900")


class BenchVm(HpzTest):
    """Real QEMUs with hardly any memory: how they are counted, not how soon they are there."""

    def setUp(self):
        super().setUp()
        before = get_nr()
        self.addCleanup(lambda: self.assertEqual(get_nr(), before))

    def test_json(self):
        granted = hpzctl_json("status")["leases_granted"]
        done = hpzctl("bench", "vm", "--size", "16M", "--rounds", 2, "--libvirt", "hpz+none:///x", "--json", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("--rounds 5 at least", done.stderr)
        got = json.loads(done.stdout)
        self.assertEqual(set(got), {"schema", "size", "page_size", "prealloc_threads", "prealloc_ms", "hpz_ms", "tiny_vm_ms", "ratio",
                                    "over_tiny", "rounds", "spread", "complete", "libvirt", "libvirt_reason"})
        self.assertEqual((got["schema"], got["size"], got["page_size"], got["rounds"], got["complete"], got["libvirt"]),
                         ("hpz-bench-vm-1", 16 << 20, 2 << 20, 2, False, None))
        self.assertNotEqual(got["libvirt_reason"], "")
        self.assertEqual(got["prealloc_threads"], len(os.sched_getaffinity(0)))
        for key in "prealloc_ms", "hpz_ms", "tiny_vm_ms", "ratio", "over_tiny":
            self.assertGreater(got[key], 0, key)
        # One that does not count, and two.
        self.assertEqual(hpzctl_json("status")["leases_granted"], granted + 3)

    def test_table(self):
        done = hpzctl("bench", "vm", "--size", "16M", "--rounds", 1, "--libvirt", "no", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        for word in "START", "prealloc", "hpzctl run", "tiny", "times as fast", "not measured through libvirt: --libvirt no":
            self.assertIn(word, done.stdout)

    def test_no_clean_segment(self):
        """A figure of memory that was zeroed meanwhile would be none of hpz's."""
        done = hpzctl("bench", "vm", "--size", "18M", "--rounds", 5, "--libvirt", "no", "--json", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)
        self.assertIn("no clean segment", done.stderr)
        self.assertIs(json.loads(done.stdout)["complete"], False)

    def test_failures(self):
        for arguments in (["--rounds", "0"], ["--rounds", "1001"], ["--size", "3M"], ["--node", "any"], ["what"]):
            self.assertEqual(hpzctl("bench", "vm", *arguments, check=False).returncode, 2, arguments)
        for qemu, said in ("/nonexistent", "/nonexistent"), ("qemu-system-none", "qemu-system-none"), ("/bin/false", "said: nothing"):
            done = hpzctl("bench", "vm", "--size", "16M", "--qemu", qemu, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr)
        done = hpzctl("bench", "vm", "--size", "900000G", check=False)
        self.assertEqual(done.returncode, LATER, done.stderr)

    def test_signal(self):
        for number in signal.SIGTERM, signal.SIGINT:
            with running([f"{get_build_directory()}/client/hpzctl", "bench", "vm", "--size", "16M", "--rounds", "900"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as bench:
                wait_until("a guest has a lease", lambda: [lease for lease in hpzctl_json("status")["leases"]
                                                           if lease["label"] == "bench vm"] or bench.poll() is not None)
                bench.send_signal(number)
                self.assertEqual(bench.wait(120), -number)
            self.wait_clean()


if __name__ == "__main__":
    main("--2m", "24", "--stock", "16M*1 2M*rest")
