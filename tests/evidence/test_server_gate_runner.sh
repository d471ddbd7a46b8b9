#!/usr/bin/env bash
# The runner of the long-context server gate where only it can refuse, without a model: the host before and while a
# server works, servers that are wrong, and signals at any time.
# GEM_SIGNAL_SWEEP=N tries each signal at N times instead of one.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
: "${port:?}" "${bin:?}"
run=''
command=("$src/scripts/long-context-server-gate.sh" "$tmp/model.gguf" 4096 "$tmp/prompt.txt")
export GEM_GATE_PREFLIGHT_MIN_TOKENS=200 GEM_GATE_HOST_MONITOR_SECONDS=1 GEM_PREFIX_EXTENSION_TEXT='Reply with DONE.'
refuses() { # refuses RULES WHAT [ENVIRONMENT...]
    local want=$1 what=$2
    shift 2
    rm -rf "$tmp/run"
    expect 1 "$what" env "$@" "${command[@]}" "$tmp/run" "$port"
    same "$what" "$(rules)" "$want"
    holds "$what: nothing is kept" test ! -e "$tmp/run/sample-1.json" -a ! -e "$tmp/run/summary.json"
}
refuses host-power "on battery" FAKE_HOST=macos-battery
refuses host-thermal "hot" FAKE_HOST=macos-hot
refuses host-busy "busy" GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT=3
refuses host-load "loaded" GEM_GATE_MAX_LOAD_PER_CPU=0.05
refuses stream "a stream that is cut" FAKE_FAULT=truncate
refuses prefill-100,progress "no record of 100 %" FAKE_FAULT=no-100
refuses cold,prefix-hit "a server that is not fresh" FAKE_FAULT=warm
refuses prefill-100,prefix-hit,prompt-tokens "another count" FAKE_FAULT=count
refuses context "no room for an answer" FAKE_TOKENS=4096
holds "no server is left" until_there 60 silent

# the host gets hot while the server works: three snapshots in a row end it
begun() { compgen -G "$tmp/run/.part.*/sample-1.sse" >/dev/null; }
rm -rf "$tmp/run"
FAKE_HOLD=$tmp/gem background "${command[@]}" "$tmp/run" "$port"
holds "at work" until_there 60 begun
echo macos-hot >"$tmp/host"
code=0
wait "$run" || code=$?
same "ended" "$code" 1
has "by the monitor" "$tmp/bg.err" "refused: host-thermal"
same "on record" "$(jq -r .event "$tmp/run/attempts.ndjson" | paste -sd, -)" started,refused
rm "$tmp/host"
holds "no server is left" until_there 60 silent

# a signal at any time: no server, nothing half written, and a folder that goes on or is refused
unset GEM_GATE_PREFLIGHT_MIN_TOKENS
sweep() { # sweep SIGNAL DELAY
    local code
    rm -rf "$tmp/run"
    FAKE_DELAY=0.05 background "${command[@]}" "$tmp/run" "$port"
    sleep "$2"
    ended_by "$1" || return 0
    stopped "$1 after $2 s" "$tmp/run" "$1"
    code=0
    GEM_GATE_RESUME=1 "${command[@]}" "$tmp/run" "$port" >"$tmp/out" 2>"$tmp/err" || code=$?
    case $code in
    0) expect 0 "$1 after $2 s: resumed" audit ;;
    1) same "$1 after $2 s: refused" "$(rules)" dirty ;;
    *) fail "$1 after $2 s: resume: exit $code: $(tail -n 2 "$tmp/err")" ;;
    esac
}
audit() { "$src/scripts/audit-long-context-server-gate.sh" "$tmp/run" "$tmp/gem"; }
n=${GEM_SIGNAL_SWEEP:-1}
for ((i = 0; i < n; i++)); do
    for signal in INT TERM KILL; do sweep "$signal" "$(awk -v i="$i" -v n="$n" 'BEGIN { printf "%.2f", 0.7 + 5 * i / n }')"; done
done
finish
