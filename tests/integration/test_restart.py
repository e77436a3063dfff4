#!/usr/bin/env python3
"""Death is harmless: hpzd is killed or stopped while memory is out, and comes back to books that are right."""
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, HoldError, get_leases, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402
from hpztest.guest import Guest, get_command  # noqa: E402

MIB = host.MIB
LARGE = 128 * MIB
LARGE_MIB = LARGE // MIB


class Restart(HpzTest):
    def restart_hard(self):
        self.service.kill()
        self.service.start()

    def check_next_tenant(self):
        with Hold("--size", LARGE, "--timeout", 30000) as holder:
            answer = holder.call("check-zero")
            self.assertTrue(answer["equal"], answer)
        self.wait_clean()

    def check_survives(self, *options):
        with Hold("--size", LARGE, "--label", "surviving", *options) as holder:
            before = self.get_lease(holder.id)
            holder.call("fill", 7)
            holder.send("loop-verify", 7)
            self.restart_hard()
            after = self.get_lease(holder.id)
            for key in ("id", "label", "state", "size", "uid", "pid", "segments"):
                self.assertEqual(after[key], before[key], key)
            self.assertEqual((after["label"], after["pid"]), ("surviving", holder.pid))
            time.sleep(0.5)
            self.assertEqual(self.get_lease(holder.id)["state"], "leased")
            holder.send("verify", 7)
            loop, last = holder.get_answer(), holder.get_answer()
            self.assertTrue(loop["equal"] and last["equal"], (loop, last))
        self.wait_ended(holder.id)
        self.wait_clean()
        self.check_next_tenant()

    def test_unbound_lease_survives(self):
        self.check_survives("--unbound")

    def test_bound_lease_survives(self):
        """Nobody alive saw the connection go: the lease goes on until its process ends."""
        self.check_survives()

    def test_holder_dies_while_hpzd_is_dead(self):
        for options in ([], ["--unbound"]):
            with Hold("--size", LARGE, "--label", "gone", *options) as holder:
                holder.call("fill", 3)
                self.service.kill()
            self.service.start()
            self.wait_ended(holder.id)
            self.wait_clean()
            self.check_next_tenant()

    def test_released_while_in_use_then_killed(self):
        """Returning, not clean: what is still held stays held across the death, too."""
        with Hold("--size", LARGE, "--unbound", "--label", "clinging") as holder:
            holder.call("fill", 5)
            hpzctl("release", holder.id)
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
            self.restart_hard()
            time.sleep(0.5)
            self.assertEqual(self.get_lease(holder.id)["state"], "returning")
            self.assertTrue(holder.call("verify", 5)["equal"])
        self.wait_ended(holder.id)
        self.wait_clean()
        self.check_next_tenant()

    def test_path_lease_survives(self):
        lease = hpzctl_json("lease", LARGE, "--path", "--label", "path", "--keep")
        with Hold("--open", lease["path"]) as holder:
            holder.call("fill", 9)
            self.restart_hard()
            after = self.get_lease(lease["id"])
            self.assertEqual((after["label"], after["state"]), ("path", "leased"))
            self.assertTrue(os.path.exists(lease["path"]))
            self.assertTrue(holder.call("verify", 9)["equal"])
        with Hold("--open", lease["path"]) as holder:
            self.assertTrue(holder.call("verify", 9)["equal"], "a kept path lease lost its content")
        hpzctl("release", lease["id"])
        self.wait_clean()
        self.check_next_tenant()

    def test_ids_are_never_reused(self):
        seen = set()
        for _ in range(4):
            for _ in range(3):
                with Hold("--size", 2 * MIB) as holder:
                    self.assertNotIn(holder.id, seen)
                    seen.add(holder.id)
            self.restart_hard()
        for lease_id in seen:
            self.assertEqual(hpzctl("release", lease_id, check=False).returncode, 0, "an ended id is success for the whole boot")

    def test_guest_survives(self):
        command = ["hpzctl", "run", "--", *get_command(LARGE_MIB, "hpz.fill=32 hpz.sleep")]
        with Guest(command) as guest:
            guest.wait_greeting()
            guest.wait_line("HPZ-GUEST filled")
            lease, = get_leases()
            self.assertEqual(lease["pid"], guest.process.pid)
            self.restart_hard()
            after, = get_leases()
            for key in ("id", "label", "state", "size", "pid"):
                self.assertEqual(after[key], lease[key], key)
            self.assertTrue(guest.call("query-status")["running"])
            guest.quit()
        self.wait_ended(lease["id"])
        self.wait_clean()
        self.check_next_tenant()

    def test_guest_boots_beside_a_dead_daemon(self):
        """Killed right after the exec: the guest has its descriptor and does not care."""
        command = ["hpzctl", "run", "--", *get_command(LARGE_MIB)]
        with Guest(command) as guest:
            guest.wait_greeting()
            self.service.kill()
            guest.wait_line("HPZ-GUEST up=")
            self.service.start()
            guest.kill()
        self.wait_clean()
        self.check_next_tenant()

    def test_sigterm_keeps_clean_memory(self):
        before, proof = self.get_files("clean"), get_status()["proof"]
        with Hold("--size", LARGE, "--label", "through", "--unbound") as holder:
            holder.call("fill", 1)
            self.service.restart()
            # What comes back before it is in force again is not kept.
            wait_until("the proof is in force", lambda: get_status()["proof"] == proof)
            self.assertEqual(self.get_lease(holder.id)["label"], "through")
            self.assertEqual(get_pool()["clean"], get_pool()["target"] - LARGE // (2 * MIB))
            self.assertTrue(holder.call("verify", 1)["equal"])
            self.assertLessEqual(self.get_files("clean"), before)
        self.wait_clean()
        self.assertEqual(self.get_files("clean"), before)
        self.assertEqual(get_status()["bytes_filled"], 0, "clean memory was not kept but filled anew")

    def get_files(self, state):
        return {file.stat().st_ino for file in (self.service.directory / "2M/hpz/1/node0" / state).iterdir()}

    def test_journal_cut(self):
        """The last record half written, as a death in the middle leaves it: everything before it counts."""
        with Hold("--size", LARGE, "--unbound", "--label", "cut") as holder:
            holder.call("fill", 2)
            self.service.kill()
            for file in (self.service.directory / "run").iterdir():
                if file.is_file() and file.stat().st_size > 64:
                    with open(file, "ab") as journal:
                        journal.write(b"\x30\0\0\0garbage")
            self.service.start()
            self.assertEqual(self.get_lease(holder.id)["label"], "cut")
            self.assertTrue(holder.call("verify", 2)["equal"])
        self.wait_clean()

    def test_killed_at_any_moment(self):
        """Holders come and go while hpzd is killed again and again; whoever holds memory keeps it, and the books balance."""
        for round_number in range(24 if os.environ.get("HPZ_LONG") else 6):
            holders = []
            for tenant in range(4):
                try:
                    holder = Hold("--size", random.choice([2, 4, 16]) * MIB, "--unbound", "--timeout", 20000)
                except HoldError as error:
                    self.fail(f"round {round_number}: {error}")
                self.addCleanup(holder.end)
                answer = holder.call("check-zero")
                self.assertTrue(answer["equal"], answer)
                holder.call("fill", tenant)
                holders.append(holder)
            random.shuffle(holders)
            holders.pop().end()
            time.sleep(random.random() * 0.03)
            self.service.kill()
            holders.pop().kill()
            self.service.start()
            for holder in holders:
                self.assertEqual(self.get_lease(holder.id)["state"], "leased")
                holder.end()
            wait_until("all leases end", lambda: not get_leases())
        self.wait_clean()
        self.check_next_tenant()


if __name__ == "__main__":
    main("--2m", "128", "--stock", "128M*1 16M*4 2M*rest")
