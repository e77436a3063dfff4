"""What the tests inside a clean Debian share: apt, the service, what is left at the end."""
import os
import re
import subprocess
from pathlib import Path

CONFIG = Path("/etc/hpz/hpzd.conf")
MOUNT = Path("/var/lib/hpz/2M")
MOUNT_UNIT = Path("/etc/systemd/system/var-lib-hpz-2M.mount")
EXAMPLE = Path("/usr/share/doc/hpz/examples") / MOUNT_UNIT.name
SOURCES = Path("/etc/apt/sources.list.d/hpz.list")
KERNEL = Path("/sys/kernel/mm/hugepages/hugepages-2048kB")
# What apt, dpkg, debconf and systemd keep for themselves, whatever is installed; and copies of /etc/group by whoever adds a group.
THEIRS = re.compile(r"/(proc|sys|dev|run|tmp|srv)(/|$)|/var/(lib/(apt|dpkg|systemd)|cache|log|tmp)(/|$)|/etc/(g?shadow|group|passwd|subuid|subgid)-$"
                    r"|/etc/ld.so.cache$|/root/")


def run(*command, check=True):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"})
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done


def apt(*arguments, **options):
    return run("apt-get", "-q", "-y", "-o", "Dpkg::Options::=--force-unsafe-io", "-o", "APT::Sandbox::User=root", *arguments, **options)


def use_repository(name):
    SOURCES.write_text(f"deb [trusted=yes] copy:/srv/{name} ./\n", encoding="ascii")
    apt("update")


def get_property(name, unit="hpzd.service"):
    return run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()


def get_kernel():
    return {name: int((KERNEL / name).read_text(encoding="ascii")) for name in ("nr_hugepages", "free_hugepages")}


def list_files(theirs=THEIRS):
    found = set()
    for directory, subdirectories, files in os.walk("/"):
        subdirectories[:] = [name for name in subdirectories if not theirs.match(os.path.join(directory, name))]
        found.update(path for name in subdirectories + files if not theirs.match(path := os.path.join(directory, name)))
    return found
