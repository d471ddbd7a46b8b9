#!/usr/bin/env bash
# quickstart.sh [PROMPT]: from a fresh clone to a model that answers. Installs what building needs, builds,
# fetches a small instruct model once, and asks it PROMPT.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh disable=SC1091
. scripts/lib.sh

model=qwen2.5-coder-0.5b
prompt=${1:-Explain in three sentences what a C compiler does.}

need_for build fetch
say "building gem"
mkdir -p build
# Tests stay as an earlier scripts/test.sh configured them; a fresh build leaves them out.
tests=()
[ -f build/CMakeCache.txt ] || tests=(-DGEM_TESTS=OFF)
run_logged build/quickstart.log cmake --preset release "${tests[@]}" || die 4 "the build could not be configured"
run_logged build/quickstart.log cmake --build build --target gem || die 4 "the build failed; see build/quickstart.log"
scripts/fetch-model.sh "$model" >/dev/null
say ""
say "\$ build/gem run $model -p \"$prompt\""
exec build/gem run "$model" -p "$prompt"
