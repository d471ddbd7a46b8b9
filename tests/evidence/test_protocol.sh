#!/usr/bin/env bash
# The protocol's command lines as they are written, on a small random model and the CPU: what is measured is
# worth nothing, but every file one command writes is read by the next.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
[ -x "$bin/gem-synth-model" ] || { echo "gem-synth-model is not built"; exit 77; }
# build/... and scripts/... as from the repository
mkdir "$tmp/repo"
cd "$tmp/repo"
ln -s "$bin" build
ln -s "$src/scripts" scripts
mkdir artifacts
export GEM_ANALYZE=$bin/gem-analyze GEM_TOKENIZE=$bin/gem-tokenize GEM_HOST_STATE=$bin/gem-host-state
build/gem-synth-model --arch gemma3 --out model.gguf --quiet >synth.json
# a record of a build with sanitizers is refused as such, whatever else holds
refused=[]
bench() { build/gem-bench --model model.gguf --roof-mib 256 "$@"; }

expect 0 baseline bench --context 64 --prompt-tokens 8 --generation-tokens 8 --repetitions 3 --command-span layer
cp "$tmp/out" artifacts/baseline.json
same "its span" "$(jq -r .parameters.command_span artifacts/baseline.json)" layer
for setting in layer token; do
    expect 0 "$setting" bench --context 64 --prompt-tokens 8 --generation-tokens 8 --repetitions 3 --command-span "$setting"
    cp "$tmp/out" "artifacts/$setting.json"
done
[ -z "$(jq -r '.host.build.sanitizers' artifacts/token.json)" ] || refused='["build"]'
code=0
scripts/analyze-benchmarks.sh artifacts/layer.json artifacts/token.json artifacts/span-comparison.json 2>err.txt || code=$?
holds "judged one way or the other" test "$code" -le 1
same "the axis" "$(jq -r '.promotion.axis' artifacts/span-comparison.json)" command_span
same "promotion and metrics" "$(jq -c '[(.promotion | has("eligible")), (.metrics | keys)]' artifacts/span-comparison.json)" '[true,["pp","tg"]]'
same "only noise can refuse it" "$(jq -c '.failed_rules - ["improvement", "variation", "lower-bound", "dominance", "drift",
    "half-run-drift", "ramp", "secondary", "thermal-state"]' artifacts/span-comparison.json)" "$refused"
expect 1 "nothing was changed" scripts/analyze-benchmarks.sh artifacts/baseline.json artifacts/layer.json
has "it is named" "$tmp/err" "refused: one-axis"

expect 0 "same-process A/B" bench --context 128 --prompt-tokens 32 --generation-tokens 16 --repetitions 5 --attention-ab
cp "$tmp/out" paired.json
expect 0 "its rows split" build/gem-analyze split-attention-ab paired.json artifacts/oracle.json artifacts/candidate.json
same "two rows each" "$(jq -c '[.rows[] | [.name, .arm]]' artifacts/oracle.json)" '[["pp","oracle"],["tg","oracle"]]'
code=0
scripts/analyze-benchmarks.sh --primary pp artifacts/oracle.json artifacts/candidate.json artifacts/attention.json 2>err.txt || code=$?
holds "judged" test "$code" -le 1
same "the axis" "$(jq -c '[.changed_axes, (.failed_rules - ["improvement", "variation", "lower-bound", "dominance", "drift",
    "half-run-drift", "ramp", "secondary"])]' artifacts/attention.json)" "[[\"attention_route\"],$refused]"
expect 1 "an ordinary record has no arms" build/gem-analyze split-attention-ab artifacts/token.json x.json y.json

expect 0 "an exact prompt" scripts/make-long-prompt.sh model.gguf 1024 artifacts/prompt.txt
cp "$tmp/out" artifacts/prompt.json
same "counted as the server counts" "$(build/gem-tokenize --count --file --chat-user model.gguf artifacts/prompt.txt)" 1024

cat >host-state <<SH
#!/usr/bin/env bash
exec "$bin/gem-host-state" --recorded "$src/tests/evidence/host/macos-clean" --platform macos "\$@"
SH
chmod +x host-state
GEM_HOST_STATE=$PWD/host-state GEM_CLEAN_HOST_INTERVAL_SECONDS=0 GEM_CLEAN_HOST_MAX_WAIT_SECONDS=28800 \
    expect 0 "wait, then measure" scripts/run-when-host-clean.sh artifacts/host-wait.ndjson -- \
    build/gem-bench --model model.gguf --no-roof --prompt-tokens 8 --generation-tokens 8
same "the command's own output" "$(jq -r .schema "$tmp/out")" gem-bench/1
same "three clean snapshots" "$(jq -s 'map(.clean_streak) == [1, 2, 3]' artifacts/host-wait.ndjson)" true

# kept, audited, shown
expect 0 seal build/gem-analyze seal artifacts
expect 0 audit build/gem-analyze audit artifacts audit.json
same "both comparisons were made again" "$(jq '.reports' audit.json)" 2
expect 0 report build/gem report artifacts
has "the page" artifacts.html "span-comparison.json"
finish
