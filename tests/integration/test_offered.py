#!/usr/bin/env python3
"""hpzd dies between taking memory for a lease and hearing that it arrived: what nobody has stays nobody's for ever."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host, wire  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import get_leases, hpzctl, wait_until  # noqa: E402
from hpztest.fault import Fault  # noqa: E402
from hpztest.wire import Stranger  # noqa: E402

MIB = host.MIB
REOPENABLE, UNBOUND, KEEP = 1, 2, 4
FD, PATH = 0, 1
KINDS = {"fd": (FD, 0), "unbound fd": (FD, UNBOUND), "reopenable fd": (FD, REOPENABLE), "path": (PATH, 0), "kept path": (PATH, KEEP)}
# What hpzd dies over, and the kinds of lease that come there.
DEATHS = {
    "rename clean>leased hpzd 1 kill-after": KINDS,
    "chown leased hpzd 1 kill-after": ("reopenable fd", "path"),
    "link out hpzd 1 kill-before": ("path", "kept path"),
    "link out hpzd 1 kill-after": ("path", "kept path"),
    "sendmsg reply hpzd 1 kill-before": KINDS,
    "sendmsg reply hpzd 1 kill-after": KINDS,
}
ENDS_S = 90  # two looks a grace time apart, and a busy machine


class Offered(HpzTest):
    def setUp(self):
        super().setUp()
        self.fault = Fault(self.service.directory)
        self.addCleanup(self.fault.close)
        self.addCleanup(self.back_to_normal)

    def back_to_normal(self):
        """The last hpzd of this test knew the shim; the next one does not."""
        self.fault.clear()
        if self.service.get_pid():
            self.service.stop()

    def restart(self):
        self.fault.clear()
        self.service.kill()
        self.service.start(self.fault.environment)
        self.wait_idle_but_returning()

    def wait_idle_but_returning(self):
        """A lease needs something clean; what is returning meanwhile is not waited for."""
        hpzctl("wait", "--clean", "2M")

    def ask_and_kill(self, rule, kind):
        """The connection is over in the end, or None: the answer is still in it, unread."""
        deliver, flags = KINDS[kind]
        stranger = Stranger()
        self.addCleanup(stranger.close)
        self.fault.set(rule)
        stranger.send(wire.make_lease(2 * MIB, deliver=deliver, flags=flags, label=kind.encode()))
        wait_until("hpzd is dead", lambda: self.service.get_pid() is None)
        return stranger

    def test_nobody_has_it(self):
        """The asker, who would own it, lives on and never saw the answer."""
        self.restart()
        made = 0
        for rule, kinds in DEATHS.items():
            for kind in kinds:
                with self.subTest(rule=rule, kind=kind):
                    before = {lease["id"] for lease in get_leases()}
                    self.ask_and_kill(rule, kind).close()
                    self.restart()
                    new = [lease for lease in get_leases() if lease["id"] not in before]
                    self.assertEqual([(lease["label"], lease["state"]) for lease in new], [(kind, "offered")])
                    made += 1
        self.assertEqual(made, sum(map(len, DEATHS.values())))
        # Ten seconds until then: none is to end before it is looked at here.
        self.set_config("hpzd", "grace", "1s")
        self.restart()
        wait_until("all of them end", lambda: not get_leases(), ENDS_S)
        self.assertEqual(list((self.service.directory / "2M/hpz-out").iterdir()), [])
        self.wait_clean()

    def test_it_is_on_its_way(self):
        """The answer lies in the asker's socket: that is having it, and it is not taken away."""
        self.restart()
        stranger = self.ask_and_kill("sendmsg reply hpzd 1 kill-after", "unbound fd")
        self.restart()
        wait_until("it is known", lambda: [lease["state"] for lease in get_leases()] == ["leased"], ENDS_S)
        stranger.close()
        lease, = get_leases()
        hpzctl("release", lease["id"])
        self.wait_ended(lease["id"])
        self.wait_clean()


if __name__ == "__main__":
    main("--2m", "64", "--stock", "2M*rest")
