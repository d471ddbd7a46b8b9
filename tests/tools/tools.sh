# shellcheck shell=bash
# tools.sh - what the tests of measuring programs share. Source it behind check.sh, with $src and $bin.
# shellcheck disable=SC2154
export GEM_ANALYZE=$bin/gem-analyze

# json FILE FILTER: one value, compact.
json() { jq -c "$2" "$tmp/$1"; }

# makes FILE CODE WHAT COMMAND...: stdout is one JSON document, kept as FILE; stderr in $tmp/err.
makes() {
    local file=$1 code=$2 what=$3
    shift 3
    expect "$code" "$what" "$@"
    mv "$tmp/out" "$tmp/$file"
    holds "$what: one JSON document" jq -se 'length == 1 and (.[0] | type == "object")' "$tmp/$file" >/dev/null
}

# refused_only RULES REPORT: a judge's report refuses nothing but some of these rules (what a busy
# machine may do to times).
refused_only() {
    same "refused" "$(jq -c --argjson may "$1" '.failed_rules - $may' "$tmp/$2")" '[]'
}

# synth FILE HEADS KV_HEADS HEAD_DIM: the topology of the protocol's model, 60 layers of which ten see
# all with these heads, and little else.
synth() {
    "$bin/gem-synth-model" --preset gemma4-tiny --layers 60 --heads "$2" --d-model 64 --d-ff 64 --head-dim 32 \
        --kv-heads 2 --global-kv-heads "$3" --global-head-dim "$4" --window 64 --ctx 16384 --quant q4_0 --quiet \
        --out "$1" >/dev/null
}
