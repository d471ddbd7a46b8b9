#!/usr/bin/env bash
# compare-llama-bench.sh [options] LLAMA_BENCH MODEL [-- PEER_OPTION...]
# gem-bench against a peer's llama-bench on the same file, interleaved in rounds (ABBABAAB...), so that a
# machine that slows down or speeds up does so for both. Prints one JSON document with every sample;
# progress goes to stderr.
#   --threads N   default 2          --pp N      prompt tokens, default 512
#   --rounds N    default 8          --tg N      generated tokens, default 64
#   --name TEXT   the peer's name in the record, default llama.cpp
# Exit: 0 measured, 2 usage, 3 a program or the model is missing, 4 a run failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"

threads=2 rounds=8 pp=512 tg=64 peer=llama.cpp args=() extra=()
while [ $# -gt 0 ]; do
    case $1 in
    --threads) threads=${2:?}; shift 2 ;;
    --rounds) rounds=${2:?}; shift 2 ;;
    --pp) pp=${2:?}; shift 2 ;;
    --tg) tg=${2:?}; shift 2 ;;
    --name) peer=${2:?}; shift 2 ;;
    -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    --) shift; extra=("$@"); break ;;
    -*) die 2 "unknown option $1" ;;
    *) args+=("$1"); shift ;;
    esac
done
[ ${#args[@]} -eq 2 ] || die 2 "LLAMA_BENCH and MODEL are needed"
for n in "$threads" "$rounds" "$pp" "$tg"; do
    case $n in '' | *[!0-9]* | 0*) die 2 "'$n' is no positive number" ;; esac
done
llama_bench=${args[0]}
model=${args[1]}
if [ ! -e "$model" ]; then
    file=$(awk -F'\t' -v n="$model" '$1 == n { print $2 }' "$here/models.tsv")
    [ -z "$file" ] || model=$(cache_dir)/$file
fi
gem_bench=${GEM_BENCH:-$here/../build/gem-bench}
[ -x "$llama_bench" ] || die 3 "$llama_bench is no program"
[ -x "$gem_bench" ] || die 3 "$gem_bench is missing: build gem first"
[ -f "$model" ] || die 3 "$model: no such model"
command -v jq >/dev/null || die 3 "jq is needed"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each run ends in one line: {"round", "order", "arm", "pp_ns": [...], "tg_ns": [...], ...}.
order=0
run_gem() {
    "$gem_bench" --model "$model" --threads "$threads" --prompt-tokens "$pp" --generation-tokens "$tg" \
        --repetitions 1 --warmups 1 >"$work/run" 2>"$work/log" || { tail -n 5 "$work/log" >&2; die 4 "gem-bench failed"; }
    jq -c --argjson round "$1" --argjson order "$order" '{round: $round, order: $order, arm: "gem",
        pp_ns: [.rows[] | select(.name == "pp") | .samples_ns[]], tg_ns: [.rows[] | select(.name == "tg") | .samples_ns[]],
        read_roof_gb_s: (.decode_share.roof_gb_s_best // null), decode_gb_s: (.decode_share.decode_gb_s_best // null),
        isa: .parameters.isa, commit: .host.build.commit}' "$work/run" >>"$work/runs"
}
run_peer() {
    "$llama_bench" -m "$model" -t "$threads" -p "$pp" -n "$tg" -r 1 -o json ${extra[@]+"${extra[@]}"} \
        >"$work/run" 2>"$work/log" || { tail -n 5 "$work/log" >&2; die 4 "the peer's llama-bench failed"; }
    # some builds print remarks around the JSON; it starts at the first line that is "["
    sed -n '/^\[/,/^\]/p' "$work/run" >"$work/json"
    jq -c --argjson round "$1" --argjson order "$order" '{round: $round, order: $order, arm: "peer",
        pp_ns: [.[] | select(.n_prompt > 0 and .n_gen == 0) | .samples_ns[]],
        tg_ns: [.[] | select(.n_gen > 0 and .n_prompt == 0) | .samples_ns[]],
        commit: (.[0].build_commit // null)}' "$work/json" >>"$work/runs"
}
parity() { # the Thue-Morse sequence: ones in the binary form of $1, modulo 2
    local n=$1 p=0
    while [ "$n" -gt 0 ]; do p=$((p ^ (n & 1))) n=$((n >> 1)); done
    echo $p
}
for ((r = 0; r < rounds; r++)); do
    if [ "$(parity $r)" -eq 0 ]; then arms=(gem peer); else arms=(peer gem); fi
    for arm in "${arms[@]}"; do
        "run_$arm" "$r"
        order=$((order + 1))
        say "round $((r + 1))/$rounds $(tail -n 1 "$work/runs" | jq -r --argjson pp "$pp" --argjson tg "$tg" \
            '"\(.arm): pp \($pp * 1e9 / .pp_ns[0] * 10 | round / 10) tok/s, tg \($tg * 1e9 / .tg_ns[0] * 10 | round / 10) tok/s"')"
    done
done

jq -n --slurpfile runs "$work/runs" --arg model "$model" --arg sha256 "$(sha256sum "$model" | cut -d' ' -f1)" \
    --arg peer "$peer" --arg llama_bench "$llama_bench" --arg extra "${extra[*]-}" --argjson threads "$threads" \
    --argjson rounds "$rounds" --argjson pp "$pp" --argjson tg "$tg" --arg kernel "$(uname -r)" --arg cpu \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" --arg load "$(cut -d' ' -f1-3 /proc/loadavg)" '
def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def rates($arm; $key; $n): [$runs[] | select(.arm == $arm) | .[$key][] | $n * 1e9 / .];
def side($arm): {prefill_tok_s: rates($arm; "pp_ns"; $pp), decode_tok_s: rates($arm; "tg_ns"; $tg)}
    | {prefill: {samples_tok_s: .prefill_tok_s, median: (.prefill_tok_s | median), best: (.prefill_tok_s | max)},
       decode: {samples_tok_s: .decode_tok_s, median: (.decode_tok_s | median), best: (.decode_tok_s | max)}};
side("gem") as $g | side("peer") as $p |
{schema: "gem-compare-llama-bench/1", model: {path: $model, sha256: $sha256},
 peer: {name: $peer, program: $llama_bench, options: $extra},
 parameters: {threads: $threads, rounds: $rounds, prompt_tokens: $pp, generation_tokens: $tg, warmups: 1,
              order: [$runs[].arm]},
 host: {cpu: $cpu, kernel: $kernel, load_average: $load},
 gem: $g, peer_result: $p,
 ratio: {prefill_median: ($g.prefill.median / $p.prefill.median), prefill_best: ($g.prefill.best / $p.prefill.best),
         decode_median: ($g.decode.median / $p.decode.median), decode_best: ($g.decode.best / $p.decode.best)},
 read_roof: ([$runs[] | select(.arm == "gem" and .read_roof_gb_s != null)]
     | if length == 0 then null else {roof_gb_s: [.[].read_roof_gb_s], decode_gb_s: [.[].decode_gb_s],
         share_median: ([.[] | .decode_gb_s / .read_roof_gb_s] | median)} end),
 runs: $runs}'
