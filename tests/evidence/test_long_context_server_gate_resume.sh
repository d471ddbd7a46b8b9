#!/usr/bin/env bash
# long-context-server-gate.sh from its start over interruptions to its audit, without a model: three samples that are
# resumed, and everything that must keep a run from going on.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
: "${port:?}" "${python:?}"
gate() { "$src/scripts/long-context-server-gate.sh" "$tmp/model.gguf" 4096 "$tmp/prompt.txt" "$1" "$port"; }
dir=$tmp/run
has_sample() { [ -e "$dir/sample-$1.json" ]; }
begun() { compgen -G "$dir/.part.*/sample-$1.sse" >/dev/null && [ -s "$(compgen -G "$dir/.part.*/sample-$1.sse")" ]; }

# killed in the middle of the second sample, which lasts while the first one's record is there: that stays, nothing else does
FAKE_HOLD=$dir/sample-1.json background "$src/scripts/long-context-server-gate.sh" "$tmp/model.gguf" 4096 "$tmp/prompt.txt" "$dir" "$port"
holds "the first sample" until_there 60 has_sample 1
holds "the second began" until_there 60 begun 2

holds "it was at work" ended_by KILL
stopped "killed" "$dir" KILL
holds "one sample is kept" test -e "$dir/sample-1.json" -a ! -e "$dir/sample-2.json" -a ! -e "$dir/summary.json"
expect 1 "the folder is not used again unasked" gate "$dir"
same "why" "$(rules)" dirty

# what must keep it from going on: the judgement over configurations, then the runner in copies of the folder
new=$tmp/new
mkdir "$new"
cp "$dir"/{gate,print}-config.json "$new"
judged() { "$bin/gem-analyze" long-context-resume "$dir/gate-config.json" "$new/gate-config.json" "$dir/print-config.json" "$new/print-config.json"; }
expect 0 "nothing changed" judged
changed() { # changed RULE FILE FILTER
    jq "$3" "$dir/$2" >"$new/$2"
    expect 1 "$3" judged
    same "$3" "$(rules)" "$1"
    cp "$dir/$2" "$new/$2"
}
changed binary gate-config.json '.binary_sha256 = "0"'
changed model-digest gate-config.json '.model_sha256 |= sub("^."; "x")'
changed prompt-digest gate-config.json '.prompt_sha256 = null'
for field in model_path prompt_path prompt_tokens context kv_type max_tokens repetitions prefix_extension_text host_policy; do
    changed provenance gate-config.json ".$field = \"other\""
done
changed provenance gate-config.json '.host_policy.max_load_per_cpu = 2'
changed provenance gate-config.json '.more = 1'
changed configuration print-config.json '.n_ctx += 1'
changed configuration print-config.json 'del(.build)'
jq '.schema_version = 3' "$dir/gate-config.json" >"$tmp/old.json"
expect 1 "an older schema" "$bin/gem-analyze" long-context-resume "$tmp/old.json" "$new/gate-config.json" "$dir/print-config.json" "$new/print-config.json"
same "an older schema" "$(rules)" schema

broken=$tmp/broken
resume() { # resume RULE WHAT COMMAND...: after the change in $broken
    local rule=$1 what=$2
    shift 2
    GEM_GATE_RESUME=1 expect 1 "$what" "$@" gate "$broken"
    same "$what" "$(rules)" "$rule"
    holds "$what: nothing was measured" test ! -e "$broken/sample-2.json"
    rm -rf "$broken"
    cp -r "$dir" "$broken"
}
cp -r "$dir" "$broken"
with() { # with NAME=VALUE COMMAND...
    local -x "${1?}"
    shift
    "$@"
}
rm "$broken/print-config.json"
resume dirty "no print-config.json"
echo x >"$broken/notes.txt"
resume dirty "a foreign file"
resume configuration,provenance "another KV type" with GEM_KV_TYPE=f16
sed -i 's/data: \[DONE\]//' "$broken/sample-1.sse"
resume terminator "a completed sample that was changed"
echo "# changed" >>"$tmp/gem"
resume binary "another program"
fake
"$python" -m http.server --bind 127.0.0.1 "$port" >/dev/null 2>&1 &
other=$!
holds "somebody else listens" until_there 60 listening
resume port "the port is taken"
kill "$other"
wait "$other" 2>/dev/null || true
rm -rf "$broken"

# the same command goes on, and ends in an accepted audit
GEM_GATE_RESUME=1 expect 0 "resumed" gate "$dir"
same "resumed samples" "$(jq -c '[.resumed_samples, .attempts, .discarded_attempts, .verdict]' "$dir/summary.json")" '[1,4,1,"accepted"]'
GEM_GATE_RESUME=1 expect 1 "a finished run is not touched" gate "$dir"
same "why" "$(rules)" sealed
expect 0 "audit" "$src/scripts/audit-long-context-server-gate.sh" "$dir" "$tmp/gem" "$tmp/model.gguf"
finish
