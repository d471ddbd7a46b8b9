# shellcheck shell=bash
# check.sh - a handful of checks for shell tests. Source it, call check_*, end with `finish`.
failures=0
checks=0

# The test makes its temporary folder, $tmp, before it sources this; it is removed at the end, and not by a child that is
# told to end before it has become its program.
# shellcheck disable=SC2154
trap '[ "${BASHPID:-$$}" != "$$" ] || rm -rf "$tmp"' EXIT

ok() { checks=$((checks + 1)); }
fail() { checks=$((checks + 1)); failures=$((failures + 1)); printf 'FAIL: %s\n' "$*" >&2; }

# holds WHAT COMMAND...: the command succeeds.
holds() {
    local what=$1
    shift
    if "$@"; then ok; else fail "$what"; fi
}

# expect CODE WHAT COMMAND...: runs it; output in $tmp/out and $tmp/err.
expect() {
    local want=$1 what=$2 got=0
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || got=$?
    if [ "$got" -eq "$want" ]; then ok; else fail "$what: exit $got, expected $want: $(tail -n 3 "$tmp/err")"; fi
}
same() { if [ "$2" = "$3" ]; then ok; else fail "$1: got '$2', expected '$3'"; fi; }
has() { if grep -qF -- "$3" "$2"; then ok; else fail "$1: no '$3' in: $(head -c 400 "$2")"; fi; }
lacks() { if grep -qF -- "$3" "$2"; then fail "$1: found '$3'"; else ok; fi; }
finish() { printf '%d checks, %d failed\n' "$checks" "$failures"; [ "$failures" -eq 0 ]; }
