"""hpzd's journal as a stranger would write it: daemon/journal.c says what a record is."""
import struct

LEASE, STATE, OWNER, END, RAISE, RANGE, FACTS, WEAK, ORPHAN = range(1, 10)
_HEAD = struct.Struct("<IIHHI36sI")  # length, crc, version, type, reserved, boot id, reserved


def get_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Record:
    def __init__(self, kind, payload, boot, version=1):
        self.kind, self.payload, self.boot, self.version = kind, payload, boot, version

    def to_bytes(self):
        def make(crc):
            length = _HEAD.size + len(self.payload)
            return _HEAD.pack(length, crc, self.version, self.kind, 0, self.boot, 0) + self.payload
        whole = make(0)
        return make(get_crc32c(whole[:4] + whole[8:]))

    def get_fields(self):
        """The struct without what follows it (a lease's segments)."""
        return self.payload[:struct.unpack_from("<I", self.payload)[0]]

    def shorten(self, size):
        """As an hpzd wrote it that knew only so much of the struct."""
        old = len(self.get_fields())
        self.payload = struct.pack("<I", size) + self.payload[4:size] + self.payload[old:]


def read(path):
    data, at, records = path.read_bytes(), 0, []
    while at + _HEAD.size <= len(data):
        length, _, version, kind, _, boot, _ = _HEAD.unpack_from(data, at)
        records.append(Record(kind, data[at + _HEAD.size:at + length], boot, version))
        at += length
    return records


def write(path, records):
    path.write_bytes(b"".join(record.to_bytes() for record in records))
