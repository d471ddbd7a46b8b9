#!/usr/bin/env bash
# The gates read what the real programs write: stage attribution on a small random model and the CPU. With GEM_TEST_LONG=1
# also the operator gates at their frozen lengths on a tiny shape, where only the figures may be refused.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
for program in gem-synth-model gem-long-prefill-stage-profile gem-long-attention-profile; do
    [ -x "$bin/$program" ] || { echo "$program is not built"; exit 77; }
done
s=$src/scripts
unset GEM
export GEM=$bin/gem GEM_LONG_PREFILL_STAGE_PROFILE=$bin/gem-long-prefill-stage-profile GEM_DEVICE_INFO=$bin/gem-device-info \
    GEM_METAL_COUNTER_INFO=$bin/gem-metal-counter-info GEM_LONG_ATTENTION_PROFILE=$bin/gem-long-attention-profile \
    GEM_DECODE_ATTENTION_PROFILE=$bin/gem-decode-attention-profile GEM_DECODE_PROFILE=$bin/gem-decode-profile \
    GEM_LONG_PREFIX_AB=$bin/gem-long-prefix-ab GEM_GATE_PARITY=true GEM_GATE_ORACLE=true GEM_GATE_LAYERS=6 GEM_GATE_FULL_LAYERS=1
"$bin/gem-synth-model" --arch gemma4 --out "$tmp/gemma4.gguf" --quiet >"$tmp/synth.json"
mkdir "$tmp/path"
printf '#!/bin/sh\n' >"$tmp/path/ps" # other tests may have servers
chmod +x "$tmp/path/ps"
# only RULE,...: nothing else was refused
only() {
    local rule
    for rule in $(rules | tr , ' '); do
        case ,$1, in *,"$rule",*) ;; *) fail "$2: refused by $rule: $(grep "refused: $rule" "$tmp/err" | head -n 1)" ;; esac
    done
    ok
}
code=0
PATH=$tmp/path:$PATH GEM_GATE_POSITION=4064 "$s/run-prefill-stage-attribution.sh" "$tmp/gemma4.gguf" "$tmp/stages" >"$tmp/out" 2>"$tmp/err" || code=$?
holds "judged" test "$code" -le 1
only coverage "stage attribution"
if [ "$code" -eq 0 ]; then
    expect 0 "its audit" "$bin/gem-analyze" audit "$tmp/stages" "$tmp/audit.json"
    same "a trial" "$(jq -c '[.frozen_protocol, .promotion_eligible, (.ranking | length)]' "$tmp/stages/summary.json")" '[false,false,18]'
fi
if [ "${GEM_TEST_LONG:-0}" = 1 ]; then
    noise=improvement,variation,lower-bound,cv,drift,ramp,discontinuity,regression,one-axis
    GEM_GATE_SHAPE=tiny expect 1 "the operator gate" "$s/run-bq8-bk128-gate.sh" "$tmp/bq8"
    only "$noise" "the operator gate"
    GEM_GATE_SHAPE=tiny expect 1 "score tiles" "$s/run-score-tile8-gate.sh" "$tmp/gemma4.gguf" "$tmp/tile8"
    only one-axis,projection,attribution "score tiles"
    # the graph's record, judged beside the configuration of the folder above
    GEM_KV_TYPE=f32 GEM_MODEL_SHA256=$(jq -r .model_sha256 "$tmp/tile8/refused/gate-config.json") GEM_LONG_PREFIX_CANDIDATE=bk128 \
        "$bin/gem-long-prefix-ab" "$tmp/gemma4.gguf" 4064 3 >"$tmp/tile8/refused/prefix-ab.json" 2>/dev/null
    cp "$tmp/bq8/refused/"host-*f* "$tmp/tile8/refused/"
    cp "$tmp/bq8/refused/host-monitor.ndjson" "$tmp/tile8/refused/"
    expect 1 "the graph gate" "$bin/gem-analyze" bq8-bk128-graph-gate --position 4064 "$tmp/tile8/refused" "$tmp/report.json"
    only "files,schema,$noise" "the graph gate"
fi
finish
