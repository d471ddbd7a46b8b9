#!/usr/bin/env bash
# analyze-benchmarks.sh: promotes what the protocol promotes; every stated rule, broken alone, refuses by name.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/faults.sh disable=SC1091
. "$src/tests/evidence/faults.sh"
export GEM_ANALYZE=$bin/gem-analyze
judge=("$src/scripts/analyze-benchmarks.sh")
# shellcheck disable=SC2034 # used by `breaks`
inputs=(base.json cand.json)

# A record of gem-bench with honest aggregates. row: rates of each repetition; set($name; $rates) replaces them.
# shellcheck disable=SC2034,SC2016 # used by `breaks`; jq variables
library='
def stats: length as $n | (add / $n) as $m | {n: $n, mean: $m, cv: ((map(. - $m | . * .) | add / ($n - 1) | sqrt) / $m)};
def row($name; $tokens; $rates): ($rates | map($tokens * 1e9 / .)) as $ns | ($ns | map($tokens * 1e9 / .)) as $r
    | {name: $name, n_tokens: $tokens, samples_ns: $ns, samples_per_s: $r, arm: "production", attention_route: "avx2",
       rate_per_s: (($r | stats) + {overall: ($tokens * 1e9 * ($ns | length) / ($ns | add))})};
def set($name; $rates): .rows |= map(if .name == $name then row($name; .n_tokens; $rates) else . end);
'
jq -n "$library"'{schema: "gem-bench/1",
  model: {path: "m.gguf", family: "gemma3", name: "M", sha256: ("ab" * 32), file_bytes: 10, weights_bytes: 9},
  parameters: {context: 64, prompt_tokens: 8, generation_tokens: 8, depth: 0, repetitions: 3, warmups: 1, threads: 2,
    batch: 512, kv_type: "f32", backend: "cpu", isa: "avx2", repacked: true, command_span: "layer"},
  host: {cpu: "C", cpus_online: 2, cpus_usable: 2, governor: null, machine: "x86_64", kernel: "6", memory_total: "1 kB",
    huge_pages: "madvise", build: {version: "0.1.0", commit: "c0ffee", compiler: "GNU", type: "Release",
    sanitizers: "", target: "Linux x86_64"}},
  rows: [row("pp"; 8; [200, 201, 199.5]), row("tg"; 8; [100, 100.3, 99.9])],
  read_roof: {samples_ns: [1000, 1002, 1001]}}' >"$tmp/base.json"
jq "$library"'.parameters.command_span = "token" | set("tg"; [106, 106.2, 105.9]) | set("pp"; [199, 200.5, 200])' \
    "$tmp/base.json" >"$tmp/cand.json"

passes "a clear gain"
same "eligible" "$(jq -c '[.promotion.eligible, .promotion.axis, .verdict, .primary]' "$tmp/report.json")" \
    '[true,"command_span","promote","tg"]'
same "gain" "$(jq '.metrics.tg.improvement_percent * 100 | round' "$tmp/report.json")" 596
same "degrees of freedom" "$(jq .interval.degrees_of_freedom "$tmp/report.json")" 4
expect 0 "without OUT the report goes to stdout" "${judge[@]}" "$tmp/base.json" "$tmp/cand.json"
same "stdout is the report" "$(jq -r .verdict "$tmp/out")" promote
expect 0 help "${judge[@]}" --help
has help "$tmp/out" "--allow-model-change"
expect 2 "one file is not enough" "${judge[@]}" "$tmp/base.json"
expect 3 "no such file" "${judge[@]}" "$tmp/base.json" "$tmp/none.json"
printf '{"schema": "gem-bench/1",' >"$tmp/cut.json"
expect 1 "half a file" "${judge[@]}" "$tmp/base.json" "$tmp/cut.json"

# the KPI and its limits; the repetitions keep their spread unless the rule is about it
breaks improvement,drift cand.json 'set("tg"; [102.9, 103.1, 102.8])'
breaks variation,lower-bound,dominance,half-run-drift base.json 'set("tg"; [99, 112, 92])'
breaks lower-bound cand.json 'set("tg"; [106, 104, 108])'
breaks variation,lower-bound,dominance,half-run-drift cand.json 'set("tg"; [104, 110, 100.2])'
breaks ramp,drift,lower-bound,half-run-drift cand.json 'set("tg"; [104, 106, 108])'
breaks ramp,lower-bound,half-run-drift base.json 'set("tg"; [98, 100, 102])'
breaks secondary cand.json 'set("pp"; [195, 195.5, 195.2])'
breaks repetitions,samples base.json '.rows |= map(.samples_ns |= .[:2])'
passes "a gain of the prompt, declared" --primary tg
jq "$library"'set("tg"; [100, 100.2, 99.9]) | set("pp"; [212, 212.5, 211])' "$tmp/cand.json" >"$tmp/cand-pp.json"
expect 0 "a gain of the prompt" "${judge[@]}" --primary pp "$tmp/base.json" "$tmp/cand-pp.json" "$tmp/report.json"
same "primary" "$(jq -r '.promotion.primary, .promotion.eligible' "$tmp/report.json" | paste -sd' ')" "pp true"
expect 1 "the prompt's gain is no gain of generation" "${judge[@]}" "$tmp/base.json" "$tmp/cand-pp.json" "$tmp/report.json"

# one axis
breaks one-axis cand.json '.parameters.command_span = "layer"'
breaks one-axis cand.json '.parameters.kv_type = "f16"'
breaks one-axis cand.json '.parameters.threads = 4'
breaks one-axis cand.json '.rows[0].attention_route = "ref"'
breaks one-axis cand.json '.parameters.new_axis = 1'
# everything else is a control
for control in context prompt_tokens generation_tokens depth warmups; do
    breaks controls cand.json ".parameters.$control = 77"
done
breaks controls cand.json '.parameters.backend = "cuda"'
breaks controls cand.json '.host.cpu = "D"'
breaks controls cand.json '.host.governor = "powersave"'
breaks controls cand.json 'del(.host.kernel)'
breaks gem-revision cand.json '.host.build.commit = "decade"'
breaks build cand.json '.host.build.compiler = "clang"'
breaks build base.json '.host.build.sanitizers = "address"'
breaks thermal-state cand.json '.read_roof.samples_ns |= map(. * 1.03)'
breaks thermal-state,repetitions cand.json 'del(.read_roof)'

# the model
breaks model-identity cand.json '.model.sha256 = ("cd" * 32)'
breaks model-identity cand.json '.model.sha256 = null'
breaks model-identity cand.json '.model.file_bytes = 11'
breaks one-axis cand.json '.model.sha256 = ("cd" * 32)' --allow-model-change
jq '.model.sha256 = ("cd" * 32) | .parameters.command_span = "layer"' "$tmp/cand.json" >"$tmp/quant.json"
expect 0 "a model change that is allowed and alone" "${judge[@]}" --allow-model-change "$tmp/base.json" "$tmp/quant.json" \
    "$tmp/report.json"
has "a labelled experiment" "$tmp/report.json" "allowed by --allow-model-change"
expect 1 "a model change that is not allowed" "${judge[@]}" "$tmp/base.json" "$tmp/quant.json" "$tmp/report.json"

# the record itself
breaks schema cand.json '.schema = "gem-bench/0"'
breaks aggregates cand.json '.rows |= map(if .name == "tg" then .rate_per_s.mean = 120 else . end)'
breaks aggregates cand.json '.rows |= map(if .name == "tg" then .samples_per_s[0] = 107 else . end)'
breaks rows,repetitions cand.json '.rows += [.rows[1]]'
breaks rows,repetitions cand.json '.rows |= map(select(.name == "tg"))'
breaks samples,repetitions cand.json '.rows |= map(if .name == "tg" then .samples_ns[1] = -1 else . end)'
breaks samples,repetitions cand.json '.parameters.repetitions = 4'
finish
