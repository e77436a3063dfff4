"""hpz-protocol(7) as a client's author reads it: structs by offset and type, operations, numbers, and the example. Nothing of it is
known from elsewhere: messages are made from what the page says."""
import re
import struct
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "man/hpz-protocol.7"
_FORMATS = {"u16": "<H", "u32": "<I", "u64": "<Q", "i32": "<i", "i64": "<q"}


class Field:
    def __init__(self, offset, kind):
        self.offset = int(offset)
        self.kind, _, count = kind.rstrip("]").partition("[")
        self.count = int(count) if count else None

    def pack(self, value, structs):
        if self.kind == "char":
            return value.encode().ljust(self.count, b"\0")
        if self.kind in structs:
            return b"".join(structs[self.kind].make(**one) for one in value)
        values = value if self.count else [value]
        return b"".join(struct.pack(_FORMATS[self.kind], one) for one in values)

    def unpack(self, data, structs):
        if self.kind == "char":
            return data[self.offset:self.offset + self.count].rstrip(b"\0").decode()
        if self.kind in structs:
            return [structs[self.kind].read(data[self.offset + i * structs[self.kind].size:]) for i in range(self.count)]
        size = struct.calcsize(_FORMATS[self.kind])
        values = [struct.unpack_from(_FORMATS[self.kind], data, self.offset + i * size)[0] for i in range(self.count or 1)]
        return values if self.count else values[0]


class Struct:
    def __init__(self, name, size, structs):
        self.name, self.size, self.fields, self._structs = name, size, {}, structs

    def make(self, **values):
        """What is not named is zero, but for its own size."""
        data = bytearray(self.size)
        if "size" in self.fields and "size" not in values:
            values["size"] = self.size
        for name, value in values.items():
            packed = self.fields[name].pack(value, self._structs)
            data[self.fields[name].offset:self.fields[name].offset + len(packed)] = packed
        return bytes(data)

    def read(self, data):
        """As a client does: what the sender did not know is zero."""
        size = struct.unpack_from("<I", data)[0] if "size" in self.fields and self.name != "head" else self.size
        data = data[:size].ljust(self.size, b"\0")
        return {name: field.unpack(data, self._structs) for name, field in self.fields.items()} | {"size": size}


class Operation:
    def __init__(self, row):
        number, self.name, self.request, least, self.reply, self.needs = row
        self.number, self.least = int(number), int(least)


class Message:
    """Of the example: `bytes` are numbers, "..", or L0 to L7."""

    def __init__(self, sender, size, descriptors):
        self.sender, self.size, self.descriptors, self.bytes = sender, int(size), int(descriptors or 0), {}

    def make(self, lease):
        return bytes(lease[int(byte[1])] if byte[0] == "L" else int(byte, 16) for byte in self._get_all())

    def compare(self, data, lease):
        """What is not as the page says; sets the bytes of `lease` where it names them for the first time."""
        if len(data) != self.size:
            return [f"{len(data)} bytes instead of {self.size}"]
        wrong = []
        for at, expected in enumerate(self._get_all()):
            if expected[0] == "L":
                lease.setdefault(int(expected[1]), data[at])
                expected = f"{lease[int(expected[1])]:02x}"
            if expected not in ("..", f"{data[at]:02x}"):
                wrong.append(f"at {at:04x} {data[at]:02x} instead of {expected}")
        return wrong

    def _get_all(self):
        return [self.bytes.get(at, "00") for at in range(self.size)]


class Page:
    def __init__(self):
        text = PAGE.read_text(encoding="utf-8").replace("\\e", "\\")
        self.structs, self.constants, self.operations, self.example = {}, {}, {}, []
        for block in re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", text, re.MULTILINE | re.DOTALL):
            self._read_block(block.splitlines())

    def _read_block(self, lines):
        head = re.fullmatch(r"(\w+): (\d+) bytes", lines[0])
        if head:
            one = self.structs[head[1]] = Struct(head[1], int(head[2]), self.structs)
            for line in lines[1:]:
                offset, kind, name = line.split()[:3]
                one.fields[name] = Field(offset, kind)
        elif lines[0].startswith("op "):
            for line in lines[1:]:
                operation = Operation(line.split(maxsplit=5))
                self.operations[operation.name] = operation
        elif lines[0].startswith("HPZ_"):
            for line in lines:
                name, value = line.split()[:2]
                self.constants[name] = int(value)
        else:
            self._read_example(lines)

    def _read_example(self, lines):
        for line in lines:
            begin = re.fullmatch(r"([CS]) (\d+)(?:\+(\d+))?", line)
            if begin:
                self.example.append(Message(*begin.groups()))
                continue
            offset, *row = line.split()
            self.example[-1].bytes.update((int(offset, 16) + i, byte) for i, byte in enumerate(row))

    def make_message(self, name, request_id, **values):
        operation = self.operations[name]
        payload = self.structs[operation.request].make(**values)
        head = self.structs["head"]
        return head.make(size=head.size + len(payload), op=operation.number, id=request_id) + payload
