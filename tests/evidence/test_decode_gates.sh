#!/usr/bin/env bash
# run-score-tile8-gate.sh and run-prefill-stage-attribution.sh with made-up records: each as it should be, then every
# stated rule broken once in its folder.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
# shellcheck source=tests/evidence/gate/tools.sh disable=SC1091
. "$src/tests/evidence/gate/tools.sh"
s=$src/scripts good=''
: "${bin:?}"

# ---- score tiles of eight ----
expect 0 "score-tile8 gate" "$s/run-score-tile8-gate.sh" "$tmp/model.gguf" "$tmp/tile8"
begin "$tmp/tile8" score-tile8-gate --shape 31b-full --layers 60 --full-layers 10
# ten layers save 8 % of 10/12 of a token: 1 / (1 - 0.0667) - 1
same "projected" "$(jq -c '[.verdict, [.lengths[].projected_whole_token_gain_percent * 100 | round]]' "$good/summary.json")" '["admitted",[714,714]]'
host_rules -128k
provenance_rules
b=B1-128k.json
breaks kernel,controls $b filter '.kernel = "dim64"'
breaks selector,controls $b filter '.selector = 19'
breaks controls $b filter '.host.build.commit = "d"'
breaks controls $b filter '.route = "other"'
breaks controls A2-64k.json filter '.parameters.threads = 9'
breaks controls,repetitions A2-64k.json filter '.parameters.iterations = 6'
breaks controls,position $b filter '.parameters.tokens = 65536'
breaks one-axis $b filter '.kernel_route.ran = "split16"'
breaks samples B2-64k.json filter '.total.samples_ns |= .[:2]'
breaks samples B2-64k.json filter '.total.samples_ns += [1]'
breaks deterministic B2-64k.json filter '.deterministic = false'
breaks projection decode-64k.json filter '.step.samples_ns |= map(. * 3)'
breaks attribution decode-64k.json filter '.step.samples_ns |= map(. * 0.8)'
breaks graph decode-128k.json filter '.layers.full = 11'
breaks position decode-128k.json filter '.parameters.position = 65536'
breaks parity parity.json filter '.exit = 1'
breaks oracle oracle.json filter '.exit = 1'
breaks after-timing oracle.json filter '.started = "2020-01-01T00:00:00Z"'
breaks files parity.json lose

# ---- stage attribution ----
mkdir "$tmp/path"
printf '#!/bin/sh\n[ ! -e "%s/server" ] || echo "  77 /opt/gem serve model.gguf"\n' "$tmp" >"$tmp/path/ps"
chmod +x "$tmp/path/ps"
PATH=$tmp/path:$PATH expect 0 "stage attribution" "$s/run-prefill-stage-attribution.sh" "$tmp/model.gguf" "$tmp/stages"
begin "$tmp/stages" prefill-stage-attribution --position 131040
same "ranked" "$(jq -c '[.verdict, .selected_axis.stage, .model_quality]' "$good/summary.json")" '["ranked","attention",false]'
q=profile.json
breaks position $q filter '.position = 65504'
breaks kv-type $q filter '.parameters.kv_type = "f16"'
breaks prefix $q filter '.prefix_mode = "evaluated" | .prefix_builds = 1'
breaks model-digest $q filter '.model.sha256 = "0" * 64'
breaks graph $q filter '.layer_kinds[0] = "full"'
breaks samples $q filter '.samples |= .[:2]'
breaks coverage $q filter '.tile_ns[0] = 20000'
breaks inventory inventory.json filter 'del(.reason)'
touch "$tmp/server"
PATH=$tmp/path:$PATH expect 1 "beside a server" "$s/run-prefill-stage-attribution.sh" "$tmp/model.gguf" "$tmp/stages2"
same "beside a server" "$(rules)" server
finish
