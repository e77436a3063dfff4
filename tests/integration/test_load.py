#!/usr/bin/env python3
"""Clients of which half are hostile: the others are served, every one of them. What they feel of it is measured by the whole of it:

    HPZ_LONG=1 tests/integration/test_load.py      1,000 clients; prints the JSON line
"""
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import hpzctl_json  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

TOP = Path(__file__).resolve().parents[2]
LONG = os.environ.get("HPZ_LONG") == "1"
CLIENTS, SECONDS, ROUNDS = (1000, 8, 5) if LONG else (60, 1, 1)
ATTACKER = 65534  # who has nothing else
RATIO_MAX = 5


class Load(HpzTest):
    def test_half_are_hostile(self):
        self.service.stop()
        self.set_config("hpzd", "socket_mode", "0666")
        with self.service.config.open("a", encoding="utf-8") as config:
            config.write(f"\n[access attackers]\nusers = {ATTACKER}\nallow = status lease\nquota_bytes = 16M\n")
        self.service.start()
        self.wait_idle()
        done = subprocess.run([get_build_directory() / "tests/load", self.service.socket, str(CLIENTS), str(SECONDS), str(ROUNDS),
                               TOP / "tests/fuzz/corpus/request", str(ATTACKER)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600)
        sys.stderr.write(done.stderr + done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        figures = json.loads(done.stdout)
        self.assertEqual((figures["clients"], figures["hostile"], figures["refused"], figures["lost"]), (CLIENTS, CLIENTS // 2, 0, 0))
        if LONG:
            self.assertLessEqual(figures["ratio"], RATIO_MAX)
        # Nothing of theirs is left, and the books are right.
        self.wait_clean()
        self.assertEqual(hpzctl_json("check")["findings"], [])


main("--2m", "96", "--stock", "2M*rest")
