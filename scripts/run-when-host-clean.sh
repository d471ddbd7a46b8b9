#!/usr/bin/env bash
# run-when-host-clean.sh RECEIPT.ndjson -- COMMAND [ARGUMENT...]
# Wait until this host was clean three times in a row, then become COMMAND. Every snapshot of gem-host-state is
# kept as a line of RECEIPT; load, one-second busy share, power, heat or another process on a GPU resets the count.
# No other process is stopped or slowed. The receipt says why the command was started; the command's own checks
# before, during and after stay its own.
#   GEM_CLEAN_HOST_MAX_WAIT_SECONDS   give up after this long; default 28800
#   GEM_CLEAN_HOST_INTERVAL_SECONDS   pause between snapshots; default 30
#   GEM_GATE_MAX_LOAD_PER_CPU         default 1.0
#   GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT   default 10
#   GEM_HOST_STATE                    another build of gem-host-state
# Exit: the command's; 75 the host never came clean, and nothing was run; 2 usage, a receipt that exists included;
# 3 the command or gem-host-state is missing; 4 a snapshot failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -ge 3 ] && [ "$2" = -- ] || die 2 "RECEIPT.ndjson -- COMMAND... is needed; see --help"
receipt=$1
shift 2
wait_s=${GEM_CLEAN_HOST_MAX_WAIT_SECONDS:-28800} pause_s=${GEM_CLEAN_HOST_INTERVAL_SECONDS:-30}
for n in "$wait_s" "$pause_s"; do
    case $n in '' | *[!0-9]*) die 2 "'$n' is no number of seconds" ;; esac
done
host_state=${GEM_HOST_STATE:-$here/../build/gem-host-state}
[ -x "$host_state" ] || die 3 "$host_state is missing: build gem first"
command -v "$1" >/dev/null || die 3 "$1: no such command"
[ ! -e "$receipt" ] || die 2 "$receipt exists: a receipt belongs to one wait"
mkdir -p "$(dirname "$receipt")"
: >"$receipt"

trap 'rm -f "$receipt.why"' EXIT
started=$SECONDS streak=0
while :; do
    code=0
    "$host_state" --check --compact --streak "$streak" \
        --max-load-per-cpu "${GEM_GATE_MAX_LOAD_PER_CPU:-1.0}" \
        --max-busy-percent "${GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT:-10}" >>"$receipt" 2>"$receipt.why" || code=$?
    case $code in
    0) streak=$((streak + 1)) ;;
    1) streak=0 ;;
    *) cat "$receipt.why" >&2; rm -f "$receipt.why"; die 4 "a snapshot failed" ;;
    esac
    say "$((SECONDS - started)) s: clean $streak/3$(sed -n '1s/^refused: /; /p' "$receipt.why")"
    rm -f "$receipt.why"
    [ "$streak" -lt 3 ] || break
    [ $((SECONDS - started + pause_s)) -le "$wait_s" ] || die 75 "the host did not come clean in $wait_s s; nothing was run"
    sleep "$pause_s"
done
exec "$@"
