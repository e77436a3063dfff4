#!/usr/bin/env python3
"""hpzd as a service, without a service manager: notifications, watchdog, socket activation, reload, stop, --check."""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, get_status, hpzctl, wait_until  # noqa: E402

MIB = host.MIB
POOL_PAGES = 64


class NotifySocket:
    """The service manager's end of sd_notify."""

    def __init__(self):
        self.directory = tempfile.mkdtemp()
        self.path = f"{self.directory}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.seen = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        shutil.rmtree(self.directory)

    def wait(self, pattern, limit=30, count=1):
        """Messages up to and with the count-th line that matches; that line's match."""
        deadline = time.monotonic() + limit
        while True:
            self.socket.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                message = self.socket.recv(65536).decode()
            except TimeoutError:
                raise AssertionError(f"no {pattern} within {limit} s among {self.seen}") from None
            for line in message.split("\n"):
                self.seen.append(line)
                match = re.search(pattern, line)
                if match:
                    count -= 1
                    if count == 0:
                        return match


class Notifications(HpzTest):
    def test_ready_and_status(self):
        self.service.stop()
        with NotifySocket() as notify:
            self.service.start({"NOTIFY_SOCKET": notify.path})
            notify.wait("^READY=1$")
            self.assertEqual(notify.wait("^STATUS=(.+)$").group(1).strip() == "", False)
            self.service.stop()
            notify.wait("^STOPPING=1$")

    def test_watchdog(self):
        self.service.stop()
        with NotifySocket() as notify:
            self.service.start({"NOTIFY_SOCKET": notify.path, "WATCHDOG_USEC": "600000"})
            notify.wait("^WATCHDOG=1$", 10, count=4)

    def test_no_watchdog_unless_asked(self):
        self.service.stop()
        with NotifySocket() as notify:
            self.service.start({"NOTIFY_SOCKET": notify.path, "WATCHDOG_USEC": "600000", "WATCHDOG_PID": "1"})
            with self.assertRaises(AssertionError):
                notify.wait("^WATCHDOG=1$", 2)

    def test_ready_before_the_fill(self):
        """READY says that the socket is served, not that the pool is full."""
        self.service.stop()
        shutil.rmtree(self.service.directory / "2M" / "hpz")
        with NotifySocket() as notify:
            self.service.start({"NOTIFY_SOCKET": notify.path})
            notify.wait("^READY=1$")
            get_status()
        self.wait_clean()

    def test_workers_do_not_speak_for_hpzd(self):
        """Workers inherit no notify socket."""
        self.service.stop()
        with NotifySocket() as notify:
            self.service.start({"NOTIFY_SOCKET": notify.path})
            for worker in wait_until("there are workers", self.service.get_workers):
                wait_until("it is no copy of hpzd any more", lambda worker=worker: Path(f"/proc/{worker}/cmdline").read_bytes()
                           .startswith(b"hpzd\0--worker"))
                names = {entry.split(b"=")[0] for entry in Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")}
                self.assertEqual(names & {b"NOTIFY_SOCKET", b"WATCHDOG_USEC", b"LISTEN_FDS"}, set())


class SocketActivation(HpzTest):
    def test_activated_by_a_connection(self):
        self.service.stop()
        activate = shutil.which("systemd-socket-activate")
        self.assertIsNotNone(activate, "package systemd")
        self.service.socket.unlink(missing_ok=True)
        with open(self.service.log, "ab") as log:
            process = subprocess.Popen([activate, "--seqpacket", "-l", str(self.service.socket), str(self.service.program),
                                        "--config", str(self.service.config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until("it listens", self.service.socket.exists)
            status = get_status()
            self.assertEqual(status["pools"][0]["name"], "two")
            inode = self.service.socket.stat().st_ino
            process.terminate()
            self.assertEqual(process.wait(60), 0, "hpzd did not end well")
            self.assertEqual(self.service.socket.stat().st_ino, inode, "the socket is the manager's: it stays")
        finally:
            host.end_process(process.pid)
            process.wait()
            self.service.socket.unlink(missing_ok=True)

    def test_wrong_kind_of_socket(self):
        self.service.stop()
        path = self.service.directory / "stream.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(path))
            listener.listen()
            done = self.run_with_descriptor(listener)
        path.unlink()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SEQPACKET", done.stderr.upper())

    def run_with_descriptor(self, listener):
        """Descriptor 3, as the manager passes it."""
        script = 'fd=$1; shift; [ "$fd" = 3 ] || exec 3<&"$fd"; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"'
        return subprocess.run(["bash", "-c", script, "sh", str(listener.fileno()), str(self.service.program), "--config",
                               str(self.service.config)], pass_fds=[listener.fileno()], capture_output=True, text=True, timeout=30,
                              stdin=subprocess.DEVNULL, check=False)


class Configuration(HpzTest):
    def run_hpzd(self, *arguments):
        return subprocess.run([str(self.service.program), *map(str, arguments)], capture_output=True, text=True, timeout=30,
                              stdin=subprocess.DEVNULL, check=False)

    def test_version_and_help(self):
        for option in ("--version", "--help"):
            done = self.run_hpzd(option)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertNotEqual(done.stdout, "")
        self.assertNotEqual(self.run_hpzd("--no-such-option").returncode, 0)

    def test_check(self):
        self.assertEqual(self.run_hpzd("--check", self.service.config).returncode, 0)
        good = self.service.config.read_text()
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "bad.conf")
            for text, line in (
                    ("[hpzd]\nno_such_key = 1\n", 2), ("\n\n[no such section]\nkey = 1\n", None), ("[pool a]\npage_size = 3M\n", 2),
                    ("[pool a]\npage_size = 2M\nnode = -4\n", 3), ("[pool a]\npage_size = 2M\npages = many\n", 3),
                    ("[pool a]\npage_size = 2M\npages = 9\nstock = 3G*\n", 4), ("[hpzd]\nlog_level = loud\n", 2), ("nonsense\n", 1),
                    ("[pool a]\npage_size = 2M\npages = 10\nmax_pages = 5\n", None), ("x" * 5000 + "\n", 1),
                    (good + "\n[pool two]\npages = 5\n", None)):
                file.write_text(text)
                done = self.run_hpzd("--check", file)
                self.assertNotEqual(done.returncode, 0, text[:80])
                self.assertRegex(done.stdout + done.stderr, rf"bad\.conf:{line or '[0-9]+'}:", text[:80])
                started = self.run_hpzd("--config", file)
                self.assertNotEqual(started.returncode, 0, f"started with {text[:80]}")

    def test_no_pool_is_fine(self):
        """The installed default has none: installing takes no memory."""
        self.service.stop()
        self.service.config.write_text("".join(self.service.config.read_text().partition("[pool two]")[:1]))
        self.service.start()
        self.assertEqual(get_status()["pools"], [])
        hpzctl("status")

    def test_second_daemon(self):
        """One hpzd a mount: the second says so and touches nothing."""
        text = self.service.config.read_text().replace("hpzd.sock", "second.sock").replace(f"{self.service.directory}/run",
                                                                                             f"{self.service.directory}/run2")
        before = get_pool()
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "second.conf")
            file.write_text(text)
            process = subprocess.Popen([str(self.service.program), "--config", str(file)], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            time.sleep(2)
            host.end_process(process.pid)
            output = process.communicate()[0]
        self.assertRegex(output, "lock|another|in use|already")
        self.assertEqual(get_pool()["clean"], before["clean"])
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def test_socket_in_use(self):
        """A socket somebody answers at is not taken from him."""
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "hpzd.conf")
            file.write_text(f"[hpzd]\nsocket = {self.service.socket}\nrun_dir = {directory}/run\n")
            process = subprocess.Popen([str(self.service.program), "--config", str(file)], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                host.end_process(process.pid)
                process.wait()
                self.fail("a second hpzd took the socket of the first")
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(get_status()["pools"][0]["name"], "two")


class Reload(HpzTest):
    def get_log_after(self, action):
        before = len(self.service.get_log())
        action()
        return lambda: self.service.get_log()[before:]

    def test_pages_change(self):
        self.set_config("pool two", "pages", POOL_PAGES // 2)
        self.service.reload()
        wait_until("the pool shrinks", lambda: (get_pool()["target"], get_pool()["total"]) == (POOL_PAGES // 2, POOL_PAGES // 2))
        self.set_config("pool two", "pages", POOL_PAGES)
        self.service.reload()
        wait_until("the pool grows", lambda: get_pool()["clean"] == POOL_PAGES)

    def test_refused_with_file_and_line(self):
        pid, before = self.service.get_pid(), get_pool()
        for section, key, value in (("pool two", "node", "1"), ("pool two", "page_size", "1G"), ("pool two", "mount", "/mnt"),
                                    ("hpzd", "no_such_key", "1"), ("pool two", "pages", "lots")):
            good = self.service.config.read_text()
            if key == "page_size":
                self.set_config(section, "stock", "1G*rest")
            if f"\n{key} =" in good:
                self.set_config(section, key, value)
            else:
                self.service.config.write_text(good.replace(f"[{section}]\n", f"[{section}]\n{key} = {value}\n"))
            line = next(number for number, text in enumerate(self.service.config.read_text().split("\n"), 1) if text.startswith(f"{key} ="))
            log = self.get_log_after(self.service.reload)
            wait_until(f"{key} is refused at line {line}", lambda: f"hpzd.conf:{line}" in log())
            self.assertEqual(self.service.get_pid(), pid)
            pool = get_pool()
            self.assertEqual((pool["target"], pool["clean"], pool["node"]), (before["target"], before["clean"], before["node"]))
            self.service.config.write_text(good)
        with Hold("--size", 2 * MIB):
            pass

    def test_reload_keeps_leases(self):
        with Hold("--size", 4 * MIB, "--label", "kept") as holder:
            self.set_config("pool two", "pages", POOL_PAGES - 8)
            self.service.reload()
            wait_until("the new target", lambda: get_pool()["target"] == POOL_PAGES - 8)
            self.assertEqual(self.get_lease(holder.id)["label"], "kept")
            self.assertTrue(holder.call("check-zero")["equal"])


class Stop(HpzTest):
    def test_sigterm_is_quick_and_clean(self):
        pid = self.service.get_pid()
        workers = self.service.get_workers()
        self.service.stop()
        self.assertIsNone(host.get_start_time(pid))
        for worker in workers:
            wait_until("its workers are gone", lambda worker=worker: host.get_start_time(worker) is None)
        self.assertFalse(self.service.socket.exists())
        clean = self.service.directory / "2M/hpz/1/node0/clean"
        self.assertEqual(sum(file.stat().st_blocks * 512 for file in clean.iterdir()), POOL_PAGES * 2 * MIB)

    def test_sigterm_while_filling(self):
        for delay in (0, 0.002, 0.01, 0.03):
            self.service.stop()
            shutil.rmtree(self.service.directory / "2M" / "hpz")
            self.service.start()
            time.sleep(delay)
            self.service.stop()
            self.assertEqual(self.get_hpzd_processes(), [])
            self.service.start()
            self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)

    def get_hpzd_processes(self):
        """hpzd itself and its workers."""
        return host.find_processes(self.service.program)

    def test_sigint(self):
        pid = self.service.get_pid()
        os.kill(pid, signal.SIGINT)
        wait_until("SIGINT ends it, too", lambda: host.get_start_time(pid) is None)

    def test_stale_socket(self):
        """A socket left by a dead hpzd is in nobody's way."""
        self.service.kill()
        self.assertTrue(self.service.socket.exists())
        self.service.start()
        get_status()

    def test_killed_hpzd_leaves_no_workers(self):
        workers = self.service.get_workers()
        self.service.kill()
        for worker in workers:
            wait_until("its workers end with it", lambda worker=worker: host.get_start_time(worker) is None, 90)


class Raising(HpzTest):
    """hpzd raises nr_hugepages itself, remembers by how much, and gives back that much."""

    def test_raise_and_give_back(self):
        kernel = host.PagePool(2 * MIB)
        nr = kernel.get_nr()
        extra = kernel.get_free() + 16
        self.service.stop()
        self.set_config("pool two", "raise", "yes")
        self.set_config("pool two", "pages", POOL_PAGES + extra)
        self.service.start()
        wait_until("hpzd raises the pool", lambda: get_pool()["total"] == get_pool()["target"], 120)
        self.assertEqual(kernel.get_nr(), nr + 16)
        self.assertEqual(get_pool()["raised"], 16)
        self.service.kill()
        self.service.start()
        self.assertEqual(get_pool()["raised"], 16, "forgotten by a restart")
        self.wait_idle()
        hpzctl("drain", "--give-back")
        self.assertEqual(kernel.get_nr(), nr)


if __name__ == "__main__":
    main("--2m", str(POOL_PAGES), "--stock", "32M*1 2M*rest", "--config-line", f"pool two.max_pages={4096}")
