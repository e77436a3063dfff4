# shellcheck shell=bash
# common.bash - what the programs in tests/ share: words, clean-up, the build, the host's lock. Sourced by them.
#
# on_exit FUNCTION     run at exit, failure and SIGINT, SIGTERM, SIGHUP too; the last one registered runs first
# run_child COMMAND    run something long: a signal for us ends it, too (bash alone would wait for it first)
# build_project        packages, meson setup and compile, unless a caller of ours has just done so
# lock_host            page pools and mounts are shared by the whole host: one at a time
set -euo pipefail

tests_dir=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
top_dir=$(dirname "$tests_dir")
lib_dir=$tests_dir/lib
program=$(basename "$0")
export HPZ_BUILD=${HPZ_BUILD:-$top_dir/build}
[[ $HPZ_BUILD == /* ]] || HPZ_BUILD=$PWD/$HPZ_BUILD

# Status of a program that could not do its own part, as timeout(1) and meson's skip have them.
readonly EXIT_OWN_FAILURE=125 EXIT_SKIP=77
export EXIT_OWN_FAILURE EXIT_SKIP lib_dir top_dir

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "$program" "$*" >&2; }
die() {
	local status=$1
	shift
	warn "$*"
	exit "$status"
}

exit_commands=()
on_exit() { exit_commands+=("$1"); }
run_exit_commands() {
	local status=$? index
	trap '' INT TERM HUP
	set +e
	for ((index = ${#exit_commands[@]} - 1; index >= 0; index--)); do
		"${exit_commands[index]}"
	done
	exit "$status"
}
trap run_exit_commands EXIT
child='' children=()
on_signal() {
	local one
	for one in $child ${children[@]+"${children[@]}"}; do "$lib_dir/host" end "$one" 120; done
	exit $((128 + $1))
}
trap 'on_signal 2' INT
trap 'on_signal 15' TERM
trap 'on_signal 1' HUP

run_child() {
	local status=0
	"$@" &
	child=$!
	wait "$child" || status=$?
	child=
	return "$status"
}

require_root() {
	[[ $(id -u) -eq 0 ]] || die "$EXIT_OWN_FAILURE" "needs root: it mounts hugetlbfs and raises the kernel's page pool"
}

build_project() {
	[[ -z ${HPZ_TESTS_BUILT-} ]] || return 0
	"$lib_dir/install-packages" || return 1
	local output
	mkdir -p "$HPZ_BUILD"
	{
		flock 9
		if [[ ! -e $HPZ_BUILD/build.ninja ]]; then
			output=$(meson setup "$HPZ_BUILD" "$top_dir" 2>&1) || {
				printf '%s\n' "$output" >&2
				return 1
			}
		fi
		output=$(ninja -C "$HPZ_BUILD" 2>&1) || {
			printf '%s\n' "$output" >&2
			return 1
		}
	} 9>"$HPZ_BUILD.lock"
	export HPZ_TESTS_BUILT=1
}

# The lock is a descriptor that children inherit; HPZ_TESTS_LOCKED tells them that they need not ask.
lock_host() {
	[[ -z ${HPZ_TESTS_LOCKED-} ]] || return 0
	local file=/run/lock/hpz-tests.lock
	mkdir -p /run/lock
	exec {HPZ_TESTS_LOCKED}>>"$file"
	export HPZ_TESTS_LOCKED
	if ! flock -n "$HPZ_TESTS_LOCKED"; then
		warn "waiting for another run on this host ($file)"
		flock "$HPZ_TESTS_LOCKED"
	fi
	"$lib_dir/host" sweep
}
