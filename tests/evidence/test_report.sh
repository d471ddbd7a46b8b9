#!/usr/bin/env bash
# gem report: one page that needs nothing, shows what is refused, and believes no text it is given.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
analyze=$bin/gem-analyze
dir=$tmp/run
mkdir -p "$dir/raw"
jq -n '{schema: "gem-decode-attention-profile/1", shape: "31b-full", kernel: "dim64",
  parameters: {tokens: 65536, iterations: 20, repetitions: 3, warmup: 10}, host: {cpu: "C", build: {}},
  geometry: {query_heads: 32, kv_heads: 4, head_dim: 512}, total: {samples_ns: [300000, 301000, 302000]}}' >"$dir/raw/A1.json"
jq '.total.samples_ns |= map(. + 1000)' "$dir/raw/A1.json" >"$dir/raw/A2.json"
jq '.kernel = "dim32" | .total.samples_ns |= map(. * 0.9)' "$dir/raw/A1.json" >"$dir/raw/B1.json"
jq '.total.samples_ns |= map(. + 500)' "$dir/raw/B1.json" >"$dir/raw/B2.json"
"$analyze" decode-attention-abba "$dir"/raw/{A1,B1,B2,A2}.json "$dir/abba.json"
"$analyze" decode-attention-traffic "$dir/raw/A1.json" "$dir/traffic.json" 2>/dev/null || true
for n in 512 1024 2048; do
    jq -n --argjson n "$n" '{schema: "gem-bench/1", model: {name: "<script>alert(1)</script>"},
      parameters: {prompt_tokens: $n, depth: 0}, rows: [
      {name: "pp", samples_per_s: [100, 101, 99], rate_per_s: {overall: 100, cv: 0.01}, ttft: {time_ns: {mean: ($n * 1e7)}}},
      {name: "tg", samples_per_s: [20, 21, 20], rate_per_s: {overall: 20.3, cv: 0.02}}]}' >"$dir/bench-$n.json"
done
for n in 1:2000:2.5:0 2:2000:2.7:0 3:4000:6.2:0 4:4015:0.1:4000 5:131072:40.5:0; do # of gates at two lengths, and a second turn
    IFS=: read -r i tokens first reused <<<"$n"
    jq -n --argjson tokens "$tokens" --argjson first "$first" --argjson reused "$reused" '{schema: "gem.server-stream-probe",
      version: 1, first_visible_event_seconds: $first, completion_seconds: ($first + 1),
      usage: {prompt_tokens: $tokens, prompt_tokens_details: {cached_tokens: $reused}}}' >"$dir/sample-$i.json"
done
jq -n '{schema: "gem-decode-profile/1", stages: {kv_attention_full: {time_ns: {mean: 12000}}, head: {time_ns: {mean: 3000}}},
  step: {samples_ns: [20000, 21000, 20500]}, production_execution: {wall: {samples_ns: [15000, 15100, 15200]}}}' >"$dir/decode.json"
jq -n '{schema: "gem-long-attention-profile/1", parameters: {position: 65504}, arms: [{variant: "bq8-bk64", samples_ns: [1e6, 1.1e6]},
  {variant: "bq8-bk128", samples_ns: [9e5, 1e6]}]}' >"$dir/attention.json"
"$bin/gem-host-state" --compact --recorded "$src/tests/evidence/host/macos-clean" --platform macos >"$dir/host.ndjson"
"$bin/gem-host-state" --compact --recorded "$src/tests/evidence/host/macos-hot" --platform macos >>"$dir/host.ndjson"
printf '{"schema": "gem-analyze-x/1", "verdict": "<b>", "checks": [' >"$dir/cut.json"
printf '{"schema": "gem-analyze-x/1", "verdict": "\\"><img src=x>", "checks": [{"rule": "</td><script>"}]}' >"$dir/hostile.json"
printf '[[[]]]' >"$dir/list.json"
"$analyze" seal "$dir" 2>/dev/null

expect 0 "a page" "$bin/gem" report "$dir"
same "counts" "$(jq -c '[.files, .reports, .refused, .manifest]' "$tmp/out")" '[20,3,1,"intact"]'
page=$tmp/run.html
has "verdicts" "$page" '<h2>Verdicts</h2>'
has "what is required" "$page" 'split-score'
has "a rule that does not hold" "$page" 'does not hold'
has "ABBA arms" "$page" 'in A/B/B/A order'
has "curve over the context" "$page" 'Generation, tokens per second by context'
has "time to the first token" "$page" 'Time to first token, ms by context'
has "first visible event by context" "$page" 'Time to the first visible event, seconds, prompts read anew'
has "means of a length" "$page" '<td class="n">2000</td><td class="n">0</td><td class="n">2.7</td>'
has "counts are exact" "$page" '<td class="n">131072</td>'
has "reused prompts apart" "$page" 'behind a reused beginning'
has "stages of a step" "$page" 'kv_attention_full'
has "steps beside production" "$page" 'Time of each step, ms'
has "routes in turn" "$page" 'Device time of each run at position 65504, ms'
has "the host" "$page" 'Busy share of all CPUs'
has "a sealed folder" "$page" 'every file as it was sealed'
holds "plots of raw samples" test "$(grep -c '<svg' "$page")" -ge 10
for bad in '<script' '<img' 'http:' 'https:' 'url(' '@import'; do lacks "nothing that runs or is fetched" "$page" "$bad"; done
has "text is text" "$page" '&lt;script&gt;alert(1)&lt;/script&gt;'
expect 0 "again, elsewhere" "$bin/gem" report "$dir/" --out "$tmp/again.html"
holds "the same bytes" cmp -s "$page" "$tmp/again.html"
expect 0 "the folder is as it was sealed" bash -c "cd '$dir' && sha256sum --quiet --check MANIFEST.sha256 && [ \$(find . -type f | wc -l) -eq 21 ]"
echo >>"$dir/raw/A1.json"
expect 0 "a changed file" "$bin/gem" report "$dir"
has "is shown" "$page" 'broken: files differ'
rm "$dir/MANIFEST.sha256"
expect 0 "no manifest" "$bin/gem" report "$dir"
has "is told" "$page" 'a change would not be noticed'
mkdir "$tmp/empty"
expect 0 "an empty folder" "$bin/gem" report "$tmp/empty"
expect 3 "no folder" "$bin/gem" report "$tmp/none"
expect 2 "no argument" "$bin/gem" report
finish
