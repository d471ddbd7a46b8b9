#!/usr/bin/env bash
# server-prefill-cancel-gate.sh MODEL.gguf CONTEXT PROMPT_FILE OUTPUT_DIR PORT
# A client that goes away while its prompt is read, then a short request that the same process must answer. Required:
# curl's timeout (28) behind at least one keepalive comment, no record of 100 % of the cancelled prompt, health within
# the limit, and a visible completion of at most 16 tokens. The prompt has at least 128 canonical chat tokens. Keeps
# configuration, request, partial stream, curl's error, log, recovery and second request in OUTPUT_DIR, then the summary
# and the manifest; a run that is refused stays below OUTPUT_DIR/refused. Run nothing else meanwhile.
#   GEM_CANCEL_AFTER_SECONDS            when the client goes away; default 5
#   GEM_CANCEL_RECOVERY_LIMIT_SECONDS   default 60
#   GEM_KV_TYPE, GEM_MODEL_SHA256       as for long-context-server-gate.sh
#   GEM, GEM_ANALYZE, GEM_TOKENIZE, GEM_TETHER   other builds of the programs
# Exit: 0 recovered, 1 refused (the rules are on stderr), 2 usage, 3 something is missing here, 4 a write failed.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 5 ] || die 2 "MODEL, CONTEXT, PROMPT_FILE, OUTPUT_DIR and PORT are needed; see --help"
model=$1 context=$2 prompt=$3 port=$5
need_count CONTEXT "$context"
need_count PORT "$port"
after=${GEM_CANCEL_AFTER_SECONDS:-5} limit=${GEM_CANCEL_RECOVERY_LIMIT_SECONDS:-60} kv=${GEM_KV_TYPE:-f32}
need_positive GEM_CANCEL_AFTER_SECONDS "$after"
need_positive GEM_CANCEL_RECOVERY_LIMIT_SECONDS "$limit"
[ -z "${GEM_MODEL_SHA256:-}" ] || need_digest GEM_MODEL_SHA256 "$GEM_MODEL_SHA256"
case $kv in f32 | f16 | f16-full) ;; *) die 2 "GEM_KV_TYPE is '$kv', expected f32, f16 or f16-full" ;; esac
need_tools curl jq
need_program gem gem
need_program tokenize gem-tokenize
need_program tether gem-tether
[ -f "$model" ] || die 3 "$model: no such model"
[ -r "$prompt" ] || die 3 "$prompt cannot be read"
awake=$(idle_assertion)
gate_open "$4" 0
free_port "$port"

say_running "counting the prompt"
tokens=$("$tokenize" --count --file --chat-user "$model" "$prompt") || die 3 "$model cannot count $prompt"
need_count "the count of $prompt" "$tokens"
[ "$tokens" -ge 128 ] || refuse prompt-tokens "$tokens canonical chat tokens, at least 128 are needed"
[ "$tokens" -lt "$context" ] || refuse context "$tokens tokens do not leave room for an answer in $context"
model_sha=${GEM_MODEL_SHA256:-}
if [ -z "$model_sha" ]; then
    say_running "reading the model for its digest"
    model_sha=$(sha256 "$model")
fi
binary_sha=$(sha256 "$gem")
cp "$prompt" "$part/prompt.txt"
printf '%s  gem\n' "$binary_sha" >"$part/live-binary-sha256.txt"
printf 'Reply with the one word ready.' >"$part/second-prompt.txt"
gem_analyze document "$part/gate-config.json" schema=gem-server-prefill-cancel-gate schema_version:=1 "model_path=$model" \
    "model_sha256=$model_sha" "prompt_path=$prompt" "prompt_sha256=$(sha256 "$part/prompt.txt")" "prompt_tokens:=$tokens" \
    "context:=$context" "kv_type=$kv" "cancel_after_seconds:=$after" "recovery_limit_seconds:=$limit" \
    "binary_sha256=$binary_sha" "idle_assertion=$awake"
GEM_KV_TYPE=$kv run_child "$gem" print-config "$model" --context "$context" >"$part/print-config.json" ||
    die 3 "gem print-config refused the configuration"
gem_analyze messages "$part/prompt.txt" "$part/messages.json"
gem_analyze document "$part/request.json" "model=${model##*/}" stream:=true stream_options.include_usage:=true \
    "messages:@$part/messages.json"
rm "$part/messages.json"

microseconds() { printf '%s' $((${EPOCHREALTIME//[!0-9]/} - $1)); }

start_server "$part/server.log" "$port" "$model" --context "$context" --kv-type "$kv"
before=$(child_of "$server")
say_running "cancelling a prompt of $tokens tokens after $after s"
code=0
run_child curl -N -sS --max-time "$after" -H 'Content-Type: application/json' -H 'Accept: text/event-stream' \
    --data-binary "@$part/request.json" -o "$part/cancelled.sse" -w '%{http_code} %{time_total}\n' \
    "http://127.0.0.1:$port/v1/chat/completions" >"$part/told" 2>"$part/curl-error.txt" || code=$?
gone=${EPOCHREALTIME//[!0-9]/}
read -r status took <"$part/told" || { status=0 took=0; }
rm "$part/told"
gem_analyze document "$part/curl-status.json" schema=gem-curl-status/1 "exit:=$code" "http_status:=$((10#$status))" "time_total:=$took"
[ -e "$part/cancelled.sse" ] || : >"$part/cancelled.sse"

# Healthy again: health answers, and the log has ended the request that nobody waits for.
health_us='' recovered_us='' most=$(awk -v s="$limit" 'BEGIN { printf "%d", s * 1e6 }') answered=0
while [ "$(microseconds "$gone")" -le "$most" ]; do
    if [ -z "$health_us" ]; then
        answered=$(health "$port" "$limit")
        [ "$answered" != 200 ] || health_us=$(microseconds "$gone")
    fi
    if [ -n "$health_us" ] && grep -q ' done wire=' "$part/server.log"; then recovered_us=$(microseconds "$gone"); break; fi
    kill -0 "$server" 2>/dev/null || break
    pause 0.02
done
say_running "recovered after ${recovered_us:-no} us"
if [ -n "$recovered_us" ]; then
    GEM_STREAM_MAX_TOKENS=16 run_child "$here/server-stream-probe.sh" "http://127.0.0.1:$port" "${model##*/}" \
        "$part/second-prompt.txt" "$part/second.sse" "$part/second.json" || say "the second request did not end well"
fi
now=$(child_of "$server")
gem_analyze document "$part/recovery.json" schema=gem-cancel-recovery/1 "health_status:=$((10#${answered:-0}))" \
    "health_seconds:=$(awk -v u="${health_us:-null}" 'BEGIN { if (u == "null") print u; else printf "%.6f", u / 1e6 }')" \
    "recovery_seconds:=$(awk -v u="${recovered_us:-null}" 'BEGIN { if (u == "null") print u; else printf "%.6f", u / 1e6 }')" \
    "server_pid_before:=${before:-0}" "server_pid_after:=${now:-0}"
end_server
[ "$(sha256 "$gem")" = "$binary_sha" ] || refuse binary "the program was changed since the run began"

code=0
gem_analyze server-prefill-cancel-gate "$part" "$part/summary.json" || code=$?
if [ "$code" -ne 0 ]; then
    mv "$part" "$dir/refused"
    part=''
    exit "$code"
fi
mapfile -t files < <(cd "$part" && find . -type f ! -name summary.json)
keep "${files[@]}" summary.json
gate_seal
say_running "recovered: $dir/summary.json"
