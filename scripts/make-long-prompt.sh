#!/usr/bin/env bash
# make-long-prompt.sh MODEL.gguf TOKENS OUTPUT_FILE
# A text that is exactly TOKENS tokens as one user turn in the model's chat format (what `gem-tokenize --count
# --file --chat-user` counts), the same bytes every time. The chat's overhead and what a repeated line adds are
# measured on the model; the finished file is counted again, and published only when the count is exact. The
# receipt, one JSON document, goes to stdout.
#   GEM_TOKENIZE   another build of gem-tokenize
# Exit: 0 published, 1 no exact text was found, 2 usage, 3 the model or a program is missing, 4 a write failed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 3 ] || die 2 "MODEL, TOKENS and OUTPUT_FILE are needed; see --help"
model=$1 want=$2 out=$3
case $want in '' | *[!0-9]* | 0*) die 2 "'$want' is no positive number" ;; esac
[ "$want" -le 4194304 ] || die 2 "more than 4194304 tokens"
tokenize=${GEM_TOKENIZE:-$here/../build/gem-tokenize}
[ -x "$tokenize" ] || die 3 "$tokenize is missing: build gem first"
[ ! -d "$out" ] || die 2 "$out is a folder"
mkdir -p "$(dirname "$out")"
part=$out.part.$$
trap 'rm -f "$part"' EXIT

line='The archive keeps one plain record of every measurement, its date, its place and its value.'
pad=' and'
# text LINES PADS: the candidate into $part. The question at the end stays the same for every length.
text() {
    awk -v lines="$1" -v pads="$2" -v line="$line" -v pad="$pad" 'BEGIN {
        for (i = 0; i < lines; i++) print line
        printf "Continue"
        for (i = 0; i < pads; i++) printf "%s", pad
        printf ": what does the archive keep?\n"
    }' >"$part"
}
count() { "$tokenize" --count --file --chat-user "$model" "$part" || die 3 "$model cannot count"; }
counted() { text "$1" "$2"; count; }

overhead=$(counted 0 0)
# the word that fills the last line adds exactly one token each time; which one does depends on the vocabulary
for pad in ' and' ' a' ' 1' '1' '~' ''; do
    [ -n "$pad" ] || die 1 "no filler adds exactly one token in this model"
    [ $(($(counted 0 41) - $(counted 0 1))) -ne 40 ] || break
done
[ "$want" -ge "$overhead" ] || die 1 "$want tokens are fewer than the $overhead that the chat format and the question take"
per_line=$((($(counted 65 0) - $(counted 1 0)) / 64))
[ "$per_line" -gt 0 ] || die 1 "a line adds no token in this model"
first=$(($(counted 1 0) - overhead))
lines=0
[ $((want - overhead)) -lt "$first" ] || lines=$((1 + (want - overhead - first) / per_line))
pads=$((want - (lines > 0 ? overhead + first + (lines - 1) * per_line : overhead)))
found=0
for _ in 1 2 3 4 5; do
    have=$(counted "$lines" "$pads")
    if [ "$have" -eq "$want" ]; then
        found=1
        break
    fi
    pads=$((pads + want - have))
    while [ "$pads" -lt 0 ] && [ "$lines" -gt 0 ]; do
        lines=$((lines - 1)) pads=$((pads + per_line))
    done
    [ "$pads" -ge 0 ] || break
done
[ "$found" -eq 1 ] || die 1 "no text of exactly $want tokens was found for $model; nothing was written"
digest=$(sha256sum "$part" | cut -d' ' -f1)
bytes=$(wc -c <"$part")
mv "$part" "$out" || die 4 "$out could not be written"
jq -n --arg file "$out" --arg sha256 "$digest" --argjson tokens "$want" --argjson bytes "$bytes" --argjson lines "$lines" \
    --arg pad "$pad" --argjson pads "$pads" --argjson overhead "$overhead" --argjson per_line "$per_line" --arg model "${model##*/}" \
    '{schema: "gem-long-prompt/1", file: $file, sha256: $sha256, tokens: $tokens, bytes: $bytes, counted_as: "chat user turn",
      model: $model, overhead_tokens: $overhead, line_tokens: $per_line, lines: $lines, pad: $pad, pad_tokens: $pads}'
