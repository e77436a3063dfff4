#!/usr/bin/env python3
"""hpzctl check: silent when the books balance, right about everything that does not, and --repair puts right what it may."""
import ctypes
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, get_status, hpzctl, hpzctl_json, wait_until  # noqa: E402

MIB = host.MIB
TENANT = 77
_libc = ctypes.CDLL(None, use_errno=True)


class Check(HpzTest):
    def setUp(self):
        super().setUp()
        self.mount = self.service.directory / "2M"
        self.node = self.mount / "hpz" / "1" / "node0"
        self.addCleanup(hpzctl, "check", "--repair", check=False)
        self.assertEqual(self.check(), [])

    def check(self, *arguments, status=None):
        """The findings; the exit status fits them."""
        done = hpzctl("check", "--json", *arguments, check=False)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["schema"], "hpz-check-1")
        findings = answer["findings"]
        differences = [finding for finding in findings if finding["severity"] == "difference"]
        self.assertEqual(answer["differences"], len(differences))
        self.assertEqual(answer["repaired"], sum(finding["repaired"] for finding in findings))
        self.assertEqual(done.returncode, 1 if differences else 0, findings)
        self.totals = answer
        return findings

    def expect(self, kind, *words, repairs=None, count=1):
        """Found, and found again; with `repairs` repaired or not, and then gone or not."""
        for arguments in ([], ["--repair"] if repairs is not None else []):
            # Fewer pages than counted are, where nobody else uses the kernel's pool, a difference there as well.
            findings = [finding for finding in self.check(*arguments) if finding["kind"] != "kernel"]
            self.assertEqual([finding["kind"] for finding in findings], [kind] * count, findings)
            for word in words:
                self.assertTrue(all(word in finding["text"] for finding in findings), findings)
            self.assertEqual([finding["repaired"] for finding in findings], [bool(arguments and repairs)] * count, findings)
        if repairs:
            self.wait_idle()
            self.assertEqual(self.check(), [])
        return findings

    def get_clean_file(self):
        return sorted((self.node / "clean").iterdir())[0]


class Balanced(Check):
    def test_idle(self):
        self.assertEqual(self.totals["segments"], get_pool()["clean_segments"])
        done = hpzctl("check")
        self.assertIn("0 differences", done.stdout)
        self.assertEqual(get_status()["book_alarms"], 0)

    def test_leases(self):
        """Whatever holders do with what is theirs is no difference."""
        path = hpzctl_json("lease", "4M", "--path", "--label", "a path")
        with Hold("--size", 4 * MIB) as fd, Hold("--size", 2 * MIB, "--reopenable") as open_again, \
                Hold("--size", 2 * MIB, "--path") as mapped, Hold("--size", 4 * MIB) as returning:
            hpzctl("release", returning.id)
            self.assertEqual(self.check(), [])
            self.assertEqual(self.totals["leases"], 5)
            fd.call("fill", TENANT)
            fd.call("punch", 0, 2 * MIB)
            self.assertEqual(self.check("--repair"), [])
            open_again.call("fill", TENANT)
            self.service.kill()
            self.service.start()
            wait_until("it is ready for a check", lambda: hpzctl("check", check=False).returncode == 0)
            open_again.call("verify", TENANT)
            mapped.call("check-zero")
        hpzctl("release", path["id"])

    def test_cut_and_grown(self):
        """Noticed, because the operator may want to know; no difference."""
        with Hold("--size", 4 * MIB) as holder:
            holder.call("truncate", 2 * MIB)
            findings = self.check()
            self.assertEqual([(finding["kind"], finding["severity"]) for finding in findings], [("wrong", "notice")])
            self.assertIn("was cut to 1 pages", findings[0]["text"])
            holder.call("truncate", 8 * MIB)
            self.assertIn("was grown to 4 pages", self.check("--repair")[0]["text"])
            holder.call("truncate", 4 * MIB)
            self.assertEqual(self.check(), [])

    def test_under_load(self):
        """Memory goes out and comes back all the time: nothing is found that is not so."""
        with Hold("--size", 0) as holder:
            for _ in range(4):
                holder.send("time-leases", 2 * MIB, 300)
                self.assertEqual(self.check(), [])
                holder.get_answer()
        self.assertEqual(get_status()["book_alarms"], 0)

    def test_denied(self):
        done = hpzctl("check", check=False, user=65534, group=65534, extra_groups=[])
        self.assertEqual(done.returncode, 1)


class Differences(Check):
    def test_foreign(self):
        for state in ("filling", "clean", "leased", "dirty"):
            with self.subTest(state=state):
                alarms = get_status()["book_alarms"]
                file = self.node / state / "stranger"
                file.touch()
                self.expect("foreign", f"{state}/stranger is in no book")
                self.assertTrue(file.exists())
                self.assertGreater(get_status()["book_alarms"], alarms)
                self.assertIn(f"{state}/stranger", get_status()["message"])
                self.assertIn(f"{state}/stranger is in no book", self.service.get_log())
                self.expect("foreign", repairs=True)
                self.assertFalse(file.exists())
                self.assertIsNone(get_status()["message"])

    def test_foreign_names_like_ours(self):
        """A valid name that no book has, one with another generation, and a directory with files."""
        known = self.get_clean_file().name.split(".")
        for name in ("12345.1", "12345.1.67890.0"):
            (self.node / ("leased" if name.count(".") == 3 else "clean") / name).touch()
        (self.node / "clean" / f"{known[0]}.{int(known[1]) + 1}").touch()
        (self.node / "dirty" / "directory").mkdir()
        (self.node / "dirty" / "directory" / "file").touch()
        self.expect("foreign", repairs=True, count=4)
        self.assertTrue((self.node / "clean" / ".".join(known)).exists())

    def test_many(self):
        """More than one message holds."""
        for i in range(1500):
            (self.node / "dirty" / f"stranger-{i}").touch()
        findings = self.check()
        self.assertEqual(len({finding["text"] for finding in findings}), 1500)
        self.assertEqual(sum(finding["repaired"] for finding in self.check("--repair", "--timeout", "120")), 1500)
        self.assertEqual(self.check(), [])

    def test_missing(self):
        self.get_clean_file().unlink()
        self.expect("missing", "is gone, but hpzd counts its", repairs=True)

    def test_blocks(self):
        """A clean file with a hole is not handed out again before it is whole and zero."""
        # By another name, which hpzd does not watch: else it is cleared again before it can be found.
        link = self.mount / "own-link"
        os.link(self.get_clean_file(), link)
        fd = os.open(link, os.O_RDWR)
        link.unlink()
        self.assertEqual(_libc.fallocate(fd, 3, ctypes.c_int64(0), ctypes.c_int64(2 * MIB)), 0)
        os.close(fd)
        self.expect("blocks", "pages of the kernel, but hpzd counts")
        self.expect("blocks", repairs=True)

    def test_wrong_mode_and_links(self):
        file = self.get_clean_file()
        os.chmod(file, 0o666)
        self.expect("wrong", "is to be root's, mode 0, with one link", repairs=True)
        link = self.mount / "own-link"
        os.link(self.get_clean_file(), link)
        self.addCleanup(link.unlink, missing_ok=True)
        self.expect("wrong", "with 2")
        self.assertEqual([finding["repaired"] for finding in self.check("--repair") if finding["kind"] == "wrong"], [True])
        link.unlink()  # the kernel has its page back only now
        self.wait_idle()
        self.assertEqual(self.check(), [])

    def test_leased_file_is_left_alone(self):
        with Hold("--size", 4 * MIB) as holder:
            holder.call("fill", TENANT)
            file = next(self.node.glob("leased/*"))
            os.chmod(file, 0o666)
            self.expect("wrong", "mode 0666", repairs=False)
            holder.call("verify", TENANT)
            os.chmod(file, 0)
            self.assertEqual(self.check(), [])

    def test_hand_over(self):
        """Directories and links without a lease go, those of a lease stay."""
        lease = hpzctl_json("lease", "4M", "--path")
        token = os.path.dirname(lease["path"])
        out = self.mount / "hpz-out"
        (out / ("0" * 32)).mkdir()
        os.link(next(self.node.glob("leased/*")), out / ("0" * 32) / "0")
        (out / "note").touch()
        open(f"{token}/1", "x").close()
        findings = self.check()
        self.assertEqual(sorted(finding["kind"] for finding in findings), ["out"] * 3, findings)
        findings = self.check("--repair")
        self.assertEqual([finding["repaired"] for finding in findings], [True] * 3, findings)
        self.assertEqual(self.check(), [])
        self.assertEqual((os.listdir(out), os.listdir(token)), ([os.path.basename(token)], ["0"]))
        os.unlink(lease["path"])
        self.expect("out", "has 0 links of the 1 of lease", repairs=False)
        os.rmdir(token)
        self.expect("out", "is gone", repairs=False)
        hpzctl("release", lease["id"])
        self.wait_ended(lease["id"])
        self.assertEqual(self.check(), [])

    def test_journal(self):
        """Written anew from what hpzd knows; a restart then knows all of it."""
        lease = hpzctl_json("lease", "4M", "--path", "--label", "kept")
        journal = self.service.directory / "run" / "journal"
        os.truncate(journal, journal.stat().st_size - 100)
        self.expect("journal", repairs=True)
        self.service.kill()
        self.service.start()
        self.assertEqual(self.get_lease(lease["id"])["label"], "kept")
        wait_until("it is ready for a check", lambda: hpzctl("check", check=False).returncode == 0)
        journal.write_bytes(b"")
        self.expect("journal", repairs=True)
        hpzctl("release", lease["id"])

    def test_served_meanwhile(self):
        """A check, its second look and its repairs keep nobody waiting: others are answered when it is half done."""
        for _ in range(5):  # a machine may be too busy to ask
            seen = self.repair_many()
            # In one piece there is none, or one: seen after an answer that came before it.
            if len(seen) > 2:
                break
        host.note(f"answered with so many of 3000 repairs left: {seen}")
        self.assertGreater(len(seen), 2, seen)

    def repair_many(self):
        """How much was left when somebody else was answered."""
        for i in range(3000):
            (self.node / "leased" / f"stranger-{i}").touch()
        with Hold("--size", 0) as holder:
            process = subprocess.Popen([f"{os.environ['HPZ_BUILD']}/client/hpzctl", "check", "--repair", "--json"], stdout=subprocess.PIPE)
            seen, left = [], 3000
            while process.poll() is None and left > 0:
                holder.call("time-status", 1)
                left = len(os.listdir(self.node / "leased"))
                if 0 < left < 3000 and left not in seen:
                    seen.append(left)
            findings = json.loads(process.communicate()[0])["findings"]
        self.assertEqual(len(findings), 3000)
        self.assertEqual(self.check(), [])
        return seen

    def test_two_at_once(self):
        (self.node / "dirty" / "stranger").touch()
        process = subprocess.Popen([f"{os.environ['HPZ_BUILD']}/client/hpzctl", "check"], stdout=subprocess.DEVNULL)
        time.sleep(0.1)  # the second look comes after 0.3 s
        self.assertEqual(hpzctl("check", check=False).returncode, 75)
        self.assertEqual(process.wait(), 1)
        self.expect("foreign", repairs=True)

    def test_reload_meanwhile(self):
        (self.node / "dirty" / "stranger").touch()
        process = subprocess.Popen([f"{os.environ['HPZ_BUILD']}/client/hpzctl", "check"], stdout=subprocess.DEVNULL)
        for _ in range(5):
            time.sleep(0.05)
            self.service.reload()
        self.assertEqual(process.wait(), 1)
        self.expect("foreign", repairs=True)


main("--2m", "64", "--stock", "16M*1 8M*4 4M*4 2M*rest")
