#!/usr/bin/env bash
# gem-kernel-bench and gem-prefill-bench at small shapes, and their judge.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/tools/tools.sh disable=SC1091
. "$src/tests/tools/tools.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
export TMPDIR=$tmp
shape=(--input 256 --output 512)

# copy and persistent: the protocol's two commands
makes copy.json 0 "copy" "$bin/gem-kernel-bench" --buffer-mode copy --repetitions 3 --iterations 200 "${shape[@]}"
has "progress" "$tmp/err" "3/3"
makes persistent.json 0 "persistent" "$bin/gem-kernel-bench" --buffer-mode persistent --repetitions 3 --iterations 200 "${shape[@]}"
same "parameters" "$(json copy.json '.parameters | [.buffer_mode, .input, .output, .batch_rows, .matrix_slots, .command_span, .iterations, .repetitions]')" \
    '["copy",256,512,1,1,1,200,3]'
same "raw samples" "$(json copy.json '[(.samples_ns | length), (.samples_ns | all(. > 0))]')" '[3,true]'
same "one product of memory" "$(json copy.json .working_set_bytes)" $((256 * 512 * 18 / 32))
same "never eligible" "$(json copy.json .promotion.eligible)" false
same "the same bits in both layouts" "$(json copy.json .output_sha256)" "$(json persistent.json .output_sha256)"
same "deterministic" "$(json copy.json .deterministic)" true
expect 0 "their judge" "$src/scripts/analyze-kernel-benchmarks.sh" "$tmp/copy.json" "$tmp/persistent.json" "$tmp/report.json"
same "one axis" "$(json report.json '[.changed_axes, .promotion.eligible, .metrics.streams_250_mib]')" '[["buffer_mode"],false,false]'

# the nonresident stream: slots and span of a token-wide submission, warm-up in whole submissions
makes stream.json 0 "stream" "$bin/gem-kernel-bench" --buffer-mode persistent "${shape[@]}" --matrix-slots 8 --command-span 12 \
    --warmup 25 --iterations 48 --repetitions 7
same "working set" "$(json stream.json .working_set_bytes)" $((8 * 256 * 512 * 18 / 32))
same "effective warm-up" "$(json stream.json '[.parameters.warmup, .effective_warmup]')" '[25,36]'
same "seven samples" "$(json stream.json '.samples_ns | length')" 7
makes fewer.json 0 "fewer slots" "$bin/gem-kernel-bench" "${shape[@]}" --matrix-slots 4 --command-span 12 --warmup 25 --iterations 48 \
    --repetitions 7
expect 0 "slots are an axis" "$src/scripts/analyze-kernel-benchmarks.sh" "$tmp/fewer.json" "$tmp/stream.json" "$tmp/report.json"
same "named" "$(json report.json .changed_axes)" '["matrix_slots"]'
jq '.parameters.command_span = 6' "$tmp/fewer.json" >"$tmp/both.json"
expect 1 "two axes" "$src/scripts/analyze-kernel-benchmarks.sh" "$tmp/both.json" "$tmp/stream.json" "$tmp/report.json"
same "refused" "$(json report.json .failed_rules)" '["one-axis"]'

# other types and instruction sets; exact types give other bits, other sets the same
makes q8.json 0 "q8_0" "$bin/gem-kernel-bench" "${shape[@]}" --quant q8_0 --iterations 4
same "kernel" "$(json q8.json .kernel)" '"linear_q8_0"'
makes ref.json 0 "the oracle" "$bin/gem-kernel-bench" "${shape[@]}" --isa ref --iterations 4
same "the same bits as the oracle" "$(json ref.json .output_sha256)" "$(json copy.json .output_sha256)"
if [ "$(json q8.json .output_sha256)" = "$(json ref.json .output_sha256)" ]; then fail "types differ"; else ok; fi

# eight rows of a verification
makes verify.json 0 "verify" "$bin/gem-prefill-bench" --kernel verify8-4sg --batch-rows 8 --matrix-slots 4 --command-span 7 \
    --iterations 70 --repetitions 5 "${shape[@]}"
same "route asked for" "$(json verify.json '[.program, .kernel, .route.name, .parameters.batch_rows]')" \
    '["gem-prefill-bench","verify8-4sg","verify8-4sg",8]'
same "and what ran is named" "$(json verify.json '.route.ran | length > 0')" true
makes verify1.json 0 "one slot" "$bin/gem-prefill-bench" --matrix-slots 1 "${shape[@]}" --warmup 7 --iterations 70 --repetitions 5
expect 0 "judged as kernels are" "$src/scripts/analyze-kernel-benchmarks.sh" "$tmp/verify1.json" "$tmp/verify.json" "$tmp/report.json"

# usage, and what cannot be had
expect 2 "iterations in whole submissions" "$bin/gem-kernel-bench" "${shape[@]}" --command-span 7 --iterations 8
has "said" "$tmp/err" "no multiple of --command-span 7"
expect 2 "no such type" "$bin/gem-kernel-bench" --quant q9
expect 2 "half a block" "$bin/gem-kernel-bench" --input 33
expect 2 "no such kernel" "$bin/gem-prefill-bench" --kernel verify9
has "the routes there are" "$tmp/err" "verify8-4sg"
expect 3 "no such backend" "$bin/gem-kernel-bench" "${shape[@]}" --backend metal
has "one sentence" "$tmp/err" "backend metal is not in this build"
TMPDIR=$tmp/absent expect 3 "nowhere to put the weights" "$bin/gem-kernel-bench" "${shape[@]}"
same "nothing is left behind" "$(find "$tmp" -name '*.gguf*' | wc -l)" 0
for program in gem-kernel-bench gem-prefill-bench; do
    expect 0 "help of $program" "$bin/$program" --help
    expect 0 "man page of $program" "$bin/$program" --help-as man
done
finish
