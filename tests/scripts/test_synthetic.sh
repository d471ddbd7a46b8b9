#!/usr/bin/env bash
# Small random-weight models of every family through every program, so that a machine without real weights
# (and a sanitizer build) walks the whole path; a short generation under valgrind.
set -euo pipefail
src=$1
bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
gem=$bin/gem

for family in gemma3 gemma4 qwen2; do
    model=$tmp/$family.gguf
    expect 0 "synth $family" "$bin/gem-synth-model" --arch "$family" --out "$model" --quiet
    expect 0 "inspect $family" "$gem" inspect "$model"
    has "inspect $family" "$tmp/out" "accepted: $family"
    expect 0 "run $family" "$gem" run "$model" --raw -p "hello" -n 8 -q
    cp "$tmp/out" "$tmp/first"
    for option in "--threads 1" "--threads 3" "--batch 1" "--no-repack" "--isa ref"; do
        read -r -a words <<<"$option"
        expect 0 "run $family $option" "$gem" run "$model" --raw -p "hello" -n 8 -q "${words[@]}"
        holds "run $family $option: the same text" cmp -s "$tmp/out" "$tmp/first"
    done
    expect 0 "run $family, prompt on stdin" sh -c "printf hello | '$gem' run '$model' --raw -n 8 -q"
    holds "prompt on stdin: the same text" cmp -s "$tmp/out" "$tmp/first"
    GEM_CPU_ISA=ref expect 0 "GEM_CPU_ISA" "$gem" print-config "$model"
    has "GEM_CPU_ISA" "$tmp/out" '"isa": "ref"'
    GEM_CPU_ISA=mmx expect 3 "an instruction set that is not here" "$gem" run "$model" --raw -p hello
    has "an instruction set that is not here" "$tmp/err" "ref"
    types=(f32 f16 f16-full)
    [ "$family" != gemma4 ] || types+=(f32-values)
    for kv in "${types[@]}"; do
        expect 0 "logits $family $kv" "$gem" logits "$model" -p "hello" --kv-type "$kv" --out "$tmp/$kv.f32"
    done
    expect 0 "exact logits $family" "$gem" logits "$model" -p "hello" --exact --positions last --out "$tmp/exact.f32"
    holds "exact logits are near the fast ones" python3 - "$tmp/exact.f32" "$tmp/f32.f32" <<'PY'
import array, sys
exact, fast = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:])
fast = fast[-len(exact):]
power = sum(x * x for x in exact)
error = sum((x - y) ** 2 for x, y in zip(exact, fast))
sys.exit(not (0 < power and error / power < 0.01))
PY
    expect 0 "bench $family" "$bin/gem-bench" --model "$model" --prompt-tokens 16 --generation-tokens 4 --repetitions 2 \
        --attention-ab --roof-mib 256
    has "bench $family" "$tmp/out" '"logits_identical": true'
    expect 0 "bench $family with guesses" "$bin/gem-bench" --model "$model" --prompt-tokens 16 --generation-tokens 12 --repetitions 2 \
        --draft ngram --threads 1
    holds "guesses change no token" jq -e '.tokens_identical and (.rows[1].draft.tokens == 24)' "$tmp/out"
    expect 2 "bench $family: guesses exclude depth" "$bin/gem-bench" --model "$model" --draft ngram --depth 4
    expect 0 "run $family with guesses" "$gem" run "$model" --raw -p "hello" -n 8 -q --draft ngram
    holds "guesses: the same text" cmp -s "$tmp/out" "$tmp/first"
    expect 0 "run $family with a draft model" "$gem" run "$model" --raw -p "hello" -n 8 -q --draft "$model" --draft-max 3
    holds "a draft model: the same text" cmp -s "$tmp/out" "$tmp/first"
    expect 2 "bench $family beyond the context" "$bin/gem-bench" --model "$model" --context 8 --prompt-tokens 16
    expect 0 "count" "$bin/gem-tokenize" --count "$model" "hello"
    # what cannot be written is a fault, and nothing is left behind
    expect 3 "logits into no folder" "$gem" logits "$model" -p hello --out "$tmp/none/x.f32"
    [ ! -e /dev/full ] || expect 4 "text to a full disk" sh -c "'$gem' run '$model' --raw -p hello -n 4 -q >/dev/full"
    head -c 4000 "$model" >"$tmp/cut.gguf"
    expect 1 "a file cut short" "$gem" run "$tmp/cut.gguf" -p hello
    same "a file cut short: one line" "$(wc -l <"$tmp/err")" 1
done

# The whole header of the largest preset, without its 17 GB of matrices: accepted from header and vectors alone.
expect 0 "synth gemma4-31b, sparse" "$bin/gem-synth-model" --preset gemma4-31b --sparse --out "$tmp/31b.gguf" --quiet
expect 0 "inspect gemma4-31b" "$gem" inspect "$tmp/31b.gguf"
has "inspect gemma4-31b" "$tmp/out" "accepted: gemma4, 60 layers, width 5376, vocabulary 262144"
holds "the file is mostly holes" test "$(du -k "$tmp/31b.gguf" | cut -f1)" -lt 100000
rm -f "$tmp/31b.gguf"
# a hybrid, with the drafter its file brings
model=$tmp/qwen35.gguf
expect 0 "synth qwen35" "$bin/gem-synth-model" -p qwen35-tiny --nextn --out "$model" --quiet
expect 0 "print-config qwen35" "$gem" print-config "$model" --state-bytes 0 -c 512
holds "print-config qwen35: recurrent state beside the KV" jq -e '.recurrent.states == 12 and .recurrent.snapshot_bytes == 0 and
    .recurrent.bytes == 12 * .recurrent.state_bytes and .recurrent.tape_bytes > 0 and .kv.bytes > 0' "$tmp/out"
expect 0 "run qwen35" "$gem" run "$model" --raw -p "hello" -n 80 -q
cp "$tmp/out" "$tmp/first"
for option in "--draft own" "--draft own --draft-max 1" "--draft ngram" "--draft $model" "--state-bytes 0 --threads 1" "--batch 1"; do
    read -r -a words <<<"$option"
    expect 0 "run qwen35 $option" "$gem" run "$model" --raw -p "hello" -n 80 -q "${words[@]}"
    holds "run qwen35 $option: the same text" cmp -s "$tmp/out" "$tmp/first"
done
expect 0 "bench qwen35 with its drafter" "$bin/gem-bench" --model "$model" --prompt-tokens 16 --generation-tokens 12 --repetitions 1 --draft own
holds "its guesses change no token" jq -e '.tokens_identical and .rows[1].draft.drafter == "own" and .rows[1].draft.drafted > 0' "$tmp/out"
expect 3 "a file without drafter" "$gem" run "$tmp/gemma3.gguf" --raw -p "hello" --draft own

if command -v valgrind >/dev/null && ! grep -q '^GEM_SANITIZE:[^=]*=.' "$bin/CMakeCache.txt"; then
    isa=ref
    grep -qw avx2 /proc/cpuinfo && isa=avx2 # valgrind knows no AVX-512
    for family in gemma3 qwen2; do
        expect 0 "valgrind $family" valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect \
            "$gem" run "$tmp/$family.gguf" --raw -p "hello" -n 3 -q --isa $isa --threads 2
    done
fi
finish
