#!/usr/bin/env bash
# server-stream-probe.sh BASE_URL MODEL PROMPT_FILE OUTPUT_SSE OUTPUT_JSON: one streamed chat request, timed.
# OUTPUT_SSE keeps every byte of the stream; OUTPUT_JSON tells the transport's first byte (headers and the
# role, which come at once) apart from first_visible_event_seconds: the first delta with non-empty content,
# reasoning or a tool call. Comments of the stream never count as output.
# $GEM_STREAM_MAX_TOKENS limits the answer and is recorded; $GEM_API_KEY is sent when set. $GEM_STREAM_MESSAGES names a
# JSON file of messages that are sent instead of one user turn with the prompt; its digest is recorded.
# Exit 0 when the stream ended with [DONE] and reported usage; 1 when it did not; 3 when the server did not answer.
set -euo pipefail
# shellcheck source=scripts/lib.sh disable=SC1091
. "$(dirname "$0")/lib.sh"
[ "${1:-}" != --help ] || script_help "$0"
[ $# -eq 5 ] || die 2 "BASE_URL MODEL PROMPT_FILE OUTPUT_SSE OUTPUT_JSON are needed; see --help"
base=${1%/} model=$2 prompt=$3 sse=$4 json=$5
max=${GEM_STREAM_MAX_TOKENS:-}
[ -r "$prompt" ] || die 3 "$prompt cannot be read"
[[ -z $max || $max =~ ^[1-9][0-9]{0,8}$ ]] || die 2 "GEM_STREAM_MAX_TOKENS is $max, expected a count"
[ "${BASH_VERSINFO[0]}" -ge 5 ] || die 3 "bash 5 is needed, for its clock"
for tool in curl jq; do command -v "$tool" >/dev/null || die 3 "$tool is needed"; done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
messages=${GEM_STREAM_MESSAGES:-} messages_sha=''
if [ -n "$messages" ]; then
    [ -r "$messages" ] || die 3 "$messages cannot be read"
    messages_sha=$(sha256sum "$messages" | cut -d ' ' -f 1)
    cp "$messages" "$tmp/messages"
else
    jq -n --rawfile prompt "$prompt" '[{role: "user", content: $prompt}]' >"$tmp/messages"
fi
jq -n --arg model "$model" --slurpfile messages "$tmp/messages" --arg max "$max" \
    '{model: $model, stream: true, stream_options: {include_usage: true}, messages: $messages[0]}
     + (if $max == "" then {} else {max_tokens: ($max | tonumber)} end)' >"$tmp/body"
auth=()
if [ -n "${GEM_API_KEY:-}" ]; then # by a file: arguments can be read by every user of the machine
    printf 'Authorization: Bearer %s\n' "$GEM_API_KEY" >"$tmp/auth"
    auth=(-H "@$tmp/auth")
fi

since() { # microseconds from $start to $1, both as EPOCHREALTIME writes them
    local now=${1//[!0-9]/} then=${start//[!0-9]/}
    printf '%s' "$((now - then))"
}
visible='"(content|reasoning_content|reasoning)":"[^"]|"tool_calls":\[\{'
first='' last='' end='' comments=0 finished=false
: >"$sse"
start=$EPOCHREALTIME
while IFS= read -r line; do
    case $line in
    '@@curl '*) end=$EPOCHREALTIME; printf '%s\n' "${line#@@curl }" >"$tmp/curl"; continue ;;
    :*) comments=$((comments + 1)) ;;
    'data: [DONE]'*) finished=true ;;
    'data: '*)
        last=$EPOCHREALTIME
        if [ -z "$first" ] && [[ $line =~ $visible ]]; then first=$last; fi
        if [[ $line == *'"usage":{'* ]]; then printf '%s\n' "${line#data: }" >"$tmp/usage"; fi
        ;;
    esac
    printf '%s\n' "$line" >>"$sse"
done < <(curl -N -sS "${auth[@]}" -H 'Content-Type: application/json' -H 'Accept: text/event-stream' --data-binary "@$tmp/body" \
    -w '\n@@curl {"http_status":%{http_code},"time_connect":%{time_connect},"time_starttransfer":%{time_starttransfer},"time_total":%{time_total}}\n' \
    "$base/v1/chat/completions" 2>"$tmp/error" || true)
[ -s "$tmp/curl" ] || printf '{"http_status":0}\n' >"$tmp/curl"
[ -s "$tmp/usage" ] || printf '{}\n' >"$tmp/usage"

jq -n --arg base "$base" --arg model "$model" --arg prompt "$prompt" --arg max "$max" --arg error "$(cat "$tmp/error")" --arg messages "$messages_sha" \
    --arg sha256 "$(sha256sum "$prompt" | cut -d ' ' -f 1)" --arg first "${first:+$(since "$first")}" --arg last "${last:+$(since "$last")}" --arg ended "${end:+$(since "$end")}" \
    --argjson comments "$comments" --argjson finished "$finished" --slurpfile curl "$tmp/curl" --slurpfile usage "$tmp/usage" '
    def seconds: if . == "" then null else tonumber / 1e6 end;
    {schema: "gem.server-stream-probe", version: 1, base_url: $base, model: $model, prompt_file: $prompt, prompt_sha256: $sha256,
       messages_sha256: (if $messages == "" then null else $messages end),
       requested_max_tokens: (if $max == "" then null else $max | tonumber end), http_status: $curl[0].http_status,
       transport: ($curl[0] | del(.http_status)), first_visible_event_seconds: ($first | seconds), last_event_seconds: ($last | seconds),
       completion_seconds: ($ended | seconds), keepalive_comments: $comments, done: $finished, usage: ($usage[0].usage // null),
       error: (if $error == "" then null else $error end)}' >"$json"
[ "$(jq .http_status "$tmp/curl")" -ne 0 ] || die 3 "$base did not answer: $(cat "$tmp/error")"
jq -e '.http_status == 200 and .done and .usage != null and .first_visible_event_seconds != null' "$json" >/dev/null ||
    die 1 "the stream is incomplete; see $json and $sse"
