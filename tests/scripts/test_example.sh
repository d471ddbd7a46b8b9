#!/usr/bin/env bash
# examples/continue.c needs nothing but the public header and the shared library, and does what it says.
set -euo pipefail
src=$1
bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=scripts/lib.sh disable=SC1091
. "$src/scripts/lib.sh"
if grep -q '^GEM_SANITIZE:[^=]*=.' "$bin/CMakeCache.txt"; then
    echo "a sanitizer build is not linked from outside"
    exit 77
fi
lib=$(dirname "$(find "$bin" -name libgem.so | head -n 1)")
expect 0 "C11" cc -std=c11 -Wall -Wextra -Wpedantic -Werror -I "$src/include" "$src/examples/continue.c" -L "$lib" -lgem -o "$tmp/continue"
expect 0 "the header alone, as C++" sh -c "command -v c++ >/dev/null || exit 0; echo '#include <gem/gem.h>' | c++ -x c++ -std=c++11 -Wall -Werror -I '$src/include' -fsyntax-only -"
export LD_LIBRARY_PATH=$lib
expect 1 "no model" "$tmp/continue" "$tmp/none.gguf" hi
has "no model" "$tmp/err" "none.gguf"
model=$(cache_dir)/gemma-3-270m-q4_k_m.gguf
if [ -f "$model" ]; then
    expect 0 "real weights" "$tmp/continue" "$model" "The capital of France is"
    cp "$tmp/out" "$tmp/got"
    expect 0 "gem run" "$bin/gem" run "$model" -p "The capital of France is" -n 12 -T 0 -q
    same "gem run says the same" "The capital of France is$(cat "$tmp/got")" "$(cat "$tmp/out")"
fi
finish
