#!/usr/bin/env python3
"""What hpzctl's help says is in its manual page and is completed by the shells, and the other way round."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import hpzctl, hpzctl_json  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

TOP = Path(__file__).resolve().parents[2]
COMPLETIONS = TOP / "conf/completions"
MIB = host.MIB

BASH = r'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hpzctl; printf "%s\n" "${COMPREPLY[@]}"'
ZSH = r'source "$1"; shift 2; words=("$@"); plain=(${words[1,-2]:#-*}); _hpzctl_candidates "$plain[1]" "$plain[2]" "$words[-1]"'
FISH = r'source $argv[1]; complete -C "$argv[2..]"'


def list_help(*words):
    """(verbs, options) that the help of these words names."""
    text = hpzctl(*words, "--help").stdout
    return re.findall(r"^  ([a-z][a-z-]*) ", text, re.MULTILINE), re.findall(r"^  (--[a-z0-9-]+)", text, re.MULTILINE)


def list_benches():
    return re.search(r"^Measure.*: (.*)\.$", hpzctl("bench", "--help").stdout, re.MULTILINE)[1].split(", ")


def list_all():
    """{words: options} of every verb, and of those that have verbs of their own."""
    verbs, options = list_help()
    found = {(): options}
    for verb in verbs:
        found[verb,] = list_help(verb)[1]
    for verb in list_help("domain")[0]:
        found["domain", verb] = list_help("domain", verb)[1]
    for name in list_benches():
        found["bench", name] = list_help("bench", name)[1]
    return found


class Words(HpzTest):
    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory(prefix="hpz-words-")  # what the shells keep of themselves
        self.addCleanup(directory.cleanup)
        self.home = directory.name

    def complete(self, shell, *words):
        """What follows the words, of which the last one is begun; without descriptions."""
        if not shutil.which(shell):
            self.fail(f"no {shell} is installed")
        file = {"bash": "hpzctl.bash", "zsh": "_hpzctl", "fish": "hpzctl.fish"}[shell]
        program = {"bash": ["bash", "-c", BASH, "bash"], "zsh": ["zsh", "-f", "-c", ZSH, "zsh"], "fish": ["fish", "--no-config", "-c", FISH]}
        line = ["hpzctl", *words]
        environment = {**os.environ, "PATH": f"{get_build_directory()}/client:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", "HOME": self.home}
        done = subprocess.run([*program[shell], COMPLETIONS / file, *([" ".join(line)] if shell == "fish" else line)], capture_output=True,
                              text=True, check=False, timeout=60, env=environment, stdin=subprocess.DEVNULL)
        found = {re.split(r"[:\t]", word)[0] for word in done.stdout.splitlines()} - {""}
        return {word for word in found if word.startswith(words[-1])}

    def test_page(self):
        """Every verb and option, and no other."""
        page = (TOP / "man/hpzctl.1").read_text()
        everything = list_all()
        options = {option for found in everything.values() for option in found}
        self.assertEqual(options - {f"--{name}" for name in re.findall(r"Fl Fl ([a-z0-9-]+)", page)}, set())
        self.assertEqual({f"--{name}" for name in re.findall(r"^\.It Fl Fl ([a-z0-9-]+)", page, re.MULTILINE)} - options, set())
        sections = set(re.findall(r"^\.Ss (.+)$", page, re.MULTILINE))
        for words in everything:
            if len(words) == 1:
                self.assertTrue(any(words[0] in re.split(r"[ ,]+", section) for section in sections), words)
            if len(words) == 2 and words[0] == "bench":
                self.assertIn(" ".join(words), sections)

    def test_completed(self):
        """All verbs in each shell, and in bash all options of each."""
        everything = list_all()
        verbs = {words[0] for words in everything if len(words) == 1}
        for shell in ("bash", "zsh", "fish"):
            self.assertEqual(self.complete(shell, ""), verbs, shell)
            self.assertEqual(self.complete(shell, "domain", ""), set(list_help("domain")[0]), shell)
            self.assertEqual(self.complete(shell, "bench", ""), set(list_benches()), shell)
            self.assertEqual(self.complete(shell, "lease", "--"), set(everything["lease",]), shell)
            self.assertEqual(self.complete(shell, "sta"), {"status"}, shell)
        for words, options in everything.items():
            if words:
                self.assertEqual(self.complete("bash", *words, "--"), set(options), words)

    def test_asked_for(self):
        """Leases and pools of the hpzd that runs."""
        lease = hpzctl_json("lease", 16 * MIB, "--path")["id"]
        for shell in ("bash", "zsh", "fish"):
            self.assertEqual(self.complete(shell, "release", ""), {str(lease)}, shell)
            self.assertEqual(self.complete(shell, "resize", ""), {"two"}, shell)
        self.assertEqual(self.complete("bash", "wait", "--pool", ""), {"two"})
        hpzctl("release", lease)
        self.wait_clean()
        self.assertEqual(self.complete("bash", "release", ""), set())


main("--2m", "32")
