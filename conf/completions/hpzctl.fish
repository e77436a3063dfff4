# fish completion for hpzctl: verbs and options are what hpzctl's own --help says; pools and leases are asked for.

function __hpzctl_words
    command hpzctl $argv --help 2>/dev/null | string replace -rf '^  ([a-z][a-z-]*) +(.*)' '$1\t$2'
end
function __hpzctl_options
    command hpzctl $argv --help 2>/dev/null | string replace -rf '^  (--[a-z0-9-]+)\S* *(.*)' '$1\t$2'
end
function __hpzctl_bench
    command hpzctl bench --help 2>/dev/null | string replace -rf '^Measure.*: (.*)\.$' '$1' | string split ', '
end
function __hpzctl_pools
    command hpzctl status 2>/dev/null | sed -n '/^POOL /,/^$/{/^POOL /d;s/^\([^ :]\+\) .*/\1/p}'
end
function __hpzctl_leases
    command hpzctl leases 2>/dev/null | string replace -rf '^(\d+) .*' '$1'
end
function __hpzctl_domains
    command virsh --quiet --readonly list --all --name 2>/dev/null
end

function __hpzctl_candidates
    set -l plain (commandline -opc | string match -v -- '-*')[2..]
    set -l current (commandline -ct)
    if string match -q -- '-*' $current
        switch "$plain[1]"
            case domain bench
                __hpzctl_options $plain[1..2]
            case '*'
                __hpzctl_options $plain[1]
        end
        return
    end
    switch "$plain[1]"
        case ''
            __hpzctl_words
        case domain
            test (count $plain) -gt 1; and __hpzctl_domains; or __hpzctl_words domain
        case bench
            __hpzctl_bench
        case release unreserve grow shrink
            __hpzctl_leases
        case resize demote
            __hpzctl_pools
        case run simulate
            __fish_complete_path $current
    end
end

complete -c hpzctl -f -a '(__hpzctl_candidates)'
