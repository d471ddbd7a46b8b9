#!/usr/bin/env bash
# make-long-prompt.sh: exact counts, the same bytes again, and nothing published otherwise.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
[ -x "$bin/gem-synth-model" ] || { echo "gem-synth-model is not built"; exit 77; }
export GEM_TOKENIZE=$bin/gem-tokenize
make=("$src/scripts/make-long-prompt.sh")
for family in gemma3 qwen2; do
    model=$tmp/$family.gguf
    "$bin/gem-synth-model" --arch "$family" --out "$model" --quiet >"$tmp/synth.json"
    for n in 300 2048; do
        expect 0 "$family $n" "${make[@]}" "$model" "$n" "$tmp/$family-$n.txt"
        cp "$tmp/out" "$tmp/receipt.json"
        same "counted again" "$("$bin/gem-tokenize" --count --file --chat-user "$model" "$tmp/$family-$n.txt")" "$n"
        same "receipt" "$(jq -r '[.tokens, .sha256, .bytes] | @tsv' "$tmp/receipt.json")" \
            "$(printf '%s\t%s\t%s' "$n" "$(sha256sum <"$tmp/$family-$n.txt" | cut -d' ' -f1)" "$(wc -c <"$tmp/$family-$n.txt")")"
    done
    expect 0 "again" "${make[@]}" "$model" 2048 "$tmp/again.txt"
    holds "$family: the same bytes" cmp -s "$tmp/again.txt" "$tmp/$family-2048.txt"
done
expect 1 "too few" "${make[@]}" "$model" 3 "$tmp/few.txt"
holds "nothing was published" test ! -e "$tmp/few.txt"
# a tokenizer that counts in steps of seven never hits 300
cat >"$tmp/coarse" <<SH
#!/usr/bin/env bash
n=\$("$bin/gem-tokenize" "\$@")
echo \$((n / 7 * 7))
SH
chmod +x "$tmp/coarse"
GEM_TOKENIZE=$tmp/coarse expect 1 "no exact text" "${make[@]}" "$model" 300 "$tmp/coarse.txt"
same "nothing was published" "$(find "$tmp" -name 'coarse.txt*' | wc -l)" 0
expect 3 "no model" "${make[@]}" "$tmp/none.gguf" 300 "$tmp/none.txt"
expect 2 "no number" "${make[@]}" "$model" many "$tmp/x.txt"
expect 2 "two arguments" "${make[@]}" "$model" 300
finish
