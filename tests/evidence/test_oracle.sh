#!/usr/bin/env bash
# real-logit-oracle.sh and the comparison behind it, with a small model and a reference engine that is a
# script: it answers with gem's own rows, changed in one way at a time.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
[ -x "$bin/gem-synth-model" ] || { echo "gem-synth-model is not built"; exit 77; }
export GEM=$bin/gem GEM_ANALYZE=$bin/gem-analyze
oracle=("$src/scripts/real-logit-oracle.sh")
model=$tmp/tiny.gguf
"$bin/gem-synth-model" --arch gemma3 --out "$model" --quiet >"$tmp/synth.json"

# The reference: FAULT names what is wrong with it.
cat >"$tmp/reference" <<'SH'
#!/usr/bin/env bash
set -euo pipefail
[ "${FAULT:-}" != crash ] || exit 9
"$GEM" logits "$1" --prompt "$(cat "$2")" --positions last --out "$3"
jq '{schema: "gem-oracle-logits/1", engine: "a script", tokens, positions, shape}' "$3.json" >"$3.j"
case ${FAULT:-} in
ids) jq -c '.tokens[-1] += 1' "$3.j" >"$3.json" ;;
more-ids) jq -c '.tokens += [5]' "$3.j" >"$3.json" ;;
no-ids) jq -c 'del(.tokens)' "$3.j" >"$3.json" ;;
schema) jq -c '.schema = "other/1"' "$3.j" >"$3.json" ;;
position) jq -c '.positions[0] += 1' "$3.j" >"$3.json" ;;
shape) jq -c '.shape[1] += 1' "$3.j" >"$3.json" ;;
*) cp "$3.j" "$3.json" ;;
esac
python3 - "$3" "${FAULT:-}" <<'PY'
import array, sys
path, fault = sys.argv[1:]
x = array.array('f')
with open(path, 'rb') as f:
    x.frombytes(f.read())
order = sorted(range(len(x)), key=lambda i: -x[i])
if fault == 'nan':
    x[3] = float('nan')
elif fault == 'argmax':  # the first two change places
    a, b = order[:2]
    x[a], x[b] = x[b], x[a]
elif fault == 'top':  # the tenth and the eleventh change places
    a, b = order[9:11]
    x[a], x[b] = x[b], x[a]
elif fault == 'scale':  # the same order and correlation, another size
    for i in range(len(x)):
        x[i] *= 1.1
elif fault == 'noise':  # below the top ten everything is upside down
    low = order[10:]
    values = [x[i] for i in low]
    for i, v in zip(low, reversed(values)):
        x[i] = v
elif fault == 'cut':
    x = x[:-1]
with open(path, 'wb') as f:
    x.tofile(f)
PY
SH
chmod +x "$tmp/reference"
export GEM_ORACLE_PROGRAM=$tmp/reference
run() { FAULT=$1 expect "$2" "fault '$1'" env FAULT="$1" "${oracle[@]}" "$model" "$tmp/out.json"; }
run "" 0
same verdict "$(jq -r .verdict "$tmp/out.json")" equal
same "nothing differs" "$(jq -c '[.rows[0].correlation, .rows[0].nmse, .rows[0].largest_difference]' "$tmp/out.json")" '[1,0,0]'
same "both descriptions are named by digest" "$(jq '[.inputs[].sha256 | length] == [64, 64]' "$tmp/out.json")" true
refused() {
    run "$1" 1
    has "fault '$1' is named" "$tmp/err" "refused: $2: "
    same "rules of '$1'" "$(jq -r '.failed_rules | sort | join(",")' "$tmp/out.json")" "$3"
}
refused ids token-ids token-ids
refused more-ids token-ids token-ids
refused no-ids token-ids token-ids
same "no vector is compared when the ids differ" "$(jq 'has("rows")' "$tmp/out.json")" false
refused schema schema schema
refused position controls controls
refused shape raw-file raw-file
refused cut raw-file raw-file
refused nan finite finite
refused argmax argmax argmax
refused top top-10 top-10
refused scale nmse nmse
refused noise correlation correlation,nmse
run crash 4
expect 2 "one argument" "${oracle[@]}" "$model"
expect 3 "no model" "${oracle[@]}" "$tmp/none.gguf" "$tmp/out.json"
unset GEM_ORACLE_PROGRAM
GEM_ORACLE_DIR=$tmp expect 3 "no checkout" env GEM_ORACLE_DIR="$tmp" "${oracle[@]}" "$model" "$tmp/out.json"
has "it says what to set" "$tmp/err" GEM_ORACLE_DIR
expect 0 help "${oracle[@]}" --help
finish
