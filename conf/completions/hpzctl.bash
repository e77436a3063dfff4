# bash completion for hpzctl                                                       -*- shell-script -*-
# Verbs and options are what hpzctl's own --help says; pools and leases are asked for.

_hpzctl_words() { command hpzctl "$@" --help 2>/dev/null | sed -n "s/^  \([a-z][a-z-]*\) .*/\1/p"; }
_hpzctl_options() { command hpzctl "$@" --help 2>/dev/null | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'; }
_hpzctl_bench() { command hpzctl bench --help 2>/dev/null | sed -n 's/^Measure.*: \(.*\)\.$/\1/p' | tr -d ,; }
_hpzctl_pools() { command hpzctl status 2>/dev/null | sed -n '/^POOL /,/^$/{/^POOL /d;s/^\([^ :]\+\) .*/\1/p}'; }
_hpzctl_leases() { command hpzctl leases 2>/dev/null | sed -n 's/^\([0-9]\+\) .*/\1/p'; }
_hpzctl_domains() { command virsh --quiet --readonly list --all --name 2>/dev/null; }

_hpzctl() {
	local current=${COMP_WORDS[COMP_CWORD]} previous='' verb='' subverb='' words='' i
	((COMP_CWORD == 0)) || previous=${COMP_WORDS[COMP_CWORD - 1]}
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--socket | --pool | --node | --page-size | --label) i=$((i + 1)) ;;
		-*) ;;
		*)
			if [[ -z $verb ]]; then
				verb=${COMP_WORDS[i]}
			elif [[ -z $subverb ]]; then
				subverb=${COMP_WORDS[i]}
			fi
			;;
		esac
	done
	case $previous in
	--socket | --root | --trace | --from | --markdown)
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	--pool)
		mapfile -t COMPREPLY < <(compgen -W "$(_hpzctl_pools)" -- "$current")
		return
		;;
	esac
	case $verb:$current in
	:-*) words=$(_hpzctl_options) ;;
	:*) words=$(_hpzctl_words) ;;
	domain:-* | bench:-*) words=$(_hpzctl_options "$verb" ${subverb:+"$subverb"}) ;;
	*:-*) words=$(_hpzctl_options "$verb") ;;
	domain:*) if [[ -n $subverb ]]; then words=$(_hpzctl_domains); else words=$(_hpzctl_words domain); fi ;;
	bench:*) words=$(_hpzctl_bench) ;;
	release:* | unreserve:* | grow:* | shrink:*) words=$(_hpzctl_leases) ;;
	resize:* | demote:*) words=$(_hpzctl_pools) ;;
	run:* | simulate:*)
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o filenames -F _hpzctl hpzctl
