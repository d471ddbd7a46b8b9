#!/bin/bash
# The program as people call it: every command line of the seed document, bytes that depend on nothing
# but input and flags, exit statuses, files and modes, signals.
# usage: test_cli.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
fak=$1/fak
fixtures=$2/tests/fak/fixtures
work=$(mktemp -d)
trap '[ "$BASHPID" != "$$" ] || rm -rf "$work"' EXIT # not in a child that is told to end before it is its program
cd "$work"
fail() { echo "cli: $*" >&2; exit 1; }

# ---- the command lines of the seed document ----
"$fak" native-performance | cmp - "$fixtures/cli/human.txt"
"$fak" native-performance --json | cmp - "$fixtures/cli/graph.json"
"$fak" native-performance --next | cmp - "$fixtures/cli/next.txt"
"$fak" native-performance --dot >native-performance.dot
cmp native-performance.dot "$fixtures/cli/graph.dot"
if command -v dot >/dev/null; then
    dot -Tsvg native-performance.dot >native-performance.svg
    grep -q '<svg' native-performance.svg || fail "dot made no SVG"
fi
"$fak" native-performance --baseline metal.command-buffer-amortization >baseline.json
cmp baseline.json "$fixtures/cli/template-metal.json"
cp "$fixtures/receipt/synthetic-metal-baseline.json" baseline.json
cp "$fixtures/receipt/synthetic-metal-candidate.json" candidate.json
"$fak" native-performance --compare baseline.json --candidate candidate.json | cmp - "$fixtures/golden/compare-metal.json"
"$fak" bench system-baseline --baseline-duration 2s --interval 250ms --max-sampler-duty-percent 10 --out baseline-system-rep-1.json -- sleep 0.6 >attestation.json
cmp attestation.json baseline-system-rep-1.json
"$fak" bench system-baseline --verify baseline-system-rep-1.json | grep -E '^VALID sha256:[0-9a-f]{64} verdict=(clean|investigate)$' >/dev/null || fail verify
"$fak" native-performance --attach-receipt baseline.json --system-baseline baseline-system-rep-1.json --out next.json
[ "$(stat -c %a next.json)" = 600 ] || fail "mode of --out"
cmp baseline.json "$fixtures/receipt/synthetic-metal-baseline.json" # the input is as it was
"$fak" native-performance --profile "$fixtures/profile/synthetic-metal-launch-bound.json" >/dev/null
"$fak" native-performance --profile-next "$fixtures/profile/synthetic-metal-launch-bound.json" >/dev/null

# retained attestations still verify, byte for byte
for file in "$2"/docs/witnesses/native-performance-profile/*.json; do
    "$fak" bench system-baseline --verify "$file" >/dev/null || fail "$file"
done

# a file of the older hashing verifies too, and it is said which one held
older=$fixtures/baseline/synthetic-upstream-hashing.json
"$fak" bench system-baseline --verify "$older" | grep ' verdict=clean hashing=upstream$' >/dev/null || fail "older hashing"
"$fak" native-performance --attach-receipt baseline.json --system-baseline "$older" --out older.json 2>err.txt
grep -q 'hashing=upstream$' err.txt || fail "attach does not name the older hashing"
"$fak" native-performance --validate older.json >/dev/null

# ---- the same bytes in every environment ----
outputs() {
    "$@" native-performance
    "$@" native-performance --json
    "$@" native-performance --next
    "$@" native-performance --dot
    "$@" native-performance --baseline cuda.q8_1-activation-quant
    "$@" native-performance --compare baseline.json --candidate candidate.json
    "$@" native-performance --gate "$fixtures/gate/synthetic-drop-10.json" || true
    "$@" native-performance --profile-next "$fixtures/profile/synthetic-cuda-bandwidth-bound.json"
    "$@" native-performance --validate "$fixtures/receipt/reject-NPR-020-twice.json" 2>&1 || true
    "$@" native-performance --schema receipt.v2
}
outputs "$fak" >want.txt
for locale in C C.UTF-8 de_DE.UTF-8 tr_TR.UTF-8; do
    outputs env LC_ALL=$locale LANG=$locale LC_NUMERIC=$locale "$fak" | cmp - want.txt
done
outputs env TZ=Pacific/Kiritimati COLUMNS=20 HOME=/nonexistent USER=x HOSTNAME=y "$fak" | cmp - want.txt
outputs env -i "$fak" | cmp - want.txt
for _ in 1 2 3; do outputs "$fak" | cmp - want.txt; done # another layout of memory each time
if setarch --addr-no-randomize true 2>/dev/null; then outputs setarch --addr-no-randomize "$fak" | cmp - want.txt; fi

# ---- standard input, and writing where one cannot ----
"$fak" native-performance --compare - --candidate candidate.json <baseline.json | cmp - "$fixtures/golden/compare-metal.json"
status=0; "$fak" native-performance --attach-receipt baseline.json --system-baseline attestation.json --out missing/next.json 2>err.txt || status=$?
if [ $status != 1 ] || ! grep -q 'NPI-002 -:' err.txt; then fail "--out in a folder that is not there"; fi
head -c 1048577 /dev/zero | tr '\0' ' ' >large.json
status=0; "$fak" bench system-baseline --verify large.json 2>err.txt || status=$?
if [ $status != 1 ] || ! grep -q 'NPI-003 -:' err.txt; then fail "an attestation of more than 1 MiB"; fi

# ---- exits of system-baseline ----
expect() { # status command...
    local want=$1 got=0
    shift
    "$fak" bench system-baseline --baseline-duration 20ms --interval 10ms "$@" >out.json 2>err.txt || got=$?
    [ $got = "$want" ] || fail "$* exited $got, $want was wanted: $(cat err.txt)"
}
expect 0 -- true
expect 7 -- sh -c 'exit 7'
expect 137 -- sh -c 'kill -KILL $$'
expect 127 -- no-such-program
[ ! -s out.json ] || fail "an attestation of no command"
expect 126 -- /etc/passwd
expect 124 --timeout 100ms -- sleep 30
grep -q '"timed_out": true' out.json || fail timed_out
expect 125 --out missing/a.json -- true
usage() { # code command...
    local code=$1
    shift
    expect 2 "$@"
    grep -q "^fak bench system-baseline: $code -: " err.txt || fail "$*: $code is not among: $(cat err.txt)"
    grep -q '^usage: ' err.txt || fail "$*: no usage line"
}
usage SBU-001
usage SBU-001 true
usage SBU-001 --
usage SBU-002 --verify busy.json -- true
usage SBU-002 --require-clean -- true
usage SBU-003 --interval 5ms -- true
usage SBU-003 --timeout 25h -- true
usage SBU-003 --max-non-sut-cpu-percent 0 -- true
usage SBU-004 --no-such-flag -- true
usage SBU-004 --interval= -- true
usage SBU-004 --out a --out b -- true
usage SBU-005 --pass-stdout -- true
expect 0 --out att.json --pass-stdout -- echo through
[ "$(cat out.json)" = through ] || fail "--pass-stdout"
"$fak" bench system-baseline --baseline-duration 20ms --interval 10ms --max-non-sut-cpu-percent 0.0001 -- sleep 0.1 >busy.json 2>/dev/null
if grep -q '"verdict": "investigate"' busy.json; then
    status=0; "$fak" bench system-baseline --verify busy.json --require-clean >/dev/null || status=$?
    [ $status = 4 ] || fail "--require-clean exited $status"
fi
# a signal sent to us reaches the command; its attestation is still written
"$fak" bench system-baseline --baseline-duration 20ms --interval 10ms --out signalled.json -- \
    sh -c 'trap "exit 9" TERM; echo ready >ready; while :; do sleep 0.02; done' >/dev/null 2>&1 &
pid=$!
for _ in $(seq 3000); do [ -e ready ] && break; sleep 0.02; done
kill -TERM $pid
status=0; wait $pid || status=$?
[ $status = 9 ] || fail "SIGTERM: $status"
"$fak" bench system-baseline --verify signalled.json >/dev/null

# ---- GPUs, by a library that is not the real one ----
if [ -e "$1/tests/fak/nvml/libnvidia-ml.so.1" ]; then
    LD_LIBRARY_PATH=$1/tests/fak/nvml "$fak" bench system-baseline --attestation v2 --baseline-duration 20ms --interval 10ms \
        --out gpu.json -- sleep 0.05 >/dev/null 2>&1
    "$fak" bench system-baseline --verify gpu.json >/dev/null
    grep -A4 -E '"(sm_clock_mhz|memory_clock_mhz|utilization_percent|power_mw|temperature_c|throttle_reasons|non_sut_process_count|non_sut_memory_bytes)"' gpu.json |
        grep -o '"value": .*,' | grep -o '[0-9]*' | tr '\n' ' ' >readings.txt
    [ "$(cat readings.txt)" = "1980 3201 87 412345 51 64 1 4096 " ] || fail "GPU readings: $(cat readings.txt)"
    grep -q '"code": "GPU_SHARED"' gpu.json || fail "another process on the device was not seen"
    grep -q '"code": "GPU_THROTTLED"' gpu.json || fail "a slowed device was not seen"
fi

# ---- help ----
for command in native-performance 'bench system-baseline' 'receipt fill' report; do
    # shellcheck disable=SC2086
    "$fak" $command --help >help.txt
    [[ $(head -n 1 help.txt) == 'usage: fak '* ]] || fail "$command --help"
done
"$fak" --version | grep '^fak [0-9]' >/dev/null || fail version
status=0; "$fak" nonsense 2>/dev/null || status=$?
[ $status = 2 ] || fail "unknown command"
echo "cli: all as wanted"
