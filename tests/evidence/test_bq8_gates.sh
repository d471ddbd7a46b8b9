#!/usr/bin/env bash
# run-bq8-bk128-gate.sh and run-bq8-bk128-graph-gate.sh with made-up records: each as it should be, then every stated
# rule broken once in its folder.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
# shellcheck source=tests/evidence/gate/tools.sh disable=SC1091
. "$src/tests/evidence/gate/tools.sh"
s=$src/scripts good='' file=''
: "${bin:?}"

# ---- BK64 against BK128, the operator ----
expect 0 "operator gate" "$s/run-bq8-bk128-gate.sh" "$tmp/bq8"
begin "$tmp/bq8" bq8-bk128-gate --shape 31b
same "gains" "$(jq -c '[.verdict, .frozen_protocol, [.lengths[].improvement_percent | round]]' "$good/summary.json")" '["advance",true,[8,8,8]]'
mutations "$good" "$bin/gem-analyze" audit "$good"
host_rules ''
provenance_rules
a=attention-64k.json
breaks geometry $a filter '.geometry.head_dim = 256'
breaks geometry $a filter '.shape = "tiny"'
breaks position $a filter '.parameters.position = 65505'
breaks controls $a filter '.parameters.kv_type = "f16"'
breaks controls $a filter '.seed_prefix = false'
breaks controls $a filter '.host.build.commit = "d"'
breaks controls $a filter '.parameters.threads = 2'
breaks repetitions $a filter '.parameters.warmup = 9'
breaks samples,timestamps $a filter '.arms[0].samples_ns |= .[:9]'
breaks selector $a filter '.arms[1].selector = 22'
breaks one-axis $a filter '.arms[1].route.ran = .arms[0].route.ran'
breaks one-axis $a filter '.arms[1].route.axis = "kv_type"'
breaks order $a filter '.order[0] = "bq8-bk128"'
breaks order $a filter '.order |= [range(10) as $i | "bq8-bk64", "bq8-bk128"]'
breaks timestamps $a filter '.timestamps[3].device_ns += 1'
breaks timestamps $a filter '.timestamps[4].start_ns = 0'
breaks timestamps $a filter 'del(.timestamps[19])'
breaks deterministic $a filter '.arms[0].deterministic = false'
# f(arm; how): an arm's samples anew, with the time stamps that belong to them
remake='def f($k; g): .arms[$k].samples_ns |= g | .arms as $a
    | .timestamps |= map(.device_ns = $a[(if .variant == "bq8-bk64" then 0 else 1 end)].samples_ns[.round]);'
set_arms() { jq "$remake $1" "$good/${file##*/}" >"$file"; }
breaks cv $a set_arms 'f(1; [to_entries[] | .value * (if .key % 2 == 0 then 1.04 else 0.96 end)])'
breaks drift,discontinuity $a set_arms 'f(0; [to_entries[] | .value * (if .key < 5 then 0.983 else 1.017 end)])'
breaks ramp $a set_arms 'f(0; [to_entries[] | 65504000 * (1 + 0.0025 * .key)])'
breaks improvement $a set_arms 'f(1; map(. * 1.06))'
breaks improvement,lower-bound,variation $a set_arms 'f(1; map(. * 1.1))'
breaks regression attention-4k.json set_arms 'f(1; map(. * 1.12))'
breaks files attention-128k.json lose
breaks resources resources.json filter 'del(.reason)'
expect 1 "a trial's report is not the protocol's" "$bin/gem-analyze" bq8-bk128-gate --shape tiny "$good" "$tmp/report.json"
same "named" "$(rules)" geometry
# on Metal the compiled memory of both tiles
cat >"$tmp/counters" <<'SH'
#!/usr/bin/env bash
echo '{"schema": "gem-metal-counter-info/1", "threadgroup_bytes": {"limit": 32768, "bq8-bk64": 18496, "bq8-bk128": 20544}}'
SH
chmod +x "$tmp/counters"
FAKE_METAL=1 GEM_METAL_COUNTER_INFO=$tmp/counters expect 0 "on Metal" "$s/run-bq8-bk128-gate.sh" "$tmp/metal"
jq '.threadgroup_bytes["bq8-bk128"] = 20545' "$tmp/metal/resources.json" >"$tmp/x"
cp "$tmp/x" "$tmp/metal/resources.json"
expect 1 "another memory" "$bin/gem-analyze" bq8-bk128-gate "$tmp/metal" "$tmp/report.json"
same "named" "$(rules)" resources

# ---- and in the graph ----
expect 0 "graph gate" "$s/run-bq8-bk128-graph-gate.sh" "$tmp/bq8" "$tmp/model.gguf" "$tmp/graph"
begin "$tmp/graph" bq8-bk128-graph-gate --position 65536
same "what it says" "$(jq -c '[.verdict, .production_eligible, (.metrics.improvement_percent | round), .metrics.degrees_of_freedom]' "$good/summary.json")" \
    '["advance",false,8,2]'
host_rules ''
p=prefix-ab.json
breaks operator-gate operator-report.json filter '.report.verdict = "refuse"'
breaks operator-gate operator-report.json filter '.report.failed_rules = ["cv"]'
breaks model-digest $p filter '.model.sha256 = null'
breaks selector $p filter '.candidate.selector = 22'
breaks selector $p filter '.baseline.selector = 22'
breaks prefix $p filter '.prefix_builds = 2'
breaks prefix $p filter '.prefix_mode = "seeded-kv" | .prefix_builds = 0'
breaks bit-identical $p filter '.candidate.logits_sha256[1] = "f" * 64'
breaks bit-identical $p filter '.baseline.bit_identical_repeats = false'
breaks finite $p filter '.logits.finite = false'
breaks argmax $p filter '.logits.same_argmax = false'
breaks top-10 $p filter '.logits.same_top10_set = false'
breaks correlation $p filter '.logits.correlation = 0.99989'
breaks nmse $p filter '.logits.nmse = 1.1e-4'
breaks nmse $p filter '.logits.nmse = null'
breaks position $p filter '.position = 32768'
breaks controls $p filter '.parameters.kv_type = "f16"'
breaks one-axis $p filter '.candidate.route.ran = "bq8-bk64"'
breaks order $p filter '.order[0] = "bq8-bk128"'
breaks improvement $p filter '.candidate.samples_ns = [975e6, 974e6, 973e6]'
breaks lower-bound,variation $p filter '.candidate.samples_ns = [800e6, 1000e6, 900e6]'
breaks samples,repetitions $p filter '.candidate.samples_ns |= .[:2]'
breaks repetitions $p filter '.repetitions = 4'
breaks kv-type print-config.json filter '.kv.type = "f16"'
breaks kv-bytes print-config.json filter '.kv.context_bytes += 1'
# the operator's folder is judged again before anything runs
cp -r "$tmp/bq8" "$tmp/refusing"
jq '.arms[1].selector = 22' "$tmp/bq8/attention-64k.json" >"$tmp/refusing/attention-64k.json"
expect 1 "a changed operator folder" "$s/run-bq8-bk128-graph-gate.sh" "$tmp/refusing" "$tmp/model.gguf" "$tmp/graph2"
has "a changed operator folder" "$tmp/err" "refused: operator-gate"
rm "$tmp/refusing/MANIFEST.sha256" "$tmp/refusing/summary.json"
"$bin/gem-analyze" bq8-bk128-gate "$tmp/refusing" "$tmp/refusing/summary.json" 2>/dev/null || true
"$bin/gem-analyze" seal "$tmp/refusing" 2>/dev/null
rm -rf "$tmp/graph2"
expect 1 "one that refuses" "$s/run-bq8-bk128-graph-gate.sh" "$tmp/refusing" "$tmp/model.gguf" "$tmp/graph2"
has "one that refuses" "$tmp/err" "does not advance BK128"

finish
