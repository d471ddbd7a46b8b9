#!/usr/bin/env bash
# gem-long-attention-profile and gem-decode-attention-profile at a small shape, and their judges.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/tools/tools.sh disable=SC1091
. "$src/tests/tools/tools.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
export TMPDIR=$tmp

# a tile of rows, two routes in turn
makes pair.json 0 "compare" "$bin/gem-long-attention-profile" --shape tiny --position 992 --rows 32 --repetitions 10 --warmup 2 \
    --seed-prefix --variant compare-bq8-bk128
same "arms" "$(json pair.json '[.arms[] | [.variant, .selector, (.samples_ns | length)]]')" '[["bq8-bk64",19,10],["bq8-bk128",23,10]]'
# shellcheck disable=SC2016 # a variable of jq
same "each is first as often" "$(json pair.json '[.order | [range(0; length; 2) as $i | .[$i]] | group_by(.)[] | length]')" '[5,5]'
same "every run has its time stamps" "$(json pair.json '.timestamps | [length, all(.start_ns < .end_ns and .device_ns <= .end_ns - .start_ns),
    ([.[].start_ns] == ([.[].start_ns] | sort))]')" '[20,true,true]'
same "stamps are the samples" "$(json pair.json '[.timestamps[] | select(.variant == "bq8-bk64") | .device_ns] == .arms[0].samples_ns')" true
same "one code, and that is said" "$(json pair.json '[.arms_identical, (.arms | map(.route.ran) | unique | length), (.arms | map(.output_sha256) |
    unique | length), .deterministic]')" '[true,1,1,true]'
same "seed" "$(json pair.json '[.seed_prefix, .prefix_mode, .prefix_builds, .promotion.eligible, .capture]')" \
    '[true,"seeded-kv",0,false,false]'
makes bq8.json 0 "two routes that differ here" "$bin/gem-long-attention-profile" --shape tiny --position 992 --rows 32 \
    --repetitions 4 --warmup 1 --seed-prefix --variant compare-bq8
same "other code, the same bits" "$(json bq8.json '[.arms_identical, (.arms | map(.route.ran) | unique | length),
    (.arms | map(.output_sha256) | unique | length), (.arms | map(.selector))]')" '[false,2,1,[22,19]]'
same "one row at a time is the same" "$(json bq8.json '.arms[0].output_sha256')" "$(json pair.json '.arms[0].output_sha256')"
makes zero.json 0 "zero-filled" "$bin/gem-long-attention-profile" --shape tiny --position 992 --rows 32 --repetitions 3 --warmup 1 \
    --variant online-row4
same "no seed" "$(json zero.json '[.seed_prefix, .prefix_mode, .arms_identical, .arms[0].variant]')" '[false,"zero-filled",false,"online-row4"]'
if [ "$(json zero.json '.arms[0].output_sha256')" = "$(json pair.json '.arms[0].output_sha256')" ]; then fail "seed changes nothing"; else ok; fi
GEM_METAL_CAPTURE_PATH=$tmp/x.gputrace makes capture.json 0 "a capture that cannot be" "$bin/gem-long-attention-profile" --shape tiny \
    --position 96 --rows 32 --repetitions 3 --warmup 1 --variant online-row2
has "said" "$tmp/err" "nothing is captured"
same "not claimed" "$(json capture.json .capture)" false
makes sliding.json 0 "a window" "$bin/gem-long-attention-profile" --shape 31b-sliding --position 64 --rows 8 --repetitions 1
same "geometry" "$(json sliding.json '.geometry | [.query_heads, .kv_heads, .head_dim, .window]')" '[32,16,256,1024]'
expect 2 "no such variant" "$bin/gem-long-attention-profile" --shape tiny --variant bq9
has "the variants there are" "$tmp/err" "compare-bq8-bk128"
expect 2 "no such shape" "$bin/gem-long-attention-profile" --shape 70b
has "the shapes there are" "$tmp/err" "31b-full"

# one row in its phases: A B B A of two kernels
profile=("$bin/gem-decode-attention-profile" --shape tiny --tokens 2048 --iterations 5 --repetitions 7 --warmup 2 --threads 1)
makes A1.json 0 "A1" "${profile[@]}" --kernel dim64
makes B1.json 0 "B1" "${profile[@]}" --kernel dim32
makes B2.json 0 "B2" "${profile[@]}" --kernel dim32
makes A2.json 0 "A2" "${profile[@]}" --kernel dim64
same "phases" "$(json A1.json '[.phases | keys[] ] ')" '["normalization","score","value"]'
same "seven samples of each" "$(json A1.json '[.total, .phases[]] | map(.samples_ns | length) | unique')" '[7]'
# shellcheck disable=SC2016 # a variable of jq
same "no phase is longer than the whole" "$(json A1.json '[range(7) as $i | ([.phases[].samples_ns[$i]] | add) <= .total.samples_ns[$i] * 1.001] | all')" true
same "selector" "$(json B1.json '[.kernel, .selector, .kernel_route.op]')" '["dim32",18,"decode-attention"]'
expect 0 "ABBA" "$src/scripts/analyze-decode-attention-abba.sh" "$tmp"/{A1,B1,B2,A2}.json "$tmp/abba.json"
same "three phases and the whole" "$(json abba.json '[.metrics | keys[]]')" '["normalization","score","total","value"]'
same "never eligible" "$(json abba.json .promotion_eligible)" false
expect 0 "traffic" "$src/scripts/analyze-decode-attention-traffic.sh" "$tmp/A1.json" "$tmp/traffic.json"
same "2048 keys of 2 heads of 64, twice; 4 partial results" "$(json traffic.json '[.traffic[].bytes]')" '[1048576,1048576,16896]'
makes half.json 0 "f16" "${profile[@]}" --kv-type f16
same "the default route, half the bytes" "$(json half.json '[.kernel, .selector, .geometry.kv_element_bytes]')" '["split16",19,2]'
expect 2 "no such kernel" "${profile[@]}" --kernel dim16
has "the kernels there are" "$tmp/err" "score-tile8"
for program in gem-long-attention-profile gem-decode-attention-profile; do
    expect 0 "help of $program" "$bin/$program" --help
    expect 0 "man page of $program" "$bin/$program" --help-as man
done
finish
