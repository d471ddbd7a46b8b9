#!/usr/bin/env bash
# gem-analyze stream-sample on a kept request, one broken rule at a time; then on a real server where it is built.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
analyze=$bin/gem-analyze
fresh() {
    jq -n '{schema: "gem.server-stream-probe", version: 1, http_status: 200, requested_max_tokens: 4, done: true,
      transport: {time_starttransfer: 0.005}, first_visible_event_seconds: 1.5, last_event_seconds: 1.7,
      completion_seconds: 1.8, keepalive_comments: 3,
      usage: {prompt_tokens: 100, completion_tokens: 2, total_tokens: 102}}' >"$tmp/m.json"
    cat >"$tmp/s.sse" <<'SSE'
: gem request req-7 accepted

data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}

: gem prefill 64/100 cached 0

: gem prefill 100/100 cached 0

data: {"id":"c1","choices":[{"index":0,"delta":{"content":"ok"}}]}

data: {"id":"c1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"total_tokens":102,"prompt_tokens_details":{"cached_tokens":0}}}

data: [DONE]

SSE
    cat >"$tmp/s.log" <<'LOG'
2026-01-01T00:00:00.000Z req-6 prefill 100/100 tokens (100%)
2026-01-01T00:00:00.000Z req-7 prefill 64/100 tokens (64%)
2026-01-01T00:00:00.000Z req-7 prefill 100/100 tokens (100%)
2026-01-01T00:00:00.000Z req-7 done wire=chat
LOG
}
judge() { expect "$1" "$2" "$analyze" stream-sample "${@:3}" "$tmp/m.json" "$tmp/s.sse" "$tmp/s.log" "$tmp/r.json"; }
# sed_breaks RULES FILE SCRIPT; jq_breaks RULES FILTER [OPTION...]
refused() {
    judge 1 "$1 by $2" "${@:3}"
    same "rules broken by $2" "$(jq -r '.failed_rules | sort | join(",")' "$tmp/r.json")" "$1"
    fresh
}
sed_breaks() {
    cp "$tmp/$2" "$tmp/before"
    sed -i "$3" "$tmp/$2"
    if cmp -s "$tmp/before" "$tmp/$2"; then fail "$3 changes nothing"; fi
    refused "$1" "$3"
}
jq_breaks() {
    jq "$2" "$tmp/m.json" >"$tmp/x" && mv "$tmp/x" "$tmp/m.json"
    refused "$@"
}
fresh
judge 0 "a cold request" --prompt-tokens 100
same "figures" "$(jq -c '[.verdict, .first_visible_event_seconds, .prompt_tokens, .cached_tokens]' "$tmp/r.json")" '["sound",1.5,100,0]'
refused prompt-tokens "another count" --prompt-tokens 101
refused prefix-hit "no hit" --extends 60
jq_breaks http-status '.http_status = 500'
jq_breaks schema '.version = 2'
jq_breaks terminator '.done = false'
jq_breaks keepalive '.keepalive_comments = 2'
jq_breaks max-tokens '.requested_max_tokens = 1'
jq_breaks usage '.usage.completion_tokens = 3'
jq_breaks times '.first_visible_event_seconds = 0.004'
jq_breaks times '.first_visible_event_seconds = null'
sed_breaks terminator s.sse 's/^data: \[DONE\]/data: {"id":"c1","choices":[]}/'
sed_breaks terminator s.sse '$a data: [DONE]'
sed_breaks terminator s.sse '$a data: {"id":"c1","choices":[]}'
sed_breaks stream,visible s.sse 's/"content":"ok"}}]}/"content":"ok"}}]/'
sed_breaks visible s.sse 's/"content":"ok"/"content":""/'
sed_breaks stream s.sse '0,/"id":"c1"/s//"id":"c2"/'
sed_breaks stream s.sse '1i event: ping'
sed_breaks stream s.sse '1i data: {"error":{"message":"x"}}'
sed_breaks prefill-100,usage s.sse 's/"prompt_tokens":100/"prompt_tokens":99/'
sed_breaks cold s.sse 's/"cached_tokens":0/"cached_tokens":5/'
sed_breaks prefill-100,request s.sse 's/^: gem request req-7 accepted/: hello/'
sed_breaks prefill-100 s.log 's/req-7 prefill 100/req-8 prefill 100/'
sed_breaks prefill-100 s.log 's/100\/100 tokens (100%)/99\/100 tokens (99%)/'
sed_breaks prefill-100 s.log '3p'
sed_breaks cold s.log '2i x req-7 prefix hit: reused 60 tokens, appended 40 tokens'
printf '%s' "$(cat "$tmp/s.sse")" >"$tmp/x" && mv "$tmp/x" "$tmp/s.sse" # the last line is cut
refused stream "a cut stream"
extended() {
    sed -i '2i x req-7 prefix hit: reused 60 tokens, appended 40 tokens' "$tmp/s.log"
    sed -i 's/"cached_tokens":0/"cached_tokens":60/' "$tmp/s.sse"
}
extended
judge 0 "a prefix extension" --extends 60
refused prefix-hit "less reused than the first request had" --extends 61
extended
sed_breaks cold s.log 's/x req-7/y req-7/'
extended
sed -i 's/appended 40/appended 39/' "$tmp/s.log"
refused prefix-hit "counts that do not add up" --extends 60
expect 3 "no log" "$analyze" stream-sample "$tmp/m.json" "$tmp/s.sse" "$tmp/none"
expect 2 "two files" "$analyze" stream-sample "$tmp/m.json" "$tmp/s.sse"

# the real thing: a cold request, and the same again, which is no extension
if "$bin/gem" serve --help >/dev/null 2>&1 && [ "${BASH_VERSINFO[0]}" -ge 5 ] && command -v curl >/dev/null; then
    "$bin/gem-synth-model" --arch gemma3 --out "$tmp/m.gguf" --quiet >"$tmp/synth.json"
    GEM_TOKENIZE=$bin/gem-tokenize expect 0 "prompt" "$src/scripts/make-long-prompt.sh" "$tmp/m.gguf" 600 "$tmp/p.txt"
    "$bin/gem" serve "$tmp/m.gguf" --port 0 -c 1024 2>"$tmp/serve.log" &
    server=$!
    trap 'kill "$server" 2>/dev/null || true; rm -rf "$tmp"' EXIT
    for _ in {1..1200}; do grep -qs 'model loaded' "$tmp/serve.log" && break; sleep 0.1; done
    port=$(sed -n 's/.*listening on http:[^ ]*:\([0-9]*\) .*/\1/p' "$tmp/serve.log")
    for i in 1 2; do
        GEM_STREAM_MAX_TOKENS=4 expect 0 "probe $i" "$src/scripts/server-stream-probe.sh" "http://127.0.0.1:$port" m \
            "$tmp/p.txt" "$tmp/$i.sse" "$tmp/$i.json"
    done
    kill "$server"
    wait "$server" 2>/dev/null || true
    expect 0 "a real cold request" "$analyze" stream-sample --prompt-tokens 600 "$tmp/1.json" "$tmp/1.sse" "$tmp/serve.log"
    expect 1 "a replay is not cold" "$analyze" stream-sample --prompt-tokens 600 "$tmp/2.json" "$tmp/2.sse" "$tmp/serve.log"
    has "it is named" "$tmp/err" "refused: cold: 1 hits, 599 cached"
    expect 1 "and no extension" "$analyze" stream-sample --extends 600 "$tmp/2.json" "$tmp/2.sse" "$tmp/serve.log"
    has "it is named" "$tmp/err" "refused: prefix-hit"
fi
finish
