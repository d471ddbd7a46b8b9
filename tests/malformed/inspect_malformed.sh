#!/bin/bash
# inspect_malformed.sh GEM FOLDER - `gem inspect` gives each broken file its exit code and its sentence.
set -u
gem=$1 folder=$2 bad=0 n=0
while IFS=$'\t' read -r file code _ sentence; do
    [[ $file == \#* ]] && continue
    n=$((n + 1))
    out=$(timeout 60 "$gem" inspect "$folder/$file" 2>&1)
    got=$?
    if [[ $got -ne $code || $out != *"$file: $sentence"* ]]; then
        printf '%s: exit %d (expected %d), said:\n%s\nexpected: %s\n' "$file" "$got" "$code" "$out" "$sentence" >&2
        bad=$((bad + 1))
    fi
done <"$folder/expected.tsv"
echo "$n files, $bad wrong"
[[ $n -ge 60 && $bad -eq 0 ]]
