# shellcheck shell=sh
# nodes.sh - runs in a guest with two nodes (numa/test_numa.py): the machine for `nodes`, then hpzctl as an operator has it.
# It ends with `TEST PASSED`; every test is a line `TEST NAME ok SECONDS`.
say() { echo "TEST $*"; }
die() {
	say "FAILED: $*"
	tail -n 25 /run/log
	exit 1
}
expect() { # PART TEXT
	case $2 in
	*"$1"*) ;;
	*) die "$name: wanted $1 in: $2" ;;
	esac
}

for node in 0 1; do
	echo 72 >/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
	read -r pages </sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
	[ "$pages" = 72 ] || die "node $node has $pages pages of 2M"
done
mkdir /run/one /run/two /run/large
mount -t hugetlbfs -o pagesize=2M,mode=0711 huge /run/one
mount -t hugetlbfs -o pagesize=2M,mode=0711 huge /run/two
mount -t hugetlbfs -o pagesize=1G,mode=0711 huge /run/large || die "no pages of 1G"
export HPZ_SOCKET=/run/hpzd.sock
pool() { # NAME PAGE_SIZE NODE PAGES MAX MOUNT STOCK
	printf '[pool %s]\npage_size = %s\nnode = %s\npages = %s\nmax_pages = %s\nmount = %s\nraise = no\nstock = %s\n' "$@"
}
{
	printf '[hpzd]\nsocket = /run/hpzd.sock\nrun_dir = /run/hpz\n'
	pool a 2M 0 48 56 /run/one '32M*1 8M*2 2M*rest'
	pool b 2M 1 48 56 /run/two '32M*1 8M*2 2M*rest'
	pool c 1G 0 1 1 /run/large '1G*1'
	pool d 1G 1 1 1 /run/large '1G*1'
} >/run/hpzd.conf
nodes /run/hpzd.conf || die "see above"

name=hpzctl
hpzctl wait >/dev/null 2>&1 || die "never clean again"
plan=$(hpzctl plan --cell 8M:0 --cell 8M:1 --json) || die "no plan: $plan"
expect '"kind":"several"' "$plan"
expect '"pool":null,"node":null' "$plan"
expect '"segments":2' "$plan"
expect 'pool a, node 0: 8 MiB is clean, in 1 segment; pool b, node 1: 8 MiB is clean' "$plan"
expect '"segments":4' "$(hpzctl plan 80M --nodes 0-1 --page-size 2M --json)"
lease=$(hpzctl lease --path --cell 8M:1 --cell 8M:0 --label cells --json) || die "no cells: $lease"
expect '"node":1,"cell":0,"size":8388608,"path":"/run/two/hpz-out/' "$lease"
expect '"node":0,"cell":1,"size":8388608,"path":"/run/one/hpz-out/' "$lease"
expect '"cell":1' "$(hpzctl leases --json)"
hpzctl check >/run/check 2>&1 || die "the books: $(cat /run/check)"
hpzctl release "$(echo "$lease" | sed 's/.*"id":\([0-9]*\).*/\1/')" --wait=60 >/dev/null || die "cells do not come back"
refusal=$(hpzctl lease 200M --path --node 1 --page-size 2M 2>&1) && die "more than there is"
expect "of node 1 that fits, of pages of 2M" "$refusal"
refusal=$(hpzctl lease 2M --path --node 7 2>&1) && die "a node that is not there"
expect "there is no pool on node 7; there is one on node 0, 1" "$refusal"
run=$(hpzctl run --size 8M --node 1 --node-policy preferred -- env 2>&1) || die "run: $run"
expect HPZ_SIZE=8388608 "$run"
for words in "2M --cell 2M:0" "--node 0 --cell 2M:0" "2M --nodes 0-1 --node 0" "2M --node-policy preferred" "2M --node-policy interleave"; do
	# The words are several.
	# shellcheck disable=SC2086
	hpzctl lease --path $words >/run/out 2>&1
	[ $? = 2 ] || die "hpzctl lease $words: $(cat /run/out)"
done
hpzctl wait >/dev/null 2>&1 || die "not clean in the end"
say hpzctl ok 0
say PASSED
