#!/usr/bin/env python3
"""What a former tenant may try to reach its memory again (attack/attack.c), against each source of the proof.

While it holds on, the memory is not lent again; its next lease, and anybody's, is other memory that it cannot read.
Once it lets go, the memory comes back and is zero. What a weaker source cannot see is a row of hpz-security(7): there the
attack must succeed, so that the page never promises less, or more, than is true.
"""
import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.manual import NOTHING, SEEN, SOURCES, UNSEEN, get_attacks  # noqa: E402
from hpztest.service import Service, get_build_directory  # noqa: E402

MIB = host.MIB
POOL_PAGES = 48
SIZE = 8 * MIB
TENANT, OTHER = 61001, 61002
WITHOUT_BPF = ("setpriv", "--bounding-set", "-bpf,-perfmon,-sys_admin")
WITHOUT_LEASES = str(Path(__file__).resolve().parents[1] / "lib/without-file-leases")
IS_LONG = bool(os.environ.get("HPZ_LONG"))
RACES = 25 if IS_LONG else 8
RACING = ("pin during the proof", "chmod spinner", "late mapper by path")


class Tenant:
    """An `attack` process without privileges."""

    def __init__(self, uid, inherited=()):
        self.process = subprocess.Popen([f"{get_build_directory()}/tests/attack"], text=True, bufsize=1, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, user=uid, group=uid, extra_groups=[], pass_fds=inherited)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()  # a grandchild ends by it, too
        self.process.stdout.read()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            host.end_process(self.process.pid, grace=1)
            self.process.wait()
        self.process.stdout.close()

    def call(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ok": False, "error": "it died"}


class Attacks(HpzTest):
    """One method an attack, made below; `source` is the proof's, `reuse` the pool's policy."""

    source, reuse, prefix = "bpf", "proven", ()
    # What hpzd remembers of a test does not concern the next: one for the whole class.
    is_one_for_all = True

    @classmethod
    def start_service(cls, add_cleanup):
        if cls.prefix or cls.reuse != "proven":
            service = Service()
            add_cleanup(service.config.write_text, service.config.read_text())
            service.stop()
            service.set_config("pool two", "reuse", cls.reuse)
            add_cleanup(service.stop)
            service.start(prefix=cls.prefix)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.is_one_for_all:
            cls.start_service(cls.addClassCleanup)

    def setUp(self):
        super().setUp()
        if not self.is_one_for_all:
            self.start_service(self.addCleanup)
            self.wait_idle()
        if get_status()["proof"] != self.source:
            self.try_source()
        self.assertEqual(get_status()["proof"], self.source)
        self.directory = Path(os.environ["HPZ_MOUNT_2M"], "attacker")
        self.directory.mkdir(exist_ok=True)
        os.chown(self.directory, TENANT, TENANT)
        self.addCleanup(self.remove_directory)

    def try_source(self):
        """That file leases do not work is known when the first memory comes back."""
        with Hold("--size", SIZE) as holder:
            pass
        self.wait_ended(holder.id)
        self.wait_idle()

    def remove_directory(self):
        for file in self.directory.iterdir():
            file.unlink()
        self.directory.rmdir()

    def lease(self, uid, *options):
        lease = hpzctl_json("lease", f"{SIZE // MIB}M", "--path", "--owner", f"{uid}:{uid}", "--wait", "60", *options)
        return lease["id"], lease["path"], os.stat(lease["path"]).st_ino

    def start(self, name, stack):
        """The tenant with its attack prepared, its lease, the inode of its memory; the lease has ended."""
        if name == "O_PATH of the file":
            # Our own name of the file is reached only by a descriptor that hpzd opened.
            with Hold("--size", SIZE, "--unbound", "--reopenable", "--timeout", 60000) as holder:
                number = next(entry for entry in os.listdir(f"/proc/{holder.pid}/fd")
                              if "/hpz/1/" in os.readlink(f"/proc/{holder.pid}/fd/{entry}"))
                descriptor = os.open(f"/proc/{holder.pid}/fd/{number}", os.O_RDWR)
                inode, lease = os.fstat(descriptor).st_ino, holder.id
                tenant = stack.enter_context(Tenant(TENANT, [descriptor]))
                os.close(descriptor)
                answer = tenant.call("take", name, descriptor)
        elif name == "inherited by a grandchild":
            tenant = stack.enter_context(Tenant(TENANT))
            lease, path, inode = self.lease(TENANT, "--owner-pid", tenant.process.pid)
            answer = tenant.call("prepare", name, path, self.directory)
            tenant.process.wait(30)
        else:
            tenant = stack.enter_context(Tenant(TENANT))
            lease, path, inode = self.lease(TENANT, "--keep")
            answer = tenant.call("prepare", name, path, self.directory)
            tenant.path = path
        if not answer["ok"] and "io_uring" in name and re.search("not permitted|not implemented", answer["error"]):
            self.skipTest(f"{name}: {answer['error']}")
        self.assertTrue(answer["ok"], answer)
        hpzctl("release", lease)
        return tenant, lease, inode

    def try_next_lease(self, tenant, uid, wanted=None, limit=POOL_PAGES * 2 * MIB // SIZE):
        """Another tenant's memory, that of an inode if it is to be had: what the attacker sees of the secret in it."""
        leases = [self.lease(uid, "--keep")]
        while wanted and leases[-1][2] != wanted and len(leases) < limit:
            leases.append(self.lease(uid, "--keep"))
        _, path, inode = leases[-1]
        with Tenant(uid) as other:
            self.assertTrue(other.call("fill", path)["ok"])
            answer = tenant.call("look")
        self.assertTrue(answer["ok"], answer)
        for lease, _, _ in leases:
            hpzctl("release", lease)
        for lease, _, _ in leases:
            self.wait_ended(lease)
        return answer, inode

    def check_clean(self):
        """Everything is back, as many pages as before, and zero to whoever reads it."""
        self.assertEqual(self.wait_clean()["clean"], POOL_PAGES)
        with contextlib.ExitStack() as stack:
            for _ in range(POOL_PAGES * 2 * MIB // SIZE):
                holder = stack.enter_context(Hold("--size", SIZE, "--timeout", 60000))
                self.assertTrue(holder.call("check-zero")["equal"])
        self.wait_clean()

    @staticmethod
    def is_reason(reason, reasons):
        return reason in reasons if reasons is not None else bool(reason)

    def check_race(self, name):
        """The end of the tenant's use falls anywhere into the proof: whatever it got to keep is seen."""
        for _ in range(RACES):
            with contextlib.ExitStack() as stack:
                tenant, lease, _ = self.start(name, stack)
                answer, _ = self.try_next_lease(tenant, TENANT)
                # Whether the shields were up by then is not known: what is its own it may still open, and no more.
                self.assertFalse(answer["secret"])
                wait_until("its name is gone", lambda tenant=tenant: not os.path.lexists(tenant.path))
                answer = tenant.call("look")
                self.assertEqual((answer["secret"], answer["opened"]), (False, False))
                self.assertTrue(tenant.call("let-go")["ok"])
                self.wait_ended(lease)
        self.check_clean()


def expect_held(self, name, reasons=None):
    """`reasons`: one of them hpzd gives."""
    with contextlib.ExitStack() as stack:
        tenant, lease, inode = self.start(name, stack)
        # hpzd looks again and again; what it sees first may be somebody who only passes by.
        wait_until(f"hpzd says that it is held by one of {reasons or 'some'}", lambda: self.is_reason(
            self.get_lease(lease)["reason"], reasons))
        for _ in range(2):
            answer, next_inode = self.try_next_lease(tenant, TENANT)
            self.assertEqual((answer["secret"], answer["opened"]), (False, False), name)
            self.assertNotEqual(next_inode, inode, "memory that is held was lent")
        self.assertEqual(self.get_lease(lease)["state"], "returning")
        self.assertTrue(tenant.call("let-go")["ok"])
        self.wait_ended(lease)
    self.check_clean()


def expect_nothing_left(self, name):
    """Nothing of the attack outlives the shields: the memory is lent again, perhaps the very same."""
    with contextlib.ExitStack() as stack:
        tenant, lease, inode = self.start(name, stack)
        self.wait_ended(lease)
        for _ in range(2):
            answer, _ = self.try_next_lease(tenant, TENANT)
            self.assertEqual((answer["secret"], answer["opened"]), (False, False))
        self.assertTrue(tenant.call("let-go")["ok"])
    self.check_clean()


def expect_gap(self, name):
    """The weak source lets it pass. The same uid is never given that memory; others are, and then a pin reads on."""
    with contextlib.ExitStack() as stack:
        tenant, lease, inode = self.start(name, stack)
        self.wait_ended(lease)
        self.wait_idle()
        if name == "O_PATH of the file":
            # Lent to root, who passed the descriptor on: hpzd knows nothing of this uid.
            answer, next_inode = self.try_next_lease(tenant, TENANT, inode)
            self.assertEqual((answer["secret"], answer["opened"], next_inode == inode), (True, True, True))
            self.assertTrue(tenant.call("let-go")["ok"])
            return
        answer, next_inode = self.try_next_lease(tenant, TENANT)
        self.assertEqual((answer["secret"], answer["opened"], next_inode == inode), (False, False, False))
        answer, next_inode = self.try_next_lease(tenant, OTHER, inode)
        self.assertEqual(next_inode, inode, "not lent: the manual page calls it a gap, and it is none")
        self.assertFalse(answer["opened"], "a name opens another uid's memory")
        self.assertEqual(answer["secret"], "pin" in name or "buffer" in name)
        # Another uid had it meanwhile; whoever kept a name of it could open it still.
        answer, next_inode = self.try_next_lease(tenant, TENANT, inode, 3)
        self.assertEqual((answer["secret"], answer["opened"], next_inode == inode), (False, False, False))
        self.assertTrue(tenant.call("let-go")["ok"])
    self.check_clean()


REASONS = {
    "a pinned page": ("vmsplice pin", "vmsplice pin of the last page", "pinned pages beyond the end", "io_uring registered buffer"),
    "a descriptor or mapping": ("io_uring registered file", "descriptor in flight", "mapped and closed", "inherited by a grandchild",
                                "file lease", "truncated down", "truncated up", "punched holes"),
    "a descriptor or mapping for reading": ("open for reading",),
    "another name": ("O_PATH of the removed link", "chmod and link", "open with mode 3", "bind mount", "swapped name",
                     "inotify watch"),
    "a held name (O_PATH, a mount, an unfinished open)": ("O_PATH of the file",),
}


class Full(Attacks):
    """The kernel's own counts: everything shows."""

    def test_table(self):
        """The manual page names every attack, and no other."""
        listed = subprocess.run([f"{get_build_directory()}/tests/attack", "--list"], capture_output=True, text=True, check=True)
        self.assertEqual(sorted(get_attacks()), sorted(listed.stdout.splitlines()))
        self.assertEqual({row["bpf"] for row in get_attacks().values()}, {SEEN, NOTHING})
        for name, row in get_attacks().items():
            self.assertEqual(set(row), set(SOURCES), name)
            self.assertLessEqual(set(row.values()), {SEEN, UNSEEN, NOTHING}, name)


class WithoutBpf(Attacks):
    """BPF taken away: the kernel takes back what cannot be proven free."""

    source = "f_setlease"
    prefix = WITHOUT_BPF


class Weak(WithoutBpf):
    """The same with reuse = weak: other uids get memory that only F_SETLEASE says is free. What it sees, it sees whatever
    the policy: those attacks only with HPZ_LONG=1."""

    reuse = "weak"
    is_one_for_all = False  # memory keeps the uids that had it


class Unproven(Attacks):
    """Neither BPF nor file leases: nothing is known, and nothing is lent twice, though the policy would take the weak proof."""

    source, reuse = "none", "weak"
    prefix = (WITHOUT_LEASES, *WITHOUT_BPF)


def expect_given_away(self, name):
    """The lease does not wait for the holder, and nobody is ever lent what it holds."""
    with contextlib.ExitStack() as stack:
        tenant, lease, inode = self.start(name, stack)
        self.wait_ended(lease)
        for uid in (TENANT, OTHER, TENANT):
            answer, next_inode = self.try_next_lease(tenant, uid)
            self.assertEqual((answer["secret"], answer["opened"]), (False, False), name)
            self.assertNotEqual(next_inode, inode, "memory of which nothing is known was lent")
        self.assertTrue(tenant.call("let-go")["ok"])
    self.check_clean()


def add_tests():
    def add(cls, name, function):
        setattr(cls, "test_" + re.sub(r"\W+", "_", name), function)
    for name, row in get_attacks().items():
        def full(self, name=name, verdict=row["bpf"]):
            if name in RACING:
                self.check_race(name)
            elif verdict == SEEN:
                expect_held(self, name, [reason for reason, names in REASONS.items() if name in names])
            else:
                expect_nothing_left(self, name)

        def without(self, name=name, verdict=row["f_setlease"]):
            if name in RACING:
                self.check_race(name)
            elif verdict == SEEN:
                expect_held(self, name)
            else:
                expect_nothing_left(self, name)

        def weak(self, name=name, verdict=row["f_setlease"], without=without):
            if verdict == UNSEEN and name not in RACING:
                expect_gap(self, name)
            else:
                without(self)

        def unproven(self, name=name, verdict=row["none"]):
            if name in RACING:
                self.check_race(name)
            elif verdict == SEEN:
                expect_held(self, name)
            elif verdict == UNSEEN:
                expect_given_away(self, name)
            else:
                expect_nothing_left(self, name)
        add(Full, name, full)
        add(WithoutBpf, name, without)
        add(Weak, name, weak if row["f_setlease"] != SEEN or IS_LONG else None)  # else it would have WithoutBpf's
        add(Unproven, name, unproven)


if __name__ == "__main__":
    add_tests()
    main("--2m", str(POOL_PAGES), "--stock", "8M*rest")
