"""A small QEMU guest (lib/guest-image), started with any command in front of it, timed and watched."""
import contextlib
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from hpztest import host

_LIB = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


class GuestError(Exception):
    pass


@functools.cache
def get_image():
    """Paths of kernel and initramfs. Asked for once: apt-cache takes a second to say which kernel it is."""
    return tuple(subprocess.run([f"{_LIB}/guest-image"], check=True, capture_output=True, text=True).stdout.splitlines())


def has_balloon():
    """Whether the image has the modules for one: they may be missing where there is no network."""
    return subprocess.run([f"{_LIB}/guest-modules", get_image()[0], "virtio_balloon"], capture_output=True).returncode == 0


def make_initrd(directory, programs, script, files=()):
    """An initramfs with busybox, programs of this machine with their libraries, and a shell script as its init; its path.

    files: more of this machine, in /files."""
    root = Path(directory, "root")
    for name in ("bin", "proc", "sys", "dev", "run", "tmp", "usr/bin", "etc", "files"):
        (root / name).mkdir(parents=True)
    for file in files:
        shutil.copy(file, root / "files")
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for program in programs:
        shutil.copy(program, root / "usr/bin")
        libraries = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/[^ ]+) \(", libraries):
            # The loader has its place; the build's own libraries are found beside the others.
            target = root / library.lstrip("/") if "/ld-" in library else root / "usr/lib" / os.path.basename(library)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)
    (root / "init").write_text("""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/ LD_LIBRARY_PATH=/usr/lib
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs run /run
""" + script + "\npoweroff -f\n")
    (root / "init").chmod(0o755)
    initrd = Path(directory, "initrd")
    with open(initrd, "wb") as output:
        subprocess.run("find . | cpio -o -H newc --quiet | gzip -1", shell=True, cwd=root, stdout=output, check=True)
    return str(initrd)


def get_nodes(sizes_mib):
    """NUMA nodes of these sizes, each with one CPU."""
    words = ["-smp", f"{len(sizes_mib)},sockets={len(sizes_mib)},cores=1,threads=1"]
    for node, size in enumerate(sizes_mib):
        words += ["-object", f"memory-backend-ram,id=node{node},size={size}M", "-numa", f"node,nodeid={node},memdev=node{node},cpus={node}"]
    return words


def get_command(memory_mib, words="", image=None):
    """An ordinary command line with just -m. Always TCG: a test host may have no usable KVM."""
    kernel, initrd = image or get_image()
    return ["qemu-system-x86_64", "-accel", "tcg", "-M", "q35", "-m", f"{memory_mib}M", "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-kernel", kernel, "-initrd", initrd,
            "-append", f"console=ttyS0 panic=-1 quiet {words}"]


class NoKernel(GuestError):
    """A kernel that a test wants cannot be had here."""


def get_kernel(kernel):
    """The path of a kernel: of a series (6.1, 6.12), or as it is."""
    if os.path.exists(kernel):
        return kernel
    done = subprocess.run([f"{_LIB}/guest-kernel", kernel], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoKernel(done.stderr.strip().split("\n")[-1])
    return done.stdout.strip()


def get_modules(kernel, names):
    """Paths of modules of such a kernel."""
    done = subprocess.run([f"{_LIB}/guest-modules", kernel, *names], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoKernel(done.stderr.strip().split("\n")[-1])
    return done.stdout.splitlines()


def _boot(command, deadline, on_line):
    """(exit status, whether the script began, lines)"""
    begin, mark, lines, has_begun = _MARKS[0], _MARKS[1], [], False
    with Guest(command) as guest:
        while True:
            line, guest.text = guest._read_line(guest.serial, guest.text, max(0.1, deadline - time.monotonic()))
            if line is None:
                return (124 if time.monotonic() >= deadline else 125), has_begun, lines
            lines.append(line.decode(errors="replace").strip())
            if lines[-1] == begin:
                has_begun = True
                lines.pop()
            elif lines[-1].startswith(mark):
                return int(lines.pop()[len(mark):]), has_begun, lines
            elif on_line:
                on_line(lines[-1])


_MARKS = ("GUEST-RUN begins", "GUEST-RUN status ")
_BOOTS = 3


def run_script(script, programs, kernel, memory_mib=1024, words="", limit=300, on_line=None, nodes=()):
    """Runs a script in a guest of its own until it powers off: (exit status, lines); 124 when the time is over.

    An emulated kernel that patches itself while its other CPU runs what is patched may trip over it (Oops: int3): one that
    dies before the script has begun says nothing of us, and is booted again.

    nodes: MiB of each NUMA node; then the memory is what they have."""
    with tempfile.TemporaryDirectory() as directory:
        init = f"echo {_MARKS[0]}\ncat >/run/script <<'END-OF-SCRIPT'\n{script}\nEND-OF-SCRIPT\nsh /run/script\necho {_MARKS[1]}$?"
        image = get_kernel(kernel), make_initrd(directory, programs, init)
        deadline = time.monotonic() + limit
        cpus = get_nodes(nodes) if nodes else ["-smp", "2"]
        command = [*get_command(sum(nodes) or memory_mib, words, image), "-cpu", "max", *cpus]
        for _ in range(_BOOTS):
            status, has_begun, lines = _boot(command, deadline, on_line)
            if status != 125 or has_begun or not any("Oops" in line or "Kernel panic" in line for line in lines):
                break
            host.note(f"a guest's kernel ({kernel}) died before anything of ours began: {next(line for line in lines if 'Oops' in line or 'panic' in line)}")
    return status, lines


class Guest:
    """Starts a QEMU command line; a QMP monitor and a serial port are added at its end as inherited sockets."""

    def __init__(self, command, **popen):
        self.qmp, qmp = socket.socketpair()
        self.serial, serial = socket.socketpair()
        self.text = b""
        self._qmp_text = b""
        extra = ["-chardev", f"socket,id=test-qmp,fd={qmp.fileno()}", "-mon", "chardev=test-qmp,mode=control",
                 "-chardev", f"socket,id=test-serial,fd={serial.fileno()}", "-serial", "chardev:test-serial"]
        self.begin = time.monotonic()
        self.process = subprocess.Popen([*command, *extra], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, pass_fds=[qmp.fileno(), serial.fileno()], **popen)
        qmp.close()
        serial.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def _get_milliseconds(self):
        return (time.monotonic() - self.begin) * 1000

    def _fail(self, what):
        host.end_process(self.process.pid, grace=2)
        raise GuestError(f"{what}; it said: {self.process.stdout.read().decode(errors='replace').strip()} "
                         f"{self.text.decode(errors='replace').strip()}")

    def _read_line(self, source, text, limit):
        deadline = time.monotonic() + limit
        while b"\n" not in text:
            source.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                more = source.recv(65536)
            except (TimeoutError, ConnectionError):
                more = b""
            if not more:
                return None, text
            text += more
        line, _, text = text.partition(b"\n")
        return line, text

    def wait_greeting(self, limit=60):
        """Milliseconds from exec to the greeting: guest memory is there by then."""
        line, self._qmp_text = self._read_line(self.qmp, self._qmp_text, limit)
        milliseconds = self._get_milliseconds()
        if line is None or b'"QMP"' not in line:
            self._fail("QEMU sent no QMP greeting")
        self.qmp.sendall(b'{"execute":"qmp_capabilities"}\n')
        return milliseconds

    def call(self, execute, limit=60, **arguments):
        """A QMP command, after wait_greeting(); its return value."""
        request = {"execute": execute, "id": execute, **({"arguments": arguments} if arguments else {})}
        self.qmp.sendall(json.dumps(request).encode() + b"\n")
        while True:
            line, self._qmp_text = self._read_line(self.qmp, self._qmp_text, limit)
            if line is None:
                self._fail(f"no answer to {execute}")
            reply = json.loads(line)
            if reply.get("id") == execute:
                if "error" in reply:
                    raise GuestError(f"{execute}: {reply['error']}")
                return reply["return"]

    def wait_line(self, mark, limit=120):
        """The first line of the serial port with `mark` in it, and milliseconds since exec."""
        while True:
            line, self.text = self._read_line(self.serial, self.text, limit)
            if line is None:
                self._fail(f"the guest did not say {mark}")
            if mark.encode() in line:
                return line.decode(errors="replace").strip(), self._get_milliseconds()

    def quit(self, limit=30):
        """Asks over QMP; returns the exit status."""
        with contextlib.suppress(OSError):
            self.qmp.sendall(b'{"execute":"quit"}\n')
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self._fail("QEMU did not quit")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            host.end_process(self.process.pid, grace=5)
            self.process.wait()
        for thing in (self.qmp, self.serial, self.process.stdout):
            thing.close()
