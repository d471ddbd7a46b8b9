#!/usr/bin/env bash
# gem-analyze seal and audit: an intact folder, reports that are made again, and what an attacker or a mistake
# would do to it.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
analyze=$bin/gem-analyze
dir=$tmp/evidence
fresh() { # a sealed folder: two records, a report over them in a folder of its own, statistics, a log, a digest
    rm -rf "$dir"
    mkdir -p "$dir/raw" "$dir/reports"
    jq -n '{schema: "gem-kernel-bench/1", kernel: "k", parameters: {buffer_mode: "copy", input: 64, output: 64, matrix_slots: 1,
      command_span: 1, warmup: 1, iterations: 1, repetitions: 3}, working_set_bytes: 2304, effective_warmup: 1,
      host: {cpu: "C", build: {}}, samples_ns: [10, 11, 10]}' >"$dir/raw/base.json"
    jq '.parameters.command_span = 2 | .samples_ns = [8, 8, 9]' "$dir/raw/base.json" >"$dir/raw/cand.json"
    "$analyze" kernel-benchmarks "$dir/raw/base.json" "$dir/raw/cand.json" "$dir/reports/kernels.json"
    "$analyze" benchmarks --primary pp --allow-model-change "$dir/raw/base.json" "$dir/raw/cand.json" \
        "$dir/reports/refused.json" 2>/dev/null || true
    "$analyze" compare --higher-is-better "$dir/raw/base.json" "$dir/raw/cand.json" "$dir/reports/compare.json"
    echo "some words" >"$dir/run.log"
    printf '%s\n' "$(sha256sum "$analyze" | cut -d' ' -f1)" >"$dir/live-binary-sha256.txt"
    [ "${1:-sealed}" = open ] || "$analyze" seal "$dir" 2>/dev/null
}
audit() { # audit CODE RULES WHAT [OPTION...]
    local code=$1 rules=$2 what=$3
    shift 3
    expect "$code" "$what" "$analyze" audit "$@" "$dir"
    same "rules: $what" "$(jq -r '.failed_rules | sort | join(",")' "$tmp/out")" "$rules"
}
reseal() { rm -f "$dir/MANIFEST.sha256"; "$analyze" seal "$dir" 2>/dev/null; }

fresh
audit 0 "" intact --binary "$analyze"
same "what was done" "$(jq -c '[.verdict, .files, .reports, .reports_that_refuse]' "$tmp/out")" '["intact",7,3,1]'
same "the manifest's own digest" "$(jq -r .manifest_sha256 "$tmp/out")" "$(sha256sum <"$dir/MANIFEST.sha256" | cut -d' ' -f1)"
holds "sha256sum reads it" bash -c "cd '$dir' && sha256sum --quiet --check MANIFEST.sha256"
mv "$dir" "$tmp/moved"
dir=$tmp/moved
audit 0 "" "a moved folder"
dir=$tmp/evidence
expect 1 "sealed once" "$analyze" seal "$tmp/moved"
fresh open
audit 1 digest,manifest,unlisted "never sealed"

# every file, at several places
fresh
while IFS= read -r file; do
    size=$(wc -c <"$dir/$file")
    cp "$dir/$file" "$tmp/kept"
    for at in $((size / 3)) $((size - 1)); do
        python3 - "$dir/$file" "$at" <<'PY'
import sys
path, at = sys.argv[1], int(sys.argv[2])
data = bytearray(open(path, 'rb').read())
data[at] ^= 1
open(path, 'wb').write(data)
PY
        expect 1 "$file, byte $at" "$analyze" audit "$dir"
        cp "$tmp/kept" "$dir/$file"
    done
done < <(cd "$dir" && find . -type f)
audit 0 "" "put back"

# whoever can also seal it anew is caught by what must follow from what
fresh open
jq '.samples_ns[0] = 6' "$dir/raw/cand.json" >"$tmp/x" && cp "$tmp/x" "$dir/raw/cand.json"
reseal
audit 1 report "a sample changed, sealed anew"
fresh open
jq '.metrics.improvement_percent = 40' "$dir/reports/kernels.json" >"$tmp/x" && cp "$tmp/x" "$dir/reports/kernels.json"
reseal
audit 1 report "an aggregate changed, sealed anew"
fresh open
jq '.verdict = "promote" | .failed_rules = []' "$dir/reports/refused.json" >"$tmp/x" && cp "$tmp/x" "$dir/reports/refused.json"
reseal
audit 1 report "a verdict changed, sealed anew"
fresh open
jq '.options += ["raw/base.json"]' "$dir/reports/kernels.json" >"$tmp/x" && cp "$tmp/x" "$dir/reports/kernels.json"
reseal
audit 1 report "an option that would be an output"
holds "no input was overwritten" jq -e '.schema == "gem-kernel-bench/1"' "$dir/raw/cand.json" >/dev/null
fresh open
rm "$dir/raw/cand.json"
reseal
audit 1 report "an input gone, sealed anew"
fresh
audit 1 binary "another binary" --binary "$bin/gem-host-state"
audit 1 binary "no binary" --binary "$tmp/none"
fresh open
rm "$dir/live-binary-sha256.txt"
reseal
audit 1 binary "its digest was not kept" --binary "$analyze"
expect 3 "no folder" "$analyze" audit "$tmp/none"
expect 2 "no argument" "$analyze" audit
finish
