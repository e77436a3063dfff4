#!/usr/bin/env python3
"""hpzctl top on a real terminal (tmux) and without one."""
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, hpzctl, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB


class Terminal:
    """A shell in a tmux of its own, whose screen can be read."""

    def __init__(self, columns=80, rows=24):
        self.directory = tempfile.TemporaryDirectory(prefix="hpz-top-")
        self.socket = Path(self.directory.name) / "tmux"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "env", "PS1=$ ", "HISTFILE=", "sh")
        wait_until("the shell is there", lambda: "$" in self.read())

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-S", self.socket, *map(str, arguments)], capture_output=True, text=True, check=True,
                              timeout=60).stdout

    def type(self, text):
        self.tmux("send-keys", "-l", text)
        self.tmux("send-keys", "Enter")

    def press(self, key):
        self.tmux("send-keys", key)

    def resize(self, columns, rows):
        self.tmux("resize-window", "-x", columns, "-y", rows)

    def read(self):
        return self.tmux("capture-pane", "-p")

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], capture_output=True, check=False, timeout=60)
        self.directory.cleanup()


class Top(HpzTest):
    def open_terminal(self, *size):
        self.terminal = Terminal(*size)
        self.addCleanup(self.terminal.close)

    def see(self, pattern):
        """Until the screen has it."""
        try:
            return wait_until(f"the screen has {pattern}", lambda: re.search(pattern, self.terminal.read(), re.M))
        except AssertionError as error:
            raise AssertionError(f"{error}; it has\n{self.terminal.read()}") from None

    def get_modes(self, name):
        file = Path(self.terminal.directory.name) / name
        self.terminal.type(f"stty -g >{file}.new; mv {file}.new {file}")
        wait_until("stty has said it", file.exists)
        return file.read_text()

    def start_top(self, *arguments):
        self.terminal.type(f"{get_build_directory()}/client/hpzctl top {' '.join(arguments)}; echo over: $?")
        self.see(r"^q quit")

    def get_pid(self):
        shell = int(self.terminal.tmux("display-message", "-p", "#{pane_pid}"))
        return next(pid for pid in host.get_descendants(shell) if Path(f"/proc/{pid}/comm").read_text().strip() == "hpzctl")

    def test_terminal(self):
        """Bars and leases as they change, scrolled and resized; q leaves the terminal as it was."""
        self.open_terminal()
        before = self.get_modes("before")
        self.start_top("--delay", "0.2")
        self.see(r"^two +0 +2M \[\++\]")
        self.see(r"^No leases")
        with Hold("--size", 32 * MIB, "--label", "the-guest"), Hold("--size", 16 * MIB, "--label", "smaller"):
            self.see(r"^two +0 +2M \[#+\++\]")
            # The largest first.
            self.see(r"32 MiB .* the-guest +\d+ hold\n\d.* 16 MiB .* smaller")
            self.assertTrue(all(len(line) <= 80 for line in self.terminal.read().split("\n")))
            self.terminal.press("Down")
            self.see(r"^LEASE.*\n\d.* smaller")
            self.terminal.press("Up")
            self.see(r"^LEASE.*\n\d.* the-guest")
            self.terminal.resize(50, 12)
            wait_until("it is as wide as the terminal", lambda: re.search(
                r"^q quit", self.terminal.read().split("\n")[11]) and "the-guest" not in self.terminal.read())
            self.see(r"^two +0 +2M \[")
            self.terminal.resize(100, 30)
            self.see(r"the-guest")
        self.see(r"^No leases")
        self.terminal.press("q")
        self.see(r"^over: 0")
        self.assertEqual(self.get_modes("after"), before)

    def test_tiny(self):
        """In a terminal of 10 columns and 3 rows nothing breaks."""
        self.open_terminal(30, 5)
        self.start_top()
        self.terminal.resize(10, 3)
        wait_until("it is small", lambda: self.terminal.read().split("\n")[2].startswith("q quit"))
        self.terminal.resize(80, 24)
        self.see(r"^two +0 +2M \[")
        self.terminal.press("q")
        self.see(r"^over: 0")

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number=number):
                self.open_terminal()
                before = self.get_modes("before")
                self.start_top()
                os.kill(self.get_pid(), number)
                self.see(r"^over: 0")
                self.assertEqual(self.get_modes("after"), before)

    def test_hpzd_away(self):
        """It is said, what was seen stays, and goes on when hpzd is back; it can be left while hpzd is mute."""
        self.open_terminal()
        self.start_top("--delay", "0.2")
        self.see(r"^two ")
        self.service.kill()
        self.see(r"as it was \d+s ago")
        self.see(r"^two ")
        self.service.start()
        wait_until("it goes on", lambda: "ago" not in self.terminal.read())
        os.kill(self.service.get_pid(), signal.SIGSTOP)
        try:
            self.see(r"^hpzd does not answer; as it was \d+s ago")
            self.terminal.press("q")
            self.see(r"^over: 0")
        finally:
            os.kill(self.service.get_pid(), signal.SIGCONT)

    def test_without_terminal(self):
        """Lines, once: with --once, in a pipe, on a terminal that cannot do more. What others wrote cannot move the cursor."""
        with Hold("--size", 16 * MIB, "--label", "gäst"):
            for arguments in (("--once",), ()):
                said = hpzctl("top", *arguments).stdout
                self.assertRegex(said, r"(?m)^two +0 +2M \[#+\++\] +16 MiB ")
                self.assertRegex(said, r"(?m)^\d+ +leased +16 MiB .* g\?st +\d+ hold$")
                self.assertTrue(said.isascii() and said.replace("\n", "").isprintable(), repr(said))
            self.open_terminal()
            self.terminal.type(f"TERM=dumb {get_build_directory()}/client/hpzctl top; echo over: $?")
            self.see(r"^over: 0")
            self.see(r" g\?st +\d+ hold$")

    def test_refused(self):
        for arguments in (("--json",), ("--delay", "0"), ("--delay", "forever"), ("operand",)):
            self.assertEqual(hpzctl("top", *arguments, check=False).returncode, 2, arguments)
        done = hpzctl("--socket", "/nowhere", "top", check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("/nowhere", done.stderr)


main("--2m", "48", "--stock", "32M*1 16M*2 2M*rest")
