#!/usr/bin/env bash
# real-logit-oracle.sh MODEL OUT.json
# The first token of a real model against another engine: both tokenize one prompt; the ids must be the
# same; then the whole vectors of logits behind the last token are compared. Required: finite, equal argmax
# and top-10 set, correlation at least 0.999, NMSE at most 1e-3. A correctness gate, never a speed.
# The reference is an adjacent llama.cpp checkout with a built library; nothing of it is in this repository.
#   GEM_ORACLE_DIR      the checkout; default: llama.cpp beside this repository
#   GEM_ORACLE_LIB      folder of its libllama; default: found under GEM_ORACLE_DIR
#   GEM_ORACLE_PROGRAM  another reference instead: called as PROGRAM MODEL PROMPT_FILE ROWS.f32, it writes
#                       ROWS.f32 and ROWS.f32.json (schema gem-oracle-logits/1)
#   GEM_ORACLE_MODEL    the file the reference loads; default MODEL (e.g. an F32 expansion of it)
#   GEM_ORACLE_EXACT    1: gem computes with F32 activations (gem logits --exact), not as in production
#   GEM_ORACLE_PROMPT   the prompt; default "The capital of France is"
#   GEM_ORACLE_KEEP     keep both vectors in this folder
# Exit: 0 equal, 1 not, 2 usage, 3 no reference engine or model here, 4 a run failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 2 ] || die 2 "MODEL and OUT.json are needed; see --help"
model=$1 out=$2
if [ ! -e "$model" ]; then
    file=$(awk -F'\t' -v n="$model" '$1 == n { print $2 }' "$here/models.tsv")
    [ -z "$file" ] || model=$(cache_dir)/$file
fi
[ -f "$model" ] || die 3 "$model: no such model"
gem=${GEM:-$here/../build/gem}
[ -x "$gem" ] || die 3 "$gem is missing: build gem first"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
vectors=$work
if [ -n "${GEM_ORACLE_KEEP:-}" ]; then
    mkdir -p "$GEM_ORACLE_KEEP"
    vectors=$GEM_ORACLE_KEEP
fi

# build_reference: the program that asks the checkout, in $work/reference.
build_reference() {
    local dir=${GEM_ORACLE_DIR:-$here/../../llama.cpp} lib=${GEM_ORACLE_LIB:-} found
    [ -f "$dir/include/llama.h" ] || die 3 "$dir is no llama.cpp checkout: set GEM_ORACLE_DIR or GEM_ORACLE_PROGRAM"
    if [ -z "$lib" ]; then
        found=$(find "$dir" -name libllama.so -o -name libllama.dylib 2>/dev/null | sort | head -n 1)
        [ -n "$found" ] || die 3 "$dir holds no built libllama: build it there, or set GEM_ORACLE_LIB"
        lib=$(dirname "$found")
    fi
    run_logged "$work/cc.log" "${CC:-cc}" -O1 -I"$dir/include" -I"$dir/ggml/include" -o "$work/reference" \
        "$here/oracle/llama_logits.c" -L"$lib" -lllama -Wl,-rpath,"$lib" -Wl,-rpath-link,"$lib" ||
        die 4 "the reference side does not compile"
}
reference=${GEM_ORACLE_PROGRAM:-}
if [ -z "$reference" ]; then
    build_reference
    reference=$work/reference
fi
prompt=${GEM_ORACLE_PROMPT:-The capital of France is}
printf '%s' "$prompt" >"$work/prompt.txt"

mode=()
[ "${GEM_ORACLE_EXACT:-0}" != 1 ] || mode=(--exact)
say "reference: ${GEM_ORACLE_MODEL:-$model}"
"$reference" "${GEM_ORACLE_MODEL:-$model}" "$work/prompt.txt" "$vectors/reference.f32" >&2 || die 4 "the reference engine failed"
say "native: $model"
"$gem" logits "$model" --prompt "$prompt" --positions last --out "$vectors/native.f32" \
    ${mode[@]+"${mode[@]}"} || die 4 "gem logits failed"
code=0
gem_analyze logits "$vectors/native.f32.json" "$vectors/reference.f32.json" "$out" || code=$?
[ "$code" -ne 0 ] || say "equal: $out"
exit "$code"
