#!/usr/bin/env python3
"""hpzctl teardown: what the ends of leases cost, on real pages; kept over a restart and SIGKILL, followed without a gap."""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_leases, hpzctl, hpzctl_json, running, wait_until  # noqa: E402
from hpztest.guest import get_command  # noqa: E402

MIB = host.MIB
ALICE = 61001  # no name needed
STAGES = ["exit", "proof", "clear", "total"]


class TeardownTest(HpzTest):
    def get_record(self, lease_id, *arguments, **run):
        """The record of a lease once it is complete; None until then."""
        return next((record for record in hpzctl_json("teardown", *arguments, **run)["records"]
                     if record["lease"] == lease_id and record["complete"]), None)

    def wait_for_record(self, lease_id):
        return wait_until(f"the end of lease {lease_id} is complete", lambda: self.get_record(lease_id))

    def check_times(self, record):
        """What happened later has a later time, and each stage is the difference."""
        self.assertLessEqual(record["ended_ns"], record["proven_ns"])
        self.assertLessEqual(record["proven_ns"], record["clean_ns"])
        self.assertEqual(record["took_ns"]["clear"], record["clean_ns"] - record["proven_ns"])
        if record["gone_ns"] is None:
            return
        self.assertLessEqual(record["gone_ns"], record["proven_ns"])
        self.assertEqual(record["took_ns"]["proof"], record["proven_ns"] - record["gone_ns"])
        if record["begun_ns"] is not None:
            self.assertLessEqual(record["begun_ns"], record["gone_ns"])
            self.assertEqual(record["took_ns"]["exit"], record["gone_ns"] - record["begun_ns"])

    def give_back(self, hold):
        """Its memory, while it lives on."""
        for command in ("unmap", "close", "release"):
            hold.call(command)

    def lease_and_release(self, label):
        with Hold("--size", 2 * MIB, "--label", label) as hold:
            self.give_back(hold)
        return hold.id

    def run_to_end(self, label, *command, size="4M"):
        """A command on leased memory, from its beginning to its end; its lease."""
        done = hpzctl("run", "--size", size, "--label", label, "--", "sh", "-c", f"echo $HPZ_LEASE; {' '.join(command)}", check=False)
        return int(done.stdout.split()[0])


class Ends(TeardownTest):
    def test_exit_and_kill(self):
        for label, command, how, code in (("ends", "exit 3", "exit", 3), ("killed", "kill -9 $$", "kill", signal.SIGKILL)):
            record = self.wait_for_record(self.run_to_end(label, command))
            self.assertEqual((record["label"], record["size"], record["page_size"], record["uid"]), (label, 4 * MIB, 2 * MIB, 0))
            self.assertEqual((record["how"], record["code"], record["holders"]), (how, code, 1))
            self.assertEqual((record["kernel_bytes"], record["orphan_bytes"], record["part_of"]), (0, 0, None))
            self.assertIsNotNone(record["gone_ns"])
            self.check_times(record)

    def test_gives_back_and_lives_on(self):
        with Hold("--size", 4 * MIB, "--label", "lives on") as hold:
            self.give_back(hold)
            record = self.wait_for_record(hold.id)
            self.assertEqual((record["how"], record["code"], record["holders"], record["pid"]), ("unmap", None, 0, None))
            self.assertEqual([record[key] for key in ("begun_ns", "gone_ns", "table_bytes", "steal_ns")], [None] * 4)
            self.assertEqual(set(record["flushes"].values()), {None})
            self.assertIsNone(record["took_ns"]["exit"])
            self.check_times(record)
        self.assertEqual(self.get_record(hold.id)["how"], "unmap", "what it did later is not the lease's end")

    def test_forced(self):
        """Nobody is waited for: its memory is the kernel's, was never proven free and is never clean."""
        with Hold("--size", 4 * MIB) as hold:
            hpzctl("release", "--force", hold.id)
            record = self.wait_for_record(hold.id)
            self.assertEqual((record["forced"], record["kernel_bytes"], record["orphan_bytes"]), (True, 4 * MIB, 4 * MIB))
            self.assertEqual((record["proven_ns"], record["clean_ns"]), (None, None))
            self.assertEqual([record["took_ns"][stage] for stage in ("proof", "clear", "total")], [None] * 3)

    def test_part_given_back(self):
        with Hold("--size", 4 * MIB, "--label", "shrinks") as hold:
            hpzctl("grow", hold.id, "8M")
            hpzctl("shrink", hold.id, "4M")
            part = wait_until("a part is back", lambda: next(
                (record for record in hpzctl_json("teardown")["records"] if record["part_of"] == hold.id and record["complete"]), None))
            self.assertEqual((part["how"], part["size"], part["label"]), ("unmap", 4 * MIB, "shrinks"))
        whole = self.wait_for_record(hold.id)
        self.assertEqual((whole["part_of"], whole["size"], whole["how"]), (None, 4 * MIB, "exit"))

    def test_not_taken(self):
        """A path that nobody opened has no end to speak of."""
        before = hpzctl_json("teardown")["sequence"]
        lease = hpzctl_json("lease", "4M", "--path", "--open-timeout", "1")["id"]
        self.wait_ended(lease)
        self.assertEqual(hpzctl_json("teardown")["sequence"], before)

    def test_table(self):
        """For people: 80 columns, a minus sign for what was not seen."""
        label = "a label that is much longer than its column"
        with Hold("--size", 4 * MIB, "--label", label) as hold:
            self.give_back(hold)
            self.wait_for_record(hold.id)
        lines = hpzctl("teardown", "--label", label).stdout.split("\n")
        line = next(line for line in lines if "a label that" in line)
        self.assertIn(" unmap ", line)
        self.assertEqual(line.split("unmap")[1].split()[:2], ["-", "-"])
        self.assertLessEqual(max(map(len, lines[2:])), 80, lines)
        self.assertIn("2M pages", "\n".join(lines))
        none = hpzctl("teardown", "--label", "nobody's").stdout
        self.assertIn("No lease has ended.", none)
        self.assertNotIn("2M pages", none)

    def test_regime_and_source(self):
        teardown = wait_until("the regime is known", lambda: (answer := hpzctl_json("teardown"))["regime"]["name"] and answer)
        for fact in teardown["regime"]["facts"]:
            self.assertEqual(set(fact), {"name", "value", "where"})
            self.assertTrue(fact["where"], fact)
        self.assertIn(teardown["source"]["name"], ("bpf", "perf", "pidfd"))


class Kept(TeardownTest):
    def test_restart_and_death(self):
        """Records and histograms are the same before and after; the next end gets the next number."""
        self.wait_for_record(self.run_to_end("kept", "true"))
        before = hpzctl_json("teardown")
        for end in (self.service.stop, self.service.kill):
            end()
            self.service.start()
            after = hpzctl_json("teardown")
            for key in ("records", "histograms"):
                self.assertEqual(self.get_timeless(after[key]), self.get_timeless(before[key]))
            self.assertEqual(after["sequence"], before["sequence"])
        self.wait_idle()
        record = self.wait_for_record(self.run_to_end("kept", "true"))
        self.assertEqual(record["sequence"], before["sequence"] + 1)

    def get_timeless(self, rows):
        rows = [{key: value for key, value in row.items() if key != "age_ms"} for row in rows]
        return sorted(rows, key=lambda row: (row.get("lease", 0), row.get("stage", ""), row.get("label") or ""))

    def test_death_on_the_way(self):
        """What was known of an end survives SIGKILL in the middle of it; what came while nobody looked is missing."""
        with Hold("--size", 4 * MIB, "--label", "half") as hold:
            hpzctl("release", hold.id)
            wait_until("it is returning", lambda: self.get_lease(hold.id)["state"] == "returning")
            ended_ns = next(record for record in hpzctl_json("teardown")["records"] if record["lease"] == hold.id)["ended_ns"]
            self.service.kill()
            self.service.start()
        record = self.wait_for_record(hold.id)
        self.assertEqual((record["ended_ns"], record["restarted"], record["label"]), (ended_ns, True, "half"))
        self.assertIsNotNone(record["proven_ns"])


class Readers(TeardownTest):
    def test_labels_are_bounded(self):
        """Many labels do not make many histograms; what is not counted one by one any more is counted together."""
        before = self.count_ends()
        leases = [self.lease_and_release(f"label {number}") for number in range(70)]
        self.wait_for_record(leases[-1])
        self.wait_idle()
        histograms = hpzctl_json("teardown")["histograms"]
        keys = {(row["page_size"], row["regime"], row["label"]) for row in histograms}
        self.assertLessEqual(len(keys), 64)
        self.assertTrue(any(row["rest"] and row["label"] is None for row in histograms))
        self.assertEqual(self.count_ends(), before + 70, "an end is counted once, wherever it is")

    def count_ends(self):
        return sum(row["count"] for row in hpzctl_json("teardown")["histograms"] if row["stage"] == "proof")

    def test_other_users(self):
        """Who may lease but not read status sees its own ends, and no histograms."""
        self.service.stop()
        self.set_config("hpzd", "socket_mode", "0666")
        self.service.config.write_text(self.service.config.read_text() + "\n[access tenants]\nusers = *\nallow = lease\n")
        self.service.start()
        self.wait_idle()
        with Hold("--size", 2 * MIB, "--label", "root's") as hold:
            self.give_back(hold)
            self.wait_for_record(hold.id)
        as_alice = {"user": ALICE, "group": ALICE, "extra_groups": []}
        with Hold("--size", 2 * MIB, "--label", "alice's", user=ALICE) as hold:
            self.give_back(hold)
            self.wait_for_record(hold.id)
        seen = hpzctl_json("teardown", **as_alice)
        self.assertEqual([record["uid"] for record in seen["records"]], [ALICE])
        self.assertEqual((seen["own_only"], seen["histograms"]), (True, []))
        self.assertGreater(len(hpzctl_json("teardown")["records"]), 1)


class Watch(TeardownTest):
    def test_watch(self):
        """Each end is a line, once, in order, over a death of hpzd; SIGINT is a clean end."""
        with running(["hpzctl", "teardown", "--watch", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
            # It begins when it is connected: an end that it shows says so.
            sentinel = self.begin_watching(watch)
            leases = [self.lease_and_release("watched") for _ in range(3)]
            seen = [json.loads(watch.stdout.readline()) for _ in leases]
            self.assertEqual([record["schema"] for record in seen], ["hpz-teardown-record-1"] * 3)
            self.assertEqual(sorted(record["lease"] for record in seen), leases)
            self.assertEqual([record["sequence"] for record in seen], list(range(sentinel + 1, sentinel + 4)))
            self.wait_idle()
            self.service.kill()
            self.service.start()
            self.wait_idle()
            lease = self.lease_and_release("after a death")
            self.assertEqual(json.loads(watch.stdout.readline())["lease"], lease)
            watch.send_signal(signal.SIGINT)
            self.assertEqual(watch.wait(60), 0)
            self.assertEqual(watch.stdout.read(), "")

    def begin_watching(self, watch):
        """The sequence number of what it saw first."""
        os.set_blocking(watch.stdout.fileno(), False)

        def try_once():
            self.lease_and_release("begin")
            self.wait_idle()
            return watch.stdout.readline()
        record = json.loads(wait_until("it watches", try_once))
        os.set_blocking(watch.stdout.fileno(), True)
        # What ended before it was seen may still come.
        last = hpzctl_json("teardown")["sequence"]
        while record["sequence"] < last:
            record = json.loads(watch.stdout.readline())
        return record["sequence"]


class Guest(TeardownTest):
    def test_killed_guest(self):
        """A QEMU that is killed by hand, as a VM is."""
        command = ["hpzctl", "run", "--label", "guest", "--", *get_command(64)]
        with running(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as guest:
            lease = wait_until("the guest has its memory", lambda: next(
                (lease for lease in get_leases() if lease["label"] == "guest" and lease["state"] == "leased"), None))
            guest.kill()
            guest.wait()
        record = self.wait_for_record(lease["id"])
        self.assertEqual((record["how"], record["code"], record["pid"]), ("kill", signal.SIGKILL, guest.pid))
        self.assertEqual(record["size"], 64 * MIB)
        self.check_times(record)


main()
