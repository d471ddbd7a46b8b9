#!/usr/bin/env bash
# compare-llama-bench.sh against two programs that print records: order of the runs, medians, ratios.
set -euo pipefail
src=$1
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }

# Each fake keeps a counter: run k of gem takes (10 + k) ms for pp and 100 ms for tg; the peer twice that.
cat >"$tmp/gem-bench" <<'SH'
#!/usr/bin/env bash
k=$(cat "$0.n" 2>/dev/null || echo 0); echo $((k + 1)) >"$0.n"; echo gem >>"${0%/*}/log"
cat <<JSON
{"rows": [{"name": "pp", "samples_ns": [$((10000000 + k * 1000000))]}, {"name": "tg", "samples_ns": [100000000]}],
 "decode_share": {"roof_gb_s_best": 40.0, "decode_gb_s_best": 36.0}, "parameters": {"isa": "avx2"},
 "host": {"build": {"commit": "abc"}}}
JSON
SH
cat >"$tmp/llama-bench" <<'SH'
#!/usr/bin/env bash
k=$(cat "$0.n" 2>/dev/null || echo 0); echo $((k + 1)) >"$0.n"; echo "peer $*" >>"${0%/*}/log"
cat <<JSON
a remark that is no JSON
[
  {"n_prompt": 512, "n_gen": 0, "samples_ns": [ $((20000000 + k * 2000000)) ], "build_commit": "def"},
  {"n_prompt": 0, "n_gen": 64, "samples_ns": [ 200000000 ], "build_commit": "def"}
]
JSON
SH
chmod +x "$tmp/gem-bench" "$tmp/llama-bench"
: >"$tmp/model.gguf"
export GEM_BENCH=$tmp/gem-bench
compare=$src/scripts/compare-llama-bench.sh

expect 0 "four rounds" "$compare" --rounds 4 "$tmp/llama-bench" "$tmp/model.gguf" -- -rtr 1
same "order ABBABAAB" "$(cut -d' ' -f1 "$tmp/log" | paste -sd' ')" "gem peer peer gem peer gem gem peer"
has "options reach the peer" "$tmp/log" "-t 2 -p 512 -n 64 -r 1 -o json -rtr 1"
same "ratios" "$(jq -c '[.ratio[]] | map(. * 1000 | round / 1000)' "$tmp/out")" "[2,2,2,2]"
same "every sample" "$(jq -c '[.gem.prefill.samples_tok_s, .peer_result.decode.samples_tok_s, .runs] | map(length)' "$tmp/out")" "[4,4,8]"
same "median of the prefill" "$(jq '.gem.prefill.median * 100 | round' "$tmp/out")" "$(python3 -c '
import statistics
print(round(statistics.median(512e9 / (1e7 + k * 1e6) for k in range(4)) * 100))')"
same "share of the read roof" "$(jq .read_roof.share_median "$tmp/out")" "0.9"
expect 2 "no model" "$compare" "$tmp/llama-bench"
expect 2 "no number" "$compare" --rounds 0 "$tmp/llama-bench" "$tmp/model.gguf"
expect 3 "no peer" "$compare" "$tmp/none" "$tmp/model.gguf"
expect 3 "model missing" "$compare" "$tmp/llama-bench" "$tmp/none.gguf"
printf '#!/bin/sh\nexit 9\n' >"$tmp/llama-bench"
expect 4 "the peer fails" "$compare" --rounds 1 "$tmp/llama-bench" "$tmp/model.gguf"
[ ! -s "$tmp/out" ] || fail "a record after a failure"
finish
