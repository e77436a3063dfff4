#!/usr/bin/env python3
"""hpz-qemu, the emulator of a libvirt domain: backends of real QEMUs on leases, fallback and refusal, and what passes untouched."""
import json
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_leases, get_status, wait_until  # noqa: E402
from hpztest.guest import Guest, get_command, get_image  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
CELL_MIB, GUEST_MIB = 32, 128
NOBODY = 65534
PATTERN = b"\xc0\xff\xee\x42"
FAILED, NOT_EXECUTABLE, NOT_FOUND = 1, 126, 127


def make_json(kind, name, size_mib, **properties):
    """A backend as libvirt writes it."""
    return json.dumps({"qom-type": f"memory-backend-{kind}", "id": name, **properties,
                       "x-use-canonical-path-for-ramblock-id": False, "size": size_mib * MIB}, separators=(",", ":"))


def make_memfd(name, size_mib):
    return make_json("memfd", name, size_mib, hugetlb=True, hugetlbsize=2 * MIB, share=True, prealloc=True,
                     **{"host-nodes": [0], "policy": "bind"})


class WrapperTest(HpzTest):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)
        self.directory.chmod(0o755)
        self.wrapper = f"{get_build_directory()}/client/hpz-qemu"
        # The default size of pages is the host's; a test may not change it.
        self.default_page_size = int(next(line.split()[1] for line in Path("/proc/meminfo").read_text().split("\n")
                                          if line.startswith("Hugepagesize"))) << 10

    def write_config(self, *lines):
        path = self.directory / "hpzd.conf"
        path.write_text("\n".join(["[hpzd]", f"socket = {self.service.socket}", "[qemu]", *lines, ""]))
        return path

    def get_environment(self, *config, **more):
        """As libvirt's: almost nothing."""
        return {"PATH": os.environ["PATH"], "HPZ_CONFIG": str(self.write_config(*config)), **more}


class Emulator(WrapperTest):
    """With a program in QEMU's place that only says what it was called with."""

    def make_emulator(self, name="emulator"):
        path = self.directory / name
        path.write_text("#!/bin/sh\nfor word in \"$0\" \"$@\"; do printf '%s\\n' \"$word\"; done\n")
        path.chmod(0o755)
        return str(path)

    def run_wrapper(self, *arguments, config=(), program=None, environment=None, **run):
        environment = {**self.get_environment(*config), "HPZ_QEMU": self.make_emulator(), **(environment or {})}
        return subprocess.run([program or self.wrapper, *arguments], env={k: v for k, v in environment.items() if v is not None},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120, **run)

    def get_words(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[1:-1]

    def test_probes_are_untouched(self):
        """Nothing is said, nobody is asked."""
        before = get_status()["leases_granted"]
        self.service.stop()
        for words in (["-help"], ["-version"], ["--version"], [], ["-machine", "help"],
                      ["-S", "-no-user-config", "-nodefaults", "-nographic", "-machine", "none,accel=kvm:tcg",
                       "-qmp", "unix:/nonexistent,server=on,wait=off", "-pidfile", "/nonexistent", "-daemonize"],
                      ["-m", "64", "-object", "iothread,id=io1"], ["--hpz-help", "-S"], ["a b", "", "-name", "x,,y"]):
            done = self.run_wrapper(*words)
            self.assertEqual((self.get_words(done), done.stderr), (words, ""))
        self.service.start()
        self.assertLessEqual(get_status()["leases_granted"], before)

    def test_words(self):
        words = ["-name", "guest=web,debug-threads=on", "-m", "32", "-object", make_memfd("pc.ram", CELL_MIB),
                 "-machine", "q35,memory-backend=pc.ram", "-append", "a b"]
        done = self.run_wrapper(*words)
        got = self.get_words(done)
        backend = json.loads(got[5])
        self.assertEqual([*got[:5], *got[6:]], [*words[:5], *words[6:]])
        self.assertRegex(backend.pop("mem-path"), "^/proc/self/fd/[0-9]+$")
        self.assertEqual(backend, {"qom-type": "memory-backend-file", "id": "pc.ram", "prealloc": True, "host-nodes": [0],
                                   "policy": "bind", "x-use-canonical-path-for-ramblock-id": False, "size": CELL_MIB * MIB,
                                   "share": True})
        self.assertIn("pc.ram: 32 MiB", done.stderr)
        self.wait_idle()
        self.assertEqual(get_leases(), [])

    def test_left_alone(self):
        """Ordinary memory, a file of somebody's, pages that hpzd has not, a device that takes its memory bit by bit."""
        file = self.directory / "ram"
        file.write_bytes(b"")
        for backend, use, said in (
                (f"memory-backend-ram,id=m,size={CELL_MIB}M", "memory-backend=m", "does not ask for huge pages"),
                (f"memory-backend-memfd,id=m,size={CELL_MIB}M", "memory-backend=m", "does not ask for huge pages"),
                (f"memory-backend-file,id=m,size={CELL_MIB}M,mem-path={file}", "memory-backend=m", "no directory of a hugetlbfs"),
                (f"memory-backend-file,id=m,size={CELL_MIB}M,mem-path={self.directory}", "memory-backend=m", "no directory"),
                ("memory-backend-memfd,id=m,size=1G,hugetlb=on,hugetlbsize=16M", "memory-backend=m", "no 1 GiB from hpzd"),
                (make_memfd("m", CELL_MIB), "q35", "neither the machine's")):
            words = ["-object", backend, "-machine", use]
            done = self.run_wrapper(*words)
            self.assertEqual(self.get_words(done), words)
            self.assertIn(said, done.stderr)

    def test_ram(self):
        words = ["-object", f"memory-backend-ram,id=m,size={CELL_MIB}M,prealloc=on", "-machine", "memory-backend=m"]
        got = self.get_words(self.run_wrapper(*words, config=["ram = yes"]))
        self.assertRegex(got[1], f"^memory-backend-file,id=m,size={CELL_MIB}M,prealloc=on,mem-path=/proc/self/fd/[0-9]+,share=on$")

    def test_some_of_several(self):
        """What can be had is taken; with refuse all of it must be."""
        words = ["-object", make_memfd("ram-node0", CELL_MIB), "-numa", "node,memdev=ram-node0",
                 "-object", make_memfd("ram-node1", 4096), "-numa", "node,memdev=ram-node1"]
        done = self.run_wrapper(*words)
        got = self.get_words(done)
        self.assertIn("/proc/self/fd/", got[1])
        self.assertEqual(got[2:], words[2:])
        self.assertIn("ram-node1: no 4 GiB", done.stderr)
        done = self.run_wrapper(*words, config=["on_failure = refuse"])
        self.assertEqual((done.returncode, done.stdout), (FAILED, ""))
        self.assertIn("refused", done.stderr)
        self.wait_idle()
        self.assertEqual(get_leases(), [])

    def test_not_understood(self):
        """It is started as it is; with refuse it is not started, and a sentence says why. What asks for nothing is."""
        quoted, mount = "{'qom-type':'memory-backend-memfd','id':'m','hugetlb':true,'size':4194304}", os.environ["HPZ_MOUNT_2M"]
        for words, said in ((["-object", quoted, "-machine", "memory-backend=m"], "may be a memory backend"),
                            (["-object", make_json("next", "m", CELL_MIB), "-machine", "memory-backend=m"], "may be a memory backend"),
                            (["-object", make_json("memfd", "m", CELL_MIB, hugetlb="yes"), "-machine", "memory-backend=m"], "m: left alone: one of its"),
                            (["-object", make_memfd("m", CELL_MIB), "-device", "{'driver':'pc-dimm','memdev':'m'}"], "may be a DIMM"),
                            (["-object", make_memfd("m", CELL_MIB), "-machine", "memory-backend=m", "-set", "object.m.size=1"], "m: left alone: other options"),
                            (["-readconfig", "/etc/hosts"], "-readconfig"), (["-m", "64", "-mem-path", mount], "-mem-path")):
            with self.subTest(said):
                done = self.run_wrapper(*words)
                self.assertEqual(self.get_words(done), words)
                self.assertIn(said, done.stderr)
                done = self.run_wrapper(*words, config=["on_failure = refuse"])
                self.assertEqual((done.returncode, done.stdout), (FAILED, ""))
                self.assertIn(said, done.stderr)
                self.assertIn("is refused, as on_failure says", done.stderr)
        for words in (["-m", "64", "-mem-path", "/tmp"], ["-object", make_json("ram", "m", CELL_MIB, prealloc="x"), "-machine", "memory-backend=m"],
                      ["-object", make_json("ram", "m", CELL_MIB, reserve="x"), "-machine", "memory-backend=m"],
                      ["-object", "secret,id=memory-backend-", "-device", json.dumps({"driver": "scsi-hd", "wwn": 1 << 63})]):
            self.assertEqual(self.get_words(self.run_wrapper(*words, config=["on_failure = refuse"])), words)
        self.assertEqual(get_leases(), [])

    def check_no_memory(self, said):
        words = ["-object", make_memfd("pc.ram", CELL_MIB), "-machine", "memory-backend=pc.ram"]
        done = self.run_wrapper(*words)
        self.assertEqual(self.get_words(done), words)
        self.assertIn(said, done.stderr)
        done = self.run_wrapper(*words, config=["on_failure = refuse"])
        self.assertEqual((done.returncode, done.stdout), (FAILED, ""))
        self.assertIn(said, done.stderr)

    def test_dead(self):
        self.service.stop()
        self.check_no_memory("hpzd is not running")

    def test_mute(self):
        """A stopped hpzd is not waited for, and gives nothing away when it goes on."""
        os.kill(self.service.get_pid(), 19)
        try:
            self.check_no_memory("does not answer in time")
        finally:
            os.kill(self.service.get_pid(), 18)
        self.wait_idle()
        self.assertEqual(get_leases(), [])

    def test_empty(self):
        with Hold("--size", 96 * MIB), Hold("--size", 96 * MIB), Hold("--size", 96 * MIB):
            self.check_no_memory("no 32 MiB from hpzd")

    def test_wait(self):
        """For clean memory: it comes when the other one gives it back."""
        words = ["-object", make_memfd("pc.ram", 96), "-machine", "memory-backend=pc.ram"]
        holders = [Hold("--size", 96 * MIB) for _ in range(3)]
        try:
            process = subprocess.Popen([self.wrapper, *words], env={**self.get_environment("wait = 50s"), "HPZ_QEMU": self.make_emulator()},
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            wait_until("it waits", lambda: any(pool["waiting"] for pool in get_status()["pools"]))
        finally:
            for holder in holders:
                holder.end()
        self.assertIn("/proc/self/fd/", process.communicate(timeout=120)[0])

    def test_which_emulator(self):
        """By its own name; by the configuration; never itself."""
        path = {"HPZ_QEMU": None, "PATH": f"{self.directory}/bin:{self.directory}/more"}
        (self.directory / "bin").mkdir()
        (self.directory / "more").mkdir()
        machine = os.uname().machine
        os.symlink(self.wrapper, self.directory / f"bin/qemu-system-{machine}")
        expected = self.make_emulator(f"more/qemu-system-{machine}")
        self.assertEqual(self.run_wrapper(environment=path).stdout.split("\n")[0], expected)
        link = self.directory / "hpz-qemu-system-hexagon"
        os.symlink(self.wrapper, link)
        done = self.run_wrapper(program=str(link), environment=path)
        self.assertEqual((done.returncode, "qemu-system-hexagon" in done.stderr), (NOT_FOUND, True))
        expected = self.make_emulator("more/qemu-system-hexagon")
        self.assertEqual(self.run_wrapper(program=str(link), environment=path).stdout.split("\n")[0], expected)
        named = self.make_emulator("named")
        self.assertEqual(self.run_wrapper(config=[f"emulator = {named}"], environment=path).stdout.split("\n")[0], named)
        for bad in (self.wrapper, "/nonexistent", str(self.directory)):
            done = self.run_wrapper(environment={"HPZ_QEMU": bad})
            self.assertEqual((done.returncode, bad in done.stderr), (NOT_EXECUTABLE, True))

    def test_bad_config(self):
        """The defaults count, that of the socket, too, and it is said."""
        words = ["-object", make_memfd("pc.ram", CELL_MIB), "-machine", "memory-backend=pc.ram"]
        done = self.run_wrapper(*words, config=["on_failure = perhaps"], environment={"HPZ_SOCKET": str(self.service.socket)})
        self.assertIn("/proc/self/fd/", self.get_words(done)[1])
        self.assertIn("hpzd.conf:4: on_failure = perhaps", done.stderr)

    def test_own_words(self):
        self.assertIn("hpz-qemu-system-ARCH", self.run_wrapper("--hpz-help").stdout)
        self.assertRegex(self.run_wrapper("--hpz-version").stdout, r"^hpz-qemu [0-9.]+\n$")

    def test_closed_descriptors(self):
        """QEMU finds those it would have found, and the lease is none of them."""
        words = ["-object", make_memfd("pc.ram", CELL_MIB), "-machine", "memory-backend=pc.ram"]
        report = self.directory / "report"
        script = self.directory / "reporter"
        script.write_text(f"#!/usr/bin/python3\nimport os, sys\nfd = [os.path.exists(f'/proc/self/fd/{{n}}') for n in range(3)]\n"
                          f"open('{report}', 'w').write(repr((fd, sys.argv)))\n")
        script.chmod(0o755)
        environment = {**self.get_environment(), "HPZ_QEMU": str(script)}
        subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", self.wrapper, *words], env=environment, check=True, timeout=120)
        descriptors, arguments = eval(report.read_text())  # pylint: disable=eval-used
        path = json.loads(arguments[2])["mem-path"]
        self.assertGreater(int(path.rsplit("/", 1)[1]), 2)
        self.assertIs(descriptors[2], False)


class Qemu(WrapperTest):
    def start(self, *extra, words="-S", memory_mib=CELL_MIB, config=(), image=("/dev/null", "/dev/null"), **popen):
        command = get_command(memory_mib, "", image)
        if image[0] == "/dev/null":
            command = command[:command.index("-kernel")]
        return Guest([self.wrapper, *command[1:], *words.split(), *extra], env=self.get_environment(*config), **popen)

    def write_pattern(self, offset):
        """From outside, through the file of the pool."""
        file, = (self.service.directory / "2M/hpz/1/node0/leased").iterdir()
        with open(file, "r+b") as memory, mmap.mmap(memory.fileno(), 0) as view:
            view[offset:offset + len(PATTERN)] = PATTERN

    def check_guest(self, guest, size_mib=CELL_MIB):
        """Its memory is the lease's."""
        guest.wait_greeting()
        lease, = get_leases()
        self.assertEqual((lease["pid"], lease["size"], lease["state"]), (guest.process.pid, size_mib * MIB, "leased"))
        memdev, = guest.call("query-memdev")
        self.assertEqual((memdev["size"], memdev["share"]), (size_mib * MIB, True))
        self.write_pattern(17 * MIB)
        seen = guest.call("human-monitor-command", **{"command-line": f"xp /4xb {17 * MIB}"})
        self.assertIn("0xc0 0xff 0xee 0x42", seen)
        return lease

    def test_forms(self):
        mount = self.service.directory / "2M"
        for backend in (make_memfd("pc.ram", CELL_MIB),
                        make_json("file", "pc.ram", CELL_MIB, **{"mem-path": str(mount), "prealloc": True}),
                        f"memory-backend-memfd,id=pc.ram,size={CELL_MIB}M,hugetlb=on,hugetlbsize=2M,prealloc=on,host-nodes=0,policy=preferred",
                        f"memory-backend-file,id=pc.ram,size={CELL_MIB}M,mem-path={mount},discard-data=on,prealloc=on"):
            with self.subTest(backend), self.start("-object", backend, "-machine", "memory-backend=pc.ram",
                                                   "-name", "guest=web,debug-threads=on") as guest:
                lease = self.check_guest(guest)
                self.assertEqual(lease["label"], "web")
                with open(f"/proc/{guest.process.pid}/comm", encoding="utf-8") as comm:
                    self.assertTrue(comm.read().startswith("qemu-system"))
                self.assertEqual(guest.quit(), 0)
                self.wait_ended(lease["id"])
            pool = self.wait_clean()
            self.assertEqual(pool["clean"], pool["target"])

    def test_default_page_size(self):
        if self.default_page_size != 2 * MIB:
            self.skipTest("the default huge page of this host is not of 2M")
        with self.start("-object", f"memory-backend-memfd,id=m,size={CELL_MIB}M,hugetlb=on", "-machine", "memory-backend=m") as guest:
            self.check_guest(guest)

    def test_two_cells(self):
        """Each backend has a lease, for the process both."""
        cells = [word for node in (0, 1) for word in ("-object", make_memfd(f"ram-node{node}", CELL_MIB),
                                                      "-numa", f"node,nodeid={node},cpus={node},memdev=ram-node{node}")]
        with self.start("-smp", "2", *cells, memory_mib=2 * CELL_MIB) as guest:
            guest.wait_greeting()
            leases = get_leases()
            self.assertEqual([(lease["pid"], lease["size"]) for lease in leases], [(guest.process.pid, CELL_MIB * MIB)] * 2)
            self.assertEqual(sorted(memdev["id"] for memdev in guest.call("query-memdev")), ["ram-node0", "ram-node1"])
            with open(f"/proc/{guest.process.pid}/maps", encoding="utf-8") as maps:
                self.assertEqual(maps.read().count(str(self.service.directory / "2M")), 2)

    def test_dimm_of_the_command_line(self):
        with self.start("-m", f"size={CELL_MIB}M,slots=2,maxmem=1G", "-object", make_memfd("pc.ram", CELL_MIB),
                        "-machine", "memory-backend=pc.ram", "-object", make_memfd("memdimm0", CELL_MIB),
                        "-device", json.dumps({"driver": "pc-dimm", "memdev": "memdimm0", "id": "dimm0"})) as guest:
            guest.wait_greeting()
            self.assertEqual(len(get_leases()), 2)

    def test_killed(self):
        """The lease ends with QEMU."""
        with self.start("-object", make_memfd("pc.ram", CELL_MIB), "-machine", "memory-backend=pc.ram") as guest:
            lease = self.check_guest(guest)
            guest.kill()
            self.wait_ended(lease["id"])
        self.wait_clean()
        with Hold("--size", CELL_MIB * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"])

    def test_as_a_user_in_a_sandbox(self):
        """As libvirt runs it: an unprivileged user whom hpzd.conf allows leases, seccomp on."""
        with self.start("-object", make_memfd("pc.ram", CELL_MIB), "-machine", "memory-backend=pc.ram",
                        "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
                        user=NOBODY, group=NOBODY, extra_groups=[]) as guest:
            lease = self.check_guest(guest)
            self.assertEqual(lease["uid"], NOBODY)

    def test_hpzd_restarted(self):
        """The guest does not notice, and the lease still ends with it."""
        with self.start("-object", make_memfd("pc.ram", CELL_MIB), "-machine", "memory-backend=pc.ram") as guest:
            lease = self.check_guest(guest)
            self.service.kill()
            self.service.start()
            self.assertEqual(self.get_lease(lease["id"])["pid"], guest.process.pid)
            self.assertEqual(guest.quit(), 0)
            self.wait_ended(lease["id"])

    def test_no_memory(self):
        """A real QEMU starts as it would have without hpz."""
        self.service.stop()
        with self.start("-object", f"memory-backend-ram,id=m,size={CELL_MIB}M", "-machine", "memory-backend=m", config=["ram = yes"]) as guest:
            guest.wait_greeting()
            memdev, = guest.call("query-memdev")
            self.assertIs(memdev["share"], False)
            guest.quit()
            self.assertIn("hpz-qemu: ", guest.process.stdout.read().decode())

    def test_boots(self):
        """A whole guest, which writes to its memory."""
        command = ["-object", make_memfd("pc.ram", GUEST_MIB), "-machine", "memory-backend=pc.ram"]
        image = get_image()
        with Guest([self.wrapper, *get_command(GUEST_MIB, "hpz.fill=32 hpz.sleep", image)[1:], *command],
                   env=self.get_environment()) as guest:
            guest.wait_greeting()
            lease, = get_leases()
            guest.wait_line("HPZ-GUEST up=")
            guest.wait_line("HPZ-GUEST filled_mib=32")
            self.assertEqual(guest.quit(), 0)
        self.wait_ended(lease["id"])
        self.wait_clean()
        with Hold("--size", GUEST_MIB * MIB) as holder:
            self.assertTrue(holder.call("check-zero")["equal"], "the guest's data is still there")


if __name__ == "__main__":
    main("--2m", "144", "--stock", f"{GUEST_MIB}M*1 {CELL_MIB}M*4 2M*rest", "--config-line", "hpzd.socket_mode=0666",
         "--config-line", "access vms.users=nobody", "--config-line", "access vms.allow=lease")
