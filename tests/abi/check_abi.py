#!/usr/bin/env python3
"""check_abi.py: what libhpz promises. hpz.h as C99 and C++11; header, libhpz.sym, library and manual name the same functions.

    check_abi.py header|symbols|manual|example|package BUILD_DIR
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
HEADER = TOP / "lib/hpz.h"
MANUAL = TOP / "man/libhpz.3"

# Each compiler that is there must take the header; one of each language must be there.
COMPILERS = {
    "c": (["gcc", "clang", "cc"], ["-std=c99"], ["-std=c11"]),
    "c++": (["g++", "clang++", "c++"], ["-std=c++11"], ["-std=c++17"]),
}
STRICT = ["-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]

# Every macro with a value, every initialiser, and the header twice.
USE = """
#include <hpz.h>
#include <hpz.h>

int use(void);
int use(void)
{
	struct hpz_lease_request lease = HPZ_LEASE_REQUEST_INIT;
	struct hpz_adopt_request adopt = HPZ_ADOPT_REQUEST_INIT;
	struct hpz_wait_request wait = HPZ_WAIT_REQUEST_INIT;
	lease.flags = HPZ_LEASE_REOPENABLE | HPZ_LEASE_UNBOUND | HPZ_LEASE_KEEP;
	return lease.struct_size == sizeof(lease) && adopt.struct_size == sizeof(adopt) && wait.struct_size == sizeof(wait) &&
		lease.node == HPZ_NODE_ANY && lease.page_size == HPZ_PAGE_SIZE_ANY && wait.timeout_ms == HPZ_FOREVER &&
		lease.owner_uid == -1 && lease.owner_gid == -1 && HPZ_LABEL_MAX == HPZ_KEY_MAX && HPZ_DEFAULT_SOCKET[0] == '/';
}
"""


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def get_header_functions():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    functions = set(re.findall(r"^HPZ_PUBLIC\b[^;(]*?\b(\w+)\(", text, flags=re.MULTILINE))
    unmarked = set(re.findall(r"\b(hpz_\w+)\s*\([^;{}]*\);", text)) - functions
    if unmarked:
        sys.exit(f"hpz.h: not marked HPZ_PUBLIC: {' '.join(sorted(unmarked))}")
    return functions


def get_manual_functions():
    text = MANUAL.read_text(encoding="utf-8").split(".Sh SYNOPSIS", 1)[1].split(".Sh DESCRIPTION", 1)[0]
    return set(re.findall(r"^\.F[no] (\w+)", text, flags=re.MULTILINE))


def compare(what, found, expected_what, expected):
    if found == expected:
        return True
    for name in sorted(found - expected):
        print(f"{name}: in {what}, not in {expected_what}")
    for name in sorted(expected - found):
        print(f"{name}: in {expected_what}, not in {what}")
    return False


def check_header(_build):
    good = True
    with tempfile.TemporaryDirectory() as directory:
        for language, (compilers, *standards) in COMPILERS.items():
            present = [compiler for compiler in compilers if shutil.which(compiler)]
            if not present:
                print(f"no compiler for {language}")
                good = False
            for compiler in present:
                for standard in standards:
                    result = run([compiler, "-x", language, *standard, *STRICT, "-I", TOP / "lib", "-c", "-o",
                                  f"{directory}/use.o", "-"], input=USE)
                    if result.returncode:
                        print(f"{compiler} {' '.join(standard)}:\n{result.stderr}")
                        good = False
    return good


def check_symbols(build):
    library = build / "lib/libhpz.so"
    symbols = run(["nm", "-D", "--defined-only", library]).stdout.split("\n")
    exported, versions = set(), set()
    for line in filter(None, symbols):
        _, kind, name = line.split()
        if kind == "A":
            versions.add(name)
            continue
        name, _, version = name.partition("@@")
        exported.add(name)
        if not version.startswith("HPZ_"):
            print(f"{name}: has no version")
            return False
    sym = (TOP / "lib/libhpz.sym").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\t(\w+);", sym, flags=re.MULTILINE))
    good = compare("libhpz.so", exported, "libhpz.sym", listed)
    good &= compare("libhpz.sym", listed, "hpz.h", get_header_functions())
    good &= compare("libhpz.so", versions, "libhpz.sym", set(re.findall(r"^(HPZ_[\d.]+) \{", sym, flags=re.MULTILINE)))
    dynamic = run(["readelf", "-d", library]).stdout
    if "[libhpz.so.0]" not in dynamic:
        print("libhpz.so: its soname is not libhpz.so.0")
        good = False
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic))
    # A sanitizer's run time comes along in a build with it.
    extra = {name for name in needed if not re.match(r"libc\.so|libasan|libubsan|libtsan|libclang_rt", name)}
    if extra:
        print(f"libhpz.so needs {' '.join(sorted(extra))}: it should need libc only")
        good = False
    return good


def check_manual(_build):
    text = MANUAL.read_text(encoding="utf-8")
    good = compare("libhpz.3", get_manual_functions(), "hpz.h", get_header_functions())
    # Described, not only listed; and every error.
    described = set(re.findall(r"^\.Fn (\w+)", text.split(".Sh DESCRIPTION", 1)[1], flags=re.MULTILINE))
    good &= compare("the description in libhpz.3", described, "hpz.h", get_header_functions())
    errors = set(re.findall(r"^\t(HPZ_ERR_\w+) =", HEADER.read_text(encoding="utf-8"), flags=re.MULTILINE))
    listed = set(re.findall(r"^\.It Dv (HPZ_ERR_\w+)", text, flags=re.MULTILINE))
    good &= compare("the errors in libhpz.3", listed, "hpz.h", errors)
    return good


def check_example(build):
    """The manual's example compiles as it is printed, links, and without hpzd says so."""
    text = MANUAL.read_text(encoding="utf-8").split(".Sh EXAMPLES", 1)[1]
    code = re.search(r"^\.Bd -literal\n(.*?)^\.Ed", text, flags=re.MULTILINE | re.DOTALL).group(1)
    code = code.replace("\\e", "\\").replace("\\&", "").replace("\\-", "-").replace("\\(dq", '"')
    with tempfile.TemporaryDirectory() as directory:
        program = f"{directory}/example"
        sanitize = [option for name, option in (("libasan", "-fsanitize=address"), ("libtsan", "-fsanitize=thread"))
                    if name in run(["readelf", "-d", build / "lib/libhpz.so"]).stdout]
        result = run(["cc", "-std=c99", *STRICT, *sanitize, "-x", "c", "-", "-I", TOP / "lib", "-L", build / "lib", "-lhpz", "-o", program],
                     input=code)
        if result.returncode:
            print(result.stderr)
            return False
        result = run([program], env={"LD_LIBRARY_PATH": str(build / "lib"), "HPZ_SOCKET": f"{directory}/none"})
        if result.returncode != 1 or "not running" not in result.stderr:
            print(f"the example ended with {result.returncode}: {result.stderr}")
            return False
    return True


def check_package(build):
    """What pkg-config says is enough, and names no internal library."""
    text = (build / "meson-private/libhpz.pc").read_text(encoding="utf-8")
    libs = re.findall(r"^(Libs|Libs\.private|Requires|Requires\.private): *(.*)$", text, flags=re.MULTILINE)
    if libs != [("Libs", "-L${libdir} -lhpz")] or "Cflags: -I${includedir}" not in text:
        print(text)
        return False
    return True


CHECKS = {"header": check_header, "symbols": check_symbols, "manual": check_manual, "example": check_example,
          "package": check_package}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__)
    return 0 if CHECKS[sys.argv[1]](Path(sys.argv[2])) else 1


sys.exit(main())
