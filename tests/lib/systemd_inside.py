"""The part of tests/systemd that runs inside the box, where systemd is the first process and hpzd one of its services."""
import os
import subprocess
import sys
import time
import unittest
import urllib.request
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from hpztest.case import run_tests  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, get_status, hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.host import MIB  # noqa: E402

SIZE, LARGEST = 8 * MIB, 16 * MIB
MOUNT = Path("/var/lib/hpz/2M")
SLICE, SCOPE = "hpz.slice", "hpz-workers-node0.scope"
EXPOSURE_MAX = 20  # tenths, of `systemd-analyze security`
WATCHER_EXPOSURE_MAX = 15
DOMAIN = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # the one that libvirt's test driver has, which runs


def run(*command, check=True):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def get_property(name, unit="hpzd.service"):
    return run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()


def get_log():
    return run("journalctl", "-u", "hpzd", "--no-pager", "-o", "cat", check=False).stdout


def get_cgroup(pid):
    """Below the box's own root; None: the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next(line[3:] for line in lines if line.startswith("0::"))


def find_processes(name):
    """By the name a worker gives itself."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            if comm.read_text(encoding="utf-8").strip() == name:
                found.append(int(comm.parent.name))
        except OSError:
            pass
    return found


class Systemd(unittest.TestCase):
    """In this order: one service, which lives through all of it."""

    @classmethod
    def setUpClass(cls):
        run("systemd-sysusers")  # a package does both
        run("ldconfig")
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
        units = ["hpzd.service", "hpzd.socket", "hpz.slice", "hpz-stock.service", "var-lib-hpz-2M.mount",
                 "hpz-libvirt.service", "hpz-metrics.socket", "hpz-metrics.service"]
        done = run("systemd-analyze", "verify", "--man=no", *units)
        self.assertEqual(done.stdout + done.stderr, "")
        run("systemd-analyze", "security", "--offline=yes", "--no-pager", f"--threshold={EXPOSURE_MAX}",
            get_property("FragmentPath"))
        run("systemd-analyze", "security", "--no-pager", f"--threshold={WATCHER_EXPOSURE_MAX}", "hpz-libvirt.service")
        run("systemd-analyze", "security", "--no-pager", f"--threshold={WATCHER_EXPOSURE_MAX}", "hpz-metrics.service")

    def test_2_whole_in_its_sandbox(self):
        """Everything that works outside works there: the full proof, the workers' classes, the kernel's counters."""
        status = get_status()
        self.assertEqual(status["message"] or "", "")
        self.assertEqual(status["proof"], os.environ.get("HPZ_PROOF", "bpf"))
        self.assertTrue(status["method"])
        self.assertGreater(status["pools"][0]["kernel"]["nr"], 0)
        log = get_log()
        for word in ("ermitted", "denied", "cannot"):
            self.assertNotIn(word, log)

    def test_2a_socket_belongs_to_the_group(self):
        run("systemctl", "stop", "hpzd.service")
        run("systemctl", "start", "hpzd.socket")
        socket = Path("/run/hpz/hpzd.sock")
        self.assertEqual((socket.owner(), socket.group(), socket.stat().st_mode & 0o777), ("root", "hpz", 0o660))
        member, nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup"], ["--groups=hpz", "--clear-groups"]
        status = [f"{os.environ['HPZ_BUILD']}/client/hpzctl", "status", "--json"]
        self.assertEqual(run(*member, nobody[0], *status, check=False).returncode, 0)
        self.assertEqual(run(*member, nobody[1], *status, check=False).returncode, 1)
        run("systemctl", "stop", "hpzd.socket", "hpzd.service")
        # The service brings its socket.
        run("systemctl", "start", "hpzd.service")
        self.assertEqual(get_property("ActiveState", "hpzd.socket"), "active")
        self.assertEqual((socket.group(), socket.stat().st_mode & 0o777), ("hpz", 0o660))

    def test_2b_perf_events(self):
        """The second source of what a VM's end costs works in the sandbox, too."""
        config = Path("/etc/hpz/hpzd.conf")
        self.addCleanup(run, "systemctl", "restart", "hpzd.service")
        self.addCleanup(config.write_text, config.read_text(encoding="utf-8"), encoding="utf-8")
        if not Path("/sys/kernel/tracing/events").exists():  # the box mounts none
            run("mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing")
            self.addCleanup(run, "umount", "-l", "/sys/kernel/tracing")
        config.write_text("[hpzd]\nteardown = perf\n" + config.read_text(encoding="utf-8"), encoding="utf-8")
        run("systemctl", "restart", "hpzd.service")
        wait_until("perf tells of ends", lambda: hpzctl_json("teardown")["source"]["name"] == "perf")

    def test_2c_stock(self):
        """Who is ordered behind the unit waits until all is clean."""
        self.hold_work()
        self.addCleanup(run, "systemctl", "stop", "hpz-stock.service")
        run("systemctl", "start", "--no-block", "hpz-stock.service")
        wait_until("it waits", lambda: get_property("ActiveState", "hpz-stock.service") == "activating")
        self.finish_work()
        wait_until("it is over", lambda: get_property("ActiveState", "hpz-stock.service") == "active")

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
        wait_until("it says so", lambda: "reloaded" in get_log())
        self.assertEqual(get_property("MainPID"), pid)

    # ---- the workers' cgroup ----
    # The box's cgroup mount has no cpu controller: that the units have the weights is seen here, not what these do.

    def hold_work(self, **rules):
        """A segment is dirty, and a worker has the job but may not begin."""
        wait_until("nobody is in the way", lambda: not get_leases())
        hpzctl("wait", "--timeout", 60)
        self.addCleanup(run, "systemctl", "reload", "hpzd.service", check=False)
        hpzctl("set", "enabled=no", *[f"{key}={value}" for key, value in rules.items()])
        hpzctl("release", hpzctl_json("lease", LARGEST, "--path")["id"])
        wait_until("the memory is back", lambda: not get_leases())
        wait_until("a worker is there", lambda: find_processes("hpzd-memory"))

    def finish_work(self):
        hpzctl("set", "enabled=yes")
        hpzctl("wait", "--timeout", 60)
        self.assertEqual(get_pool()["clean"], get_pool()["target"])

    def are_workers_in(self, cgroup):
        pids = find_processes("hpzd-memory")
        return pids and all(get_cgroup(pid) == cgroup for pid in pids)

    def wait_weight(self, weight):
        for unit in (SLICE, SCOPE):
            wait_until(f"the weight of {unit} is {weight}", lambda unit=unit: get_property("CPUWeight", unit) == weight)

    def check_units(self):
        wait_until("the workers are in their scope", lambda: self.are_workers_in(f"/{SLICE}/{SCOPE}"))
        for pid in (get_property("MainPID"), *find_processes("hpzd-helper")):
            self.assertIn(get_cgroup(pid), ("/system.slice/hpzd.service", None))

    def test_6a_weight_follows_the_work(self):
        """Refill below the low watermark, idle above it, urgent while somebody waits."""
        self.hold_work(high=100, low=99)
        self.check_units()
        self.wait_weight("50")
        hpzctl("set", "low=1", "high=2")
        self.wait_weight("idle")
        # One of the two segments of this size is dirty, the other one is taken.
        hpzctl("lease", LARGEST, "--path")
        with running([f"{os.environ['HPZ_BUILD']}/client/hpzctl", "lease", LARGEST, "--path", "--wait", "60"],
                     stdout=subprocess.DEVNULL) as waiting:
            try:
                self.wait_weight("100")
                self.assertIsNone(waiting.poll())
                hpzctl("set", "enabled=yes")
                self.assertEqual(waiting.wait(60), 0)
            finally:
                hpzctl("set", "enabled=yes")
                for lease in get_leases():
                    hpzctl("release", lease["id"])
        self.finish_work()
        self.assertNotIn("no cgroup of their own", get_log())

    def test_6b_sigkill_with_a_worker_at_work(self):
        """It dies with hpzd, though it is in no group of the service; the next one's is put where it was."""
        self.hold_work(high=100, low=99)
        self.check_units()
        main, workers = get_property("MainPID"), find_processes("hpzd-memory")
        run("systemctl", "kill", "-s", "SIGKILL", "hpzd.service")
        wait_until("systemd starts it again", lambda: get_property("ActiveState") == "active"
                   and get_property("MainPID") not in ("0", main))
        wait_until("the workers are gone", lambda: not set(workers) & set(find_processes("hpzd-memory")))
        self.hold_work(high=100, low=99)
        self.check_units()
        self.wait_weight("50")
        self.finish_work()

    def test_6c_scope_ends_with_its_workers(self):
        self.hold_work()
        self.check_units()
        run("systemctl", "stop", "hpzd.service")
        wait_until("the scope is gone", lambda: get_property("LoadState", SCOPE) == "not-found")
        self.assertEqual(find_processes("hpzd-memory"), [])

    def test_6c_somebody_is_left_in_the_scope(self):
        """A worker of the last hpzd that cannot die holds it: the next one's join."""
        run("systemctl", "stop", "hpzd.service")
        with running(["systemd-run", "--scope", f"--unit={SCOPE}", f"--slice={SLICE}", "-p", "Delegate=cpu", "sleep", "300"],
                     stderr=subprocess.DEVNULL) as left:
            wait_until("it is there", lambda: get_cgroup(left.pid) == f"/{SLICE}/{SCOPE}")
            run("systemctl", "start", "hpzd.service")
            hpzctl("wait", "--timeout", 60)
            self.hold_work(high=100, low=99)
            self.check_units()
            self.wait_weight("50")
            self.finish_work()
            self.assertIsNone(left.poll())

    def test_6d_without_a_system_bus(self):
        """Then over systemd's own socket."""
        self.addCleanup(run, "systemctl", "start", "dbus.socket", check=False)
        run("systemctl", "stop", "dbus.socket", "dbus.service", check=False)
        Path("/run/dbus/system_bus_socket").unlink(missing_ok=True)
        run("systemctl", "restart", "hpzd.service")
        self.hold_work(high=100, low=99)
        self.check_units()
        self.wait_weight("50")
        self.finish_work()

    def test_6e_without_any_bus(self):
        """Work goes on where the workers are; the log says so once."""
        drop_in = Path("/run/systemd/system/hpzd.service.d/no-bus.conf")
        drop_in.parent.mkdir(exist_ok=True)
        drop_in.write_text("[Service]\nInaccessiblePaths=-/run/dbus /run/systemd/private\n", encoding="ascii")
        self.addCleanup(run, "systemctl", "restart", "hpzd.service")
        self.addCleanup(run, "systemctl", "daemon-reload")
        self.addCleanup(drop_in.unlink)
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", "hpzd.service")
        before = get_log().count("no cgroup of their own")
        self.hold_work(high=100, low=99)
        self.finish_work()
        wait_until("hpzd says so", lambda: get_log().count("no cgroup of their own") > before)
        self.hold_work(high=100, low=99)
        self.assertTrue(self.are_workers_in("/system.slice/hpzd.service"))
        self.finish_work()
        self.assertEqual(get_log().count("no cgroup of their own"), before + 1)

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

    def test_8a_watcher(self):
        """In its sandbox it sees libvirt, hpzd, and the processes of others; libvirt's test driver needs no libvirtd."""
        drop_in = Path("/run/systemd/system/hpz-libvirt.service.d/test.conf")
        drop_in.parent.mkdir(exist_ok=True)
        program = run("systemctl", "show", "--value", "-p", "ExecStart", "hpz-libvirt.service").stdout.split("path=")[1].split(" ")[0]
        drop_in.write_text(f"[Service]\nExecStart=\nExecStart={program} --connect test:///default --grace 0.5\n", encoding="ascii")
        self.addCleanup(run, "systemctl", "daemon-reload")
        self.addCleanup(drop_in.unlink)
        self.addCleanup(run, "systemctl", "stop", "hpz-libvirt.service")
        run("systemctl", "daemon-reload")

        def lease(uuid):
            return hpzctl_json("lease", "2M", "--path", "--label", "vm", "--key", f"libvirt:{uuid}")["id"]

        gone, other = (f"11111111-2222-3333-4444-55555555550{digit}" for digit in "12")
        with running([sys.executable, "-c", "import time; time.sleep(600)", "-uuid", other]):
            kept, ended = {lease(DOMAIN), lease(other)}, lease(gone)
            run("systemctl", "start", "hpz-libvirt.service")  # it is ready
            wait_until(f"lease {ended} ends", lambda: {lease["id"] for lease in get_leases()} == kept)
            wait_until("it says so", lambda: get_property("StatusText", "hpz-libvirt.service").startswith("2 leases of domains"))
            pid = get_property("MainPID", "hpz-libvirt.service")
            run("systemctl", "kill", "-s", "SIGKILL", "hpz-libvirt.service")
            wait_until("systemd starts it again", lambda: get_property("ActiveState", "hpz-libvirt.service") == "active"
                       and get_property("MainPID", "hpz-libvirt.service") not in ("0", pid))
            self.assertEqual({lease["id"] for lease in get_leases()}, kept)
        for lease_id in kept:
            hpzctl("release", lease_id)
        wait_until("the leases end", lambda: not get_leases())

    def test_8b_metrics(self):
        """The first scrape starts the program, in its sandbox and as nobody in particular; it sees what hpzd tells."""
        def scrape():
            with urllib.request.urlopen("http://127.0.0.1:9977/metrics", timeout=60) as answer:
                return answer.read().decode()

        self.addCleanup(run, "systemctl", "stop", "hpz-metrics.socket", "hpz-metrics.service")
        run("systemctl", "start", "hpz-metrics.socket")
        self.assertEqual(get_property("ActiveState", "hpz-metrics.service"), "inactive")
        self.assertIn("\nhpz_up 1\n", scrape())
        self.assertIn('state="clean"', scrape())
        pid = int(get_property("MainPID", "hpz-metrics.service"))
        self.assertNotEqual(Path(f"/proc/{pid}").stat().st_uid, 0)
        run("systemctl", "kill", "-s", "SIGKILL", "hpz-metrics.service")
        wait_until("it is gone", lambda: get_property("MainPID", "hpz-metrics.service") == "0")
        self.assertIn("\nhpz_up 1\n", scrape())

    def test_9_empty_at_the_end(self):
        hpzctl("drain")
        run("systemctl", "stop", "hpzd.socket", "hpzd.service")
        mount = os.statvfs(MOUNT)
        self.assertEqual(mount.f_blocks, mount.f_bfree)


if __name__ == "__main__":
    run_tests()
