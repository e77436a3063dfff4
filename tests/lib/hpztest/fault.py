"""Failures on demand: the trigger file and the counters of tests/fault/shim.c, which says what a rule is."""
import mmap
import os
import struct
from pathlib import Path

from hpztest.service import get_build_directory

_RECORD = struct.Struct("48sQQ")
_RECORDS = 512
_IDS = 128  # in turn: a record each, and the shim's own need the rest


class Fault:
    """A trigger file with its counters. Whoever is started with `environment` obeys it from the next call on."""

    def __init__(self, directory):
        self.rules = Path(directory) / "fault.rules"
        self._counts_file = Path(directory) / "fault.counts"
        self._counts_file.write_bytes(bytes(_RECORD.size * _RECORDS))
        with open(self._counts_file, "r+b") as file:
            self._counts = mmap.mmap(file.fileno(), 0)
        self._next_id = 0
        self.environment = {
            "LD_PRELOAD": str(get_build_directory() / "tests/fault/hpz-fault.so"),
            "HPZ_FAULT_RULES": str(self.rules), "HPZ_FAULT_COUNTS": str(self._counts_file),
        }

    def set(self, *rules):
        """Replaces all rules, each without its id: `rename clean>leased hpzd 1 EIO`. The ids, in order."""
        ids = []
        new = self.rules.with_suffix(".new")
        with open(new, "w", encoding="utf-8") as file:
            for rule in rules:
                self._next_id = (self._next_id + 1) % _IDS
                ids.append(f"r{self._next_id}")
                self._reset(ids[-1])
                print(ids[-1], rule, file=file)
        new.rename(self.rules)
        return ids

    def _reset(self, rule):
        """An id comes again when its rule has long been replaced: what was counted then is not this one's."""
        for at in range(0, len(self._counts), _RECORD.size):
            name = self._counts[at:at + 48]
            if name.rstrip(b"\0").decode() == rule:
                self._counts[at:at + _RECORD.size] = _RECORD.pack(name, 0, 0)

    def clear(self):
        self.rules.unlink(missing_ok=True)

    def get_counts(self):
        """name -> (calls, hits), rules' ids among the names."""
        counts = {}
        for name, calls, hits in _RECORD.iter_unpack(self._counts[:]):
            name = name.rstrip(b"\0").decode()
            if name:
                before = counts.get(name, (0, 0))
                counts[name] = (before[0] + calls, before[1] + hits)
        return counts

    def get_hits(self, rule):
        return self.get_counts().get(rule, (0, 0))[1]

    def close(self):
        self.clear()
        self._counts.close()
        os.unlink(self._counts_file)
