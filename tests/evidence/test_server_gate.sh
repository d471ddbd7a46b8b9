#!/usr/bin/env bash
# The judge and the audit of the long-context server gate: a run without a model under an enforced host policy, with a
# second turn; then every stated rule broken once in the raw files, and a bit of every file.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
: "${port:?}"
command=("$src/scripts/long-context-server-gate.sh" "$tmp/model.gguf" 4096 "$tmp/prompt.txt")
export GEM_GATE_PREFLIGHT_MIN_TOKENS=200 GEM_GATE_HOST_MONITOR_SECONDS=1 GEM_PREFIX_EXTENSION_TEXT='Reply with DONE.'
good=$tmp/good
GEM_STREAM_MAX_TOKENS=4 expect 0 "accepted" "${command[@]}" "$good" "$port"
audit() { "$src/scripts/audit-long-context-server-gate.sh" "$1" "$tmp/gem"; }
"$src/scripts/audit-long-context-server-gate.sh" "$good" "$tmp/gem" >"$good/audit.json" || fail "the audit's own place"
expect 0 "audited again beside its report" audit "$good"
same "the report is the same" "$(sha256sum <"$tmp/out")" "$(sha256sum <"$good/audit.json")"
same "what it says" "$(jq -c '[.verdict, .schema_version, .host_policy_enforced, .host_policy_is_default, .kv_bytes,
    ([.extension_samples[] | [.reused_tokens, .appended_tokens]] | unique), .max_tokens]' "$good/audit.json")" \
    '["accepted",4,true,false,16777216,[[200,20]],4]'
same "aggregates follow" \
    "$(jq '([.samples[].first_visible_event_seconds] | add / 3) - .first_visible_event_seconds.mean | fabs < 1e-9' "$good/summary.json")" true
expect 0 "its page" "$bin/gem" report "$good"
mutations "$good" "$bin/gem-analyze" long-context-audit --binary "$tmp/gem" "$good"
rm "$good/audit.json"

# breaks RULES FILE COMMAND...: COMMAND changes $file in a copy that is sealed anew, as whoever can write the folder can;
# the rules are the judge's; the audit has to refuse as well.
broken=$tmp/broken
cp -r "$good" "$broken"
breaks() {
    local want=$1 name=$2
    shift 2
    file=$broken/$name
    "$@"
    expect 1 "$name: $*" "$bin/gem-analyze" long-context-server-gate "$broken" "$tmp/report.json"
    same "$name: $*" "$(rules)" "$want"
    cp "$good/$name" "$file"
}
filter() { jq "$1" "$good/${file##*/}" >"$file"; }
edit() { sed -i "$1" "$file"; if cmp -s "$file" "$good/${file##*/}"; then fail "$1 changes nothing"; fi; }
lines() { jq -c "$1" "$good/${file##*/}" >"$file"; }
append() { printf '%s\n' "$1" >>"$file"; }
lose() { rm "$file"; }
# a rule inside a sample takes the repetitions with it
in_sample() { breaks "$(printf '%s\n' ${1//,/ } repetitions | sort -u | paste -sd, -)" "${@:2}"; }
breaks schema gate-config.json filter '.schema_version = 5'
breaks model-digest gate-config.json filter '.model_sha256 = ""'
in_sample prompt-digest gate-config.json filter '.prompt_sha256 |= sub("^."; "x")'
breaks binary gate-config.json filter '.binary_sha256 |= sub("^."; "x")'
breaks binary live-binary-sha256.txt edit 's/^./x/'
breaks context gate-config.json filter '.context = 8192'
breaks kv-type gate-config.json filter '.kv_type = "f16"'
breaks kv-bytes print-config.json filter '.kv.layers[0].window = 2048'
breaks kv-bytes print-config.json filter '.kv.context_bytes += 8'
breaks kv-bytes print-config.json filter 'del(.kv.layers)'
breaks kv-bytes print-config.json filter '.model.family = "gemma4" | .model.n_layers = 60'
breaks kv-bytes,model print-config.json filter 'del(.model)'
in_sample prompt-tokens,prefix-hit gate-config.json filter '.prompt_tokens = 201'
in_sample requested-max-tokens gate-config.json filter '.max_tokens = 5'
in_sample extension gate-config.json filter '.prefix_extension_text = "Go on."'
in_sample fresh-process gate-config.json filter '.prefix_extension_text = ""'
in_sample host-policy,host-load gate-config.json filter 'del(.host_policy.max_load_per_cpu)'
breaks idle-assertion gate-config.json filter '.host_policy.idle_assertion = ""'
in_sample prompt-digest,extension prompt.txt append more
breaks attempts attempts.ndjson edit '$d'
breaks attempts attempts.ndjson append '{"sample":1,"event":"kept"}'
breaks attempts run.json filter '.resumed_samples = 4'
in_sample files sample-2.json lose
in_sample files server-3.log lose
in_sample files extension-1.sse lose
in_sample http-status sample-1.json filter '.http_status = 500'
in_sample prompt-digest sample-1.json filter '.prompt_sha256 |= sub("^."; "x")'
in_sample times sample-2.json filter '.completion_seconds = 0'
in_sample keepalive sample-2.json filter '.keepalive_comments += 1'
in_sample terminator sample-3.sse edit '/DONE/d'
in_sample terminator extension-3.sse edit '/DONE/d'
in_sample stream,visible,extension sample-1.sse edit 's/"content":"ok"}}]}/"content":"ok"}}]/'
in_sample prefill-100,progress server-1.log edit '/req-1 prefill/d'
in_sample prefill-100 server-1.log edit '/req-2 prefill/d'
in_sample prefill-100,progress server-1.log edit 's/req-1 prefill 200\/200 tokens (100%)/req-1 prefill 199\/200 tokens (99%)/'
in_sample prefix-hit server-2.log edit '/prefix hit/d'
in_sample prefix-hit server-2.log edit 's/reused 200/reused 199/'
in_sample prefix-hit server-2.log edit 's/appended 20 /appended 21 /'
in_sample cold server-2.log edit '2i x req-1 prefix hit: reused 60 tokens, appended 140 tokens'
in_sample fresh-process server-2.log edit '1p'
in_sample fresh-process server-2.log append '2026-01-01T00:00:00.000Z req-9 done wire=chat end=stop'
in_sample extension extension-messages-2.json edit 's/a long/a  long/'
in_sample host-power host-preflight-1.json filter '.power = "battery"'
in_sample host-thermal host-preflight-1.json filter '.thermal.warning = true'
in_sample host-busy host-preflight-2.json filter '.busy_percent = 11'
in_sample host-load host-preflight-3.json filter '.load_per_cpu = 1.01'
in_sample host-power host-monitor-1.ndjson lines '.power = "battery"'
in_sample host-thermal host-monitor-1.ndjson lines '.thermal.warning = null'
in_sample host-load host-monitor-2.ndjson lines '.load_per_cpu = 1.01'
in_sample host-monitor host-monitor-3.ndjson append 'half a rec'
in_sample files host-monitor-3.ndjson lose
in_sample host-monitor sample-1.json filter '.completion_seconds = 40'
same "a busy share while it works is no violation" "$(jq -c '.busy_percent = 99' "$good/host-monitor-1.ndjson" >"$tmp/m.ndjson"; \
    rm -rf "$broken"; cp -r "$good" "$broken"; cp "$tmp/m.ndjson" "$broken/host-monitor-1.ndjson"; \
    "$bin/gem-analyze" long-context-server-gate "$broken" | jq -r .verdict)" accepted

# whoever can seal a folder anew is caught by what must follow from what
reseal() { rm -f "$broken/MANIFEST.sha256"; "$bin/gem-analyze" seal "$broken" 2>/dev/null; }
audited() { # audited RULES FILE COMMAND...
    local want=$1 name=$2
    shift 2
    rm -rf "$broken"
    cp -r "$good" "$broken"
    file=$broken/$name
    "$@"
    reseal
    expect 1 "audit: $name: $*" audit "$broken"
    same "audit: $name: $*" "$(rules)" "$want"
}
audited summary summary.json filter '.first_visible_event_seconds.mean /= 2'
audited summary summary.json lines .
audited summary sample-1.json filter '.first_visible_event_seconds -= 0.001'
audited "repetitions,summary,terminator" sample-1.sse edit '/DONE/d'
audited host-power,repetitions,summary host-monitor-1.ndjson lines '.power = "battery"'
rm -rf "$broken"
cp -r "$good" "$broken"
echo x >"$broken/more.txt"
expect 1 "a file more" audit "$broken"
same "a file more" "$(rules)" unlisted
rm "$broken/more.txt" "$broken/sample-2.sse"
expect 1 "a file less" audit "$broken"
has "a file less" "$tmp/err" "refused: digest: "
cp "$good/summary.json" "$broken/audit.json"
cp "$good/sample-2.sse" "$broken/"
expect 1 "another report in the audit's place" audit "$broken"
same "named" "$(rules)" audit
expect 1 "another binary" "$src/scripts/audit-long-context-server-gate.sh" "$good" "$bin/gem-analyze"
same "another binary" "$(rules)" binary
echo other >"$tmp/other.gguf"
expect 1 "another model" "$src/scripts/audit-long-context-server-gate.sh" "$good" "$tmp/gem" "$tmp/other.gguf"
same "another model" "$(rules)" model-digest

# schemas 1 to 3 stay auditable, each by its own rules
older() { # older VERSION FILTER GOOD_CHANGE FILE
    rm -rf "$broken"
    cp -r "$good" "$broken"
    jq ".schema_version = $1 | $2" "$good/gate-config.json" >"$broken/gate-config.json"
    if [ "$1" -eq 1 ]; then rm "$broken"/host-*; fi
    "$bin/gem-analyze" long-context-server-gate "$broken" "$broken/summary.json" || fail "schema $1"
    reseal
    expect 0 "schema $1" audit "$broken"
    [ -n "$3" ] || return 0
    file=$broken/$4
    lines "$3"
    expect 0 "schema $1 does not know '$3'" "$bin/gem-analyze" long-context-server-gate "$broken" "$tmp/report.json"
}
older 1 'del(.host_policy)' ''
older 2 . '.busy_percent = 99 | .power = "battery"' host-preflight-1.json
older 3 . '.power = "battery" | .thermal.warning = true' host-monitor-1.ndjson
file=$broken/host-preflight-1.json
lines '.busy_percent = 99'
expect 1 "schema 3 knows the busy share" "$bin/gem-analyze" long-context-server-gate "$broken" "$tmp/report.json"
same "named" "$(rules)" host-busy,repetitions

finish
