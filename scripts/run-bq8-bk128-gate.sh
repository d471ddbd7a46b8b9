#!/usr/bin/env bash
# run-bq8-bk128-gate.sh OUTPUT_DIR
# Cache tiles of 128 keys against 64 in the attention of a prompt's tile, as an operator: 4K, 64K and 128K, ten untimed
# and ten interleaved runs of each on seeded data. Refuses a busy, hot or battery-powered host before, while and after;
# keeps digests of programs, sources and linkage, the records and receipts, then the report and the manifest. Passing
# admits BK128 to run-bq8-bk128-graph-gate.sh, and promotes nothing.
#   GEM_GATE_SHAPE     another shape than 31b: a trial, and the report says so
#   GEM_GATE_BACKEND   backend of the operator; default: the program's
#   GEM_GATE_MAX_LOAD_PER_CPU and the other limits of long-context-server-gate.sh
#   GEM_LONG_ATTENTION_PROFILE, GEM_METAL_COUNTER_INFO, GEM_ANALYZE, GEM_HOST_STATE, GEM_TETHER   other builds
# Exit: 0 advance, 1 refused (the rules are on stderr), 2 usage, 3 something is missing here, 4 a run failed.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 1 ] || die 2 "OUTPUT_DIR is needed; see --help"
need_tools jq
shape=${GEM_GATE_SHAPE:-31b} profile=${GEM_LONG_ATTENTION_PROFILE:-}
need_program profile gem-long-attention-profile
need_program tether gem-tether
need_program host_state gem-host-state
read_host_policy
gate_open "$1" 0

freeze gem-bq8-bk128-gate 1 "$profile" -- "shape=$shape" rows:=32 warmup:=10 repetitions:=10
receipt resources.json "${GEM_METAL_COUNTER_INFO:-$here/../build/gem-metal-counter-info}" "gem-metal-counter-info is not built here"
stay_awake "$$"
watch ''
n=0
for length in 4k:4064 64k:65504 128k:131040; do
    n=$((n + 1))
    say_running "length $n of 3: a tile at ${length#*:}"
    measure "attention-${length%:*}.json" "$profile" --shape "$shape" --position "${length#*:}" --rows 32 --repetitions 10 \
        --warmup 10 --seed-prefix --variant compare-bq8-bk128 ${backend[@]+"${backend[@]}"}
done
unwatch ''
still_frozen "$profile"
conclude bq8-bk128-gate --shape "$shape"
