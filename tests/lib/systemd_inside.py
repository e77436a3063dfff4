"""The part of tests/systemd that runs inside the box, where systemd is the first process and hpzd one of its services."""
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from hpztest.case import run_tests  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, get_status, hpzctl, wait_until  # noqa: E402
from hpztest.host import MIB  # noqa: E402

SIZE = 8 * MIB
MOUNT = Path("/var/lib/hpz/2M")
EXPOSURE_MAX = 25  # tenths; what the unit costs in `systemd-analyze security`


def run(*command, check=True):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def get_property(name):
    return run("systemctl", "show", "--value", "-p", name, "hpzd.service").stdout.strip()


class Systemd(unittest.TestCase):
    """In this order: one service, which lives through all of it."""

    @classmethod
    def setUpClass(cls):
        run("systemctl", "enable", "--now", "var-lib-hpz-2M.mount")

    def setUp(self):
        run("systemctl", "start", "hpzd.service")
        hpzctl("wait", "--timeout", 60)

    def hold(self):
        holder = Hold("--size", SIZE, "--label", "vm")
        self.addCleanup(holder.end)
        self.assertTrue(holder.call("check-zero")["equal"])
        holder.call("fill", 5)
        holder.send("loop-verify", 5, 5)
        return holder

    def check(self, holder):
        """It has its lease and its bytes; once it is gone, the next tenant finds zeros."""
        lease, = get_leases()
        self.assertEqual((lease["id"], lease["label"], lease["state"], lease["pid"]), (holder.id, "vm", "leased", holder.pid))
        holder.send("verify", 5)
        loop, last = holder.get_answer(), holder.get_answer()
        self.assertTrue(loop["equal"] and last["equal"], (loop, last))
        holder.end()
        wait_until("the lease ends", lambda: not get_leases())
        hpzctl("wait", "--timeout", 60)
        self.assertEqual(get_pool()["clean"], get_pool()["target"])
        with Hold("--size", SIZE) as next_tenant:
            self.assertTrue(next_tenant.call("check-zero")["equal"])
        wait_until("the lease ends", lambda: not get_leases())

    def test_1_units_are_good(self):
        units = ["hpzd.service", "hpzd.socket", "var-lib-hpz-2M.mount"]
        done = run("systemd-analyze", "verify", "--man=no", *units)
        self.assertEqual(done.stdout + done.stderr, "")
        run("systemd-analyze", "security", "--no-pager", f"--threshold={EXPOSURE_MAX}", "hpzd.service")

    def test_2_whole_in_its_sandbox(self):
        """Everything that works outside works there: the full proof, the workers' classes, the kernel's counters."""
        status = get_status()
        self.assertEqual(status["message"] or "", "")
        self.assertEqual(status["proof"], os.environ.get("HPZ_PROOF", "bpf"))
        self.assertTrue(status["method"])
        self.assertGreater(status["pools"][0]["kernel"]["nr"], 0)
        log = run("journalctl", "-u", "hpzd", "--no-pager", "-o", "cat", check=False).stdout
        for word in ("ermitted", "denied", "cannot"):
            self.assertNotIn(word, log)

    def test_3_sigkill(self):
        """systemd starts it again; workers are gone with it, the lease is not."""
        holder = self.hold()
        pid, restarts = get_property("MainPID"), int(get_property("NRestarts"))
        run("systemctl", "kill", "-s", "SIGKILL", "hpzd.service")
        wait_until("systemd starts it again", lambda: get_property("ActiveState") == "active"
                   and get_property("MainPID") not in ("0", pid))
        self.assertEqual(int(get_property("NRestarts")), restarts + 1)
        self.check(holder)

    def test_4_many_sigkills(self):
        """No limit of starts ends the service for good."""
        holder = self.hold()
        for _ in range(8):
            pid = get_property("MainPID")
            run("systemctl", "kill", "-s", "SIGKILL", "hpzd.service")
            wait_until("systemd starts it again", lambda: get_property("ActiveState") == "active"
                       and get_property("MainPID") not in ("0", pid))
        self.check(holder)

    def test_5_live_update(self):
        holder = self.hold()
        begin = time.monotonic()
        run("systemctl", "restart", "hpzd.service")
        print(f"systemctl restart took {time.monotonic() - begin:.2f} s", file=sys.stderr)
        self.check(holder)

    def test_6_reload(self):
        pid = get_property("MainPID")
        run("systemctl", "reload", "hpzd.service")
        wait_until("it says so", lambda: "reloaded" in run("journalctl", "-u", "hpzd", "--no-pager", "-o", "cat").stdout)
        self.assertEqual(get_property("MainPID"), pid)

    def test_7_stop_keeps_memory(self):
        """Stopped: the holder and clean memory stay; a connection to the socket starts it again."""
        holder = self.hold()
        clean = get_pool()["clean"]
        run("systemctl", "stop", "hpzd.service")
        kept = sum(file.stat().st_blocks * 512 for file in (MOUNT / "hpz/1/node0/clean").iterdir()) // (2 * MIB)
        self.assertEqual(kept, clean)
        self.assertTrue(Path("/run/hpz/journal").exists())
        self.assertEqual(run("systemctl", "is-active", "hpzd.service", check=False).stdout.strip(), "inactive")
        run("systemctl", "start", "hpzd.service")
        self.assertEqual(get_status()["bytes_filled"], 0)
        self.check(holder)

    def test_8_socket_activation(self):
        run("systemctl", "stop", "hpzd.service")
        run("systemctl", "start", "hpzd.socket")
        self.assertEqual(get_pool()["name"], "two")
        self.assertEqual(get_property("ActiveState"), "active")
        inode = Path("/run/hpz/hpzd.sock").stat().st_ino
        holder = self.hold()
        run("systemctl", "restart", "hpzd.service")
        self.assertEqual(Path("/run/hpz/hpzd.sock").stat().st_ino, inode)
        self.check(holder)

    def test_9_empty_at_the_end(self):
        hpzctl("drain")
        run("systemctl", "stop", "hpzd.socket", "hpzd.service")
        mount = os.statvfs(MOUNT)
        self.assertEqual(mount.f_blocks, mount.f_bfree)


if __name__ == "__main__":
    run_tests()
