#!/usr/bin/env bash
# server-probe.sh BASE_URL MODEL PROMPT_FILE [OUTPUT_JSON]: one chat request without streaming, timed.
# Prints (or writes) one JSON document: time to the first byte and to the last, as the client sees them, with the
# tokens the server counted. $GEM_STREAM_MAX_TOKENS limits the answer; $GEM_API_KEY is sent when set.
# Exit 0 when the answer came with usage; 1 when the server refused; 3 when it did not answer.
set -euo pipefail
# shellcheck source=scripts/lib.sh disable=SC1091
. "$(dirname "$0")/lib.sh"
[ "${1:-}" != --help ] || script_help "$0"
[ $# -eq 3 ] || [ $# -eq 4 ] || die 2 "BASE_URL MODEL PROMPT_FILE [OUTPUT_JSON] are needed; see --help"
base=${1%/} model=$2 prompt=$3 json=${4:-/dev/stdout}
max=${GEM_STREAM_MAX_TOKENS:-}
[ -r "$prompt" ] || die 3 "$prompt cannot be read"
[[ -z $max || $max =~ ^[1-9][0-9]{0,8}$ ]] || die 2 "GEM_STREAM_MAX_TOKENS is $max, expected a count"
for tool in curl jq; do command -v "$tool" >/dev/null || die 3 "$tool is needed"; done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
jq -n --arg model "$model" --rawfile prompt "$prompt" --arg max "$max" \
    '{model: $model, messages: [{role: "user", content: $prompt}]}
     + (if $max == "" then {} else {max_tokens: ($max | tonumber)} end)' >"$tmp/body"
auth=()
if [ -n "${GEM_API_KEY:-}" ]; then # by a file: arguments can be read by every user of the machine
    printf 'Authorization: Bearer %s\n' "$GEM_API_KEY" >"$tmp/auth"
    auth=(-H "@$tmp/auth")
fi
curl -sS "${auth[@]}" -H 'Content-Type: application/json' --data-binary "@$tmp/body" -o "$tmp/answer" \
    -w '{"http_status":%{http_code},"time_connect":%{time_connect},"time_starttransfer":%{time_starttransfer},"time_total":%{time_total}}\n' \
    "$base/v1/chat/completions" >"$tmp/curl" || die 3 "$base did not answer"
jq -e . "$tmp/answer" >/dev/null 2>&1 || die 1 "the answer is no JSON"
jq -n --arg base "$base" --arg model "$model" --arg prompt "$prompt" --arg max "$max" \
    --arg sha256 "$(sha256sum "$prompt" | cut -d ' ' -f 1)" --slurpfile curl "$tmp/curl" --slurpfile answer "$tmp/answer" '
    {schema: "gem.server-probe", version: 1, base_url: $base, model: $model, prompt_file: $prompt, prompt_sha256: $sha256,
     requested_max_tokens: (if $max == "" then null else $max | tonumber end), http_status: $curl[0].http_status,
     time_to_first_byte_seconds: $curl[0].time_starttransfer, completion_seconds: $curl[0].time_total,
     served_model: $answer[0].model, finish_reason: $answer[0].choices[0].finish_reason?, usage: $answer[0].usage,
     timings: $answer[0].timings, error: $answer[0].error}' >"$tmp/out"
cat "$tmp/out" >"$json"
jq -e '.http_status == 200 and .usage != null' "$tmp/out" >/dev/null || die 1 "the server refused: $(jq -r '.error.message // "no reason"' "$tmp/out")"
