#!/usr/bin/env bash
# run-prefill-stage-attribution.sh MODEL.gguf ARTIFACT_DIR
# Which stage of a prompt's tile takes the time at 128K: the device's counters, the native configuration, digests of
# model, programs and linkage, a seeded stage profile of three repetitions and its ranking, together in one folder. F32 keys
# and values. Refuses to run beside a native server. The axis it names is a hypothesis, no decision.
#   GEM_MODEL_SHA256   a digest that was verified before: the model is not read again
#   GEM_GATE_POSITION, GEM_GATE_LAYERS, GEM_GATE_FULL_LAYERS   a trial with another model than the 31B one; the report says so
#   GEM_GATE_BACKEND   backend of the profile; default: the program's
#   GEM, GEM_LONG_PREFILL_STAGE_PROFILE, GEM_METAL_COUNTER_INFO, GEM_DEVICE_INFO, GEM_ANALYZE, GEM_TETHER   other builds
# Exit: 0 ranked, 1 refused (the rules are on stderr), 2 usage, 3 something is missing here, 4 a run failed.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 2 ] || die 2 "MODEL and ARTIFACT_DIR are needed; see --help"
model=$1 position=${GEM_GATE_POSITION:-131040} layers=${GEM_GATE_LAYERS:-60} full=${GEM_GATE_FULL_LAYERS:-10}
profile=${GEM_LONG_PREFILL_STAGE_PROFILE:-}
need_count GEM_GATE_POSITION "$position"
need_count GEM_GATE_LAYERS "$layers"
need_count GEM_GATE_FULL_LAYERS "$full"
[ -z "${GEM_MODEL_SHA256:-}" ] || need_digest GEM_MODEL_SHA256 "$GEM_MODEL_SHA256"
need_tools jq ps
need_program gem gem
need_program profile gem-long-prefill-stage-profile
need_program tether gem-tether
[ -f "$model" ] || die 3 "$model: no such model"
running=$(ps -A -o pid= -o args= | awk '$2 ~ /(^|\/)gem$/ && $3 == "serve" { print $1; exit }')
[ -z "$running" ] || refuse server "a native server is running (process $running)"
read_host_policy
gate_open "$2" 0

model_identity "$model"
freeze gem-prefill-stage-attribution 1 "$gem" "$profile" -- "model_path=$model" "model_sha256=$model_sha" "position:=$position" \
    "layers:=$layers" "full_layers:=$full" repetitions:=3
inventory=${GEM_METAL_COUNTER_INFO:-$here/../build/gem-metal-counter-info}
[ "$(uname -s)" = Darwin ] || inventory=${GEM_DEVICE_INFO:-$here/../build/gem-device-info}
receipt inventory.json "$inventory" "${inventory##*/} is not built here"
GEM_KV_TYPE=f32 run_child "$gem" print-config "$model" --context $((position + 288)) ${backend[@]+"${backend[@]}"} >"$part/print-config.json" ||
    die 3 "gem print-config refused the configuration"
stay_awake "$$"
say_running "three tiles at $position"
measure profile.json env GEM_KV_TYPE=f32 "GEM_MODEL_SHA256=$model_sha" "$profile" "$model" "$position" 3 --seed-prefix \
    ${backend[@]+"${backend[@]}"}
still_frozen "$gem" "$profile"
code=0
"$here/analyze-prefill-stages.sh" --layers "$layers" --full-layers "$full" "$part/profile.json" "$part/ranking.json" || code=$?
[ "$code" -le 1 ] || die 4 "the ranking failed"
conclude prefill-stage-attribution --position "$position" --layers "$layers" --full-layers "$full"
