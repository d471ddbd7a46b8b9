#!/usr/bin/env bash
# The profiles of long positions on a model of the protocol's topology: gem-long-prefill-stage-profile,
# gem-decode-profile, gem-long-prefix-ab, and their judges.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/tools/tools.sh disable=SC1091
. "$src/tests/tools/tools.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
export TMPDIR=$tmp
model=$tmp/small.gguf wide=$tmp/31b.gguf
synth "$model" 8 2 64
synth "$wide" 32 4 512
digest=$(sha256sum "$model" | cut -d ' ' -f 1)
one=(--threads 1)

# stages of a tile: a prefix that was evaluated, and one that was not
makes stages.json 0 "stages, seeded" "$bin/gem-long-prefill-stage-profile" "$model" 192 3 --seed-prefix "${one[@]}" --rows 32
same "graph" "$(json stages.json '.layers | [.total, .sliding, .full]')" '[60,50,10]'
same "prefix" "$(json stages.json '[.prefix_mode, .prefix_builds, .position, .rows, .repetitions]')" '["seeded-kv",0,192,32,3]'
same "three matrices of 60 layers and 9 stages" "$(json stages.json '[.samples[] | [length, (map(length) | unique)]] | unique')" '[[60,[9]]]'
# shellcheck disable=SC2016 # a variable of jq
same "stages of both kinds, as the matrices have them" "$(json stages.json '. as $d | [.stage_mean_ns | keys, (map_values(length)[])] +
    [([$d.samples[][] | add] | add) / 3 - ([$d.stage_mean_ns[][]] | add) | fabs < 1]')" '[["full","sliding"],9,9,true]'
same "coverage of each tile" "$(json stages.json '.timestamp_coverage | [length, all(. > 0 and . <= 1.001)]')" '[3,true]'
same "every tile the same bits" "$(json stages.json .deterministic)" true
code=0
"$src/scripts/analyze-prefill-stages.sh" "$tmp/stages.json" "$tmp/ranking.json" 2>/dev/null || code=$?
refused_only '["coverage"]' ranking.json
if [ "$code" = 0 ]; then same "ranked" "$(json ranking.json '.ranking | length')" 18; fi
GEM_MODEL_SHA256=$digest makes evaluated.json 0 "stages, evaluated" "$bin/gem-long-prefill-stage-profile" "$model" 70 3 \
    "${one[@]}" --progress-every 64
same "built once" "$(json evaluated.json '[.prefix_mode, .prefix_builds, .prefix_tokens_per_second > 0]')" '["evaluated",1,true]'
same "the digest that was given" "$(json evaluated.json .model.sha256)" "\"$digest\""
has "progress and an estimate" "$tmp/err" "tokens/s"

# a decode step by stages, and by host phases of the ordinary path
makes decode.json 0 "decode, seeded" "$bin/gem-decode-profile" --model "$wide" --context 300 --position 256 --rows 1 \
    --repetitions 3 --seed-prefix "${one[@]}" --no-progress
same "silent" "$(cat "$tmp/err")" ""
same "phases add up" "$(json decode.json '.production_execution | [.phase_sum_matches_wall, (.samples | length),
    ([.samples[] | (.prepare_ns + .encode_ns + .submit_wait_ns + .cleanup_ns + .logits_readback_ns - .wall_ns) | fabs <= 20000] | all),
    ([.samples[] | .gpu_ns <= .submit_wait_ns and .gpu_ns > 0] | all)]')" '[true,3,true,true]'
same "wall less device" "$(json decode.json '.production_execution | ((.mean_wall_seconds - .mean_gpu_seconds) - .mean_wall_minus_gpu_seconds | fabs) < 1e-12')" true
same "production" "$(json decode.json '[.selector, .attention_kernel, .prefix_mode, .prefix_builds, .deterministic]')" '[19,"split16","seeded-kv",0,true]'
same "attention by kind of layer" "$(json decode.json '.stages | [has("kv_attention_full"), has("kv_attention_sliding"), has("head")]')" '[true,true,true]'
makes op.json 0 "its operator" "$bin/gem-decode-attention-profile" --shape 31b-full --tokens 256 --iterations 5 --repetitions 3 \
    --warmup 1 "${one[@]}"
"$src/scripts/analyze-decode-residual.sh" "$tmp/decode.json" "$tmp/op.json" "$tmp/residual.json" 2>/dev/null || true
refused_only '["coverage","attribution","ceiling"]' residual.json
same "judged" "$(json residual.json '.inputs | length')" 2
"$src/scripts/analyze-fused-split-kv-ceiling.sh" "$tmp"/{decode,op,decode,op}.json "$tmp/ceiling.json" 2>/dev/null || true
same "not at 64K and 128K, not evaluated" "$(json ceiling.json '.failed_rules - ["coverage","attribution","ceiling"]')" \
    '["position","prefix"]'
makes dim32.json 0 "selector 18, evaluated" "$bin/gem-decode-profile" --model "$model" --attention-kernel dim32 --context 100 \
    --position 64 --rows 1 --repetitions 3 "${one[@]}" --progress-every 64
same "selector" "$(json dim32.json '[.selector, .prefix_mode, .prefix_builds]')" '[18,"evaluated",1]'
has "progress" "$tmp/err" "prefix 64/64"
makes rows.json 0 "eight rows" "$bin/gem-decode-profile" --model "$model" --position 40 --rows 8 --repetitions 1 --seed-prefix "${one[@]}"
same "one encoder is for one row" "$(json rows.json 'has("production_execution")')" false
expect 2 "a context too short" "$bin/gem-decode-profile" --model "$model" --context 64 --position 64
has "said" "$tmp/err" "does not hold position 64"
expect 2 "no such kernel" "$bin/gem-decode-profile" --model "$model" --attention-kernel dim16

# two routes behind one prefix
makes ab.json 0 "rowwise and batched" "$bin/gem-long-prefix-ab" "$model" 70 3 "${one[@]}" --rows 8
same "arms" "$(json ab.json '[.baseline.name, .candidate.name, (.baseline.samples_ns | length), (.candidate.samples_ns | length)]')" \
    '["rowwise","batched-swa",3,3]'
same "in turn" "$(json ab.json .order)" '["rowwise","batched-swa","batched-swa","rowwise","batched-swa","rowwise"]'
same "the same bits" "$(json ab.json '[.bit_identical_repeats, .logits.bit_identical, .logits.nmse, .arms_identical, (.baseline.logits_sha256 | length)]')" \
    '[true,true,0,false,3]'
same "one prefix" "$(json ab.json '[.prefix_mode, .prefix_builds]')" '["evaluated",1]'
GEM_LONG_PREFIX_SEED=1 GEM_LONG_PREFIX_CANDIDATE=bk128 makes bk128.json 0 "19 and 23" "$bin/gem-long-prefix-ab" "$model" 192 3 "${one[@]}"
same "selectors" "$(json bk128.json '[.baseline.selector, .candidate.selector, .prefix_mode, .prefix_builds, .rows]')" '[19,23,"seeded-kv",0,32]'
same "logits" "$(json bk128.json '.logits | [.same_argmax, .same_top10_order, .correlation >= 0.9999, .nmse <= 1e-4]')" '[true,true,true,true]'
same "no difference is claimed" "$(json bk128.json '[.arms_identical, .promotion.eligible, .metrics.degrees_of_freedom]')" '[true,false,2]'
GEM_LONG_PREFIX_CANDIDATE=bq8 makes bq8.json 0 "22 and 19" "$bin/gem-long-prefix-ab" "$model" 8 3 "${one[@]}" --rows 4 --no-progress
same "selectors of other code, the same bits" "$(json bq8.json '[.baseline.selector, .candidate.selector, .arms_identical,
    .logits.bit_identical]')" '[22,19,false,true]'
GEM_LONG_PREFIX_CANDIDATE=bk256 expect 2 "no such candidate" "$bin/gem-long-prefix-ab" "$model" 8 3
has "the candidates there are" "$tmp/err" "bq8, bk128"
expect 2 "a position that is none" "$bin/gem-long-prefix-ab" "$model" 8k 3
expect 3 "no model" "$bin/gem-long-prefill-stage-profile" "$tmp/absent.gguf" 64 3
"$bin/gem-synth-model" --arch qwen35 --layers 4 --quiet --out "$tmp/hybrid.gguf" >/dev/null
expect 3 "recurrent layers have no seeded past" "$bin/gem-decode-profile" --model "$tmp/hybrid.gguf" --position 64 --seed-prefix
has "one sentence" "$tmp/err" "recurrent layers"
makes hybrid.json 0 "and are profiled behind an evaluated one" "$bin/gem-decode-profile" --model "$tmp/hybrid.gguf" --position 64 \
    --repetitions 1 "${one[@]}"
same "their attention" "$(json hybrid.json '[.layers.recurrent, (.stages | has("recurrent_attention"))]')" '[3,true]'
for program in gem-long-prefill-stage-profile gem-decode-profile gem-long-prefix-ab; do
    expect 0 "help of $program" "$bin/$program" --help
    expect 0 "man page of $program" "$bin/$program" --help-as man
done
finish
