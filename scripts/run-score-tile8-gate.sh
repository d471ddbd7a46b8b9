#!/usr/bin/env bash
# run-score-tile8-gate.sh MODEL.gguf OUTPUT_DIR
# Selector 20 (score tiles of eight tokens) against selector 19 in decode attention at 64K and 128K: three repetitions in
# each ABBA arm, five iterations, three warm-ups, and a seeded profile of MODEL's token that says what a whole token
# would gain. Each length has its own receipts of the host, before, while and after; a length that ends badly keeps the
# next from beginning. Parity and the adjacent engine's operator oracle run when all timing is done. Gate schema 2.
# Passing admits selector 20 to authentic logits and a populated profile, and promotes nothing.
#   GEM_MODEL_SHA256     a digest that was verified before: the model is not read again
#   GEM_GATE_PARITY      command of the native parity check; default: build/tests/test_ops
#   GEM_GATE_ORACLE      command of the adjacent oracle; default: build/bin/test-backend-ops -o FLASH_ATTN_EXT of GEM_ORACLE_DIR
#   GEM_GATE_SHAPE, GEM_GATE_LAYERS, GEM_GATE_FULL_LAYERS   a trial with another model than the 31B one; the report says so
#   GEM_GATE_BACKEND     backend of operator and model; default: the program's
#   GEM_GATE_MAX_LOAD_PER_CPU and the other limits of long-context-server-gate.sh
#   GEM, GEM_DECODE_ATTENTION_PROFILE, GEM_DECODE_PROFILE, GEM_ANALYZE, GEM_HOST_STATE, GEM_TETHER   other builds
# Exit: 0 admitted, 1 refused (the rules are on stderr), 2 usage, 3 something is missing here, 4 a run failed.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 2 ] || die 2 "MODEL and OUTPUT_DIR are needed; see --help"
model=$1 shape=${GEM_GATE_SHAPE:-31b-full} layers=${GEM_GATE_LAYERS:-60} full=${GEM_GATE_FULL_LAYERS:-10}
op=${GEM_DECODE_ATTENTION_PROFILE:-} token=${GEM_DECODE_PROFILE:-}
need_count GEM_GATE_LAYERS "$layers"
need_count GEM_GATE_FULL_LAYERS "$full"
[ -z "${GEM_MODEL_SHA256:-}" ] || need_digest GEM_MODEL_SHA256 "$GEM_MODEL_SHA256"
read -ra parity <<<"${GEM_GATE_PARITY:-$here/../build/tests/test_ops}"
read -ra oracle <<<"${GEM_GATE_ORACLE:-${GEM_ORACLE_DIR:-$here/../../llama.cpp}/build/bin/test-backend-ops -o FLASH_ATTN_EXT}"
need_tools jq
need_program gem gem
need_program op gem-decode-attention-profile
need_program token gem-decode-profile
need_program tether gem-tether
need_program host_state gem-host-state
for program in "${parity[0]}" "${oracle[0]}"; do
    command -v "$program" >/dev/null || die 3 "$program is missing: parity and oracle are part of this gate"
done
[ -f "$model" ] || die 3 "$model: no such model"
read_host_policy
gate_open "$2" 0

model_identity "$model"
freeze gem-score-tile8-gate 2 "$gem" "$op" "$token" -- "model_path=$model" "model_sha256=$model_sha" "shape=$shape" \
    "layers:=$layers" "full_layers:=$full" repetitions:=3 iterations:=5 warmup:=3
GEM_KV_TYPE=f32 run_child "$gem" print-config "$model" --context 131328 ${backend[@]+"${backend[@]}"} >"$part/print-config.json" ||
    die 3 "gem print-config refused the configuration"
stay_awake "$$"
for length in 64k:65536 128k:131072; do
    label=${length%:*} n=${length#*:}
    watch "-$label"
    for arm in A1:split16 B1:score-tile8 B2:score-tile8 A2:split16; do
        say_running "$label: arm ${arm%:*}"
        measure "${arm%:*}-$label.json" "$op" --shape "$shape" --kernel "${arm#*:}" --tokens "$n" --iterations 5 --repetitions 3 --warmup 3 \
            ${backend[@]+"${backend[@]}"}
    done
    say_running "$label: a token"
    measure "decode-$label.json" env GEM_KV_TYPE=f32 "GEM_MODEL_SHA256=$model_sha" "$token" --model "$model" \
        --context $((n + 256)) --position "$n" --rows 1 --repetitions 3 --seed-prefix ${backend[@]+"${backend[@]}"}
    unwatch "-$label"
done
still_frozen "$gem" "$op" "$token"
# behind all timing, so that they can neither warm nor load an arm
behind() { # behind NAME COMMAND...
    local name=$1 code=0 started
    shift
    started=$(now_utc)
    say_running "$name: $*"
    run_child "$tether" --starter "$$" -- "$@" >"$part/$name.log" 2>&1 || code=$?
    gem_analyze document "$part/$name.json" schema=gem-gate-command/1 "command=$*" "started=$started" "exit:=$code" \
        "log_sha256=$(sha256 "$part/$name.log")"
}
behind parity "${parity[@]}"
behind oracle "${oracle[@]}"
conclude score-tile8-gate --shape "$shape" --layers "$layers" --full-layers "$full"
