"""What a test says to hpzd: through hpzctl, and through `hold`, a process that has leased memory as a VM has."""
import contextlib
import json
import subprocess
import time

from hpztest import host
from hpztest.service import get_build_directory


def hpzctl(*arguments, check=True, **run):
    """Runs hpzctl; the CompletedProcess with text."""
    done = subprocess.run([f"{get_build_directory()}/client/hpzctl", *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, **{"timeout": 120, **run})
    if check and done.returncode != 0:
        raise AssertionError(f"hpzctl {' '.join(map(str, arguments))}: status {done.returncode}: {done.stderr.strip()}")
    return done


@contextlib.contextmanager
def running(command, **popen):
    """A process that does not outlive the block: one that fails must not wait for what never ends."""
    with subprocess.Popen(list(map(str, command)), **popen) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def hpzctl_json(*arguments, **run):
    return json.loads(hpzctl(*arguments, "--json", **run).stdout)


def get_status():
    return hpzctl_json("status")


def get_pool(name="two"):
    return next(pool for pool in get_status()["pools"] if pool["name"] == name)


def get_leases():
    return get_status()["leases"]


def wait_until(what, condition, limit=60):
    """Asks until the condition holds; its value. What has not happened after `limit` seconds never will."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit} s: {what}")
        time.sleep(0.02)


class HoldError(Exception):
    """The answer of a command that failed; `answer` is the whole of it."""

    def __init__(self, answer):
        super().__init__(json.dumps(answer))
        self.answer = answer


class Hold:
    """A `hold` process; its first answer is in `got`. Ends, with all it holds, at the end of a with block."""

    def __init__(self, *arguments, user=None):
        self.process = subprocess.Popen([f"{get_build_directory()}/tests/hold", *map(str, arguments)], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user,
                                        extra_groups=[] if user is not None else None)
        self.pid = self.process.pid
        try:
            self.got = self.get_answer()
        except HoldError:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    @property
    def id(self):
        return self.got["id"]

    def send(self, command, *arguments):
        self.process.stdin.write(" ".join([command, *map(str, arguments)]) + "\n")
        self.process.stdin.flush()

    def get_answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"hold ended with status {self.process.wait()}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise HoldError(answer)
        return answer

    def call(self, command, *arguments):
        self.send(command, *arguments)
        return self.get_answer()

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                host.end_process(self.process.pid, grace=1)
                self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass
