#!/usr/bin/env bash
# analyze-prefill-stages.sh, -decode-residual.sh, -fused-split-kv-ceiling.sh and -decode-attention-traffic.sh.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/faults.sh disable=SC1091
. "$src/tests/evidence/faults.sh"
export GEM_ANALYZE=$bin/gem-analyze
get() { jq -c "$1" "$tmp/report.json"; }

judge=("$src/scripts/analyze-prefill-stages.sh")
inputs=(profile.json)
# every sixth layer is a full one; its attention takes 900 ns, everything else 10
jq -n '[range(60) | if . % 6 == 5 then "full" else "sliding" end] as $kinds
  | ["input_norm", "qkv_projection", "qk_norm_rope_append", "attention", "attention_output", "attention_residual",
     "ffn_gate_up", "ffn_down", "ffn_residual"] as $stages
  | [$kinds[] as $k | [$stages[] | if $k == "full" and . == "attention" then 900 else 10 end]] as $m
  | {schema: "gem-long-prefill-stage-profile/1", prefix_mode: "seeded-kv", prefix_builds: 0, position: 131040, rows: 32,
     repetitions: 3, layer_kinds: $kinds, stages: $stages, samples: [$m, $m, $m], tile_ns: [14400, 14500, 14450]}' \
    >"$tmp/profile.json"
passes "stages"
same "the largest stage" "$(get '[.selected_axis.layers, .selected_axis.stage, .ranking[0].mean_ns]')" '["full","attention",9000]'
same "shares add up" "$(get '[.ranking[].share_percent] | add | round')" 100
same "coverage is the least one" "$(get '.coverage * 10000 | round')" 9862
same "prefix" "$(get .prefix_mode)" '"seeded-kv"'
breaks graph profile.json '.layer_kinds[0] = "full"'
breaks graph profile.json '.layer_kinds += ["sliding"]'
breaks stages profile.json '.stages[0] = "norm"'
breaks stages profile.json '.stages |= .[:8]'
breaks samples profile.json '.samples |= .[:2] | .tile_ns |= .[:2] | .repetitions = 2'
breaks samples profile.json '.samples[1][3] |= .[:8]'
breaks samples profile.json '.samples[2][3][1] = -1'
breaks samples profile.json '.repetitions = 4'
breaks coverage profile.json '.tile_ns[1] = 15200'
breaks coverage profile.json '.tile_ns[1] = 14000'
breaks prefix profile.json '.prefix_builds = 1'
breaks prefix profile.json '.prefix_mode = "zero-filled"'
breaks rows profile.json '.rows = 31'
breaks field profile.json 'del(.position)'
breaks schema profile.json 'del(.schema)'
breaks graph profile.json '.position = 4096' --layers 48 --full-layers 8

# a model token of 10 ms at 64K: ten full layers of 300 us, of which 120 us are the value phase
model='{schema: "gem-decode-profile/1", model: {sha256: ("a" * 64)}, prefix_mode: "evaluated", prefix_builds: 1, selector: 19,
  parameters: {context: 65793, position: 65536, rows: 1, repetitions: 3}, layers: {total: 60, sliding: 50, full: 10},
  host: {build: {commit: "c"}}, step: {samples_ns: [10e6, 10.01e6, 9.99e6]},
  stages: {kv_attention_full: {samples_ns: [3.1e6, 3.1e6, 3.1e6]}, kv_attention_sliding: {samples_ns: [1e6, 1e6, 1e6]},
    linear: {samples_ns: [5.7e6, 5.7e6, 5.7e6]}}}'
operator='{schema: "gem-decode-attention-profile/1", shape: "31b-full", kernel: "split16", route: "split-score",
  parameters: {tokens: 65536, iterations: 20, repetitions: 3, warmup: 10},
  geometry: {query_heads: 32, kv_heads: 4, head_dim: 512, value_tile: 32, value_splits: 16, kv_element_bytes: 4},
  phases: {score: {samples_ns: [150e3, 150e3, 150e3]}, normalization: {samples_ns: [28e3, 28e3, 28e3]},
    value: {samples_ns: [120e3, 120e3, 120e3]}}, total: {samples_ns: [300e3, 300e3, 300e3]}}'
jq -n "$model" >"$tmp/m64.json"
jq -n "$operator" >"$tmp/o64.json"
jq '.parameters.position = 131072 | .parameters.context = 131328' "$tmp/m64.json" >"$tmp/m128.json"
jq '.parameters.tokens = 131072' "$tmp/o64.json" >"$tmp/o128.json"

judge=("$src/scripts/analyze-decode-residual.sh")
inputs=(m64.json o64.json)
passes "residual"
# 1.2 ms of 10 ms: 1 / (1 - 0.12) - 1 = 13.636 %; 3 / 103 of 10 ms over 1.2 ms = 24.27 % of the stage
same "ceiling and need" "$(get '[.value.whole_token_ceiling_percent, .value.stage_time_to_remove_for_3_percent] | map(. * 1000 | round)')" \
    '[13636,24272]'
same "never eligible" "$(get .promotion_eligible)" false
breaks graph m64.json '.layers.full = 11'
breaks graph m64.json '.layers.total = 48'
breaks rows m64.json '.parameters.rows = 2'
breaks position o64.json '.parameters.tokens = 65535'
breaks context m64.json '.parameters.context = 65536'
breaks prefix m64.json '.prefix_builds = 2'
breaks geometry o64.json '.geometry.head_dim = 256'
breaks geometry o64.json '.geometry.kv_heads = 8'
breaks samples,coverage m64.json '.step.samples_ns |= .[:2]'
breaks samples,coverage,attribution o64.json '.total.samples_ns |= .[:2]'
breaks coverage m64.json '.stages.linear.samples_ns |= map(. - 500e3)'
breaks coverage o64.json '.phases.score.samples_ns |= map(. - 20e3)'
breaks attribution m64.json '.stages.kv_attention_full.samples_ns |= map(. - 110e3) | .stages.linear.samples_ns |= map(. + 110e3)'
breaks ceiling o64.json '.phases.value.samples_ns |= map(. - 95e3) | .phases.score.samples_ns |= map(. + 95e3)'
breaks schema o64.json '.schema = "gem-decode-attention-profile/2"'

judge=("$src/scripts/analyze-fused-split-kv-ceiling.sh")
inputs=(m64.json o64.json m128.json o128.json)
passes "split-KV ceiling"
# 3 ms and 1.5 ms of 10 ms
same "ceilings" "$(get '[.lengths[] | .complete_global_attention.whole_token_ceiling_percent, .score_only.whole_token_ceiling_percent]
    | map(. * 100 | round)')" '[4286,1765,4286,1765]'
same "all inputs by digest" "$(get '[.inputs[].sha256 | length] | unique')" '[64]'
breaks selector m128.json '.selector = 18'
breaks kernel o64.json '.kernel = "dim32"'
breaks prefix m64.json '.prefix_mode = "seeded-kv" | .prefix_builds = 0'
breaks position m128.json '.parameters.position = 65536'
breaks position o128.json '.parameters.tokens = 65536'
breaks context m128.json '.parameters.context = 131072'
breaks coverage m128.json '.stages.linear.samples_ns |= map(. * 0.8)'
breaks coverage o128.json '.phases.value.samples_ns |= map(. * 2)'
breaks controls m128.json '.model.sha256 = ("b" * 64)'
breaks controls o128.json '.geometry.value_tile = 64'
breaks geometry,controls o128.json '.geometry.query_heads = 16'

# shellcheck disable=SC2034 # used by `breaks`
judge=("$src/scripts/analyze-decode-attention-traffic.sh")
# shellcheck disable=SC2034 # used by `breaks`
inputs=(o64.json)
passes "traffic"
# K, V: 65536 * 4 * 512 * 4; scores: 65536 * 32 * 4 written, 3 reads and 2 writes of normalisation, 16 reads by value groups;
# partials: 2 * 16 * 32 * 512 * 4
same "bytes" "$(get '[.traffic[].bytes]')" '[536870912,8388608,25165824,16777216,536870912,134217728,2097152]'
same "total" "$(get '.total_bytes == ([.traffic[].bytes] | add)')" true
breaks route o64.json '.route = "fused"'
breaks geometry o64.json '.geometry.value_tile = 33'
breaks geometry,field o64.json 'del(.geometry.value_splits)'
breaks geometry,field o64.json '.route = "flash-chunks"'
jq '.route = "flash-chunks" | .geometry |= (del(.value_tile, .value_splits) | .key_chunk = 512)' "$tmp/o64.json" >"$tmp/flash.json"
expect 0 "traffic of a fused route" "${judge[@]}" "$tmp/flash.json" "$tmp/report.json"
# K, V as above; 128 chunks of 32 heads of 514 values, written and read
same "bytes" "$(get '[.traffic[].bytes]')" '[536870912,536870912,16842752]'
same "nothing to fuse" "$(get '.avoidable_by_fusion_bytes')" 0
breaks geometry,field o64.json '.parameters.tokens = "many"'
finish
