#!/usr/bin/env python3
"""Who may do what, and how much of it: sections of access, as other users of the machine meet them."""
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host, wire  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_pool, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.wire import Stranger  # noqa: E402

MIB = host.MIB
DENIED, BUSY, QUOTA = 7, 14, 22
ALICE, BOB, EVE = 61001, 61002, 61003  # no names needed
STAFF = 61050


def as_user(uid, *arguments, groups=(), **run):
    """hpzctl as that user, whose primary group has the same number; the CompletedProcess."""
    return hpzctl(*arguments, check=False, user=uid, group=uid, extra_groups=list(groups), **run)


@contextlib.contextmanager
def effective_user(uid):
    """Connections made in the block are that user's; so is nothing else we do, because the block ends soon."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


class AccessTest(HpzTest):
    def configure(self, text, is_reload=False):
        """These sections beside the ones of the run, on a socket for everybody."""
        if not is_reload:
            self.service.stop()
            self.set_config("hpzd", "socket_mode", "0666")
            self.plain = self.service.config.read_text()
        self.service.config.write_text(self.plain + "\n" + text)
        if is_reload:
            mark = len(self.service.get_log())
            self.service.reload()
            wait_until("the reload", lambda: "reload" in self.service.get_log()[mark:])
        else:
            self.service.start()
            self.wait_idle()

    def refuse(self, done, status, *words):
        self.assertEqual(done.returncode, status, done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)

    def accept(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout) if done.stdout.startswith("{") else done.stdout

    def lease(self, uid, size="2M", *more, groups=()):
        return self.accept(as_user(uid, "lease", size, "--path", "--json", *more, groups=groups))


class Rights(AccessTest):
    def test_without_sections(self):
        """As ever: who can connect may read status."""
        self.configure("")
        self.accept(as_user(ALICE, "status"))
        self.accept(as_user(ALICE, "leases"))
        self.accept(as_user(ALICE, "wait"))
        self.refuse(as_user(ALICE, "lease", "2M", "--path"), 1, f"uid {ALICE} may not lease", "no access section names it")
        self.refuse(as_user(ALICE, "drain"), 1, f"uid {ALICE} may not drain")
        self.assertEqual(get_leases(), [])

    def test_socket_mode(self):
        """The default lets nobody but root and the group in, whatever the sections say."""
        self.configure(f"[access a]\nusers = {ALICE}\nallow = status lease\n")
        self.accept(as_user(ALICE, "status"))
        self.service.stop()
        self.set_config("hpzd", "socket_mode", "0660")
        self.service.start()
        self.refuse(as_user(ALICE, "status"), 1)
        hpzctl("status")

    def test_allow(self):
        self.configure(f"[access lessee]\nusers = {ALICE} {BOB}\nallow = lease\n"
                       f"[access rest]\nusers = *\nallow = none\n")
        lease = self.lease(ALICE)
        self.assertEqual(self.get_lease(lease["id"])["uid"], ALICE)
        self.assertEqual(os.stat(lease["path"]).st_uid, ALICE)
        self.refuse(as_user(ALICE, "status"), 1, f"uid {ALICE} may not read status: [access lessee] allows it lease")
        self.refuse(as_user(ALICE, "drain"), 1, f"uid {ALICE} may not drain")
        self.refuse(as_user(EVE, "status"), 1, "[access rest] allows it nothing")
        self.refuse(as_user(EVE, "lease", "2M", "--path"), 1, "[access rest] allows it nothing")
        self.refuse(as_user(EVE, "release", lease["id"]), 1, "[access rest]")
        self.refuse(as_user(BOB, "release", lease["id"]), 1, f"which belongs to uid {ALICE}")
        self.assertIsNotNone(self.get_lease(lease["id"]))
        self.accept(as_user(ALICE, "release", lease["id"]))
        self.wait_ended(lease["id"])

    def test_groups(self):
        """Primary and supplementary groups; a user's own section counts first."""
        self.configure(f"[access staff]\ngroups = {STAFF} {BOB}\nallow = status lease\n"
                       f"[access eve]\nusers = {EVE}\nallow = status\n")
        self.refuse(as_user(ALICE, "lease", "2M", "--path"), 1, "no access section")
        self.lease(ALICE, groups=[4, STAFF])
        self.lease(BOB)
        self.refuse(as_user(EVE, "lease", "2M", "--path", groups=[STAFF]), 1, "[access eve] allows it status")

    def test_admin(self):
        self.configure(f"[access ops]\nusers = {ALICE}\nallow = status admin\n"
                       f"[access lessee]\nusers = {BOB}\nallow = status lease\n")
        lease = self.lease(BOB)
        self.refuse(as_user(ALICE, "lease", "2M", "--path"), 1, "[access ops] allows it status admin")
        self.accept(as_user(ALICE, "release", lease["id"]))
        self.wait_ended(lease["id"])
        self.refuse(as_user(BOB, "drain"), 1, f"uid {BOB} may not drain")
        self.assertGreater(get_pool()["clean"], 0)
        self.accept(as_user(ALICE, "drain"))
        self.assertEqual(get_pool()["total"], 0)
        self.service.reload()

    def test_names(self):
        """Names are looked up; one that does not exist is a mistake and no start."""
        self.configure("[access n]\nusers = nobody\ngroups = nogroup\nallow = status lease\n")
        self.accept(as_user(65534, "lease", "2M", "--path"))
        mark = len(self.service.get_log())
        self.service.config.write_text(self.plain + "\n[access n]\nusers = no-such-user\nallow = status\n")
        self.service.reload()
        wait_until("the reload is refused", lambda: "there is no user `no-such-user`" in self.service.get_log()[mark:])
        self.assertRegex(self.service.get_log()[mark:], r"hpzd\.conf:\d+: users = no-such-user, there is no user")
        self.accept(as_user(65534, "lease", "2M", "--path"))  # the old configuration stays


class Owners(AccessTest):
    """Memory for somebody else, or for somebody else's process, is an admin's."""

    def setUp(self):
        super().setUp()
        self.configure(f"[access lessee]\nusers = {ALICE}\nallow = lease\n"
                       f"[access ops]\nusers = {BOB}\nallow = lease admin\n")

    def test_owner_of_the_file(self):
        self.refuse(as_user(ALICE, "lease", "2M", "--path", "--owner", f"{EVE}:{EVE}"), 1, "another user or group")
        self.refuse(as_user(ALICE, "lease", "2M", "--path", "--owner", f"{ALICE}:{STAFF}"), 1, "another user or group")
        self.refuse(as_user(ALICE, "lease", "2M", "--path", "--owner", "0:0"), 1, "another user or group")
        self.assertEqual(get_leases(), [])
        mine = self.lease(ALICE, "2M", "--owner", f"{ALICE}:{STAFF}", groups=[STAFF])
        self.assertEqual(os.stat(mine["path"]).st_gid, STAFF)
        lease = self.lease(BOB, "2M", "--owner", f"{EVE}:{EVE}")
        self.assertEqual((os.stat(lease["path"]).st_uid, self.get_lease(lease["id"])["uid"]), (EVE, BOB))

    def test_owner_process(self):
        with self.sleeper(ALICE) as own, self.sleeper(EVE) as other, self.sleeper(0) as root:
            self.refuse(as_user(ALICE, "lease", "2M", "--path", "--owner-pid", other.pid), 1, f"process {other.pid} belongs to another")
            self.refuse(as_user(ALICE, "lease", "2M", "--path", "--owner-pid", root.pid), 1, f"process {root.pid} belongs to another")
            self.refuse(as_user(ALICE, "lease", "2M", "--path", "--owner-pid", 4194303), 1, "there is no process")
            self.assertEqual(self.get_lease(self.lease(ALICE, "2M", "--owner-pid", own.pid)["id"])["pid"], own.pid)
            self.assertEqual(self.get_lease(self.lease(BOB, "2M", "--owner-pid", other.pid)["id"])["pid"], other.pid)

    @contextlib.contextmanager
    def sleeper(self, uid):
        process = subprocess.Popen(["sleep", "600"], user=uid, group=uid, extra_groups=[])
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def test_adopt(self):
        """By its owner and by an admin, and by nobody else; with a process of the same user only."""
        lease = self.lease(ALICE)["id"]
        for uid, expected in ((EVE, DENIED), (ALICE, 0), (BOB, 0)):
            with effective_user(uid):
                stranger = Stranger()
            with stranger:
                stranger.send(wire.make_message(wire.ADOPT, struct.pack("<IIQiI", 24, 0, lease, 0, 0), request_id=7))
                self.assertEqual(stranger.receive()[0]["error"], expected, uid)
        with self.sleeper(EVE) as other, effective_user(ALICE):
            stranger = Stranger()
            stranger.send(wire.make_message(wire.ADOPT, struct.pack("<IIQiI", 24, 0, lease, other.pid, 0), request_id=7))
            self.assertEqual(stranger.receive()[0]["error"], DENIED)
            stranger.close()


class Quotas(AccessTest):
    TEXT = f"[access few]\nusers = {ALICE} {BOB}\nallow = status lease\nquota_bytes = 8M\nquota_leases = 3\n"

    def setUp(self):
        super().setUp()
        self.configure(self.TEXT)

    def test_bytes(self):
        self.refuse(as_user(ALICE, "lease", "10M", "--path"), 75, f"uid {ALICE} asks for 10 MiB and has 0", "quota_bytes of [access few] is 8 MiB")
        first = self.lease(ALICE, "6M")
        self.refuse(as_user(ALICE, "lease", "4M", "--path"), 75, "asks for 4 MiB and has 6 MiB")
        self.refuse(as_user(ALICE, "lease", "4M", "--path", "--wait", "30"), 75, "quota_bytes")  # refused, not waited for
        self.lease(ALICE, "1M")  # a whole page counts
        self.refuse(as_user(ALICE, "lease", "1", "--path"), 75, "has 8 MiB")
        self.lease(BOB, "8M")  # each has its own
        hpzctl("lease", "16M", "--path")  # and root none
        self.accept(as_user(ALICE, "release", first["id"], "--wait"))
        self.lease(ALICE, "6M")

    def test_leases(self):
        ids = [self.lease(ALICE)["id"] for _ in range(3)]
        self.refuse(as_user(ALICE, "lease", "2M", "--path"), 75, f"uid {ALICE} has 3 leases, and quota_leases of [access few] is 3")
        self.accept(as_user(ALICE, "release", ids[0], "--wait"))
        self.lease(ALICE)

    def test_key(self):
        """The same request again is no further lease."""
        first = self.lease(ALICE, "8M", "--key", "vm")
        self.assertEqual(self.lease(ALICE, "8M", "--key", "vm")["id"], first["id"])

    def test_returning(self):
        """What is released but still mapped counts until it is free."""
        with Hold("--size", 8 * MIB, user=ALICE) as holder:
            hpzctl("release", holder.id)
            wait_until("it is returning", lambda: self.get_lease(holder.id)["state"] == "returning")
            self.refuse(as_user(ALICE, "lease", "2M", "--path"), 75, "has 8 MiB")
            self.lease(BOB)
        self.wait_ended(holder.id)
        self.lease(ALICE)

    def test_orphans(self):
        """What a pin keeps from the kernel when the lease has ended counts until it is let go."""
        self.service.stop()
        self.set_config("pool two", "reuse", "never")
        self.service.start()
        self.wait_idle()
        with Hold("--size", 8 * MIB, user=ALICE) as holder:
            holder.call("pin", 0)
            holder.call("close")
            hpzctl("release", holder.id)
            self.wait_ended(holder.id)
            self.assertEqual(get_pool()["orphan_pages"], 4)
            self.refuse(as_user(ALICE, "lease", "2M", "--path"), 75, "has 8 MiB")
            self.lease(BOB)
        wait_until("the kernel has them back", lambda: get_pool()["orphan_pages"] == 0)
        self.wait_idle()
        self.lease(ALICE)

    def test_restart(self):
        """Leases of an earlier hpzd count."""
        for is_killed in (False, True):
            with self.subTest(is_killed=is_killed):
                lease = self.lease(ALICE, "8M")["id"]
                (self.service.kill if is_killed else self.service.stop)()
                self.service.start()
                self.refuse(as_user(ALICE, "lease", "2M", "--path"), 75, "has 8 MiB")
                self.accept(as_user(ALICE, "release", lease, "--wait"))

    def test_reload(self):
        self.lease(ALICE, "8M")
        self.configure(self.TEXT.replace("8M", "12M"), is_reload=True)
        self.lease(ALICE, "4M")
        self.configure(self.TEXT.replace("8M", "4M"), is_reload=True)
        self.refuse(as_user(ALICE, "lease", "2M", "--path"), 75, "has 12 MiB", "quota_bytes of [access few] is 4 MiB")
        self.assertEqual(len(get_leases()), 2)  # nothing is taken away
        self.configure("", is_reload=True)
        self.refuse(as_user(ALICE, "lease", "2M", "--path"), 1, "no access section")

    def test_together(self):
        """Many at once, over many connections: never more than the quota, and all of it can be had."""
        code = ("import subprocess, sys\n"
                "for i in range(12):\n"
                "    subprocess.run([sys.argv[1], 'lease', '2M', '--path', '--wait', '0.05'], capture_output=True)\n")
        for uid in (ALICE, BOB):
            processes = [subprocess.Popen(["/usr/bin/python3", "-c", code, f"{os.environ['HPZ_BUILD']}/client/hpzctl"], user=uid, group=uid,
                                          extra_groups=[]) for _ in range(6)]
            most = 0
            while any(process.poll() is None for process in processes):
                of_uid = [lease for lease in get_leases() if lease["uid"] == uid]
                most = max(most, len(of_uid))
                self.assertLessEqual(sum(lease["size"] for lease in of_uid), 8 * MIB)
            self.assertEqual(most, 3)

    def test_waiting(self):
        """Requests that wait together for memory that is short are judged again when it comes."""
        everything = hpzctl_json("lease", str(get_pool()["clean"] * 2 * MIB), "--path", "--segments")["id"]
        strangers = []
        for i in range(6):
            with effective_user(BOB):
                strangers.append(Stranger())
            strangers[-1].send(wire.make_lease(2 * MIB, timeout_ms=60000))
        wait_until("they wait", lambda: get_pool()["waiting"] == 6)
        hpzctl("release", everything)
        errors = sorted(stranger.receive()[0]["error"] for stranger in strangers)
        self.assertEqual(errors, [0, 0, 0, QUOTA, QUOTA, QUOTA])
        for stranger in strangers:
            stranger.close()


class Limits(AccessTest):
    def setUp(self):
        super().setUp()
        self.configure(f"[access few]\nusers = {EVE}\nallow = status lease\nmax_connections = 5\nmax_requests = 3\n"
                       f"[access others]\nusers = *\nallow = status lease\n")

    def connect(self, uid):
        with effective_user(uid):
            return Stranger(hello=False)

    def is_turned_away(self, stranger):
        """A connection beyond the limit gets an error for its hello, then its end."""
        with contextlib.suppress(OSError):
            stranger.send(wire.make_hello())
        head, payload = stranger.receive()
        if head and head["error"]:
            self.assertEqual(head["error"], BUSY)
            self.assertIn(f"uid {EVE} has reached max_connections of [access few], 5".encode(), payload)
        return head is None or head["error"] != 0

    def test_connections(self):
        with contextlib.ExitStack() as stack:
            for _ in range(5):
                self.assertFalse(self.is_turned_away(stack.enter_context(self.connect(EVE))))
            for _ in range(3):
                self.assertTrue(self.is_turned_away(stack.enter_context(self.connect(EVE))))
            self.refuse(as_user(EVE, "status"), 75, "a limit is reached")
            self.accept(as_user(ALICE, "status"))
            hpzctl("status")
        wait_until("its connections are gone", lambda: as_user(EVE, "status").returncode == 0)

    def test_requests(self):
        with contextlib.ExitStack() as stack:
            strangers = []
            for _ in range(5):
                with effective_user(EVE):
                    strangers.append(stack.enter_context(Stranger()))
            # Three wait, for whatever; the others are told so.
            lease = hpzctl_json("lease", "2M", "--path")["id"]
            for stranger in strangers[:3]:
                stranger.send(wire.make_message(wire.WAIT, struct.pack("<IIQq64s", 88, 0, 128 * MIB, 60000, b""), request_id=5))
            for stranger in strangers[3:]:
                stranger.send(wire.make_message(wire.WAIT, struct.pack("<IIQq64s", 88, 0, 128 * MIB, 60000, b""), request_id=5))
            for stranger in strangers[3:]:
                head, payload = stranger.receive()
                self.assertEqual(head["error"], BUSY)
                self.assertIn(f"uid {EVE} has reached max_requests of [access few], 3".encode(), payload)
            hpzctl("release", lease)

    ATTACK = """
import mmap, os, socket, struct, sys
page, tries, kept = mmap.mmap(int(sys.argv[4]), 4096), 0, []
while True:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(1)
    tries += 1
    struct.pack_into("<Q", page, 8 * int(sys.argv[5]), tries)
    try:
        s.connect(sys.argv[1]); s.send(bytes.fromhex(sys.argv[2])); s.recv(4096)
        s.send(bytes.fromhex(sys.argv[3]))
        kept = (kept + [s])[-20:]
    except OSError:
        pass
"""

    @contextlib.contextmanager
    def attack(self):
        """Three processes of one user that try all they can, at once and over and over; how often so far."""
        page = os.memfd_create("tries")
        os.ftruncate(page, 4096)
        attackers = [subprocess.Popen(["/usr/bin/python3", "-c", self.ATTACK, os.environ["HPZ_SOCKET"], wire.make_hello().hex(),
                                       wire.make_lease(2 * MIB, timeout_ms=100000).hex(), str(page), str(i)], user=EVE, group=EVE,
                                      extra_groups=[], preexec_fn=lambda: os.nice(10), pass_fds=[page]) for i in range(3)]

        def count():
            return sum(struct.unpack("<3Q", os.pread(page, 24, 0)))
        try:
            wait_until("they have begun", lambda: count() > 30)
            yield count
        finally:
            for attacker in attackers:
                attacker.kill()
                attacker.wait()
            os.close(page)

    def test_hostile(self):
        """The others are served meanwhile: each of their requests, while it never holds more than its share."""
        with Hold("--size", 0) as holder, self.attack() as count:
            begin = count()
            for _ in range(10):
                self.assertEqual(holder.call("time-leases", 2 * MIB, 15)["rounds"], 15)
                self.accept(as_user(ALICE, "release", self.lease(ALICE)["id"]))
                connections = hpzctl_json("status")["connections"]
                self.assertLessEqual(connections, 5 + 2)  # its five, holder's, and the one that asks
            self.assertGreater(count(), begin)

    def test_hostile_without_limits(self):
        """The control: what test_hostile looks at does show when nothing limits it."""
        self.configure(f"[access few]\nusers = {EVE}\nallow = status lease\nmax_connections = 50\n", is_reload=True)
        with self.attack():
            wait_until("it has more than its share", lambda: hpzctl_json("status")["connections"] > 5 + 2)


main("--2m", "64", "--stock", "16M*1 8M*4 4M*4 2M*rest")
