#!/usr/bin/env python3
"""The example of hpz-vmm(7), compiled as it is printed, with a real hpzd."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import get_leases, get_pool  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

TOP = Path(__file__).resolve().parents[2]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O2"]


class Example(HpzTest):
    def test_runs(self):
        text = (TOP / "man/hpz-vmm.7").read_text().split(".Sh EXAMPLES", 1)[1]
        code = re.search(r"^\.Bd -literal\n(.*?)^\.Ed", text, re.MULTILINE | re.DOTALL)[1].replace("\\e", "\\")
        before = get_pool()["clean"]
        with tempfile.TemporaryDirectory() as directory:
            program, library = f"{directory}/tiny", get_build_directory() / "lib"
            done = subprocess.run(["cc", *STRICT, "-x", "c", "-", "-I", TOP / "lib", "-L", library, "-lhpz", "-o", program], input=code,
                                  capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            done = subprocess.run([program], capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
                                  env={**os.environ, "LD_LIBRARY_PATH": str(library)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines(), ["16 MiB, the first byte is 0", "the guest goes on: hello", "page 1 begins with 0",
                                                    "its memory is clean again"])
        self.assertEqual(get_leases(), [])
        self.wait_clean()
        self.assertEqual(get_pool()["clean"], before)


main("--2m", "32", "--stock", "16M*1 2M*rest")
