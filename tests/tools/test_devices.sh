#!/usr/bin/env bash
# gem-device-info, and the two Metal tools where there is no Metal.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/tools/tools.sh disable=SC1091
. "$src/tests/tools/tools.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }

makes device.json 0 "device info" "$bin/gem-device-info"
same "schema" "$(json device.json .schema)" '"gem-device-info/1"'
same "the oracle always runs" "$(json device.json '.cpu.instruction_sets[] | select(.name == "ref") | .usable')" true
same "a counter is there, or says why not" "$(json device.json '[.counters.counters[] |
    if .available then (.probe_value | type) == "number" else (.reason | length) > 0 end] | all')" true
if [ "$(uname)" = Linux ]; then
    same "fifteen were tried" "$(json device.json '.counters.counters | length')" 15
fi
same "CUDA: devices, or why not" "$(json device.json '.cuda | (.devices | length > 0) != has("unavailable") or (.devices | length == 0)')" true
same "NVML: devices, or why not" "$(json device.json '.nvml | (.gpus | type == "array")')" true
same "no Metal here" "$(json device.json '.metal | [(.unavailable | length > 0), .counter_sets]')" '[true,[]]'
for program in gem-metal-counter-info gem-metal-startup-profile; do
    expect 3 "$program without Metal" "$bin/$program"
    same "$program: nothing on stdout" "$(wc -c <"$tmp/out" | tr -d ' ')" 0
    same "$program: one sentence" "$(wc -l <"$tmp/err" | tr -d ' ')" 1
    expect 0 "help of $program" "$bin/$program" --help
    expect 0 "man page of $program" "$bin/$program" --help-as man
done
expect 3 "with repetitions" "$bin/gem-metal-startup-profile" 3
expect 2 "counter-info takes no argument" "$bin/gem-metal-counter-info" 3
finish
