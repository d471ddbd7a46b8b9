# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # shared with gate.sh and those that source this
# tools.sh - fake measuring programs beside gate.sh; parity and oracle that hold; rules broken one at a time.
for tool in gem-long-attention-profile gem-long-prefix-ab gem-decode-attention-profile gem-decode-profile gem-long-prefill-stage-profile; do
    { printf '#!%s -SE\n' "$python"; tail -n +2 "$here/gate/fake-tool"; } >"$tmp/$tool"
    chmod +x "$tmp/$tool"
done
export GEM_LONG_ATTENTION_PROFILE=$tmp/gem-long-attention-profile GEM_LONG_PREFIX_AB=$tmp/gem-long-prefix-ab \
    GEM_DECODE_ATTENTION_PROFILE=$tmp/gem-decode-attention-profile GEM_DECODE_PROFILE=$tmp/gem-decode-profile \
    GEM_LONG_PREFILL_STAGE_PROFILE=$tmp/gem-long-prefill-stage-profile GEM_GATE_PARITY=true GEM_GATE_ORACLE=true \
    GEM_METAL_COUNTER_INFO=$tmp/none GEM_DEVICE_INFO=$tmp/none GEM_GATE_HOST_MONITOR_SECONDS=1

# breaks RULES FILE COMMAND...: COMMAND changes $file in a copy of $good; the rules are those of $judge.
breaks() {
    local want name=$2
    want=$(tr , '\n' <<<"$1" | sort | paste -sd, -)
    shift 2
    file=$broken/$name
    "$@"
    expect 1 "$name: $*" "$bin/gem-analyze" "${judge[@]}" "$broken" "$tmp/report.json"
    same "$name: $*" "$(rules)" "$want"
    cp "$good/$name" "$file"
}
filter() { jq "$1" "$good/${file##*/}" >"$file"; }
lines() { jq -c "$1" "$good/${file##*/}" >"$file"; }
lose() { rm "$file"; }
append() { printf '%s\n' "$1" >>"$file"; }
begin() { # begin DIR JUDGE...: a passed gate
    good=$1
    shift
    judge=("$@")
    broken=$tmp/broken
    rm -rf "$broken"
    cp -r "$good" "$broken"
    expect 0 "${judge[*]}: audit" "$bin/gem-analyze" audit "$good" "$tmp/audit.json"
    same "${judge[*]}: never promotes" "$(jq .promotion_eligible "$good/summary.json")" false
}
host_rules() { # host_rules SUFFIX
    breaks host-power "host-preflight$1.json" filter '.power = "battery"'
    breaks host-thermal "host-postflight$1.json" filter '.thermal.warning = true'
    breaks host-busy "host-preflight$1.json" filter '.busy_percent = 10.5'
    breaks host-load "host-postflight$1.json" filter '.load_per_cpu = 1.1'
    breaks host-power "host-monitor$1.ndjson" lines '.power = "battery"'
    breaks host-monitor "host-monitor$1.ndjson" append '{'
    breaks files "host-preflight$1.json" lose
}
provenance_rules() {
    breaks schema gate-config.json filter '.schema_version = 9'
    breaks provenance gate-config.json filter '.source_sha256 = ""'
    breaks provenance linkage.txt append more
    breaks binary live-binary-sha256.txt append 'x  y'
    breaks idle-assertion gate-config.json filter 'del(.host_policy.idle_assertion)'
}
