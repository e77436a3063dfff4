#!/usr/bin/env python3
"""check_protocol.py: hpz-protocol(7) and lib/proto.h say the same, both ways: what the page has, the compiler finds in the header,
and what the header has, the page names. Prints what they do not agree on."""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests/lib"))
from hpztest.protocol import Page  # noqa: E402

TYPES = {"u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "i32": "int32_t", "i64": "int64_t", "char": "char"}
# Numbers of hpz.h that are the library's alone: they never come to the wire.
LIBRARY = r"HPZ_(H|PUBLIC|DEFAULT_SOCKET|\w+_INIT|\w+_MAX|\w+_MAX_MS|NODE_ANY|PAGE_SIZE_ANY|FOREVER|METRIC_BUCKETS|TEARDOWN_(NONE|BUCKETS|FLUSHES|STAGES|RECORDS|HISTOGRAMS|FACTS))"


def read(name):
    return (TOP / name).read_text(encoding="utf-8")


def strip_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")


def make_assertions(page):
    """C that compiles only if the header agrees with the page."""
    for name, one in page.structs.items():
        wire = f"struct hpz_wire_{name}"
        yield f"static_assert(sizeof({wire}) == {one.size}, \"{name}\");"
        for member, field in one.fields.items():
            kind = TYPES.get(field.kind, f"struct hpz_wire_{field.kind}") + (f"[{field.count}]" if field.count else "")
            yield f"static_assert(offsetof({wire}, {member}) == {field.offset}, \"{name}.{member}: offset\");"
            yield (f"static_assert(__builtin_types_compatible_p(__typeof__((({wire} *)0)->{member}), {kind}), "
                   f"\"{name}.{member}: type\");")
    for name, value in page.constants.items():
        yield f"static_assert({name} == {value}, \"{name}\");"
    for name, operation in page.operations.items():
        yield f"static_assert(HPZ_OP_{name} == {operation.number}, \"operation {name}\");"
        for one in {operation.request, operation.reply} - {"-"}:
            yield f"static_assert(sizeof(struct hpz_wire_{one}) > 0, \"{name}\");"


def compile_assertions(page):
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "page.c")
        source.write_text("#include <hpz.h>\n#include <proto.h>\n" + "\n".join(make_assertions(page)) + "\n", encoding="utf-8")
        result = subprocess.run(["cc", "-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only", "-I", TOP / "lib", source], capture_output=True,
                                text=True, check=False)
    return [line for line in result.stderr.splitlines() if "error" in line]


def get_structs(header):
    """{name: members} of each struct on the wire."""
    structs = {}
    for name, body in re.findall(r"struct hpz_wire_(\w+) \{(.*?)\};", header, re.DOTALL):
        members = re.sub(r"\[\w+\]", "", body)
        structs[name] = {word for line in members.split(";") for word in re.findall(r"(\w+)\s*(?:,|$)", line.strip())}
    return structs


def get_enumerators(header):
    return {name for body in re.findall(r"enum hpz_\w+ \{(.*?)\}", header, re.DOTALL) for name in re.findall(r"(HPZ_\w+) =", body)}


def get_macros(header):
    return set(re.findall(r"^#define (HPZ_\w+)\s+\(?-?\d+u?\)?\s*$", header, re.MULTILINE))


def compare_header(page):
    proto, library = strip_comments(read("lib/proto.h")), strip_comments(read("lib/hpz.h"))
    structs = get_structs(proto)
    for name, members in structs.items():
        if name not in page.structs:
            yield f"the page lacks struct {name}"
        else:
            yield from (f"the page lacks {name}.{member}" for member in members - set(page.structs[name].fields))
    operations = {f"HPZ_OP_{name}" for name in page.operations}
    numbers = get_enumerators(proto) | get_enumerators(library) | get_macros(library) | \
        {name for name in get_macros(proto) if re.match(r"HPZ_WIRE_(CAN|LIST)_(?!FLAGS)", name)}
    missing = {name for name in numbers - operations - set(page.constants) if not re.fullmatch(LIBRARY, name)}
    yield from (f"the page lacks {name}" for name in sorted(missing))
    if len(structs) < 40 or len(numbers) < 100:
        yield f"{len(structs)} structs and {len(numbers)} numbers: this test does not read the header any more"


def compare_least(page):
    least = dict(re.findall(r"\[HPZ_OP_(\w+)\] = (\d+),", read("lib/proto.c")))
    if {name: str(operation.least) for name, operation in page.operations.items()} != least:
        yield "the least sizes of requests are not those of proto_least"


def main():
    page = Page()
    wrong = compile_assertions(page) + list(compare_header(page)) + list(compare_least(page))
    # What the table of operations names is described.
    wrong += [f"{name}: there is no struct {one}" for name, operation in page.operations.items()
              for one in (operation.request, operation.reply) if one != "-" and one not in page.structs]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


sys.exit(main())
