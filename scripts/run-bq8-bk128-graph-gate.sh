#!/usr/bin/env bash
# run-bq8-bk128-graph-gate.sh OPERATOR_DIR MODEL.gguf OUTPUT_DIR
# Selector 23 (cache tiles of 128 keys) against selector 19 in the whole graph of MODEL behind an evaluated prefix, with
# its logits. OPERATOR_DIR is judged again from its raw files first, and must advance BK128. Keeps configuration,
# digests, linkage, the record and receipts of the host before, while and after. Passing permits changing what selector
# 19 dispatches; selector 23 itself never becomes production's.
#   GEM_MODEL_SHA256    a digest that was verified before: the model is not read again
#   GEM_GATE_POSITION   another position than 65536: a trial, and the report says so
#   GEM_GATE_BACKEND    backend of both arms; default: the program's
#   GEM_GATE_MAX_LOAD_PER_CPU and the other limits of long-context-server-gate.sh
#   GEM, GEM_LONG_PREFIX_AB, GEM_ANALYZE, GEM_HOST_STATE, GEM_TETHER   other builds of the programs
# Exit: 0 advance, 1 refused (the rules are on stderr), 2 usage, 3 something is missing here, 4 a run failed.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 3 ] || die 2 "OPERATOR_DIR, MODEL and OUTPUT_DIR are needed; see --help"
operator=$1 model=$2 position=${GEM_GATE_POSITION:-65536} ab=${GEM_LONG_PREFIX_AB:-}
need_count GEM_GATE_POSITION "$position"
[ -z "${GEM_MODEL_SHA256:-}" ] || need_digest GEM_MODEL_SHA256 "$GEM_MODEL_SHA256"
need_tools jq
need_program gem gem
need_program ab gem-long-prefix-ab
need_program tether gem-tether
need_program host_state gem-host-state
[ -d "$operator" ] || die 3 "$operator: no such folder"
[ -f "$model" ] || die 3 "$model: no such model"
read_host_policy
gate_open "$3" 0

say_running "judging $operator again"
gem_analyze audit "$operator" /dev/null || refuse operator-gate "$operator is not what it was sealed as"
shape=$(jq -r '.options | if length == 2 and .[0] == "--shape" then .[1] else "31b" end' "$operator/summary.json")
gem_analyze bq8-bk128-gate --shape "$shape" "$operator" "$part/report" ||
    refuse operator-gate "$operator does not advance BK128"
gem_analyze document "$part/operator-report.json" schema=gem-gate-operator/1 \
    "manifest_sha256=$(sha256 "$operator/MANIFEST.sha256")" "report:@$part/report"
rm "$part/report"
model_identity "$model"
freeze gem-bq8-bk128-graph-gate 1 "$gem" "$ab" -- "model_path=$model" "model_sha256=$model_sha" "position:=$position" \
    repetitions:=3
GEM_KV_TYPE=f32 run_child "$gem" print-config "$model" --context $((position + 256)) ${backend[@]+"${backend[@]}"} >"$part/print-config.json" ||
    die 3 "gem print-config refused the configuration"
stay_awake "$$"
watch ''
measure prefix-ab.json env GEM_LONG_PREFIX_CANDIDATE=bk128 GEM_LONG_PREFIX_SEED=0 GEM_KV_TYPE=f32 "GEM_MODEL_SHA256=$model_sha" \
    "$ab" "$model" "$position" 3 ${backend[@]+"${backend[@]}"}
unwatch ''
still_frozen "$gem" "$ab"
conclude bq8-bk128-graph-gate --position "$position"
