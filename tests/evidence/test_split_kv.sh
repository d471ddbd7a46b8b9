#!/usr/bin/env bash
# analyze-online-merge-boundary.sh, analyze-fused-split-kv-resources.sh and -correctness.sh.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/faults.sh disable=SC1091
. "$src/tests/evidence/faults.sh"
export GEM_ANALYZE=$bin/gem-analyze
get() { jq -c "$1" "$tmp/report.json"; }
lengths=(8191 8192 8193 65536 131072)

judge=("$src/scripts/analyze-online-merge-boundary.sh")
inputs=("${lengths[@]/%/.json}")
for n in "${lengths[@]}"; do
    jq -n --argjson n "$n" '{schema: "gem-online-merge-check/1", tokens: $n, partitions: 32, head_dim: 512, seed: 1,
      hashes: [("ab" * 32), ("ab" * 32)], correlation: 0.99999999, nmse: 1e-13}' >"$tmp/$n.json"
done
passes "boundary"
# the tool itself: the boundary lengths as they are, a short one more closely
for n in 8191 8192 8193; do
    expect 0 "gem-online-merge-check $n" "$bin/gem-online-merge-check" --tokens "$n" --partitions 32 --seed 1
    cp "$tmp/out" "$tmp/real-$n.json"
done
for n in 65536 131072; do # what it prints for these takes seconds; their records are made from the shorter one
    jq ".tokens = $n" "$tmp/real-8193.json" >"$tmp/real-$n.json"
done
expect 0 "its records pass" "${judge[@]}" "$tmp"/real-{8191,8192,8193,65536,131072}.json "$tmp/report.json"
same "F32 rounding, no more" "$(jq '.nmse < 1e-9 and .nmse > 0 and .largest_difference < 1e-5' "$tmp/real-8193.json")" true
expect 0 "more partitions than tokens" "$bin/gem-online-merge-check" --tokens 3 --partitions 32
same "empty partitions weigh nothing" "$(jq '.nmse < 1e-12' "$tmp/out")" true
expect 0 "another seed" "$bin/gem-online-merge-check" --tokens 8191 --partitions 32 --seed 2
holds "gives other values" test "$(jq -r '.hashes[0]' "$tmp/out")" != "$(jq -r '.hashes[0]' "$tmp/real-8191.json")"
expect 2 "no tokens" "$bin/gem-online-merge-check"
passes "boundary again"
same "positions" "$(get .tokens)" '[8191,8192,8193,65536,131072]'
same "never eligible" "$(get .promotion_eligible)" false
cp "$tmp/report.json" "$tmp/cpu.json"
breaks positions 8192.json '.tokens = 8191'
breaks geometry 8193.json '.head_dim = 256'
breaks geometry 65536.json '.partitions = 16'
breaks controls 131072.json '.seed = 2'
breaks deterministic 8191.json '.hashes[1] = ("cd" * 32)'
breaks deterministic 8191.json '.hashes |= .[:1]'
breaks correlation 65536.json '.correlation = 0.9998'
breaks nmse 65536.json '.nmse = 1.1e-4'
breaks nmse 65536.json 'del(.nmse)'
breaks schema 65536.json '.schema = 1'

judge=("$src/scripts/analyze-fused-split-kv-resources.sh")
inputs=(receipt.json)
# 32 heads * 32 partitions * (512 values, maximum, sum) * 4 bytes
jq -n '{schema: "gem-split-kv-resources/1", device: {name: "Apple M4 Max", family: "apple9"},
  geometry: {head_dim: 512, partitions: 32, tile: 4, kv_type: "f32", window: 0}, scratch_bytes: 2105344,
  pipelines: {first_pass: {threads: 256, simd_groups: 8, dynamic_threadgroup_bytes: 16384, static_threadgroup_bytes: 0, max_threads: 512},
    reducer: {threads: 256, dynamic_threadgroup_bytes: 0, static_threadgroup_bytes: 128, max_threads: 1024}},
  source_sha256: ("12" * 32), binary_sha256: ("34" * 32)}' >"$tmp/receipt.json"
passes "resources"
cp "$tmp/report.json" "$tmp/resources.json"
breaks device receipt.json '.device.name = "Apple M3"'
breaks device receipt.json '.device.family = "apple8"'
for field in head_dim partitions tile window; do breaks geometry receipt.json ".geometry.$field += 1"; done
breaks geometry receipt.json '.geometry.kv_type = "f16"'
breaks scratch receipt.json '.scratch_bytes -= 4'
breaks first-pass receipt.json '.pipelines.first_pass.threads = 128'
breaks first-pass receipt.json '.pipelines.first_pass.simd_groups = 4'
breaks first-pass receipt.json '.pipelines.first_pass.dynamic_threadgroup_bytes = 8192'
breaks first-pass receipt.json '.pipelines.first_pass.max_threads = 224'
breaks first-pass receipt.json '.pipelines.first_pass.static_threadgroup_bytes = 20000'
breaks reducer receipt.json '.pipelines.reducer.threads = 32'
breaks reducer receipt.json '.pipelines.reducer.dynamic_threadgroup_bytes = 16'
breaks digest receipt.json '.source_sha256 = "12"'
breaks digest receipt.json 'del(.binary_sha256)'

judge=("$src/scripts/analyze-fused-split-kv-correctness.sh")
# shellcheck disable=SC2034 # used by `breaks`
inputs=(cpu.json resources.json op-8191.json op-8192.json op-8193.json op-65536.json op-131072.json
    model-8191.json model-8192.json model-8193.json)
for n in "${lengths[@]}"; do
    jq -n --argjson n "$n" '{schema: "gem-decode-attention-differential/1", tokens: $n, baseline_selector: 19,
      candidate_route: "fused-split-kv", finite: true, correlation: 0.99999, nmse: 1e-9}' >"$tmp/op-$n.json"
    jq '.schema = "gem-decode-continuation/1" | .prefix_mode = "evaluated" | .prefix_builds = 1
      | .baseline = {argmax: 7, top10: [7, 1, 2, 3, 4, 5, 6, 8, 9, 10], continuation: [7, 8, 9, 10, 11, 12, 13, 14]}
      | .candidate = .baseline' "$tmp/op-$n.json" >"$tmp/model-$n.json"
done
passes "correctness"
same "every input by digest" "$(get '[.inputs[].sha256 | length] == [range(10) | 64]')" true
same "never eligible" "$(get .promotion_eligible)" false
breaks cpu-gate cpu.json '.verdict = "refuse" | .failed_rules = ["nmse"]'
breaks cpu-gate cpu.json '.schema = "gem-analyze-prefill-stages/1"'
breaks resources resources.json '.failed_rules = ["scratch"]'
breaks positions op-65536.json '.tokens = 65535'
breaks selector op-8191.json '.baseline_selector = 18'
breaks selector op-8191.json '.candidate_route = "split16"'
breaks finite op-131072.json '.finite = false'
breaks correlation op-8193.json '.correlation = 0.99'
breaks nmse op-8193.json '.nmse = 0.001'
breaks prefix model-8192.json '.prefix_mode = "seeded-kv" | .prefix_builds = 0'
breaks argmax model-8192.json '.candidate.argmax = 8'
breaks top-10 model-8192.json '.candidate.top10 |= [.[1], .[0]] + .[2:]'
breaks top-10 model-8192.json '.candidate.top10 |= .[:9] | .baseline.top10 |= .[:9]'
breaks continuation model-8193.json '.candidate.continuation[7] = 15'
breaks continuation model-8193.json '.candidate.continuation |= .[:7] | .baseline.continuation |= .[:7]'
breaks correlation model-8191.json '.correlation = null'
breaks schema model-8191.json '.schema = "gem-decode-attention-differential/1"'
finish
