# shellcheck shell=bash
# lib.sh - what the scripts share. Source it; it starts nothing.

# say TEXT...: a line for people, on stderr. die CODE TEXT...: the last one.
say() { printf '%s\n' "$*" >&2; }
die() { local code=$1; shift; printf '%s: %s\n' "${0##*/}" "$*" >&2; exit "$code"; }

# missing_packages PACKAGE...: those that dpkg does not have installed.
missing_packages() {
    local p
    for p; do
        dpkg-query -W -f '${db:Status-Status}\n' "$p" 2>/dev/null | grep -qx installed || printf '%s ' "$p"
    done
}

# need_packages PACKAGE...: install what is missing, as root or through sudo without a password;
# otherwise print the command and exit 3. Where there is no dpkg, check nothing.
need_packages() {
    command -v dpkg-query >/dev/null || return 0
    local missing sudo=()
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
            die 3 "some packages are missing; run:  sudo apt-get install -y ${missing% }"
        fi
        sudo=(sudo -n)
    fi
    say "installing: ${missing% }"
    local log
    log=$(mktemp)
    # shellcheck disable=SC2086 # a list of words
    if ! { "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing ||
           { "${sudo[@]}" apt-get update &&
             "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; }
         } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die 3 "these packages could not be installed: ${missing% }"
    fi
    rm -f "$log"
}

# need_for WHAT...: the packages that building, fetching models or testing takes.
need_for() {
    local what list=()
    for what; do
        case $what in
        build) list+=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libssl-dev libutf8proc-dev libedit-dev libmicrohttpd-dev git) ;;
        fetch) list+=(python3 python3-pip ca-certificates) ;;
        test) list+=(g++ libcmocka-dev curl python3 python3-venv python3-jsonschema python3-jinja2 jq shellcheck valgrind graphviz openssh-client haproxy) ;;
        cross) list+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static) ;;
        browser) list+=(chromium) ;;
        *) die 4 "need_for: $what" ;;
        esac
    done
    need_packages "${list[@]}"
}

# cache_dir: where fetched models live.
cache_dir() {
    case ${XDG_CACHE_HOME:-} in
    /*) printf '%s/gem\n' "$XDG_CACHE_HOME" ;;
    *) printf '%s/.cache/gem\n' "${HOME:?neither XDG_CACHE_HOME nor HOME is set}" ;;
    esac
}

# run_logged LOG COMMAND...: quiet when it works; the end of the log when it does not.
run_logged() {
    local log=$1
    shift
    if ! "$@" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        return 1
    fi
}

# script_help FILE: the comment at its head, and exit 0.
script_help() {
    sed -n '2,/^set/{/^set/d;/^# shellcheck /d;s/^# \{0,1\}//;p;}' "$1"
    exit 0
}

# gem_analyze ARGUMENT...: the judge. GEM_ANALYZE names another build of it.
gem_analyze() {
    local program=${GEM_ANALYZE:-$here/../build/gem-analyze}
    [ -x "$program" ] || die 3 "$program is missing: build gem first"
    "$program" "$@"
}

# analysis NAME ARGUMENT...: the whole of an analyze-*.sh: help, or gem-analyze NAME with these arguments.
analysis() {
    case ${2:-} in -h | --help) script_help "$0" ;; esac
    gem_analyze "$@"
}
