# shellcheck shell=bash disable=SC2034
# package.bash: what tests/package and tests/newcomer share: results, the packages, a clean Debian under its own systemd.
# Whoever sources it has `work`, a directory that is removed at the end, with a directory `repository`.

: "${lib_dir:?common.bash comes first}" "${top_dir:?}"
claim='' box=''
work=$(mktemp -d)
chmod 755 "$work"
release_claim() {
	[[ -z $claim ]] || "$lib_dir/host" release "$claim"
	rm -rf --one-file-system "$work"
}
on_exit release_claim
end_box() {
	[[ -z $box ]] || "$lib_dir/systemd-box" stop "$box"
	box=''
}
on_exit end_box

status=0
since() {
	local microseconds=$((${EPOCHREALTIME/[.,]/} - ${1/[.,]/}))
	printf '%d.%02d' $((microseconds / 1000000)) $((microseconds / 10000 % 100))
}
# record RESULT NAME START [REASON]
record() {
	say "$1 $2 ${4-}"
	[[ -z ${HPZ_RESULTS-} ]] || printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$(since "$3")" "${4-}" >>"$HPZ_RESULTS"
	[[ $1 != fail ]] || status=1
}
# try NAME COMMAND...
try() {
	local name=$1 start=$EPOCHREALTIME result=0
	shift
	run_child "$@" >"$work/output" 2>&1 || result=$?
	case $result in
	0) record pass "$name" "$start" ;;
	"$EXIT_SKIP") record skip "$name" "$start" "$(tail -n 1 "$work/output")" ;;
	*)
		tail -n 60 "$work/output" >&2
		record fail "$name" "$start" "exit status $result"
		;;
	esac
	return "$result"
}

# As nobody, who has no home, and without a network. The unit tests are a stage of their own.
build_packages() {
	mkdir "$work/source" "$work/repository" "$work/tmp"
	{
		git -c safe.directory='*' -C "$top_dir" ls-files -z --cached --others --exclude-standard 2>/dev/null ||
			(cd "$top_dir" && find . -path './build*' -prune -o -type f -print0)
	} | tar -C "$top_dir" --null --ignore-failed-read -T - -c | tar -C "$work/source" -x
	chown -R nobody: "$work/source" "$work/repository" "$work/tmp"
	unshare --net setpriv --reuid=nobody --regid=nogroup --clear-groups env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/nonexistent \
		LC_ALL=C.UTF-8 TMPDIR="$work/tmp" DEB_BUILD_OPTIONS="nocheck parallel=$(nproc)" CCACHE_DISABLE=1 \
		"$work/source/conf/package/build-deb" "$work/repository"
}

list_dependencies() {
	local package
	for package in "$work"/repository/*.deb; do dpkg-deb -f "$package" Depends; done |
		tr ',' '\n' | sed -E 's/\|.*//; s/\(.*//; s/ //g' | grep -vE '^(hpz.*|libhpz.*|libc6|)$' | sort -u
}

# run_inside SUITE NAME PACKAGE... -- SHARE=POINT... -- ENVIRONMENT... PROGRAM: that program of tests/lib in a clean Debian with what our
# packages depend on and these packages, which is kept under that name; NAME is of the results, too.
run_inside() {
	local suite=$1 name=$2 tree start=$EPOCHREALTIME result=0 packages shares=()
	shift 2
	mapfile -t packages < <(list_dependencies)
	while [[ $1 != -- ]]; do
		packages+=("$1")
		shift
	done
	shift
	while [[ $1 != -- ]]; do
		shares+=("$1")
		shift
	done
	shift
	tree=$(HPZ_TREE=$name "$lib_dir/debian-tree" "$suite" "${packages[@]}") || result=$?
	[[ $result -eq 0 ]] || {
		record "$([[ $result -eq $EXIT_SKIP ]] && echo skip || echo fail)" "$name $suite" "$start" "$tree"
		return 0
	}
	mkdir -p "$work/$suite" "$work/none"
	box=$work/$suite
	HPZ_BOX_ROOT=$tree "$lib_dir/systemd-box" start "$box" "$work/none" "$top_dir=/srv/hpz" "$work/repository=/srv/repository" \
		${shares[@]+"${shares[@]}"} >"$work/output" 2>&1 || result=$?
	if [[ $result -ne 0 ]]; then
		record "$([[ $result -eq $EXIT_SKIP ]] && echo skip || echo fail)" "$name $suite" "$start" "$(tail -n 1 "$work/output")"
		end_box
		return 0
	fi
	run_child "$lib_dir/systemd-box" exec "$box" env HPZ_RESULTS=/run/results PYTHONDONTWRITEBYTECODE=1 "${@:1:$#-1}" \
		/usr/bin/python3 "/srv/hpz/tests/lib/${*: -1}" || result=$?
	[[ -z ${HPZ_RESULTS-} ]] || "$lib_dir/systemd-box" exec "$box" cat /run/results | sed "s/\t/\t$name $suite /" >>"$HPZ_RESULTS"
	[[ $result -eq 0 ]] || status=1
	end_box
}
