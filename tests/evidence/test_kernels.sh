#!/usr/bin/env bash
# analyze-kernel-benchmarks.sh and analyze-decode-attention-abba.sh, one broken rule at a time.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/faults.sh disable=SC1091
. "$src/tests/evidence/faults.sh"
export GEM_ANALYZE=$bin/gem-analyze
get() { jq -c "$1" "$tmp/report.json"; }

judge=("$src/scripts/analyze-kernel-benchmarks.sh")
inputs=(base.json cand.json)
# 12B FFN: eight matrices of 3840 x 15360 in Q4_0 are 265420800 bytes
jq -n '{schema: "gem-kernel-bench/1", kernel: "linear_q4_0",
  parameters: {buffer_mode: "persistent", input: 3840, output: 15360, matrix_slots: 8, command_span: 168, warmup: 3360,
    iterations: 3360, repetitions: 7},
  working_set_bytes: 265420800, effective_warmup: 3360, host: {cpu: "C", build: {commit: "c"}},
  samples_ns: [1000e6, 1002e6, 1001e6, 999e6, 1000e6, 1001e6, 1000e6]}' >"$tmp/base.json"
jq '.parameters.command_span = 336 | .samples_ns |= map(. * 0.9)' "$tmp/base.json" >"$tmp/cand.json"
passes "kernel: one axis"
same "never eligible" "$(get .promotion.eligible)" false
same "10 % less time" "$(get '.metrics.improvement_percent * 10 | round')" 100
same "seen as a gain" "$(get '[.metrics.exceeds_floor_and_variation, .metrics.dominance, .metrics.short_repetitions]')" \
    '[true,true,false]'
same "a nonresident stream" "$(get .metrics.streams_250_mib)" true
breaks one-axis cand.json '.parameters.matrix_slots = 9 | .working_set_bytes *= 2'
breaks one-axis cand.json '.parameters.command_span = 168'
breaks one-axis cand.json '.parameters.buffer_mode = "copy"'
for control in input output warmup iterations repetitions; do
    breaks controls cand.json ".parameters.$control -= 32"
done
breaks controls cand.json '.kernel = "other"'
breaks controls cand.json '.host.build.commit = "d"'
breaks working-set cand.json '.working_set_bytes -= 1'
breaks working-set,field cand.json 'del(.working_set_bytes)'
breaks warmup base.json 'del(.effective_warmup)'
breaks warmup base.json '.effective_warmup = 3359'
breaks samples base.json '.samples_ns = [1, 2]'
breaks samples base.json '.samples_ns[2] = "fast"'
breaks schema base.json '.schema = "gem-kernel-bench/9"'
jq '.samples_ns |= map(. / 10)' "$tmp/cand.json" >"$tmp/short.json"
expect 0 "short repetitions are told, not refused" "${judge[@]}" "$tmp/base.json" "$tmp/short.json" "$tmp/report.json"
same "told" "$(get .metrics.short_repetitions)" true

judge=("$src/scripts/analyze-decode-attention-abba.sh")
# shellcheck disable=SC2034 # used by `breaks`
inputs=(A1.json B1.json B2.json A2.json)
jq -n '{schema: "gem-decode-attention-profile/1", shape: "31b-full", kernel: "dim64", selector: 17, seed_prefix: true,
  parameters: {tokens: 65536, iterations: 20, repetitions: 3, warmup: 10},
  geometry: {query_heads: 32, kv_heads: 4, head_dim: 512, value_tile: 64},
  host: {cpu: "C", build: {commit: "c"}, load_average: [0.1, 0.1, 0.1]},
  phases: {score: {samples_ns: [40, 41, 40]}, value: {samples_ns: [60, 60, 61]}}, total: {samples_ns: [100, 101, 102]}}' \
    >"$tmp/A1.json"
jq '.total.samples_ns = [104, 105, 106] | .host.load_average = [0.3, 0.2, 0.1]' "$tmp/A1.json" >"$tmp/A2.json"
jq '.kernel = "dim32" | .selector = 18 | .geometry.value_tile = 32 | .total.samples_ns = [90, 91, 92]' "$tmp/A1.json" >"$tmp/B1.json"
jq '.total.samples_ns = [92, 93, 94]' "$tmp/B1.json" >"$tmp/B2.json"
passes "ABBA with drift"
same "pooled" "$(get '.metrics.total | [.baseline_mean_ns, .candidate_mean_ns]')" '[103,92]'
same "opening, closing, drifts in ppm" "$(get '.metrics.total | [.opening_improvement_percent, .closing_improvement_percent,
    .baseline_drift_percent, .candidate_drift_percent] | map(. * 10000 | round)')" '[99010,114286,39604,21978]'
same "every sample" "$(get .metrics.total.every_candidate_sample_beats_every_baseline_sample)" true
same "degrees of freedom" "$(get .metrics.total.degrees_of_freedom)" 10
same "never eligible" "$(get '[.promotion_eligible, .promotion.eligible]')" '[false,false]'
breaks controls A2.json '.parameters.iterations = 21'
breaks controls A2.json '.geometry.value_tile = 32'
breaks controls A2.json '.kernel = "dim48"'
breaks controls B2.json '.host.build.commit = "d"'
breaks controls B2.json '.seed_prefix = false'
breaks controls B2.json '.selector = 19'
breaks samples B2.json '.total.samples_ns |= .[:2]'
breaks samples A1.json 'del(.phases.value)'
breaks schema B1.json '.schema = "x"'
jq '.kernel = "dim64"' "$tmp/B1.json" >"$tmp/same1.json"
jq '.kernel = "dim64"' "$tmp/B2.json" >"$tmp/same2.json"
expect 1 "arms of one kernel" "${judge[@]}" "$tmp/A1.json" "$tmp/same1.json" "$tmp/same2.json" "$tmp/A2.json" "$tmp/report.json"
same "named" "$(get .failed_rules)" '["one-axis"]'
for change in '.parameters.tokens = 1' '.geometry.head_dim = 256'; do
    jq "$change" "$tmp/B1.json" >"$tmp/c1.json"
    jq "$change" "$tmp/B2.json" >"$tmp/c2.json"
    expect 1 "$change in one arm" "${judge[@]}" "$tmp/A1.json" "$tmp/c1.json" "$tmp/c2.json" "$tmp/A2.json" "$tmp/report.json"
    same "named" "$(get .failed_rules)" '["controls"]'
done
finish
