#!/usr/bin/env bash
# The runners of the operator gates where only they can refuse: the host before, while and behind a measurement, programs
# that change, checks that fail, folders that were used, and signals at any time.
# GEM_SIGNAL_SWEEP=N tries each signal at N times instead of one.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
# shellcheck source=tests/evidence/gate/tools.sh disable=SC1091
. "$src/tests/evidence/gate/tools.sh"
s=$src/scripts dir=$tmp/run run=''
: "${bin:?}"
export GEM_MODEL_SHA256
GEM_MODEL_SHA256=$(printf 'a%.0s' {1..64})
refuses() { # refuses RULES WHAT VARIABLE=VALUE SCRIPT ARGUMENT...
    local want=$1 what=$2
    shift 2
    rm -rf "$dir"
    expect 1 "$what" env "$@"
    same "$what" "$(rules)" "$want"
    same "$what: nothing has a final name" "$(find "$dir" -maxdepth 1 -type f)" ''
}
refuses host-power "on battery" FAKE_HOST=macos-battery "$s/run-bq8-bk128-gate.sh" "$dir"
refuses host-thermal "hot" FAKE_HOST=macos-hot "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$dir"
refuses host-busy "busy" GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT=3 "$s/run-bq8-bk128-gate.sh" "$dir"
refuses improvement,lower-bound,variation "no gain" FAKE_GAIN=0 "$s/run-bq8-bk128-gate.sh" "$dir"
holds "what was seen is kept" test -s "$dir/refused/summary.json"
expect 1 "and the folder is not used again" "$s/run-bq8-bk128-gate.sh" "$dir"
same "why" "$(rules)" dirty
refuses parity "parity fails" GEM_GATE_PARITY=false "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$dir"
refuses oracle "the oracle fails" GEM_GATE_ORACLE=false "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$dir"
GEM_GATE_ORACLE=$tmp/none expect 3 "no oracle" "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$tmp/none-run"
GEM_MODEL_SHA256=ABC expect 2 "no digest" "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$tmp/none-run"

# the host gets hot while the first length runs, behind a clean snapshot: ended by the monitor
at_work() { compgen -G "$dir/.part.*/$1" >/dev/null; }
seen_clean() { at_work "$1" && grep -qs '"clean": *true' "$dir"/.part.*/host-monitor.ndjson; }
rm -rf "$dir"
FAKE_SLEEP=120 background "$s/run-bq8-bk128-gate.sh" "$dir"
holds "at work" until_there 60 seen_clean attention-4k.json
echo macos-hot >"$tmp/host"
code=0
wait "$run" || code=$?
same "ended" "$code" 1
has "by the monitor" "$tmp/bg.err" "refused: host-thermal"
same "on record" "$(jq -s 'map(.clean) | unique' -c "$dir/refused/host-monitor.ndjson")" '[false,true]'
rm "$tmp/host"

# the host gets hot behind the first length: the second never begins
cat >"$tmp/hot" <<SH
#!/usr/bin/env bash
echo macos-hot >"$tmp/host"
exec "$tmp/gem-decode-profile" "\$@"
SH
chmod +x "$tmp/hot"
GEM_GATE_HOST_MONITOR_SECONDS=60 refuses host-thermal "hot behind the first length" GEM_DECODE_PROFILE="$tmp/hot" \
    "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$dir"
holds "the second length never began" test -e "$dir/refused/A2-64k.json" -a ! -e "$dir/refused/A1-128k.json"
rm "$tmp/host"

# the program changes while it is measured
cat >"$tmp/changing" <<SH
#!/usr/bin/env bash
echo "# more" >>"$tmp/changing"
exec "$tmp/gem-long-attention-profile" "\$@"
SH
chmod +x "$tmp/changing"
refuses binary "a program that changes" GEM_LONG_ATTENTION_PROFILE="$tmp/changing" "$s/run-bq8-bk128-gate.sh" "$dir"

# a signal at any time
n=${GEM_SIGNAL_SWEEP:-1}
for ((i = 0; i < n; i++)); do
    for signal in INT TERM KILL; do
        rm -rf "$dir"
        left=ended
        FAKE_SLEEP=0.5 background "$s/run-bq8-bk128-gate.sh" "$dir"
        sleep "$(awk -v i="$i" -v n="$n" 'BEGIN { printf "%.2f", 0.8 + 4 * i / n }')"
        ended_by "$signal" || continue
        stopped "$signal" "$dir" "$signal"
        left=$(find "$dir" -maxdepth 1 -type f ! -name '.*' 2>/dev/null)
        if [ -n "$left" ]; then # it was ending: whole files, and a folder that is not used again
            expect 1 "$signal at the very end: used again" "$s/run-bq8-bk128-gate.sh" "$dir"
            same "why" "$(rules)" "$([ -e "$dir/MANIFEST.sha256" ] && echo sealed || echo dirty)"
        else
            ok
        fi
    done
done
# the folder of a killed run is taken over; by the watcher, as the protocol has it
[ -z "${left:-}" ] || rm -rf "$dir"
GEM_CLEAN_HOST_MAX_WAIT_SECONDS=28800 GEM_CLEAN_HOST_INTERVAL_SECONDS=0 expect 0 "when the host is clean" \
    "$s/run-when-host-clean.sh" "$tmp/host-wait.ndjson" -- "$s/run-bq8-bk128-gate.sh" "$dir"
same "three clean snapshots, then the gate" "$(jq -s -c 'map(.clean_streak)' "$tmp/host-wait.ndjson") $(jq -r .verdict "$dir/summary.json")" '[1,2,3] advance'
finish
