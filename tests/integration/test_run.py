#!/usr/bin/env python3
"""hpzctl run: plain commands and a real QEMU on leased memory, what it leaves alone, --fallback, and its exit statuses."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.guest import Guest, get_command, get_image  # noqa: E402

MIB = host.MIB
GUEST_MIB = 128
CODE_FAILED, CODE_NOT_EXECUTABLE, CODE_NOT_FOUND = 125, 126, 127


class Commands(HpzTest):
    def test_marker(self):
        """{hpz} becomes a path to memory of that size, wherever it stands in an argument."""
        code = """
import os, sys, mmap
fd = os.open(sys.argv[1].split('=')[1], os.O_RDWR)
memory = mmap.mmap(fd, int(os.environ['HPZ_SIZE']))
zero = memory[:] == bytes(len(memory))
memory[5] = 1
print(len(memory), zero, sys.argv[1].split('=')[0], os.environ['HPZ_LEASE'])
"""
        done = hpzctl("run", "--size", "8M", "--", sys.executable, "-c", code, "file={hpz}")
        size, zero, key, lease = done.stdout.split()
        self.assertEqual((int(size), zero, key), (8 * MIB, "True", "file"))
        self.wait_ended(int(lease))
        self.wait_clean()

    def test_owner_is_the_command(self):
        """hpzctl becomes the command: one process, whose end is the end of the lease."""
        with running(["hpzctl", "run", "--size", "4M", "--label", "it", "--", "sleep", "1000"]) as process:
            lease = self.wait_for_lease()
            self.assertEqual((lease["pid"], lease["label"], lease["state"]), (process.pid, "it", "leased"))
            with open(f"/proc/{process.pid}/comm", encoding="utf-8") as comm:
                self.assertEqual(comm.read(), "sleep\n")
        self.wait_ended(lease["id"])

    def wait_for_lease(self):
        """Whoever runs on it is told the descriptor first, and the receipt comes after."""
        return wait_until("the lease is there", lambda: [lease for lease in get_leases() if lease["state"] == "leased"])[0]

    def test_status_passes_through(self):
        for status in (0, 3, 75):
            done = hpzctl("run", "--size", "2M", "--", "sh", "-c", f"exit {status}", check=False)
            self.assertEqual(done.returncode, status)

    def test_own_failures(self):
        for expected, arguments in (
                (CODE_NOT_FOUND, ["--size", "2M", "--", "/nonexistent/command"]),
                (CODE_NOT_EXECUTABLE, ["--size", "2M", "--", "/etc/passwd"]),
                (CODE_FAILED, ["--size", "2M"]),
                (CODE_FAILED, ["--", "true"]),
                (CODE_FAILED, ["--size", "100G", "--", "true"])):
            done = hpzctl("run", *arguments, check=False)
            self.assertEqual(done.returncode, expected, f"{arguments}: {done.stderr}")
            self.assertNotEqual(done.stderr, "")
        self.wait_idle()
        self.assertEqual(get_leases(), [])

    def test_fallback(self):
        with Hold("--size", GUEST_MIB * MIB):
            self.assertEqual(hpzctl("run", "--size", f"{GUEST_MIB}M", "--", "true", check=False).returncode, CODE_FAILED)
            done = hpzctl("run", "--fallback", "--size", f"{GUEST_MIB}M", "--", "echo", "as it is")
            self.assertEqual(done.stdout, "as it is\n")
            self.assertNotEqual(done.stderr, "", "it did not say that it fell back")

    def test_fallback_without_daemon(self):
        self.service.stop()
        self.assertEqual(hpzctl("run", "--size", "2M", "--", "true", check=False).returncode, CODE_FAILED)
        self.assertEqual(hpzctl("run", "--fallback", "--size", "2M", "--", "echo", "all the same").stdout, "all the same\n")


class Qemu(HpzTest):
    def setUp(self):
        super().setUp()
        self.image = get_image()

    def get_command(self, words="", memory_mib=GUEST_MIB):
        return get_command(memory_mib, words, self.image)

    def test_ordinary_command_line(self):
        with Guest(["hpzctl", "run", "--", *self.get_command("hpz.fill=32 hpz.sleep")]) as guest:
            guest.wait_greeting()
            lease, = get_leases()
            self.assertEqual((lease["pid"], lease["size"], lease["state"]), (guest.process.pid, GUEST_MIB * MIB, "leased"))
            memdev, = guest.call("query-memdev")
            self.assertEqual((memdev["size"], memdev["share"], memdev["prealloc"]), (GUEST_MIB * MIB, True, True))
            with open(f"/proc/{guest.process.pid}/maps", encoding="utf-8") as maps:
                self.assertIn(str(self.service.directory / "2M"), maps.read())
            line, _ = guest.wait_line("HPZ-GUEST up=")
            memory_kib = int(line.split("memtotal_kib=")[1])
            self.assertGreater(memory_kib, GUEST_MIB * 1024 // 2)
            guest.wait_line("HPZ-GUEST filled_mib=32")
            self.assertEqual(get_pool()["holes"], 0)
            self.assertEqual(guest.quit(), 0)
        self.wait_ended(lease["id"])
        self.assertEqual(self.wait_clean()["clean"], get_pool()["target"])
        with Hold("--size", GUEST_MIB * MIB) as holder:
            answer = holder.call("check-zero")
            self.assertTrue(answer["equal"], f"the guest's data is still there: {answer}")

    def test_guest_dies(self):
        for way in (Guest.kill, Guest.end):
            with Guest(["hpzctl", "run", "--", *self.get_command("hpz.fill=32 hpz.sleep")]) as guest:
                guest.wait_line("HPZ-GUEST filled")
                way(guest)
            self.wait_clean()
            with Hold("--size", GUEST_MIB * MIB) as holder:
                self.assertTrue(holder.call("check-zero")["equal"])
            self.wait_clean()

    def test_name_is_the_label(self):
        with Guest(["hpzctl", "run", "--", *self.get_command(), "-name", "guest=web 1,debug-threads=on"]) as guest:
            guest.wait_greeting()
            self.assertEqual(get_leases()[0]["label"], "web 1")
            guest.quit()

    def test_no_m_means_128m(self):
        command = self.get_command()
        at = command.index("-m")
        with Guest(["hpzctl", "run", "--", *command[:at], *command[at + 2:]]) as guest:
            guest.wait_greeting()
            self.assertEqual(get_leases()[0]["size"], 128 * MIB)
            guest.quit()

    def test_left_alone(self):
        """A command line that says itself where memory comes from runs as it is, and hpzctl says so."""
        for extra in (["-object", f"memory-backend-ram,id=own,size={GUEST_MIB}M", "-machine", "memory-backend=own"],
                      ["-object", f"memory-backend-ram,id=own,size={GUEST_MIB}M", "-numa", "node,memdev=own"],
                      ["-mem-path", "/dev/shm"]):
            with Guest(["hpzctl", "run", "--", *self.get_command(), *extra]) as guest:
                guest.wait_greeting()
                self.assertEqual(get_leases(), [], extra)
                guest.quit()
                self.assertIn("hpzctl", guest.process.stdout.read().decode(), "it did not say so")

    def test_marker_in_a_backend(self):
        extra = ["-object", f"memory-backend-file,id=own,size={GUEST_MIB}M,mem-path={{hpz}},share=on", "-machine", "memory-backend=own"]
        with Guest(["hpzctl", "run", "--size", f"{GUEST_MIB}M", "--", *self.get_command(), *extra]) as guest:
            guest.wait_greeting()
            self.assertEqual(get_leases()[0]["pid"], guest.process.pid)
            guest.quit()
        self.wait_clean()

    def test_sandbox(self):
        """QEMU opens the file again as whoever it then is."""
        with Guest(["hpzctl", "run", "--", *self.get_command(), "-sandbox", "on,obsolete=deny,spawn=deny,resourcecontrol=deny"]) as guest:
            guest.wait_greeting()
            self.assertEqual(len(get_leases()), 1)
            guest.quit()

    def test_path_lease(self):
        """What a script does: lease a path, start QEMU on it, release."""
        lease = hpzctl_json("lease", f"{GUEST_MIB}M", "--path", "--label", "script")
        backend = f"memory-backend-file,id=m,size={GUEST_MIB}M,mem-path={lease['path']},share=on,prealloc=on"
        with Guest([*self.get_command("hpz.fill=16 hpz.sleep"), "-object", backend, "-machine", "memory-backend=m"]) as guest:
            guest.wait_greeting()
            guest.wait_line("HPZ-GUEST filled")
            hpzctl("release", lease["id"])
            self.assertEqual(self.get_lease(lease["id"])["state"], "returning")
            wait_until("QEMU is named", lambda: "qemu" in json.dumps(self.get_lease(lease["id"])["holders"]))
            guest.quit()
        self.wait_ended(lease["id"])
        self.wait_clean()

    def test_fallback(self):
        with Hold("--size", GUEST_MIB * MIB):
            with Guest(["hpzctl", "run", "--fallback", "--", *self.get_command()]) as guest:
                guest.wait_greeting()
                self.assertEqual(len(get_leases()), 1, "only the holder's")
                guest.quit()


if __name__ == "__main__":
    main("--2m", "96", "--stock", f"{GUEST_MIB}M*1 2M*rest")
