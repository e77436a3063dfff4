#!/usr/bin/env python3
"""Pages of 1 GiB, in a guest: hpzd on a machine that has them, whatever this one has. A shell script is the test."""
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
import unittest  # noqa: E402

from hpztest.case import run_tests  # noqa: E402
from hpztest.guest import Guest, get_command, get_image, make_initrd  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

# Every step says what it is before it is done; hold answers each command with a line of JSON.
SCRIPT = r"""
say() { echo "TEST $*"; }
expect() { case $2 in *"$1"*) ;; *) say "FAILED: wanted $1 in: $2"; tail -n 30 /run/log; poweroff -f;; esac; }
say the end of processes with such pages
ends=$(hpzctl bench teardown --size 2M --rounds 1 --repeats 1 --memory 1G --hpzd "$(command -v hpzd)" --json 2>/run/ends)
expect "status 75" "status $? $(cat /run/ends)"
expect "rows 9" "rows $(echo "$ends" | grep -o '"backing":"1G","table_bytes":[1-9]' | wc -l) $ends $(cat /run/ends)"
expect '"missing":[]' "$ends"
mkdir /run/1G
mount -t hugetlbfs -o pagesize=1G,mode=0711 huge /run/1G || say "FAILED: no pages of 1 GiB"
mkdir /run/2M
mount -t hugetlbfs -o pagesize=2M,mode=0711 huge /run/2M || say "FAILED: no pages of 2 MiB"
cat > /run/hpzd.conf <<END
[hpzd]
socket = /run/hpzd.sock
run_dir = /run/hpz
[clear]
scavenger = no
[pool one]
page_size = 1G
node = 0
pages = 2
mount = /run/1G
raise = no
stock = 1G*2
[pool small]
page_size = 2M
node = 0
pages = 0
max_pages = 400
mount = /run/2M
raise = no
END
export HPZ_SOCKET=/run/hpzd.sock
start() {
	hpzd --config /run/hpzd.conf >>/run/log 2>&1 &
	daemon=$!
	tries=0
	until hpzctl status >/dev/null 2>&1; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || { say "FAILED: hpzd does not start"; tail -n 30 /run/log; sleep 2; poweroff -f; }
		sleep 0.1
	done
}
clean() { hpzctl wait --timeout 400 >/dev/null 2>/run/wait || { say "FAILED: $(cat /run/wait) $(hpzctl status --json)"; tail -n 30 /run/log; sleep 2; poweroff -f; }; }
soil='check-zero\nfill 7\nverify 7\n'
# Holds its memory until the other holder has its own.
slowly() { printf "$soil"; sleep 4; }
# all_equal OUTPUT COUNT: as many comparisons, and none failed
all_equal() {
	expect "no difference" "$(echo "$1" | grep -q '"equal":false\|"ok":false' && echo "$1" || echo no difference)"
	expect "count $2" "count $(echo "$1" | grep -c '"equal":true')"
}
round() {
	one=$(printf "$soil" | hold --size 1073741824 --timeout 240000)
	all_equal "$one" 2
}
start
say filling: $(cat /sys/kernel/mm/hugepages/hugepages-1048576kB/*_hugepages)
clean
expect '"clean":2' "$(hpzctl status --json)"
say both segments by descriptor
both=$(slowly | hold --size 1073741824 --label first & slowly | hold --size 1073741824 --label second; wait)
all_equal "$both" 4
clean
say both again
both=$(slowly | hold --size 1073741824 & slowly | hold --size 1073741824; wait)
all_equal "$both" 4
clean
say by path
lease=$(hpzctl lease 1G --page-size 1G --path --label path --json)
path=$(echo "$lease" | sed 's/.*"path":"\([^"]*\)".*/\1/')
id=$(echo "$lease" | sed 's/.*"id":\([0-9]*\).*/\1/')
all_equal "$(printf "$soil" | hold --open "$path")" 2
hpzctl release "$id" --wait=60 || say "FAILED: release"
clean
say hpzd killed while clearing
round
kill -9 $daemon
wait $daemon 2>/dev/null
start
clean
expect '"clean":2' "$(hpzctl status --json)"
round
clean
say a worker killed while clearing
round
for pid in $(pidof hpzd); do [ "$pid" = "$daemon" ] || kill -9 "$pid"; done
clean
round
clean
expect '"clean":2' "$(hpzctl status --json)"
say refused
expect 1 "$(hpzctl lease 3G --path >/dev/null 2>&1; echo $?)"
say one becomes small ones, while the other is leased
(printf "$soil"; sleep 12; echo 'verify 7') | hold --size 1073741824 --timeout 240000 > /run/held &
holder=$!
until grep -q '"equal":true' /run/held; do sleep 0.1; done
expect '"demoted":1' "$(hpzctl demote one 1 --json)"
expect 75 "$(hpzctl demote one 1 >/dev/null 2>&1; echo $?)"
expect 1 "$(cat /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages)"
expect 512 "$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"
kill -9 $daemon
wait $daemon 2>/dev/null
start
clean_small() { hpzctl wait --pool small --timeout 400 >/dev/null 2>&1 || say "FAILED: $(hpzctl status --json)"; }
clean_small
expect '"target":400' "$(hpzctl status --json)"
all_equal "$(printf "$soil" | hold --size 419430400 --page-size 2097152 --timeout 240000)" 2
wait $holder
all_equal "$(cat /run/held)" 3
clean
expect '"target":1,' "$(hpzctl status --json)"
say "PASSED $(hpzctl status --json)"
"""


class GuestWithGigabytePages(unittest.TestCase):
    def test_zero(self):
        build = get_build_directory()
        programs = [build / "daemon/hpzd", build / "client/hpzctl", build / "tests/hold"]
        with tempfile.TemporaryDirectory() as directory:
            image = get_image()[0], make_initrd(directory, programs, SCRIPT)
            command = get_command(6144, "hugepagesz=1G hugepages=2", image)
            with Guest([*command, "-cpu", "max", "-smp", "2"]) as guest:
                guest.wait_greeting()
                steps = []
                while not steps or not steps[-1].startswith(("TEST PASSED", "TEST FAILED")):
                    steps.append(guest.wait_line("TEST ", 500)[0])
                rest = guest.text.decode(errors="replace")
        self.assertTrue(steps[-1].startswith("TEST PASSED"), "\n".join([*steps, rest]))


if __name__ == "__main__":
    available = int(next(line for line in Path("/proc/meminfo").read_text().split("\n") if line.startswith("MemAvailable")).split()[1])
    if available < 6 << 20:
        print("test_guest_1g: the guest has 6 GiB, and this host has less than 6 GiB available")
        sys.exit(77)
    run_tests()
