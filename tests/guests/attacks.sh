# shellcheck shell=sh
# attacks.sh - runs in a guest (lib/guest-run): hpzd, and what a former tenant may try (attack), on that guest's kernel.
# Words on the kernel's command line: hpz.pages=N of 2M, hpz.bpf=no (hpzd without BPF), hpz.gigabyte (a pool of 1G pages),
# hpz.races=N (races only, so often each). It ends with `TEST PASSED`; every attack is a line `TEST attack NAME: VERDICT`.
say() { echo "TEST $*"; }
die() {
	say "FAILED: $*"
	tail -n 25 /run/log
	exit 1
}
word() { tr ' ' '\n' </proc/cmdline | sed -n "s/^hpz.$1=//p"; }

# The regime of this kernel: whether the facts are read here as on the machine itself.
if [ -x /usr/bin/test_paravirt ]; then
	test_paravirt >/run/regime 2>&1 || die "regime: $(tail -n 3 /run/regime)"
	sed -n 's/^# /TEST regime /p' /run/regime
fi

# What this kernel tells of the end of a process: by BPF, and by perf events where tracefs is.
if [ -x /usr/bin/test_exits ] && [ -z "$(word gigabyte)" ]; then
	mount -t tracefs trace /sys/kernel/tracing || die "no tracefs"
	HPZ_TEST_HPZD=/usr/bin/hpzd test_exits >/run/exits 2>&1 || die "exits: $(grep -v ' OK ' /run/exits | tail -n 8)"
	sed -n 's/^# /TEST /p' /run/exits
fi

tab=$(printf '\t')
pages=$(word pages) bpf=$(word bpf) gigabyte=$(word gigabyte) races=$(word races)
size=4M bytes=4194304 page=2M
[ -z "$gigabyte" ] || size=1G bytes=1073741824 page=1G
[ -n "$gigabyte" ] || echo "$pages" >/proc/sys/vm/nr_hugepages
mkdir -p /tmp
chmod 1777 /tmp
# A registered buffer counts as the whole page it is in. (busybox has it.)
# shellcheck disable=SC3045
ulimit -l unlimited
mkdir /run/huge
mount -t hugetlbfs -o "pagesize=$page,mode=0711" huge /run/huge || die "no pages of $page"
mkdir /run/huge/attacker
chown 61001:61001 /run/huge/attacker
cat >/run/hpzd.conf <<END
[hpzd]
socket = /run/hpzd.sock
run_dir = /run/hpz
[clear]
scavenger = no
[pool one]
page_size = $page
node = 0
pages = $pages
mount = /run/huge
raise = no
stock = $size*rest
END
export HPZ_SOCKET=/run/hpzd.sock
prefix=
[ "$bpf" != no ] || prefix="/usr/bin/setpriv --bounding-set -bpf,-perfmon,-sys_admin"
$prefix hpzd --config /run/hpzd.conf >>/run/log 2>&1 &
tries=0
until hpzctl status >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || die "hpzd does not start"
	sleep 0.1
done
hpzctl wait >/dev/null 2>&1 || die "never clean"
say "kernel $(uname -r)"
say "proof $(hpzctl status --json | sed 's/.*"proof":"\([^"]*\)".*/\1/')"
sed -n 's/.*proof: \(pages of\)/TEST facts \1/p' /run/log

lease() { # UID: id and path
	reply=$(hpzctl lease $size --page-size $page --path --owner "$1:$1" --keep --wait 60 --json) || die "no lease: $reply"
	id=$(echo "$reply" | sed 's/.*"id":\([0-9]*\).*/\1/')
	path=$(echo "$reply" | sed 's/.*"path":"\([^"]*\)".*/\1/')
}
tell() {
	printf '%s\n' "$1" >&3
	read -r answer <&4 || answer="it died"
}
is_over() { ! hpzctl leases --json | grep -q "\"id\":$1,"; }

# The secret of another process of the same uid, in the next memory: the tenant must not find it.
try_next_lease() {
	lease 61001
	printf 'fill\t%s\n' "$path" | /usr/bin/setpriv --reuid 61001 --regid 61001 --clear-groups attack >/run/filled
	grep -q true /run/filled || die "$1: the secret cannot be written"
	tell look
	case $answer in
	*'"secret":false,"opened":false'*) ;;
	*) die "$1: $answer" ;;
	esac
	hpzctl release "$id" --wait=60 >/dev/null || die "$1: the next lease does not come back"
}

run_attack() { # NAME; `verdict` is what came of it
	rm -f /run/in /run/out
	mkfifo -m 666 /run/in /run/out
	/usr/bin/setpriv --reuid 61001 --regid 61001 --clear-groups attack </run/in >/run/out &
	tenant=$!
	exec 3>/run/in 4</run/out
	lease 61001
	first=$id
	tell "prepare$tab$1$tab$path$tab/run/huge/attacker"
	case $answer in
	*true*) ;;
	*) die "$1: $answer" ;;
	esac
	hpzctl release "$first" >/dev/null
	verdict=
	while [ -z "$races" ] && [ -z "$verdict" ]; do
		verdict=$(sed -n "s/.*lease $first .*still held by \(.*\)/seen: \1/p" /run/log)
		if is_over "$first"; then verdict="over"; else sleep 0.05; fi
	done
	if [ -z "$gigabyte" ]; then
		try_next_lease "$1"
		try_next_lease "$1"
	fi
	tell let-go
	case $answer in
	*'"late":0'*) ;;
	*) late=$((late + 1)) ;;
	esac
	exec 3>&- 4<&-
	wait $tenant
	rm -f /run/huge/attacker/*
	tries=0
	until is_over "$first"; do
		tries=$((tries + 1))
		[ $tries -lt 1200 ] || die "$1: let go, but not back"
		sleep 0.05
	done
}

late=0
if [ -n "$races" ]; then
	i=0
	while [ $((i += 1)) -le "$races" ]; do
		for name in "late mapper by path" "pin during the proof" "chmod spinner"; do run_attack "$name"; done
		say "race $i of $races after $(cut -d. -f1 /proc/uptime) s"
	done
	say "races $races, in $late of them somebody was let in before the shields and came after them"
else
	attack --list >/run/list
	while read -r name <&5; do
		# This one needs the descriptor of another process.
		[ "$name" != "O_PATH of the file" ] || continue
		run_attack "$name"
		say "attack $name: $verdict"
	done 5</run/list
fi
hpzctl wait >/dev/null 2>&1 || die "not clean in the end"
[ -n "$bpf" ] || hpzctl status --json | grep -q "\"clean\":$pages," || die "not all came back: $(hpzctl status --json)"
zero=$(echo check-zero | hold --size "$bytes" --timeout 240000)
echo "$zero" | grep -q '"equal":true' || die "not zero: $zero"
say PASSED
