"""with-daemon: runs a command beside a private hpzd from the build, on mounts and a socket of its own.

    tests/with-daemon [--2m PAGES] [--1g PAGES] [--stock STOCK] [--config-line LINE]... [--no-wait] -- COMMAND...

    --2m PAGES         a pool `two` of so many 2 MiB pages (512 when neither --2m nor --1g is given)
    --1g PAGES         a pool `one` of so many 1 GiB pages
    --stock STOCK      segments to keep, as `256M*2 64M*4 2M*rest`. For the 2 MiB pool, or the 1 GiB pool when it is the
                       only one. Otherwise one segment of half the pages, a quarter in segments of 64 MiB, single pages
    --config-line LINE `hpzd.log_level=debug`, `clear.method=movnti`, `pool two.raise=yes` (then hpzd raises the page pool)
    --no-wait          run COMMAND at once; otherwise when all memory is clean

The page pool is raised by what is missing, touched, and lowered by the same number at the end. COMMAND finds HPZ_SOCKET,
HPZ_CONFIG, HPZ_RUN_DIR, HPZ_PID_FILE, HPZ_LOG, HPZ_MOUNT_2M and HPZ_MOUNT_1G in its environment, hpzctl and `daemon`
(start, stop, kill, restart, log) on its PATH. One with-daemon runs on a host at a time; others wait.

Exit status: COMMAND's; 128 + N when signal N ended it; 77 when the host has no pages of that size, 125 when hpzd could not be
started, 2 for a wrong command line. HPZ_BUILD names another build directory than build/.
"""
import argparse
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from hpztest import host
from hpztest.client import get_status, hpzctl
from hpztest.service import Service, ServiceError, get_build_directory

EXIT_SKIP, EXIT_OWN_FAILURE = 77, 125
POOLS = {"two": ("2M", 2), "one": ("1G", 1024)}  # name -> page size, MiB of a page


class Stopped(Exception):
    """A signal asks us to end."""


def parse_arguments():
    parser = argparse.ArgumentParser(prog="with-daemon", usage=__doc__, add_help=False)
    parser.add_argument("--2m", dest="two", type=int, metavar="PAGES")
    parser.add_argument("--1g", dest="one", type=int, metavar="PAGES")
    parser.add_argument("--stock")
    parser.add_argument("--config-line", action="append", default=[], dest="lines")
    parser.add_argument("--no-wait", action="store_true")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("command", nargs="*")
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:split])
    if options.help or not arguments:
        print(__doc__.strip())
        sys.exit(0 if options.help else 2)
    options.command += arguments[split + 1:]
    if not options.command:
        parser.error("no command")
    if options.two is None and options.one is None:
        options.two = 512
    return options


def get_default_stock(pages, unit):
    """One segment of half the pages, 64 MiB segments for a quarter, single pages for the rest."""
    size = f"{unit}M" if unit < 1024 else f"{unit // 1024}G"
    half = pages // 2 * unit
    words = [f"{half}M*1"] if half > unit else []
    if unit < 64 and pages * unit // 4 >= 64:
        words.append(f"64M*{pages * unit // 4 // 64}")
    return " ".join([*words, f"{size}*rest"])


def make_config(options, directory):
    sections = {
        "hpzd": {"socket": f"{directory}/hpzd.sock", "run_dir": f"{directory}/run", "log_level": "info"},
    }
    for name, (page_size, unit) in POOLS.items():
        pages = getattr(options, name)
        if pages is not None:
            sections[f"pool {name}"] = {
                "page_size": page_size, "node": "0", "pages": str(pages), "mount": f"{directory}/{page_size}", "raise": "no",
                "stock": get_default_stock(pages, unit),
            }
    if options.stock:
        sections["pool two" if options.two is not None else "pool one"]["stock"] = options.stock
    for line in options.lines:
        key, equals, value = line.partition("=")
        section, dot, key = key.rpartition(".")
        if not equals or not dot:
            print(f"with-daemon: not of the form 'SECTION.key=value': {line}", file=sys.stderr)
            sys.exit(2)
        sections.setdefault(section.strip(), {})[key.strip()] = value.strip()
    return sections


def write_config(sections, path):
    with open(path, "w", encoding="utf-8") as config:
        for section, keys in sections.items():
            print(f"[{section}]", *(f"{key} = {value}" for key, value in keys.items()), "", sep="\n", file=config)


def is_raised_by_hpzd(sections, name):
    return sections.get(f"pool {name}", {}).get("raise") == "yes"


def raise_pages(options, sections, claim):
    for name, (page_size, _) in POOLS.items():
        wanted = getattr(options, name)
        if not wanted or is_raised_by_hpzd(sections, name):
            continue
        pool = host.PagePool(host.SIZES[page_size])
        if not pool.exists():
            print(f"with-daemon: this kernel has no {page_size} pages", file=sys.stderr)
            sys.exit(EXIT_SKIP)
        free = claim.ensure_free(pool.page_size, wanted)
        if free < wanted:
            why = f"{free} of {wanted} pages of {page_size} are to be had"
            if name == "one" or free == 0:
                print(f"with-daemon: {why}, after compaction", file=sys.stderr)
                sys.exit(EXIT_SKIP)
            host.note(f"with-daemon: only {why}")


def make_environment(service):
    directory, build = service.directory, get_build_directory()
    environment = {
        "HPZ_BUILD": str(build), "HPZ_RUN_DIR": str(directory), "HPZ_SOCKET": str(service.socket),
        "HPZ_CONFIG": str(service.config), "HPZ_PID_FILE": str(service.pid_file), "HPZ_LOG": str(service.log),
        "HPZ_MOUNT_2M": f"{directory}/2M", "HPZ_MOUNT_1G": f"{directory}/1G",
        "PATH": os.pathsep.join([f"{build}/client", f"{build}/tests", os.path.dirname(os.path.realpath(__file__)),
                                 os.environ["PATH"]]),
    }
    os.environ.update(environment)


def wait_until_clean():
    status = subprocess.run(["hpzctl", "wait"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode
    if status != 0:
        raise ServiceError(f"hpzctl wait ended with status {status}")


def run_command(command):
    """Runs it in the foreground; also reaps the orphans we inherit meanwhile. Returns what a shell would."""
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setsigdef=[signal.SIGPIPE])
    except OSError as error:
        print(f"with-daemon: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def give_back_what_hpzd_raised(service, levels):
    """hpzd gives back itself; what a dead one cannot, we do, by the difference to before its first start."""
    with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
        if service.get_pid() and any(pool["raised"] for pool in get_status()["pools"]):
            hpzctl("drain", "--give-back")
    for pool, level in levels.items():
        pool.remove(max(0, pool.get_nr() - level))


def clean_up(service, claim, levels):
    """True when nothing was left behind."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    daemon = service.get_pid()
    keep = {daemon, *service.get_workers()}
    host.end_processes([pid for pid in host.get_descendants(os.getpid()) if pid not in keep])
    give_back_what_hpzd_raised(service, levels)
    try:
        service.stop()
    except ServiceError as error:
        host.note(f"with-daemon: {error}")
    host.end_processes(host.get_descendants(os.getpid()))
    return claim.release()


def main():
    options = parse_arguments()
    with contextlib.suppress(KeyError, OSError):
        os.set_inheritable(int(os.environ["HPZ_TESTS_LOCKED"]), False)  # what outlives us must not keep the lock
    host.become_subreaper()
    claim = host.Claim.create(os.getpid())
    service = Service(claim.directory)
    sections = make_config(options, claim.directory)

    def stop(number, _frame):
        raise Stopped(number)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    status, levels = EXIT_OWN_FAILURE, {}
    try:
        make_environment(service)
        write_config(sections, service.config)
        raise_pages(options, sections, claim)
        for name, (page_size, unit) in POOLS.items():
            if f"pool {name}" in sections and host.PagePool(host.SIZES[page_size]).exists():
                keys = sections[f"pool {name}"]
                pages = int(keys.get("max_pages", keys["pages"]))
                host.mount_hugetlbfs(claim.directory / page_size, page_size, f"{max(1, pages) * unit}M")
        levels.update((pool, pool.get_nr()) for pool in (host.PagePool(host.SIZES[POOLS[name][0]]) for name in POOLS
                                                         if is_raised_by_hpzd(sections, name)))
        service.start()
        if not options.no_wait:
            wait_until_clean()
        status = run_command(options.command)
    except Stopped as stopped:
        status = 128 + stopped.args[0]
    except (ServiceError, OSError, subprocess.CalledProcessError) as error:
        print(f"with-daemon: {error}", file=sys.stderr)
    except SystemExit as exiting:
        status = exiting.code
    finally:
        if not clean_up(service, claim, levels) and status == 0:
            status = EXIT_OWN_FAILURE
    return status


if __name__ == "__main__":
    sys.exit(main())
