#!/usr/bin/env bash
# gem-host-state on recorded outputs of both systems, on this machine, and run-when-host-clean.sh with a
# host that is a script.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
host=$bin/gem-host-state
here=$src/tests/evidence/host
state() { # state CODE PLATFORM RECORDING [OPTION...]
    local code=$1 platform=$2 recording=$3
    shift 3
    expect "$code" "$recording $*" "$host" --check --platform "$platform" --recorded "$recording" "$@"
}
get() { jq -c "$1" "$tmp/out"; }

state 0 macos "$here/macos-clean"
same "macOS figures" "$(get '[.platform, .cpus, .load_average[0], .load_per_cpu, .busy_percent, .power, .thermal.warning, .clean]')" \
    '["macos",16,1.32,0.0825,3.75,"ac",false,true]'
same "macOS processes" "$(get '[.process_cpu_percent_sum, .busiest[0].name, .busiest[2].name]')" '[16,"WindowServer","Activity Monitor"]'
has "assertions are kept" "$tmp/out" PreventUserIdleSystemSleep
state 1 macos "$here/macos-hot"
same "a speed limit" "$(get .failed_rules)" '["host-thermal"]'
state 1 macos "$here/macos-battery"
same "battery" "$(get .failed_rules)" '["host-power"]'
state 0 macos "$here/macos-battery" --allow-battery
state 1 macos "$here/macos-clean" --max-busy-percent 3
same "busy" "$(get .failed_rules)" '["host-busy"]'
has "stderr names it" "$tmp/err" "refused: host-busy: 3.75 %"
state 1 macos "$here/macos-clean" --max-load-per-cpu 0.08
same "load" "$(get .failed_rules)" '["host-load"]'

state 0 linux "$here/linux-clean"
# 19 of 800 ticks
same "Linux figures" "$(get '[.cpus, .load_per_cpu, .busy_percent, .power, .thermal.throttle_events, .governors]')" \
    '[8,0.0525,2.375,"none",0,["performance"]]'
state 1 linux "$here/linux-throttled"
same "throttling" "$(get .failed_rules)" '["host-thermal"]'
state 1 linux "$here/linux-laptop"
same "battery and governor" "$(get .failed_rules)" '["host-power","host-governor"]'
state 0 linux "$here/linux-laptop" --allow-battery --any-governor

# what is missing is never clean
drop() { # drop RECORDING FILE RULE PLATFORM
    rm -rf "$tmp/rec"
    cp -r "$here/$1" "$tmp/rec"
    rm "$tmp/rec/$2"
    state 1 "$4" "$tmp/rec"
    same "without $2" "$(get .failed_rules)" "[\"$3\"]"
}
drop macos-clean top host-busy macos
drop macos-clean pmset-batt host-power macos
drop macos-clean pmset-therm host-thermal macos
drop macos-clean loadavg host-load macos
drop macos-clean cpus host-load macos
drop linux-clean stat.after host-busy linux
drop linux-clean power_supplies host-power linux
# a single observation of top is an average since boot
rm -rf "$tmp/rec"
cp -r "$here/macos-clean" "$tmp/rec"
head -n 5 "$here/macos-clean/top" >"$tmp/rec/top"
state 1 macos "$tmp/rec"
same "one observation" "$(get '[.failed_rules, .busy_percent]')" '[["host-busy"],null]'

# this machine
expect 0 "live" "$host" --interval-ms 50 --record "$tmp/live"
same "live figures" "$(get '.cpus >= 1 and .load_average[0] >= 0 and .busy_percent >= 0 and .busy_percent <= 100')" true
platform=$(get -r .platform 2>/dev/null || jq -r .platform "$tmp/out")
busy=$(get .busy_percent)
expect 0 "the recording read back" "$host" --recorded "$tmp/live" --platform "$platform"
same "the same busy share" "$(get .busy_percent)" "$busy"
expect 3 "no recording" "$host" --recorded "$tmp/none"
expect 2 "a platform without a recording" "$host" --platform linux
if [ -e "$bin/tests/fak/nvml/libnvidia-ml.so.1" ]; then # a device with another process and a power cap
    LD_LIBRARY_PATH=$bin/tests/fak/nvml expect 0 "a GPU" "$host" --interval-ms 20
    same "its process is seen" "$(get '.gpus[0].non_sut_process_count.value > 0 and (.failed_rules | index("host-gpu") != null)')" true
fi

# ---- the watcher: the host is clean or not by the letters in $tmp/host: c, d, and f for a failure ----
cat >"$tmp/host-state" <<SH
#!/usr/bin/env bash
n=\$(cat "$tmp/n" 2>/dev/null || echo 0)
echo \$((n + 1)) >"$tmp/n"
letter=\$(cut -c\$((n + 1)) "$tmp/host")
case \$letter in
c) exec "$host" --recorded "$here/macos-clean" --platform macos "\$@" ;;
f) exit 4 ;;
*) exec "$host" --recorded "$here/macos-hot" --platform macos "\$@" ;;
esac
SH
chmod +x "$tmp/host-state"
export GEM_HOST_STATE=$tmp/host-state GEM_CLEAN_HOST_INTERVAL_SECONDS=0
watcher=("$src/scripts/run-when-host-clean.sh")
begin() { echo "$1" >"$tmp/host"; rm -f "$tmp/n" "$tmp/wait.ndjson" "$tmp/ran"; }
begin ccdccc
expect 7 "becomes the command" "${watcher[@]}" "$tmp/wait.ndjson" -- bash -c "echo \$\$ >$tmp/ran; exit 7"
same "every snapshot is kept" "$(jq -c '[.clean, .clean_streak]' "$tmp/wait.ndjson" | paste -sd' ')" \
    '[true,1] [true,2] [false,0] [true,1] [true,2] [true,3]'
same "with its policy" "$(head -n 1 "$tmp/wait.ndjson" | jq -c '[.schema, .policy.max_load_per_cpu, .policy.max_busy_percent]')" \
    '["gem-host-state/1",1,10]'
begin ccc
"${watcher[@]}" "$tmp/wait.ndjson" -- bash -c "echo \$\$ >$tmp/ran" 2>/dev/null &
pid=$!
wait "$pid"
same "the watcher is replaced, not a parent" "$(cat "$tmp/ran")" "$pid"
begin dddddddddd
GEM_CLEAN_HOST_MAX_WAIT_SECONDS=0 GEM_CLEAN_HOST_INTERVAL_SECONDS=1 expect 75 "never clean" "${watcher[@]}" "$tmp/wait.ndjson" -- touch "$tmp/ran"
holds "nothing was run" test ! -e "$tmp/ran"
same "the refusal is on record" "$(jq -c .failed_rules "$tmp/wait.ndjson")" '["host-thermal"]'
expect 2 "a receipt is not written twice" "${watcher[@]}" "$tmp/wait.ndjson" -- touch "$tmp/ran"
begin cf
expect 4 "a failing snapshot" "${watcher[@]}" "$tmp/wait.ndjson" -- touch "$tmp/ran"
holds "nothing was run" test ! -e "$tmp/ran"
begin c
expect 3 "no such command" "${watcher[@]}" "$tmp/wait.ndjson" -- "$tmp/none"
expect 2 "no command" "${watcher[@]}" "$tmp/wait.ndjson" --
expect 2 "no dashes" "${watcher[@]}" "$tmp/wait.ndjson" touch x
GEM_CLEAN_HOST_MAX_WAIT_SECONDS=soon expect 2 "no number" "${watcher[@]}" "$tmp/wait.ndjson" -- touch x
expect 0 help "${watcher[@]}" --help
finish
