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
	# An emulated CPU's time says nothing of a memory bus: hpzd would back off, a GiB at a time.
	printf '[hpzd]\nsocket = /run/hpzd.sock\nrun_dir = /run/hpz\n[clear]\nscavenger = no\n'
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

# The hook on two page sizes and two nodes, with libvirt's directory on one mount.
name=hook
base=/run/one/libvirt/qemu
mkdir -p $base
{
	cat /run/hpzd.conf
	printf '[libvirt]\nmemory_backing_dir = /run/one\ndeadline = 60s\n'
} >/run/hook.conf
xml() { # NAME MIB NODE ATTRIBUTES
	cat <<-END
		<domain type='kvm' id='1'><name>$1</name><uuid>11111111-2222-3333-4444-555555555555</uuid>
		<metadata><h:memory xmlns:h='https://hpz.dev/domain/1' $4/></metadata><memory unit='MiB'>$2</memory>
		<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>
		<numatune><memory mode='strict' nodeset='$3'/></numatune>
		<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>
	END
}
hook() { # NAME OPERATION STEP, the XML is /run/xml
	HPZ_CONFIG=/run/hook.conf hpz-libvirt-hook "$@" - </run/xml 2>&1 || die "hook $*"
}
free_pages() { # NODE
	cat "/sys/devices/system/node/node$1/hugepages/hugepages-2048kB/free_hugepages"
}
before=$(free_pages 0),$(free_pages 1)
xml large 1024 1 "page-size='1G'" >/run/xml
mkdir $base/1-large
expect "its memory is lease" "$(hook large start begin)"
[ "$(stat -c %s $base/1-large/pc.ram)" = 1073741824 ] || die "no file of 1G"
grep -q " $base/1-large/pc.ram " /proc/mounts || die "it is not mounted"
[ "$before" = "$(free_pages 0),$(free_pages 1)" ] || die "pages of 2M were taken for it"
[ "$(hpzctl leases --json | grep -c '"node":1')" = 1 ] || die "it is not of node 1: $(hpzctl leases --json)"
hook large started begin >/run/out
[ -z "$(ls $base/1-large)" ] || die "it is still there"
hook large stopped end >/run/out
hpzctl wait >/dev/null 2>&1 || die "1G never clean again"

xml bound 16 1 "pool='no'" >/run/xml
mkdir $base/1-bound
expect "which are held for it" "$(hook bound start begin)"
[ "$(stat -c %b $base/1-bound/pc.ram)" = 32768 ] || die "its pages are not allocated"
[ "$before" = "$(free_pages 0),$(($(free_pages 1) + 8))" ] || die "not of node 1: $before, $(free_pages 0),$(free_pages 1)"
rm -r $base/1-bound
hook bound stopped end >/run/out
[ "$before" = "$(free_pages 0),$(free_pages 1)" ] || die "they are not given back"
# More than the one node has, and less than both.
xml wide $((2 * $(free_pages 1) + 2)) 1 "pool='no'" >/run/xml
mkdir $base/1-wide
expect "ordinary memory" "$(hook wide start begin)"
hook wide started begin >/run/out
xml wide $((2 * $(free_pages 1) + 2)) 0-1 "pool='no'" >/run/xml
expect "which are held for it" "$(hook wide start begin)"
[ "$(stat -c %b $base/1-wide/pc.ram)" = 0 ] || die "of any node they need only be reserved"
hook wide stopped end >/run/out
[ "$before" = "$(free_pages 0),$(free_pages 1)" ] || die "the last are not given back"
rm -r /run/one/libvirt
say hook ok 0
say PASSED
