"""What the manual pages say, for tests that keep it true."""
import re
from pathlib import Path

_PAGES = Path(__file__).resolve().parents[3] / "man"
SOURCES = ("bpf", "f_setlease", "none")
SEEN, UNSEEN, NOTHING = "seen", "not seen", "nothing left"


def get_attacks():
    """{attack: {source of the proof: how a look at the memory ends}}, the table of hpz-security(7)."""
    rows = re.findall(r"^\.It (?!Sy)(.+?) Ta (.+?) Ta (.+?) Ta (.+)$", (_PAGES / "hpz-security.7").read_text(), re.MULTILINE)
    return {name: dict(zip(SOURCES, verdicts)) for name, *verdicts in rows}
