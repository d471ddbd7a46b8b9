#!/usr/bin/env bash
# long-context-server-gate.sh MODEL.gguf CONTEXT PROMPT_FILE OUTPUT_DIR PORT
# Three samples of one long prompt, each by a server started for it: the time to the first event a person would
# see, and to the end. Keeps every stream, log, measurement and receipt of the host in OUTPUT_DIR, then the summary
# that follows from them, then the manifest. Nothing is kept unless it holds; see docs/benchmarking.md.
#   GEM_KV_TYPE                f32 (default), f16 or f16-full
#   GEM_MODEL_SHA256           a digest that was verified before: the model is not read again
#   GEM_STREAM_MAX_TOKENS      limit of an answer; recorded
#   GEM_PREFIX_EXTENSION_TEXT  a second turn by the same server, which may evaluate only what is new
#   GEM_GATE_RESUME            1: go on where an interrupted run of the same command stopped
#   GEM_GATE_PREFLIGHT_MIN_TOKENS  prompts from here on are watched; default 65536. The policy:
#   GEM_GATE_MAX_LOAD_PER_CPU, GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT, GEM_GATE_HOST_MONITOR_SECONDS,
#   GEM_GATE_HOST_MONITOR_FAILURES   default 1.0, 10, 30, 3; another value is recorded as another axis
#   GEM, GEM_ANALYZE, GEM_TOKENIZE, GEM_HOST_STATE, GEM_TETHER   other builds of the programs
# Exit: 0 accepted, 1 refused (the rules are on stderr), 2 usage, 3 something is missing here, 4 a write failed.
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
kv=${GEM_KV_TYPE:-f32} max=${GEM_STREAM_MAX_TOKENS:-} extension=${GEM_PREFIX_EXTENSION_TEXT:-} resume=${GEM_GATE_RESUME:-0}
[ -z "$max" ] || need_count GEM_STREAM_MAX_TOKENS "$max"
[ -z "${GEM_MODEL_SHA256:-}" ] || need_digest GEM_MODEL_SHA256 "$GEM_MODEL_SHA256"
case $resume in 0 | 1) ;; *) die 2 "GEM_GATE_RESUME is '$resume', expected 0 or 1" ;; esac
case $kv in f32 | f16 | f16-full) ;; *) die 2 "GEM_KV_TYPE is '$kv', expected f32, f16 or f16-full" ;; esac
need_tools curl jq
need_program gem gem
need_program tokenize gem-tokenize
need_program tether gem-tether
need_program host_state gem-host-state
[ -f "$model" ] || die 3 "$model: no such model"
[ -r "$prompt" ] || die 3 "$prompt cannot be read"
read_host_policy

gate_open "$4" "$resume" gate-config.json print-config.json prompt.txt live-binary-sha256.txt attempts.ndjson run.json \
    summary.json 'sample-[123].json' 'sample-[123].sse' 'server-[123].log' 'host-preflight-[123].json' \
    'host-monitor-[123].ndjson' 'extension-[123].json' 'extension-[123].sse' 'extension-messages-[123].json'
if [ "$resume" = 1 ] && [ -e "$dir/attempts.ndjson" ]; then
    for file in gate-config.json print-config.json live-binary-sha256.txt prompt.txt; do
        [ -s "$dir/$file" ] || refuse dirty "$dir does not hold $file: nothing to go on with"
    done
elif [ "$resume" = 1 ]; then # stopped before the first sample, or never begun
    if [ ! -e "$dir/gate-config.json" ] || [ ! -e "$dir/print-config.json" ]; then
        refuse dirty "$dir holds no run that could go on"
    fi
fi
free_port "$port"

# ---- what is frozen ----
say_running "counting the prompt"
tokens=$("$tokenize" --count --file --chat-user "$model" "$prompt") || die 3 "$model cannot count $prompt"
need_count "the count of $prompt" "$tokens"
[ "$tokens" -lt "$context" ] || refuse context "$tokens tokens do not leave room for an answer in $context"
prompt_sha=$(sha256 "$prompt")
binary_sha=$(sha256 "$gem")
if [ -n "${GEM_MODEL_SHA256:-}" ]; then
    model_sha=$GEM_MODEL_SHA256 source=GEM_MODEL_SHA256
else
    say_running "reading the model for its digest"
    model_sha=$(sha256 "$model") source=computed
fi
mapfile -t policy < <(host_policy_arguments)
gem_analyze document "$part/gate-config.json" schema=gem-long-context-server-gate schema_version:=4 "model_path=$model" \
    "model_sha256=$model_sha" "model_digest_source=$source" "prompt_path=$prompt" "prompt_sha256=$prompt_sha" \
    "prompt_tokens:=$tokens" "context:=$context" "kv_type=$kv" "max_tokens:=${max:-null}" repetitions:=3 \
    "prefix_extension_text=$extension" "binary_sha256=$binary_sha" "${policy[@]}"
GEM_KV_TYPE=$kv run_child "$gem" print-config "$model" --context "$context" >"$part/print-config.json" ||
    die 3 "gem print-config refused the configuration"
if [ "$resume" = 1 ]; then
    gem_analyze long-context-resume "$dir/gate-config.json" "$part/gate-config.json" "$dir/print-config.json" \
        "$part/print-config.json" "$part/resume.json" || exit 1
    if [ -e "$dir/live-binary-sha256.txt" ] && [ "$(cut -d ' ' -f 1 "$dir/live-binary-sha256.txt")" != "$binary_sha" ]; then
        refuse binary "the program is not the one that live-binary-sha256.txt names"
    fi
    if [ -e "$dir/prompt.txt" ] && [ "$(sha256 "$dir/prompt.txt")" != "$prompt_sha" ]; then
        refuse prompt-digest "the retained prompt was changed"
    fi
fi
if [ ! -e "$dir/attempts.ndjson" ]; then
    cp "$prompt" "$part/prompt.txt"
    printf '%s  gem\n' "$binary_sha" >"$part/live-binary-sha256.txt"
    : >"$part/attempts.ndjson"
    keep prompt.txt live-binary-sha256.txt print-config.json gate-config.json attempts.ndjson
fi

# ---- samples ----
attempt() { printf '{"sample":%d,"event":"%s"}\n' "$1" "$2" >>"$dir/attempts.ndjson"; }
# ticker N: how far the prompt was read, until this script ends.
ticker() {
    local line='' i began=$SECONDS done_ total
    while :; do
        for ((i = 0; i < 10; i++)); do sleep 1; kill -0 "$$" 2>/dev/null && [ -d "$part" ] || return 0; done
        line=$(grep -a '^: gem prefill ' "$part/$2" 2>/dev/null | tail -n 1 || true)
        [[ $line =~ prefill\ ([0-9]+)/([0-9]+) ]] || continue
        done_=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
        [ "$done_" -gt 0 ] || continue
        say_running "sample $1/3: $done_ of $total tokens, about $(((SECONDS - began) * (total - done_) / done_)) s of prompt left"
    done
}
watched=0
[ "$tokens" -lt "$least" ] || watched=1
# probe N NAME: one streamed request, measured; the messages of $messages where it is set.
probe() {
    local code=0 watcher
    ticker "$1" "$2.sse" &
    watcher=$!
    children+=("$watcher")
    GEM_STREAM_MAX_TOKENS=$max GEM_STREAM_MESSAGES=${messages:-} \
        run_child "$here/server-stream-probe.sh" "http://127.0.0.1:$port" "${model##*/}" "$dir/prompt.txt" "$part/$2.sse" "$part/$2.json" || code=$?
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    forget "$watcher"
    if aborted; then attempt "$1" refused; exit 1; fi
    if [ "$code" -ne 0 ]; then attempt "$1" refused; refuse stream "sample $1: the request did not end well"; fi
}
sample() {
    local n=$1 names=("server-$1.log" "sample-$1.sse") watcher=''
    [ "$(sha256 "$gem")" = "$binary_sha" ] || refuse binary "the program was changed since the run began"
    attempt "$n" started
    if [ "$watched" -eq 1 ]; then
        preflight "$part/host-preflight-$n.json" || { attempt "$n" refused; exit 1; }
        names+=("host-preflight-$n.json" "host-monitor-$n.ndjson")
    fi
    messages=''
    start_server "$part/server-$n.log" "$port" "$model" --context "$context" --kv-type "$kv"
    if [ "$watched" -eq 1 ]; then
        monitor "$part/host-monitor-$n.ndjson" "$server" &
        watcher=$!
        first_snapshot "$part/host-monitor-$n.ndjson" "$watcher"
    fi
    probe "$n" "sample-$n"
    if [ -n "$extension" ]; then
        gem_analyze messages "$dir/prompt.txt" "$part/sample-$n.sse" "$extension" "$part/extension-messages-$n.json"
        messages=$part/extension-messages-$n.json
        probe "$n" "extension-$n"
        names+=("extension-messages-$n.json" "extension-$n.sse" "extension-$n.json")
    fi
    if [ -n "$watcher" ]; then
        kill "$watcher" 2>/dev/null || true
        wait "$watcher" 2>/dev/null || true
    fi
    end_server
    cp "$dir/gate-config.json" "$dir/prompt.txt" "$part/" # judged beside what it was measured with
    if ! gem_analyze long-context-sample --sample "$n" "$part" "$part/sound.json"; then
        attempt "$n" refused
        exit 1
    fi
    keep "${names[@]}" "sample-$n.json"
    attempt "$n" kept
    say_running "sample $n/3: first visible event after $(jq -r .first_visible_event_seconds "$dir/sample-$n.json") s"
}
resumed=0
for n in 1 2 3; do
    if [ -e "$dir/sample-$n.json" ]; then # the last file of a sample to get its name
        gem_analyze long-context-sample --sample "$n" "$dir" "$part/sound.json" || exit 1
        grep -q "\"sample\":$n,\"event\":\"kept\"" "$dir/attempts.ndjson" || attempt "$n" kept
        resumed=$((resumed + 1))
        say_running "sample $n/3: kept from before"
        continue
    fi
    rm -f "$dir"/{sample,extension}-"$n".sse "$dir/extension-$n.json" "$dir/extension-messages-$n.json" "$dir/server-$n.log" \
        "$dir/host-preflight-$n.json" "$dir/host-monitor-$n.ndjson"
    sample "$n"
done

# ---- the summary ----
gem_analyze document "$dir/run.json" schema=gem-gate-run/1 "resumed_samples:=$resumed" "port:=$port"
[ "$(sha256 "$gem")" = "$binary_sha" ] || refuse binary "the program was changed since the run began"
gem_analyze long-context-server-gate "$dir" "$part/summary.json" || exit 1
keep summary.json
gate_seal
say_running "accepted: $dir/summary.json"
