"""Test cases: each begins and ends with an idle hpzd whose books balance. A test file ends with main(...)."""
import mmap
import os
import re
import sys
import time
import traceback
import unittest
from pathlib import Path

from hpztest import host
from hpztest.client import get_leases, get_pool, get_status, hpzctl, wait_until
from hpztest.service import Service

MIB = host.MIB
_TESTS = Path(__file__).resolve().parents[2]


class PageEater:
    """Takes free huge pages away from the kernel's pool until the end of a with block."""

    def __init__(self, pages, page_size=2 * MIB):
        self.map = mmap.mmap(-1, pages * page_size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000 | 0x8000
                             | (page_size.bit_length() - 1) << 26) if pages > 0 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.map is not None:
            self.map.close()
            self.map = None


class HpzTest(unittest.TestCase):
    """`service` is the daemon. What a test changes in its configuration is put back afterwards."""

    maxDiff = None

    def setUp(self):
        self.service = Service()
        self._config = self.service.config.read_text()
        self.addCleanup(self.settle)
        self.start_if_dead()
        self.wait_idle()

    def start_if_dead(self):
        """An hpzd that runs and is not served is as bad as a dead one."""
        if self.service.get_pid() and not self.service.is_served():
            self.service.kill()
        if self.service.get_pid() is None:
            self.service.start()

    def settle(self):
        """Back to the beginning: configuration, a living daemon, everything clean, nothing out."""
        if self.service.config.read_text() != self._config:
            self.service.stop()
            self.service.config.write_text(self._config)
        self.start_if_dead()
        for lease in get_leases():
            hpzctl("release", lease["id"])
        self.wait_idle()
        # After a restart it takes a few looks until it is known that they are back.
        wait_until("no orphan is left", lambda: not any(pool["orphans"] for pool in get_status()["pools"]))
        self.check_books()

    def wait_idle(self):
        hpzctl("wait")

    def set_config(self, section, key, value):
        self.service.set_config(section, key, value)

    def set_grace(self, seconds):
        """How long nobody has a path lease open before it ends: where a test waits for that, and not for ten seconds."""
        begin = len(self.service.get_log())
        self.set_config("hpzd", "grace", f"{seconds}s")
        self.service.reload()
        wait_until("it is reloaded", lambda: "reloaded" in self.service.get_log(begin))

    def check_books(self):
        """hpzd's counts are what lies in its directories, and the kernel knows of at least as much in use."""
        status = get_status()
        self.assertEqual(status["leases"], [])
        for pool in status["pools"]:
            directory = self.service.directory / {2 * MIB: "2M", host.GIB: "1G"}[pool["page_size"]] / "hpz" / "1" / "node0"
            held = {state: sum(file.stat().st_blocks * 512 for file in (directory / state).iterdir()) // pool["page_size"]
                    for state in ("filling", "clean", "leased", "dirty")}
            self.assertEqual(held, {"filling": 0, "clean": pool["clean"], "leased": 0, "dirty": 0}, pool)
            self.assertEqual(pool["total"], pool["clean"], pool)
            self.assertGreaterEqual(pool["kernel"]["nr"] - pool["kernel"]["free"], pool["total"], pool)

    def wait_clean(self, pool="two"):
        """Until everything is clean again; the pool."""
        self.wait_idle()
        pool = get_pool(pool)
        self.assertEqual((pool["dirty"], pool["filling"], pool["leased"]), (0, 0, 0), pool)
        return pool

    def get_lease(self, lease_id):
        """One line of the list, None when it has ended."""
        return next((lease for lease in get_leases() if lease["id"] == lease_id), None)

    def wait_ended(self, lease_id, limit=60):
        wait_until(f"lease {lease_id} ends", lambda: self.get_lease(lease_id) is None, limit)


def _get_log():
    return Service().get_log() if "HPZ_RUN_DIR" in os.environ else ""


class _Result(unittest.TestResult):
    """One line a test for people on standard error, one for tests/run in $HPZ_RESULTS; also for a class or module that cannot begin."""

    success = True

    def __init__(self):
        super().__init__()
        self._test = None  # the one that runs
        self._outcome, self._log_begin = None, 0

    def startTest(self, test):
        super().startTest(test)
        self._test, self._begin = test, time.monotonic()
        self._outcome = None
        self._log_begin = len(_get_log())

    def _note(self, test, outcome, reason=""):
        if self._test is None:
            self._write(test, outcome, 0, reason)
        elif self._outcome is None or outcome == "fail":
            self._outcome = (outcome, reason)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skip", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._fail(test, err)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fail(test, err)

    def _fail(self, test, err):
        self._note(test, "fail", " ".join(str(err[1]).split())[:300])
        log = _get_log()[self._log_begin:].rstrip().split("\n")[-30:]
        print("".join(traceback.format_exception(*err)), "hpzd's log, the end of it:", *log, "", sep="\n", file=sys.stderr)
        self.success = False

    def stopTest(self, test):
        super().stopTest(test)
        outcome, reason = self._outcome or ("pass", "")
        self._write(test, outcome, time.monotonic() - self._begin, reason)
        self._test = None

    def _write(self, test, outcome, seconds, reason):
        # unittest calls what is around tests "setUpClass (__main__.Zero)".
        name = re.sub(r"^(\w+) \((.+)\)$", r"\2.\1", test.id()).replace("__main__", Path(sys.argv[0]).stem)
        print(f"{outcome:<4} {name} {seconds:.2f} s {reason}", file=sys.stderr, flush=True)
        if "HPZ_RESULTS" in os.environ:
            with open(os.environ["HPZ_RESULTS"], "a", encoding="utf-8") as results:
                print(outcome, name, f"{seconds:.2f}", reason, sep="\t", file=results)


def run_tests():
    """Runs the tests of the main file; arguments choose some by name (Zero.test_fd). Does not return."""
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]
    suite = loader.loadTestsFromNames(sys.argv[1:], module) if len(sys.argv) > 1 else loader.loadTestsFromModule(module)
    result = _Result()
    suite.run(result)
    sys.exit(0 if result.success and (result.testsRun > 0 or result.skipped) else 1)


def main(*with_daemon):
    """The same, inside tests/with-daemon with these options."""
    if "HPZ_RUN_DIR" not in os.environ:
        command = [str(_TESTS / "with-daemon"), *with_daemon, "--", sys.executable, *sys.argv]
        os.execv(command[0], command)
    run_tests()
