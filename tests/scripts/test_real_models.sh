#!/usr/bin/env bash
# The programs on real weights: greedy answers, logits files, configuration, a bench record. Skips itself
# when the models have not been fetched.
set -euo pipefail
src=$1
bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=scripts/lib.sh disable=SC1091
. "$src/scripts/lib.sh"
gem=$bin/gem
for file in gemma-3-270m-q4_k_m.gguf qwen2.5-coder-0.5b-instruct-q4_k_m.gguf; do
    [ -f "$(cache_dir)/$file" ] || { echo "$file has not been fetched"; exit 77; }
done
py() { # py WHAT CODE FILE: a check in Python; `d` is the JSON of FILE, `f` its path
    holds "$1" python3 -c "
import json, sys
f = sys.argv[1]
d = json.load(open(f)) if open(f, 'rb').read(1) == b'{' else None
$2" "$3"
}

# The first eleven greedy tokens of the base model, as an independent F32 run gives them.
expect 0 "tokenize" "$gem" tokenize gemma-3-270m -p "The capital of France is"
same "tokenize" "$(cat "$tmp/out")" "2 818 5279 529 7001 563"
expect 0 "expected text" "$gem" tokenize gemma-3-270m --decode \
    -p "818 5279 529 7001 563 506 5279 529 506 2891 529 7001 236761 1030 563 506"
cp "$tmp/out" "$tmp/want"
expect 0 "gem run, base model" "$gem" run gemma-3-270m -p "The capital of France is" -n 11 -T 0
same "gem run, base model" "$(cat "$tmp/out")" "$(cat "$tmp/want")"
has "gem run says its rates" "$tmp/err" "tok/s"
expect 0 "gem run again" "$gem" run gemma-3-270m -p "The capital of France is" -n 11 -T 0 --threads 1 --batch 2 -q
same "one thread, batches of two" "$(cat "$tmp/out")" "$(cat "$tmp/want")"
holds "--quiet is quiet" test ! -s "$tmp/err"
expect 0 "gem run continues with Paris" "$gem" run gemma-3-270m -p "The capital of France is" -q
has "gem run continues with Paris" "$tmp/out" "Paris"

# The instruct model, in its chat format by default.
expect 0 "gem run, instruct model" "$gem" run qwen2.5-coder-0.5b -p "What is the capital of France? One word." -n 20 -q -T 0
has "gem run, instruct model" "$tmp/out" "Paris"
printf 'What is 2 + 2? Only the number.' >"$tmp/question"
expect 0 "prompt from a file" "$gem" run qwen2.5-coder-0.5b -f "$tmp/question" -n 20 -q -T 0
has "prompt from a file" "$tmp/out" "4"
expect 0 "seed" "$gem" run qwen2.5-coder-0.5b -p "Name a colour." -T 1.5 --seed 7 -n 24 -q
cp "$tmp/out" "$tmp/seed7"
expect 0 "seed again" "$gem" run qwen2.5-coder-0.5b -p "Name a colour." -T 1.5 --seed 7 -n 24 -q
holds "the same seed gives the same text" cmp -s "$tmp/out" "$tmp/seed7"
expect 0 "another seed" "$gem" run qwen2.5-coder-0.5b -p "Name a colour." -T 1.5 --seed 8 -n 24 -q
if cmp -s "$tmp/out" "$tmp/seed7"; then fail "another seed gives the same text"; else ok; fi

# A prompt that does not fit is a usage error, with nothing half done.
expect 2 "context too small" "$gem" run gemma-3-270m -p "one two three four five six seven eight nine ten" -c 4
same "context too small: one line" "$(wc -l <"$tmp/err")" 1

# Logits: rows and description.
expect 0 "logits" "$gem" logits gemma-3-270m -p "The capital of France is" --positions all --out "$tmp/all.f32"
py "logits description" "
assert d['shape'] == [6, 262144] and d['dtype'] == 'f32-le' and d['positions'] == list(range(6)), d['shape']
assert d['tokens'] == [2, 818, 5279, 529, 7001, 563]" "$tmp/all.f32.json"
same "logits file" "$(stat -c %s "$tmp/all.f32")" $((6 * 262144 * 4))
py "greedy token of the last row" "
import array
a = array.array('f'); a.frombytes(open(f, 'rb').read()[-4 * 262144:])
assert max(range(len(a)), key=a.__getitem__) == 506" "$tmp/all.f32"
printf '2, 818 5279\n529 7001 563' >"$tmp/ids"
expect 0 "logits of ids" "$gem" logits gemma-3-270m --tokens "$tmp/ids" --positions 0,3-5 --batch 4 --out "$tmp/some.f32"
holds "rows do not depend on the batch" cmp -s <(tail -c $((3 * 262144 * 4)) "$tmp/all.f32") \
    <(tail -c $((3 * 262144 * 4)) "$tmp/some.f32")
expect 2 "positions beyond the end" "$gem" logits gemma-3-270m --tokens "$tmp/ids" --positions 6 --out "$tmp/none.f32"
holds "no file after a refusal" test ! -e "$tmp/none.f32"
echo "2 999999" >"$tmp/ids"
expect 2 "id outside the vocabulary" "$gem" logits gemma-3-270m --tokens "$tmp/ids" --out "$tmp/none.f32"
holds "no file after a refused id" test ! -e "$tmp/none.f32"

expect 0 "print-config" "$gem" print-config gemma-3-270m --sha256 --kv-type f16-full
py "print-config" "
assert d['model_sha256'] == 'a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818'
assert d['kv']['type'] == 'f16-full' and d['kv']['bytes'] > 0 and d['model']['family'] == 'gemma3'" "$tmp/out"

expect 0 "gem-bench" "$bin/gem-bench" --model gemma-3-270m --context 64 --prompt-tokens 8 --generation-tokens 8 \
    --repetitions 3 --roof-mib 256 --command-span layer
py "gem-bench record" "
assert d['schema'] == 'gem-bench/1'
assert [r['name'] for r in d['rows']] == ['pp', 'tg']
for r in d['rows']:
    assert len(r['samples_ns']) == 3 and len(r['warmup_ns']) == 1 and r['n_tokens'] == 8 and min(r['samples_ns']) > 0
assert len(d['rows'][0]['ttft']['samples_ns']) == 3 and len(d['read_roof']['samples_ns']) == 3
assert 0 < d['decode_share']['share_of_best'] < 1.5 and d['parameters']['command_span'] == 'layer'
assert d['order'] == ['pp', 'read-roof', 'tg', 'tg', 'read-roof', 'pp', 'tg', 'read-roof', 'pp']" "$tmp/out"
expect 0 "gem-bench at depth" "$bin/gem-bench" --model gemma-3-270m --prompt-tokens 4 --generation-tokens 4 --depth 40 \
    --repetitions 1 --no-roof
py "gem-bench at depth" "
assert d['parameters']['depth'] == 40 and d['parameters']['context'] == 44 and d['read_roof'] is None
assert 'sd' not in d['rows'][0]['time_ns']" "$tmp/out"
expect 0 "gem-bench --attention-ab" "$bin/gem-bench" --model gemma-3-270m --prompt-tokens 16 --generation-tokens 4 \
    --repetitions 2 --attention-ab --no-roof
py "gem-bench --attention-ab: four rows, same bits" "
assert [(r['name'], r['arm']) for r in d['rows']] == [('pp', 'oracle'), ('pp', 'candidate'), ('tg', 'oracle'), ('tg', 'candidate')]
assert d['rows'][0]['attention_route'] == 'ref' and d['logits_identical'] is True
assert d['order'][:2] == ['pp/oracle', 'pp/candidate'] and d['order'][-1] == 'pp/oracle'" "$tmp/out"
expect 0 "gem-tokenize" "$bin/gem-tokenize" --count --file --chat-user gemma-3-270m "$tmp/question"
same "gem-tokenize" "$(cat "$tmp/out")" "$("$gem" tokenize gemma-3-270m -f "$tmp/question" --chat-user --count)"

# Ctrl-C stops an answer: figures are printed, the exit code is the shell's.
code=0
rm "$tmp/out" # an earlier one's would be taken for the beginning of the answer
"$gem" run qwen2.5-coder-0.5b -p "Write a long story about the sea." >"$tmp/out" 2>"$tmp/err" </dev/null &
pid=$!
for _ in {1..1200}; do [ ! -s "$tmp/out" ] || break; sleep 0.1; done
kill -INT "$pid"
wait "$pid" || code=$?
same "interrupted" "$code" 130
has "interrupted" "$tmp/err" "interrupted"

expect 0 "a conversation at a terminal" python3 "$src/tests/scripts/talk.py" "$gem"
[ ! -s "$tmp/out" ] || cat "$tmp/out"
finish
