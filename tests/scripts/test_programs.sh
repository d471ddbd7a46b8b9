#!/usr/bin/env bash
# The programs as a user calls them, without a model: help, usage errors, exit codes, sentences, JSON.
set -euo pipefail
src=$1
bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
export XDG_CACHE_HOME=$tmp/cache
gem=$bin/gem

expect 0 "gem --help" "$gem" --help
has "gem --help" "$tmp/out" "print-config"
expect 0 "gem --version" "$gem" --version
has "gem --version" "$tmp/out" "gem 0."
expect 2 "gem alone" "$gem"
[ ! -s "$tmp/out" ] || fail "gem alone writes to stdout"
expect 2 "gem nonsense" "$gem" nonsense
has "gem nonsense" "$tmp/err" "no command 'nonsense'"
for command in run pull inspect tokenize print-config logits report; do
    expect 0 "gem $command --help" "$gem" "$command" --help
    cp "$tmp/out" "$tmp/help"
    has "gem $command --help" "$tmp/help" "usage: gem $command"
    expect 0 "gem help $command" "$gem" help "$command"
    holds "gem help $command is gem $command --help" cmp -s "$tmp/out" "$tmp/help"
    expect 2 "gem $command --nonsense" "$gem" "$command" --nonsense
    same "gem $command --nonsense: one line" "$(wc -l <"$tmp/err")" 1
    [ "$command" = pull ] || expect 2 "gem $command without arguments" "$gem" "$command"
done
"$gem" --help >"$tmp/help"
if grep -q '^  serve ' "$tmp/help"; then # built with libmicrohttpd
    expect 0 "gem serve --help" "$gem" serve --help
    has "gem serve --help" "$tmp/out" "usage: gem serve"
    expect 2 "gem serve without arguments" "$gem" serve
    expect 2 "gem serve --port 70000" "$gem" serve m --port 70000
    expect 3 "gem serve without a model" "$gem" serve "$tmp/none.gguf"
    printf 'model = %s\nparallel = 0\n' "$tmp/none.gguf" >"$tmp/serve.conf"
    expect 2 "gem serve --config with a bad value" "$gem" serve --config "$tmp/serve.conf"
    has "gem serve --config with a bad value" "$tmp/err" "serve.conf:2: parallel is '0', expected a whole number from 1 to 64"
    printf 'model = %s\nparallel = 2\n' "$tmp/none.gguf" >"$tmp/serve.conf"
    expect 3 "gem serve --config names the model" "$gem" serve --config "$tmp/serve.conf"
    has "gem serve --config names the model" "$tmp/err" "none.gguf"
fi
for program in gem-bench gem-tokenize gem-sampler-bench gem-swa-state-scan gem-determinism-gate gem-host-state gem-online-merge-check \
    gem-kernel-bench gem-prefill-bench gem-long-attention-profile gem-decode-attention-profile gem-long-prefill-stage-profile \
    gem-decode-profile gem-long-prefix-ab gem-device-info gem-metal-counter-info gem-metal-startup-profile; do
    expect 0 "$program --help" "$bin/$program" --help
    expect 2 "$program --nonsense" "$bin/$program" --nonsense
done
expect 0 "gem-tether --help" "$bin/gem-tether" --help
expect 2 "gem-tether alone" "$bin/gem-tether"
expect 2 "gem-tether without a starter" "$bin/gem-tether" -- true
expect 7 "the status of its command" "$bin/gem-tether" --starter $$ -- sh -c 'exit 7'
expect 3 "a command that is not there" "$bin/gem-tether" --starter $$ -- "$tmp/none"
expect 3 "another starter" "$bin/gem-tether" --starter 1 -- true
child_of() { ps -A -o pid= -o ppid= | awk -v parent="$1" '$2 == parent { child = $1 } END { print child }'; }
for signal in TERM KILL; do # whoever started it is gone: so is its command
    bash -c '"$0" --starter $$ -- sleep 98 & echo $! >"$1"; wait' "$bin/gem-tether" "$tmp/tether" &
    starter=$!
    for _ in {1..1200}; do [ -s "$tmp/tether" ] && break; sleep 0.05; done
    tether=$(cat "$tmp/tether") command=''
    for _ in {1..1200}; do command=$(child_of "$tether"); [ -z "$command" ] || break; sleep 0.05; done
    kill -"$signal" "$starter"
    for pid in "$tether" "$command"; do
        for _ in {1..1200}; do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
        holds "$signal: it ended" bash -c '! kill -0 "$1" 2>/dev/null' _ "$pid"
    done
    rm "$tmp/tether"
    wait "$starter" 2>/dev/null || true
done
for format in man bash zsh fish; do
    expect 0 "gem --help-as $format" "$gem" --help-as "$format"
    has "gem --help-as $format" "$tmp/out" "temperature"
    [ $format != bash ] || holds "bash completion parses" bash -n "$tmp/out"
done

# A model that is not there: 3, and what to do about it.
expect 3 "no model" "$gem" run gemma-3-270m -p hi
has "no model" "$tmp/err" "gem pull gemma-3-270m"
expect 3 "no file" "$gem" run "$tmp/none.gguf" -p hi
expect 3 "bench without model" "$bin/gem-bench" --model nonesuch
expect 3 "tokenize without model" "$bin/gem-tokenize" --count nonesuch text
expect 2 "bench of nothing" "$bin/gem-bench" --model x --prompt-tokens 0 --generation-tokens 0
expect 2 "both prompt and file" "$gem" run m -p a -f b
expect 2 "chat and raw" "$gem" run m --chat --raw -p a
expect 2 "logits without out" "$gem" logits m -p a
expect 2 "unknown name to pull" "$gem" pull nonesuch
expect 0 "pull --list" "$gem" pull --list
holds "pull --list is JSON" python3 -c 'import json, sys; l = json.load(open(sys.argv[1])); sys.exit(not (len(l) >= 3 and l[0]["path"] is None))' "$tmp/out"

# Files that are no models: refused with 1, by every command alike, in one sentence.
printf 'GGUF' >"$tmp/short.gguf"
printf 'hello, I am a text file and not a model' >"$tmp/text.gguf"
: >"$tmp/empty.gguf"
for file in short text empty; do
    expect 1 "inspect $file" "$gem" inspect "$tmp/$file.gguf"
    has "inspect $file" "$tmp/out" "refused: "
    expect 1 "inspect --json $file" "$gem" inspect --json "$tmp/$file.gguf"
    holds "inspect --json $file is JSON" python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not (d["accepted"] is False and d["reason"]))' "$tmp/out"
    expect 1 "run $file" "$gem" run "$tmp/$file.gguf" -p hi
    same "run $file: one line" "$(wc -l <"$tmp/err")" 1
    expect 1 "print-config $file" "$gem" print-config "$tmp/$file.gguf"
done
expect 3 "a folder is no model" "$gem" inspect "$tmp"

# A sampler bench is quick enough to run here.
expect 0 "sampler bench" "$bin/gem-sampler-bench" --vocab 4096 --draws 20 --repetitions 2
holds "sampler bench record" python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
sys.exit(not (d["schema"] == "gem-sampler-bench/1" and len(d["row"]["samples_ns"]) == 2 and len(d["row"]["warmup_ns"]) == 1
              and d["parity"]["same_tokens_in_every_run"] is True))' "$tmp/out"

# An answer that cannot be written is a fault, not success.
if [ -e /dev/full ]; then
    code=0
    "$gem" pull --list >/dev/full 2>"$tmp/err" || code=$?
    same "full disk" "$code" 4
fi
finish
