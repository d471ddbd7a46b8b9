#!/usr/bin/env bash
# gem-swa-state-scan and gem-determinism-gate on small synthetic models: what is equal passes, what is not is named.
set -euo pipefail
src=$1
bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
scan=$bin/gem-swa-state-scan
gate=$bin/gem-determinism-gate

for family in gemma3 gemma4; do
    model=$tmp/$family.gguf
    expect 0 "synth $family" "$bin/gem-synth-model" --preset $family-tiny --quant q4_0 --window 48 --out "$model" --quiet
    for kv in f32 f16; do
        expect 0 "scan $family $kv" "$scan" "$model" 100 --kv-type $kv
        holds "scan $family $kv: every row of every tile" python3 - "$tmp/out" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
rows = d["windowed_layers"] + d["full_layers"]
assert d["windowed_layers"] > 0 and d["full_layers"] > 0
assert [t["rows"] for t in d["tiles"]] == [32, 32, 32, 4] and d["exact_through"] == 100
assert all(t["kv_rows"] == 2 * rows * t["rows"] and t["rowwise_sha256"] == t["candidate_sha256"] for t in d["tiles"])
assert len({t["rowwise_sha256"] for t in d["tiles"]}) == 4
assert d["empty_cache_tile"] == d["tiles"][0] and d["kv_exact"] and d["logits_exact"] and d["first_difference"] is None
assert d["rowwise"]["rows_at_once"] == 1 and d["candidate"]["rows_at_once"] == 32
PY
    done
    # a cache of another type is another cache: the first row says so
    expect 1 "scan $family, types differ" "$scan" "$model" 40 --rowwise-kv-type f16
    holds "scan $family, types differ: where" python3 - "$tmp/out" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
f = d["first_difference"]
assert (f["position"], f["layer"], f["part"]) == (0, 0, "k") and f["rowwise"] != f["candidate"]
assert d["exact_through"] == 0 and not d["kv_exact"] and not d["tiles"][0]["kv_exact"] and len(d["tiles"]) == 1
PY
    expect 0 "gate $family" "$gate" "$model" --lengths 70,200 --boundary 200 --tile 8
    holds "gate $family: what was compared" python3 - "$tmp/out" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["holds"] and [r["tokens"] for r in d["repeated"]] == [70, 200]
assert all(r["bit_identical"] and len(set(r["logits_sha256"])) == 1 for r in d["repeated"])
assert d["repeated"][0]["logits_sha256"] != d["repeated"][1]["logits_sha256"]
t = d["boundary_tile"]
assert t["first"] == 196 and [r["position"] for r in t["row"]] == list(range(196, 204))
assert all(r["bit_identical"] and r["same_argmax"] and r["same_top_10"] and r["nmse"] == 0 for r in t["row"])
PY
done
expect 2 "no tokens" "$scan" "$tmp/gemma4.gguf" 0
expect 2 "no number" "$scan" "$tmp/gemma4.gguf" many
expect 2 "a tile before the start" "$gate" "$tmp/gemma4.gguf" --boundary 3 --tile 8
expect 2 "no lengths" "$gate" "$tmp/gemma4.gguf" --lengths 5,x
expect 3 "no model" "$gate" nonesuch
finish
