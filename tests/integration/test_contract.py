#!/usr/bin/env python3
"""What hpzctl and the wire promise: JSON shapes, exit statuses, idempotency, refusals, deadlines, the ends of leases."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.calls import Counter  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_pool, get_status, hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
POOL_PAGES = 112
NO_MEMORY, TOO_LARGE, NO_POOL, UNKNOWN_LEASE, TIMEOUT, KEY_MISMATCH = 8, 9, 10, 11, 13, 19


class Shapes(HpzTest):
    def test_status(self):
        with Hold("--size", 4 * MIB, "--label", "one", "--unbound") as holder:
            status = get_status()
            self.assertLessEqual({"schema", "version", "proof", "method", "pools", "leases"}, status.keys())
            self.assertIn(status["proof"], ("bpf", "f_setlease", "none"))
            pool, = status["pools"]
            self.assertLessEqual({"name", "page_size", "node", "target", "total", "clean", "leased", "dirty", "filling", "holes",
                                  "kernel"}, pool.keys())
            self.assertLessEqual({"nr", "free", "resv"}, pool["kernel"].keys())
            self.assertEqual((pool["name"], pool["page_size"], pool["node"], pool["target"]), ("two", 2 * MIB, 0, POOL_PAGES))
            self.assertEqual((pool["leased"], pool["holes"]), (2, 0))
            lease, = status["leases"]
            self.assertLessEqual({"id", "label", "state", "size", "uid", "pid", "segments"}, lease.keys())
            self.assertEqual((lease["id"], lease["label"], lease["state"], lease["size"], lease["uid"], lease["pid"]),
                             (holder.id, "one", "leased", 4 * MIB, 0, holder.pid))
            segment, = lease["segments"]
            self.assertLessEqual({"page_size", "node", "size", "path"}, segment.keys())
            self.assertEqual((segment["page_size"], segment["node"], segment["size"]), (2 * MIB, 0, 4 * MIB))

    def test_status_is_the_default(self):
        self.assertEqual(hpzctl_json().keys(), get_status().keys())

    def test_lease(self):
        lease = hpzctl_json("lease", "16M", "--path", "--label", "t1")
        self.assertLessEqual({"schema", "id", "size", "segments", "path"}, lease.keys())
        self.assertEqual(lease["size"], 16 * MIB)
        segment, = lease["segments"]
        self.assertEqual((segment["page_size"], segment["node"], segment["size"], segment["path"]),
                         (2 * MIB, 0, 16 * MIB, lease["path"]))
        status = os.stat(lease["path"])
        self.assertEqual((status.st_mode & 0o7777, status.st_uid), (0o600, 0))
        self.assertEqual(hpzctl("release", lease["id"]).returncode, 0)
        self.assertEqual(hpzctl("release", lease["id"]).returncode, 0, "an id that has ended is success")
        wait_until("its name is gone", lambda: not os.path.exists(lease["path"]))

    def test_every_json_has_a_schema(self):
        lease = hpzctl_json("lease", "2M", "--path")
        for command in (["status"], ["leases"], ["wait"], ["release", lease["id"]]):
            self.assertIn("schema", hpzctl_json(*command), command)

    def test_tables_for_people(self):
        with Hold("--size", 4 * MIB, "--label", "a-label"):
            self.assertIn("two", hpzctl("status").stdout)
            self.assertIn("a-label", hpzctl("leases").stdout)

    def test_sizes_are_rounded_up(self):
        for size, given in ((1, 2 * MIB), (2 * MIB + 1, 4 * MIB), (6 * MIB, 6 * MIB)):
            with Hold("--size", size) as holder:
                self.assertEqual((holder.got["asked"], holder.got["size"]), (size, given))
                self.assertEqual(sum(segment["size"] for segment in holder.got["segments"]), given)


class Refusals(HpzTest):
    def refuse(self, status, *arguments):
        done = hpzctl(*arguments, check=False)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout} {done.stderr}")
        self.assertNotEqual(done.stderr.strip(), "", f"{arguments}: refused without a word")
        self.assertNotIn("Traceback", done.stderr)
        return done

    def test_usage(self):
        for arguments in (["no-such-verb"], ["lease"], ["lease", "2M"], ["lease", "2M", "--path", "--no-such-option"],
                          ["lease", "two megabytes", "--path"], ["lease", "-5M", "--path"], ["release"], ["release", "abc"],
                          ["status", "what"], ["wait", "--timeout", "soon"]):
            self.refuse(2, *arguments)

    def test_help_and_version(self):
        for arguments in (["--help"], ["--version"], ["lease", "--help"]):
            done = hpzctl(*arguments)
            self.assertNotEqual(done.stdout, "")
            self.assertEqual(done.stderr, "")

    def test_senseless(self):
        self.refuse(2, "lease", "0", "--path")
        self.refuse(1, "lease", f"{2 * POOL_PAGES + 2}M", "--path")
        self.refuse(1, "lease", "2M", "--path", "--node", "7")
        self.refuse(1, "release", 12345)
        for label in ("x" * 129, "line\nbreak", "escape\x1b[31m", b"not \xff UTF-8"):
            done = subprocess.run([f"{get_build_directory()}/client/hpzctl", "lease", "2M", "--path", "--label", label],
                                  capture_output=True, check=False)
            self.assertIn(done.returncode, (1, 2), label)
        self.assertEqual(get_leases(), [])

    def test_library_errors(self):
        for error, arguments in ((TOO_LARGE, ["--size", 2 * MIB * (POOL_PAGES + 1)]),
                                 (NO_POOL, ["--size", 2 * MIB, "--page-size", 1 << 24])):
            with self.assertRaises(HoldError) as caught:
                Hold(*arguments)
            self.assertEqual(caught.exception.answer["hpz_error"], error, caught.exception)

    def test_later_it_would_succeed(self):
        """75: now there is not enough, later there may be."""
        with Hold("--size", 128 * MIB):
            done = self.refuse(75, "lease", "128M", "--path")
            self.assertEqual(done.stdout, "")
            self.refuse(75, "wait", "--clean", f"{2 * POOL_PAGES}M", "--timeout", "0.1")
        self.wait_idle()
        lease = hpzctl_json("lease", "128M", "--path")
        hpzctl("release", lease["id"])

    def test_not_running(self):
        self.service.stop()
        for arguments in (["status"], ["lease", "2M", "--path"], ["leases"]):
            self.refuse(1, *arguments)

    def test_unknown_id(self):
        with Hold("--size", 0) as holder:
            with self.assertRaises(HoldError) as caught:
                holder.call("release")
            self.assertIn(caught.exception.answer["hpz_error"], (UNKNOWN_LEASE, 2))

    def test_stranger(self):
        """Another user reaches neither memory nor somebody's lease."""
        self.assertNotEqual(hpzctl("lease", "2M", "--path", check=False, user=65534, group=65534).returncode, 0)
        lease = hpzctl_json("lease", "2M", "--path")
        self.assertNotEqual(hpzctl("release", lease["id"], check=False, user=65534, group=65534).returncode, 0)
        with self.assertRaises(PermissionError):
            self.open_as(65534, lease["path"])
        hpzctl("release", lease["id"])

    def open_as(self, user, path):
        code = "import os,sys\ntry: os.open(sys.argv[1], os.O_RDWR)\nexcept PermissionError: sys.exit(13)"
        if subprocess.run(["/usr/bin/env", "python3", "-c", code, path], user=user, group=user, extra_groups=[],
                          check=False).returncode == 13:
            raise PermissionError(path)


class Keys(HpzTest):
    def test_same_key_same_lease(self):
        first = hpzctl_json("lease", "4M", "--path", "--key", "vm-1")
        again = hpzctl_json("lease", "4M", "--path", "--key", "vm-1")
        self.assertEqual((again["id"], again["path"]), (first["id"], first["path"]))
        self.assertEqual(len(get_leases()), 1)
        other = hpzctl_json("lease", "4M", "--path", "--key", "vm-2")
        self.assertNotEqual(other["id"], first["id"])
        self.assertEqual(hpzctl("lease", "8M", "--path", "--key", "vm-1", check=False).returncode, 1)
        for lease in (first, other):
            hpzctl("release", lease["id"])
        new = hpzctl_json("lease", "4M", "--path", "--key", "vm-1")
        self.assertNotEqual(new["id"], first["id"], "a key whose lease has ended begins a new one")
        hpzctl("release", new["id"])

    def test_key_survives_a_restart(self):
        first = hpzctl_json("lease", "4M", "--path", "--key", "vm-1")
        self.service.kill()
        self.service.start()
        self.assertEqual(hpzctl_json("lease", "4M", "--path", "--key", "vm-1")["id"], first["id"])
        hpzctl("release", first["id"])

    def test_another_shape(self):
        with Hold("--size", 2 * MIB, "--key", "k", "--unbound"):
            with self.assertRaises(HoldError) as caught:
                Hold("--size", 4 * MIB, "--key", "k", "--unbound")
            self.assertEqual(caught.exception.answer["hpz_error"], KEY_MISMATCH)


class Labels(HpzTest):
    def test_labels_come_back_whole(self):
        for label in ('quote " and \\ backslash', "Grüße 🐧", "</script>", "x" * 128, "tab-less 'single'"):
            lease = hpzctl_json("lease", "2M", "--path", "--label", label)
            listed = self.get_lease(lease["id"])
            self.assertEqual(listed["label"], label)
            hpzctl("leases")
            hpzctl("release", lease["id"])


class Waiting(HpzTest):
    def test_deadline_passes(self):
        with Hold("--size", 128 * MIB):
            begin = time.monotonic()
            with self.assertRaises(HoldError) as caught:
                Hold("--size", 128 * MIB, "--timeout", 700)
            self.assertIn(caught.exception.answer["hpz_error"], (TIMEOUT, NO_MEMORY))
            self.assertGreaterEqual(time.monotonic() - begin, 0.7)

    def test_served_when_memory_comes_back(self):
        with Hold("--size", 128 * MIB) as first:
            waiting = subprocess.Popen([f"{get_build_directory()}/client/hpzctl", "lease", "128M", "--path", "--wait", "30", "--json"],
                                       stdout=subprocess.PIPE, text=True)
            wait_until("somebody waits", lambda: get_pool()["waiting"] == 1)
            self.assertIsNone(waiting.poll())
            first.call("fill", 1)
            first.end()
            output, _ = waiting.communicate(timeout=60)
            self.assertEqual(waiting.returncode, 0)
            lease = json.loads(output)
            with Hold("--open", lease["path"]) as holder:
                self.assertTrue(holder.call("check-zero")["equal"])
            hpzctl("release", lease["id"])

    def test_waiter_who_goes_away_takes_nothing(self):
        with Hold("--size", 128 * MIB):
            waiting = subprocess.Popen([f"{get_build_directory()}/client/hpzctl", "lease", "128M", "--path", "--wait", "30"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            wait_until("somebody waits", lambda: get_pool()["waiting"] == 1)
            waiting.kill()
            waiting.wait()
        self.wait_idle()
        self.assertEqual(get_leases(), [])

    def test_wait_for_so_much(self):
        hpzctl("wait", "--clean", "32M")
        with Hold("--size", 128 * MIB):
            hpzctl("wait", "--clean", "2M")
            self.assertEqual(hpzctl("wait", "--clean", f"{POOL_PAGES * 2}M", "--timeout", "0.2", check=False).returncode, 75)


class Ends(HpzTest):
    def get_path_lease(self, *options):
        return hpzctl_json("lease", "8M", "--path", *options)

    def test_path_leases_and_time(self):
        """Four at once, because time is long: one never opened, one used once, one used again and again, one to be kept."""
        grace = 3
        self.set_grace(grace)
        unopened, once, again, kept = (self.get_path_lease("--label", label, *options) for label, options in (
            ("unopened", ()), ("once", ()), ("again", ()), ("kept", ("--keep",))))
        for lease in (kept, once):
            with Hold("--open", lease["path"]) as holder:
                holder.call("fill", 1)
                closed = time.monotonic()
        gone = None
        while gone is None or time.monotonic() < closed + 2 * grace:
            with Hold("--open", again["path"]):
                time.sleep(0.5)
            if gone is None and self.get_lease(once["id"]) is None:
                gone = time.monotonic()
            self.assertLess(time.monotonic(), closed + 60, "opened, then held by nobody for the grace time, and still there")
        self.assertGreaterEqual(gone - closed, grace, "it did not wait for its grace time")
        self.assertFalse(os.path.exists(once["path"]))
        self.assertIsNotNone(self.get_lease(again["id"]), "it was in use within the grace time")
        self.assertIsNotNone(self.get_lease(kept["id"]), "--keep was not kept")
        self.assertEqual(self.get_lease(unopened["id"])["label"], "unopened", "it outlives who asked for it")
        with Hold("--open", kept["path"]) as holder:
            self.assertTrue(holder.call("verify", 1)["equal"])
        for lease in (unopened, again, kept):
            hpzctl("release", lease["id"])
        self.wait_clean()

    def test_open_timeout(self):
        lease = self.get_path_lease("--open-timeout", "0.3")
        self.wait_ended(lease["id"])
        wait_until("its name is gone", lambda: not os.path.exists(lease["path"]))

    def test_owner_pid(self):
        """A path lease ends with a process named as its owner."""
        with running(["sleep", "1000"]) as process:
            lease = self.get_path_lease("--owner-pid", process.pid)
            self.assertEqual(self.get_lease(lease["id"])["pid"], process.pid)
        self.wait_ended(lease["id"])

    def test_owner_of_the_file(self):
        lease = self.get_path_lease("--owner", "65534:65533", "--mode", "0660")
        status = os.stat(lease["path"])
        self.assertEqual((status.st_uid, status.st_gid, status.st_mode & 0o7777), (65534, 65533, 0o660))
        with Hold("--open", lease["path"], user=65534) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])
            holder.call("fill", 1)
        hpzctl("release", lease["id"])
        self.wait_clean()
        with self.assertRaises(FileNotFoundError):
            os.stat(lease["path"])

    def test_returning_names_its_holder(self):
        lease = self.get_path_lease()
        with Hold("--open", lease["path"]) as holder:
            hpzctl("release", lease["id"])
            listed = self.get_lease(lease["id"])
            self.assertEqual(listed["state"], "returning")
            wait_until("the holder is named", lambda: str(holder.pid) in json.dumps(self.get_lease(lease["id"]).get("holders")))
            self.assertGreaterEqual(get_pool()["leased"], 4)
        self.wait_ended(lease["id"])
        self.wait_clean()

    def test_bound_lease_ends_with_its_connection(self):
        with Hold("--size", 8 * MIB) as holder:
            lease = holder.id
            self.assertIsNotNone(self.get_lease(lease))
        self.wait_ended(lease)

    def test_release_by_another_process(self):
        with Hold("--size", 8 * MIB) as holder:
            hpzctl("release", holder.id)
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
        self.wait_ended(holder.id)


class Drain(HpzTest):
    def test_drain(self):
        free = get_pool()["kernel"]["free"]
        with Hold("--size", 8 * MIB) as holder:
            done = hpzctl("drain", check=False)
            self.assertEqual(done.returncode, 75)
            self.assertIn(str(holder.id), done.stdout + done.stderr)
        self.wait_ended(holder.id)
        hpzctl("drain")
        pool = get_pool()
        self.assertEqual((pool["total"], pool["kernel"]["free"]), (0, free + POOL_PAGES))
        self.assertEqual(hpzctl("lease", "2M", "--path", check=False).returncode, 1, "a drained pool lends nothing")
        self.service.restart()
        self.wait_clean()


class Costs(HpzTest):
    def test_size_does_not_matter(self):
        """2 MiB and a large segment cost the same: nothing is touched for a lease, neither by hpzd nor by a worker."""
        with contextlib.ExitStack() as stack:
            for worker in self.service.get_workers():
                stack.callback(os.kill, worker, signal.SIGCONT)
                os.kill(worker, signal.SIGSTOP)
            small, large = self.count(2 * MIB), self.count(128 * MIB)
        # Of the 62 pages between them each would be a call, or a fault.
        self.assertLess(abs(large[0] - small[0]), 20, (small, large))
        self.assertLess(large[1], 20, (small, large))
        self.assertGreater(small[0], 3, "nothing was counted")

    def count(self, size):
        """System calls and page faults of hpzd for one lease."""
        with Hold("--size", 0) as holder, Counter(self.service.get_pid()) as calls:
            faults = self.get_faults()
            holder.call("time-leases", size, 1)
            faults = self.get_faults() - faults
        return sum(calls.calls.values()), faults

    def get_faults(self):
        fields = Path(f"/proc/{self.service.get_pid()}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[7]) + int(fields[9])


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "128M*1 8M*4 4M*4 2M*rest")
