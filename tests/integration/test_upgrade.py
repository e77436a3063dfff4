#!/usr/bin/env python3
"""Another version of hpzd takes over: older records are read, newer formats refused untouched, restarts harm nobody."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host, journal  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_leases, get_pool, hpzctl, wait_until  # noqa: E402

MIB = host.MIB
SIZE = 8 * MIB
GRACE_S = 1


class UpgradeTest(HpzTest):
    def setUp(self):
        super().setUp()
        self.run_dir = self.service.directory / "run"
        self.journal = self.run_dir / "journal"
        self.mount = self.service.directory / "2M"

    def hold(self, *options, tenant=1):
        """A holder that verifies its pattern all the time."""
        holder = Hold("--size", SIZE, *options)
        self.addCleanup(holder.end)
        self.assertTrue(holder.call("check-zero")["equal"])
        holder.call("fill", tenant)
        holder.send("loop-verify", tenant, 5)
        holder.tenant = tenant
        return holder

    def check(self, holder):
        holder.send("verify", holder.tenant)
        loop, last = holder.get_answer(), holder.get_answer()
        self.assertTrue(loop["equal"] and last["equal"], (loop, last))
        holder.send("loop-verify", holder.tenant, 5)

    def get_error(self):
        """hpzd does not start: what it says first, its exit status."""
        done = subprocess.run([str(self.service.program), "--config", str(self.service.config)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)
        return done.stderr.split("\n")[0], done.returncode

    def get_tree(self, directory):
        """Everything below and its times of change: equal only if nobody touched any of it."""
        tree = {}
        for path in [directory, *sorted(directory.rglob("*"))]:
            status = path.lstat()
            tree[str(path)] = (status.st_ino, status.st_mode, status.st_uid, status.st_size, status.st_blocks, status.st_nlink,
                               status.st_mtime_ns, status.st_ctime_ns)
        return tree


class Formats(UpgradeTest):
    def test_older_records(self):
        """An hpzd that knew neither tokens nor commands, nor whether a path was opened."""
        holder = self.hold("--unbound", "--label", "old")
        before = self.get_lease(holder.id)
        self.service.kill()
        records = journal.read(self.journal)
        shortened = 0
        for record in records:
            for kind, size in ((journal.LEASE, 336), (journal.STATE, 16), (journal.OWNER, 32)):
                if record.kind == kind:
                    record.shorten(size)
                    shortened += 1
        self.assertGreaterEqual(shortened, 2)
        journal.write(self.journal, records)
        self.service.start()
        after = self.get_lease(holder.id)
        for key in ("id", "label", "state", "size", "uid", "pid", "segments"):
            self.assertEqual(after[key], before[key], key)
        self.check(holder)
        holder.end()
        self.wait_ended(holder.id)

    def test_rewritten_records_are_read(self):
        """The other tests prove nothing if what they write is not what hpzd reads."""
        holder = self.hold("--unbound", "--label", "copied")
        self.service.kill()
        before = self.journal.read_bytes()
        journal.write(self.journal, journal.read(self.journal))
        self.assertEqual(self.journal.read_bytes(), before)
        self.service.start()
        self.assertEqual(self.get_lease(holder.id)["label"], "copied")
        self.check(holder)

    def test_newer_mount(self):
        """hpz/2 is there: refused with that text, and not even a time of change is another afterwards."""
        holder = self.hold("--unbound", "--label", "waits")
        self.service.kill()
        newer = self.mount / "hpz/2"
        (newer / "node0/clean").mkdir(parents=True)
        os.chmod(self.mount / "hpz", 0o750)  # whatever a newer one wants it to be
        self.addCleanup(shutil.rmtree, newer, ignore_errors=True)
        tree, record = self.get_tree(self.mount), self.journal.read_bytes()
        line = 1 + self.service.config.read_text().split("\n").index(f"mount = {self.mount}")
        self.assertEqual(self.get_error(), (
            f"hpzd: {self.service.config}:{line}: pool two: mount {self.mount} holds the files of a newer hpzd, which this one does "
            "not understand (Protocol error)", 1))
        self.assertEqual(self.get_tree(self.mount), tree)
        self.assertEqual(self.journal.read_bytes(), record)
        self.check(holder)
        shutil.rmtree(newer)
        self.service.start()
        self.assertEqual(self.get_lease(holder.id)["label"], "waits")
        self.check(holder)

    def test_newer_journal(self):
        """Not even what would be mended at any other start: a clean file that is not as it was left."""
        holder = self.hold("--unbound", "--label", "waits")
        self.service.kill()
        os.chmod(next((self.mount / "hpz/1/node0/clean").iterdir()), 0o600)
        records = journal.read(self.journal)
        old = self.journal.read_bytes()
        newer = {
            "version": journal.Record(journal.END, records[0].payload[:16], records[0].boot, version=2),
            "type": journal.Record(99, records[0].payload[:16], records[0].boot),
            "longer struct": journal.Record(journal.END, b"\x20\0\0\0" + bytes(27) + b"\1", records[0].boot),
        }
        for what, record in newer.items():
            with self.subTest(what):
                journal.write(self.journal, [*records, record])
                written, tree, run = self.journal.read_bytes(), self.get_tree(self.mount), set(os.listdir(self.run_dir))
                self.assertEqual(self.get_error(), (
                    f"hpzd: {self.journal} is of a newer hpzd: this one touches nothing of it", 1))
                self.assertEqual(self.journal.read_bytes(), written)
                self.assertEqual(self.get_tree(self.mount), tree)
                self.assertEqual(set(os.listdir(self.run_dir)), run)
                self.check(holder)
        self.journal.write_bytes(old)
        self.service.start()
        self.assertEqual(self.get_lease(holder.id)["label"], "waits")
        self.check(holder)


class LiveUpdate(UpgradeTest):
    def test_ten_times_in_a_row(self):
        holders = [self.hold("--label", f"tenant {tenant}", *options, tenant=tenant) for tenant, options in enumerate((
            (), ("--unbound",), ("--reopenable",), ("--path",)))]
        before = {lease["id"]: lease for lease in get_leases()}
        self.assertEqual(set(before), {holder.id for holder in holders})
        clean = get_pool()["clean"]
        for _ in range(10):
            self.service.restart()
            after = {lease["id"]: lease for lease in get_leases()}
            self.assertEqual(set(after), set(before))
            for lease_id, lease in after.items():
                for key in ("label", "state", "size", "uid", "pid", "segments", "deliver"):
                    self.assertEqual(lease[key], before[lease_id][key], key)
            self.wait_idle()
            self.assertEqual(get_pool()["clean"], clean)
        for holder in holders:
            self.check(holder)
            holder.end()
        hpzctl("release", holders[-1].id)
        wait_until("all leases end", lambda: not get_leases())
        self.wait_clean()


class LostJournal(UpgradeTest):
    def test_run_directory_deleted(self):
        """Nobody knows whose they are: they end when nobody held them at two looks, and not before."""
        holders = [self.hold("--unbound", "--label", "fd"), self.hold("--path", "--label", "path", tenant=2)]
        path = holders[1].got["segments"][0]["path"]
        self.set_config("hpzd", "grace", f"{GRACE_S}s")
        self.service.kill()
        shutil.rmtree(self.run_dir)
        self.service.start()
        for holder in holders:
            lease = self.get_lease(holder.id)
            self.assertEqual((lease["label"], lease["state"], lease["size"]), ("?", "leased", SIZE), lease)
        time.sleep(3 * GRACE_S)  # looks at which it is held
        for holder in holders:
            self.assertEqual(self.get_lease(holder.id)["state"], "leased")
            self.check(holder)
        self.assertTrue(os.path.exists(path))
        for holder in holders:
            begin = time.monotonic()
            holder.end()
            self.wait_ended(holder.id)
            self.assertGreaterEqual(time.monotonic() - begin, GRACE_S, "it ended at the first look")
        self.assertFalse(os.path.exists(os.path.dirname(path)), "its hand-over directory stays")
        self.wait_clean()
        for _ in holders:
            self.hold()  # zero for the next tenants

    def test_unrecorded_directories(self):
        """Died between making a hand-over directory and recording it; what is not ours stays."""
        self.service.kill()
        made = [self.mount / "hpz-out" / name for name in ("0123456789abcdef" * 2, "strange")]
        for directory in made:
            directory.mkdir()
        self.addCleanup(made[1].rmdir)
        self.service.start()
        self.assertEqual([directory.exists() for directory in made], [False, True])


class TornJournal(UpgradeTest):
    def test_every_tail(self):
        """Cut anywhere in the last lease's record: the lease before it is known, that one's memory is safe all the same."""
        first = self.hold("--unbound", "--label", "first")
        begin = self.journal.stat().st_size
        second = self.hold("--unbound", "--label", "second", tenant=2)
        self.service.kill()
        whole = self.journal.read_bytes()
        for cut in sorted({begin, begin + 1, begin + 8, begin + 55, begin + 56, begin + 200, len(whole) - 1, len(whole)}):
            with self.subTest(cut=cut):
                self.journal.write_bytes(whole[:cut])
                log = len(self.service.get_log())
                self.service.start()
                self.assertEqual(self.get_lease(first.id)["label"], "first")
                self.assertIn(self.get_lease(second.id)["label"], ("second", "?"))
                said = "of an unfinished record were dropped" in self.service.get_log(log)
                self.assertEqual(said, cut not in (begin, len(whole)))
                self.service.kill()
        self.journal.write_bytes(whole)
        self.service.start()
        for holder, label in ((first, "first"), (second, "second")):
            self.assertEqual(self.get_lease(holder.id)["label"], label)
            self.check(holder)

    def test_a_bit_in_the_middle(self):
        """What follows a broken record is as good as lost, not more."""
        holder = self.hold("--unbound", "--label", "broken")
        self.service.kill()
        data = bytearray(self.journal.read_bytes())
        data[60] ^= 1
        self.journal.write_bytes(data)
        self.service.start()
        self.assertEqual(self.get_lease(holder.id)["label"], "?")
        self.check(holder)


if __name__ == "__main__":
    main("--2m", "64", "--stock", "16M*2 8M*8 2M*rest")
