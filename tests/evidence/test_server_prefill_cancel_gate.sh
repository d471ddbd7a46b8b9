#!/usr/bin/env bash
# server-prefill-cancel-gate.sh as a whole against a serial HTTP/SSE fixture, and every rule of it broken once. Coverage
# of the order of things; the behaviour of gem itself is shown by the same command with a model.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
: "${port:?}"
export GEM_CANCEL_AFTER_SECONDS=0.6 GEM_CANCEL_RECOVERY_LIMIT_SECONDS=20 FAKE_DELAY=0.15 FAKE_BATCH=16
command=("$src/scripts/server-prefill-cancel-gate.sh" "$tmp/model.gguf" 4096 "$tmp/prompt.txt")
dir=$tmp/run
# recovers WHAT DIR: the prompt lasts for as long as its client is there. Where a loaded machine lets no comment through
# before that leaves, the gate refuses, as it should, and is asked again.
recovers() {
    local try
    for try in 1 2 3 4; do
        FAKE_HOLD=$tmp/gem "${command[@]}" "$2" "$port" >"$tmp/out" 2>"$tmp/err" && break
        case ,$(rules), in *,keepalive,*) mv "$2" "$tmp/late-${2##*/}-$try" ;; *) break ;; esac
    done
    holds "$1: $(tail -n 3 "$tmp/err")" test -s "$2/summary.json"
}
recovers "recovers" "$dir"
same "summary" "$(jq -c '[.verdict, .model_quality, (.recovery_seconds < 20), (.cancelled_keepalive_comments > 0)]' "$dir/summary.json")" \
    '["recovered",false,true,true]'
holds "no server is left" until_there 60 silent
expect 0 "audit" "$bin/gem-analyze" audit "$dir" --binary "$tmp/gem"
mutations "$dir" "$bin/gem-analyze" audit "$dir"
expect 1 "a folder is used once" "${command[@]}" "$dir" "$port"
same "why" "$(rules)" sealed

# one broken rule at a time, in the files that were kept
judge() { "$bin/gem-analyze" server-prefill-cancel-gate "$1" "$tmp/report.json"; }
breaks() { # breaks RULES FILE COMMAND...: COMMAND changes $file
    local want=$1 name=$2
    shift 2
    rm -rf "$tmp/broken"
    cp -r "$dir" "$tmp/broken"
    file=$tmp/broken/$name
    "$@"
    expect 1 "$name: $*" judge "$tmp/broken"
    same "$name: $*" "$(rules)" "$want"
}
filter() { jq "$1" "$dir/${file##*/}" >"$file"; }
edit() { sed -i "$1" "$file"; if cmp -s "$file" "$dir/${file##*/}"; then fail "$1 changes nothing"; fi; }
append() { printf '%s\n' "$1" >>"$file"; }
empty() { : >"$file"; }
lose() { rm "$file"; }
breaks schema gate-config.json filter '.schema_version = 2'
breaks prompt-tokens gate-config.json filter '.prompt_tokens = 127'
breaks model-digest gate-config.json filter '.model_sha256 = "x"'
breaks prompt-digest gate-config.json filter '.prompt_sha256 |= sub("^."; "x")'
breaks binary gate-config.json filter 'del(.binary_sha256)'
breaks field,recovery gate-config.json filter '.recovery_limit_seconds = 0'
breaks context print-config.json filter '.n_ctx = 8192 | .kv.bytes *= 2 | .kv.context_bytes += 4096 * 128 * 8'
breaks kv-type print-config.json filter '.kv.type = "f16"'
breaks kv-bytes print-config.json filter '.kv.context_bytes -= 1'
breaks prompt-digest,request prompt.txt append more
breaks request request.json filter '.stream = false'
breaks curl-status curl-status.json filter '.exit = 0'
breaks curl-status curl-status.json filter '.time_total = 0.1'
breaks curl-status curl-error.txt empty
breaks same-process server.log edit '1p'
breaks cancelled cancelled.sse append 'data: [DONE]'
breaks cancelled cancelled.sse append 'data: {"id":"chat-1","choices":[{"index":0,"delta":{"content":"ok"}}]}'
breaks cancelled server.log edit 's/end=client_gone/end=stop/'
breaks cancelled server.log edit '3i x req-1 prefill 200/200 tokens (100%)'
breaks cancelled,keepalive cancelled.sse empty
breaks recovery recovery.json filter '.recovery_seconds = 21'
breaks recovery recovery.json filter '.recovery_seconds = null'
breaks recovery recovery.json filter '.health_status = 503'
breaks same-process recovery.json filter '.server_pid_after += 1'
breaks second second.json filter '.requested_max_tokens = 17'
breaks terminator second.sse edit '/DONE/d'
breaks prefill-100 server.log edit '/req-2 prefill/d'
breaks prompt-digest second-prompt.txt append more
breaks files second.json lose
breaks files cancelled.sse lose

# the runner: a server that does not cancel, one that says nothing, a short prompt, a port that is taken
for fault in uncancelled:cancelled silent:cancelled,keepalive; do
    FAKE_FAULT=${fault%:*} expect 1 "${fault%:*}" "${command[@]}" "$tmp/$fault" "$port"
    has "${fault%:*} is named" "$tmp/err" "refused: ${fault##*[:,]}"
    holds "${fault%:*}: what was seen is kept" test -s "$tmp/$fault/refused/server.log"
done
FAKE_TOKENS=127 expect 1 "127 tokens" "${command[@]}" "$tmp/short" "$port"
same "127 tokens" "$(rules)" prompt-tokens

# interrupted while the prompt is read
begun() { compgen -G "$tmp/stop/.part.*/cancelled.sse" >/dev/null; }
for signal in INT TERM KILL; do
    rm -rf "$tmp/stop"
    GEM_CANCEL_AFTER_SECONDS=600 FAKE_HOLD=$tmp/gem background "${command[@]}" "$tmp/stop" "$port"
    holds "$signal: begun" until_there 60 begun
    holds "$signal: at work" ended_by "$signal"
    stopped "$signal" "$tmp/stop" "$signal"
    holds "$signal: nothing has a final name" test -z "$(find "$tmp/stop" -type f ! -path '*/.*')"
done
recovers "the folder of a killed run is taken over" "$tmp/stop"
finish
