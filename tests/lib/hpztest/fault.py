"""Failures on demand: the trigger file and the counters of tests/fault/shim.c, which says what a rule is."""
import mmap
import os
import struct
from pathlib import Path

from hpztest.service import get_build_directory

_RECORD = struct.Struct("48sQQ")
_RECORDS = 512


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
                self._next_id += 1
                ids.append(f"r{self._next_id}")
                print(ids[-1], rule, file=file)
        new.rename(self.rules)
        return ids

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
