"""The hpzd under test: starts, stops, kills it; usable only inside tests/with-daemon, which prepares its directory.

HPZ_RUN_DIR is that directory: hpzd.conf, hpzd.sock, hpzd.pid, hpzd.log and the mounts are in it.
"""
import contextlib
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from hpztest import host


class ServiceError(Exception):
    pass


def get_build_directory():
    default = Path(__file__).resolve().parents[3] / "build"
    return Path(os.environ.get("HPZ_BUILD", default))


class Service:
    def __init__(self, directory=None):
        self.directory = Path(directory or os.environ["HPZ_RUN_DIR"])
        self.program = get_build_directory() / "daemon" / "hpzd"
        self.config = self.directory / "hpzd.conf"
        self.socket = self.directory / "hpzd.sock"
        self.pid_file = self.directory / "hpzd.pid"
        self.log = self.directory / "hpzd.log"

    def get_pid(self):
        """The running hpzd, or None."""
        try:
            pid, start_time = map(int, self.pid_file.read_text().split())
        except (OSError, ValueError):
            return None
        return pid if host.get_start_time(pid) == start_time else None

    def get_workers(self):
        pid = self.get_pid()
        return host.get_descendants(pid) if pid else []

    def start(self, environment=None, limit=60.0, prefix=()):
        """Starts hpzd and returns once it accepts connections. `prefix` goes before its command line."""
        if self.get_pid():
            raise ServiceError("hpzd runs already")
        with open(self.log, "ab") as log:
            begin = log.tell()
            process = subprocess.Popen([*prefix, str(self.program), "--config", str(self.config)], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True, cwd="/",
                                       env={**os.environ, **(environment or {})})
        self.pid_file.write_text(f"{process.pid} {host.get_start_time(process.pid) or 0}\n")
        deadline = time.monotonic() + limit
        while not self.is_served(process.pid):
            if process.poll() is not None:
                raise ServiceError(f"hpzd ended with status {process.returncode} at its start:\n{self.get_log(begin)}")
            if time.monotonic() > deadline:
                raise ServiceError(f"hpzd does not serve {self.socket} after {limit:.0f} s:\n{self.get_log(begin)}")
            time.sleep(0.01)
        return process

    def is_served(self, pid=None):
        """By that process: what a killed hpzd had just forked has its socket for a moment, too."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            try:
                connection.connect(str(self.socket))
            except OSError:
                return False
            peer, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return pid is None or peer == pid

    def stop(self, limit=60.0):
        """SIGTERM; an hpzd that does not end by it is killed, and that is an error."""
        if not self._end(signal.SIGTERM, limit):
            raise ServiceError(f"hpzd did not end within {limit:.0f} s of SIGTERM and was killed:\n{self.get_log()[-2000:]}")

    def kill(self):
        """SIGKILL for hpzd alone: its workers are left to their fate."""
        self._end(signal.SIGKILL, 60)

    def _end(self, number, limit):
        pid = self.get_pid()
        obeyed = host.end_process(pid, number, limit) if pid else True
        with contextlib.suppress(ChildProcessError, TypeError):
            os.waitpid(pid, os.WNOHANG)  # when it is our own child
        self.pid_file.unlink(missing_ok=True)
        return obeyed

    def set_config(self, section, key, value):
        """Changes one key; hpzd reads it at its next start or reload."""
        lines, inside = [], False
        for line in self.config.read_text().split("\n"):
            if line.startswith("["):
                inside = line == f"[{section}]"
                lines += [line, f"{key} = {value}"] if inside else [line]
            elif not (inside and line.split("=")[0].strip() == key):
                lines.append(line)
        self.config.write_text("\n".join(lines))

    def reload(self):
        os.kill(self.get_pid(), signal.SIGHUP)

    def restart(self, **arguments):
        self.stop()
        return self.start(**arguments)

    def get_log(self, begin=0):
        try:
            return self.log.read_bytes()[begin:].decode(errors="replace")
        except OSError:
            return ""
