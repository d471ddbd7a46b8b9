#!/bin/bash
# The whole ritual of docs/evidence.md on the CPU with a small random model: baseline and candidate,
# three attested repetitions each, fill, attach, compare, gate, signatures, manifest; then tampering.
# usage: test_ritual.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1
here=$2/tests/fak/ritual
fak=$build/fak
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() { echo "ritual: $*" >&2; exit 1; }
# refuse WANTED_CODE COMMAND...: exits 1 with that finding
refuse() {
    local want=$1 status=0
    shift
    "$@" >out.txt 2>err.txt || status=$?
    [ "$status" = 1 ] || fail "$* exited $status, 1 was wanted: $(cat err.txt)"
    [ ! -s out.txt ] || fail "$* printed something although it refused"
    grep -q "$want" err.txt || fail "$*: $want is not among: $(cat err.txt)"
}

"$build/gem-synth-model" --arch qwen2 --out tiny.gguf >synth.json 2>synth.log
sha=$(sha256sum tiny.gguf | cut -d' ' -f1)
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) exit 77 ;; esac
sed -e "s/@SHA256@/$sha/" -e "s/@ARCH@/$arch/" "$here/graph.json.in" >graph.json
"$fak" native-performance --validate graph.json >/dev/null
"$fak" native-performance --graph graph.json --next --envelope gem-tiny-cpu-p32-t16 | grep '^Lever: cpu.packed-panels$' >/dev/null || fail next

# 1. the template, before the change
"$fak" native-performance --graph graph.json --baseline cpu.packed-panels >template.json

# 2. one attested repetition a call; the thresholds are wide open because test machines are busy
bench() { # arm repetition switch...
    local arm=$1 i=$2
    shift 2
    "$fak" bench system-baseline --baseline-duration 60ms --interval 20ms --max-non-sut-cpu-percent 100 \
        --max-sampler-duty-percent 100 --pass-stdout --out "$arm-attestation-$i.json" -- \
        "$build/gem-bench" --model tiny.gguf --prompt-tokens 32 --generation-tokens 16 --repetitions 1 --warmups 1 \
        --end-to-end --sha256 "$@" >"$arm-bench-$i.json" 2>"$arm-$i.log"
    "$fak" bench system-baseline --verify "$arm-attestation-$i.json" >>verified.txt
    # a build from an edited tree names no commit; the test lends it one
    sed -i -e 's/-dirty"/"/' -e 's/"revision": "unknown"/"revision": "test"/' "$arm-bench-$i.json"
}
for i in 1 2 3; do
    bench baseline $i --no-repack
    bench candidate $i
done
[ "$(grep -c '^VALID sha256:' verified.txt)" = 6 ] || fail "six attestations"
[ "$(stat -c %a baseline-attestation-1.json)" = 600 ] || fail "mode of the attestation"

# 3. fill
fill() { "$fak" receipt fill template.json --graph graph.json --machine test-machine "$@"; }
fill --bench baseline-bench-1.json --bench baseline-bench-2.json --bench baseline-bench-3.json --out baseline-0.json
fill --bench candidate-bench-1.json --bench candidate-bench-2.json --bench candidate-bench-3.json --candidate --out candidate-0.json

# what does not match is refused
refuse NPF-006 fill --bench baseline-bench-1.json --bench baseline-bench-2.json
sed 's/"prompt_tokens": 32/"prompt_tokens": 31/' baseline-bench-1.json >other.json
refuse 'NPF-005\|NPF-003' fill --bench other.json --bench baseline-bench-2.json --bench baseline-bench-3.json
refuse NPF-003 fill --bench other.json --bench other.json --bench other.json
sed "s/$sha/$(printf 'ab%.0s' $(seq 32))/" baseline-bench-1.json >other.json
refuse NPF-004 fill --bench other.json --bench other.json --bench other.json
refuse NPF-001 fill --bench template.json
refuse NPF-005 fill --bench baseline-bench-1.json --bench candidate-bench-2.json --bench baseline-bench-3.json
sed 's/"revision": "[^"]*"/"revision": "abc-dirty"/' baseline-bench-1.json >other.json
refuse NPF-004 fill --bench other.json --bench other.json --bench other.json

# 4. attach, once a repetition, each output being the next input
for arm in baseline candidate; do
    for i in 1 2 3; do
        "$fak" native-performance --graph graph.json --attach-receipt "$arm-$((i - 1)).json" \
            --system-baseline "$arm-attestation-$i.json" --out "$arm-$i.json"
    done
    "$fak" native-performance --graph graph.json --validate "$arm-3.json" >/dev/null
done
refuse NPA-001 "$fak" native-performance --graph graph.json --attach-receipt baseline-3.json --system-baseline candidate-attestation-1.json
refuse NPA-002 "$fak" native-performance --graph graph.json --attach-receipt baseline-1.json --system-baseline baseline-attestation-1.json

# 5. compare and gate
"$fak" native-performance --graph graph.json --compare baseline-3.json --candidate candidate-3.json >comparison.json
grep -q '"direction": "\(faster\|slower\|indistinguishable\)"' comparison.json || fail direction
path=cpu/qwen2-session-v1
revision=$(sed -n 's/^  "revision": "\(.*\)",$/\1/p' baseline-3.json)
request() { # noise investigate regression
    cat <<JSON
{"schema": "fak-native-performance-gate-request/v2", "policy": {"schema": "fak-native-performance-gate-policy/v2",
 "envelope_id": "gem-tiny-cpu-p32-t16", "changed_lever_id": "cpu.packed-panels", "accepted_revision": "$revision",
 "minimum_repetitions": 3, "maximum_noise_percent": $1, "investigate_drop_percent": $2, "regression_drop_percent": $3,
 "minimum_throughput_tokens_per_second": 0.001, "maximum_peak_bytes": 100000000000, "quality_metric": "greedy-tokens-repeat",
 "minimum_quality_score": 1, "quality_higher_is_better": true, "required_engine": "gem-native", "required_forward_path": "$path",
 "require_system_baseline": true, "allow_sampled_system_baseline": true, "maximum_attested_non_sut_cpu_percent": 100,
 "maximum_attested_sampler_duty_percent": 100},
 "last_accepted": $(cat baseline-3.json), "candidate": $(cat candidate-3.json)}
JSON
}
request 1000 900 1000 >gate-request.json
status=0
"$fak" native-performance --graph graph.json --gate gate-request.json >verdict.json || status=$?
if grep -q 'verdict=clean' verified.txt && [ "$(grep -c 'verdict=clean' verified.txt)" = 6 ]; then
    [ "$status" = 0 ] || fail "clean evidence within the bands exited $status: $(cat verdict.json)"
else # a process that could not be attributed: the gate must not pass
    [ "$status" = 4 ] || fail "unclean evidence exited $status"
fi
request 1000 -0.5 1000 >bad-policy.json
refuse NPQ-005 "$fak" native-performance --graph graph.json --gate bad-policy.json

# 6. tampering
sed '0,/"samples": \([0-9]*\)/s//"samples": 9\1/' baseline-attestation-1.json >tampered.json
refuse SBV-003 "$fak" bench system-baseline --verify tampered.json
refuse SBV-003 "$fak" native-performance --graph graph.json --attach-receipt baseline-0.json --system-baseline tampered.json
sed '0,/"process_reads": \([0-9]*\)/s//"process_reads": 9\1/' candidate-3.json >tampered.json
refuse NPR-024 "$fak" native-performance --graph graph.json --compare baseline-3.json --candidate tampered.json
sha256sum baseline-*.json candidate-*.json comparison.json verdict.json >MANIFEST.sha256
sha256sum --check --quiet MANIFEST.sha256
cp baseline-3.json kept.json
sed -i '0,/"tokens_per_second": \([0-9]\)/s//"tokens_per_second": 9\1/' baseline-3.json
"$fak" native-performance --graph graph.json --validate baseline-3.json >/dev/null # still a valid receipt by itself ...
if sha256sum --check --quiet MANIFEST.sha256 >/dev/null 2>&1; then fail "the manifest misses a changed receipt"; fi
if command -v ssh-keygen >/dev/null; then # ... but neither the manifest nor a signature lets it through
    ssh-keygen -q -t ed25519 -N '' -C test -f key
    echo "tester namespaces=\"gem-evidence\" $(cut -d' ' -f1,2 key.pub)" >allowed
    "$fak" native-performance --graph graph.json --validate kept.json --sign key | grep 'signature=written$' >/dev/null || fail sign
    "$fak" native-performance --graph graph.json --validate kept.json --verify-signature allowed | grep 'signature=good$' >/dev/null || fail verify
    cp kept.json.sig baseline-3.json.sig
    refuse NPX-002 "$fak" native-performance --graph graph.json --validate baseline-3.json --verify-signature allowed
    ssh-keygen -q -t ed25519 -N '' -C other -f other
    echo "other $(cut -d' ' -f1,2 other.pub)" >strangers
    refuse NPX-002 "$fak" native-performance --graph graph.json --validate kept.json --verify-signature strangers
    refuse NPX-001 "$fak" native-performance --graph graph.json --validate kept.json --sign missing-key
fi

# 7. the page
mkdir folder
cp kept.json candidate-3.json comparison.json verdict.json gate-request.json baseline-attestation-1.json folder
(cd folder && sha256sum -- *.json >MANIFEST.sha256)
"$fak" report folder --html page.html --graph graph.json
"$fak" report folder --html again.html --graph graph.json
cmp page.html again.html
grep -q '6 documents, 6 valid' page.html || fail "the page counts wrongly"
[ "$(grep -c '<h2>Envelope ' page.html)" = 3 ] || fail "one section an envelope"
if grep -Eq '<(script|link|img|iframe)|@import|url\(' page.html; then fail "the page needs something from outside"; fi
sed -i 's/"warmups": 1/"warmups": 2/' folder/kept.json
status_page=0
"$fak" report folder --html page.html --graph graph.json 2>/dev/null || status_page=$?
if [ $status_page != 1 ] || ! grep -q 'CHANGED' page.html; then fail "the page does not show a changed receipt"; fi
echo "ritual: $(grep -o 'verdict=.*' verified.txt | sort | uniq -c | tr '\n' ' '); $(grep '"direction"' comparison.json); gate $status"
