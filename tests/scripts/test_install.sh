#!/usr/bin/env bash
# Install into a temporary prefix; build and run a consumer through pkg-config (shared and static) and through
# find_package; look at manual pages, completion and the download script in their places.
set -euo pipefail
src=$1
bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
if grep -q '^GEM_SANITIZE:[^=]*=.' "$bin/CMakeCache.txt"; then
    echo "a sanitizer build is not installed"
    exit 77
fi
prefix=$tmp/prefix
expect 0 "cmake --install" cmake --install "$bin" --prefix "$prefix"

for program in gem gem-analyze gem-bench gem-host-state gem-tokenize gem-sampler-bench gem-synth-model; do
    holds "bin/$program" test -x "$prefix/bin/$program"
    holds "$program.1" test -s "$prefix/share/man/man1/$program.1"
    holds "bash completion of $program" test -s "$prefix/share/bash-completion/completions/$program"
    holds "zsh completion of $program" test -s "$prefix/share/zsh/site-functions/_$program"
    holds "fish completion of $program" test -s "$prefix/share/fish/vendor_completions.d/$program.fish"
done
expect 0 "installed gem" "$prefix/bin/gem" --version
# the installed gem finds the installed script: an unknown pip is its sentence, not ours
GEM_PIP=$tmp/no-pip XDG_CACHE_HOME=$tmp/cache expect 3 "installed gem pull" "$prefix/bin/gem" pull gemma-3-270m
has "installed gem pull" "$tmp/err" "GEM_PIP"

cat >"$tmp/consumer.c" <<'C'
#include <gem/gem.h>
#include <stdio.h>
int main(void)
{
    gem_model *m;
    gem_error err;
    if (gem_model_open(&m, "/nonexistent.gguf", NULL, &err) != GEM_E_IO) return 1;
    printf("%s\n", gem_version());
    return 0;
}
C
version=$("$prefix/bin/gem" --version | cut -d' ' -f2)
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name gem.pc)")
lib=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH
read -r -a flags <<<"$(pkg-config --cflags --libs gem)"
expect 0 "consumer through pkg-config" cc "$tmp/consumer.c" -o "$tmp/shared" "${flags[@]}"
expect 0 "shared consumer runs" env LD_LIBRARY_PATH="$lib" "$tmp/shared"
same "shared consumer" "$(cat "$tmp/out")" "$version"
read -r -a flags <<<"$(pkg-config --static --cflags --libs gem)"
expect 0 "static consumer through pkg-config" cc "$tmp/consumer.c" -o "$tmp/static" "${flags[@]/#-lgem/-l:libgem.a}"
expect 0 "static consumer runs" "$tmp/static"

mkdir "$tmp/find"
cat >"$tmp/find/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(consumer C)
find_package(gem 0.1 REQUIRED)
add_executable(shared ../consumer.c)
target_link_libraries(shared gem::gem)
add_executable(static ../consumer.c)
target_link_libraries(static gem::gem_static)
CMAKE
expect 0 "find_package" cmake -S "$tmp/find" -B "$tmp/find/build" -DCMAKE_PREFIX_PATH="$prefix"
expect 0 "consumers through find_package" cmake --build "$tmp/find/build"
for kind in shared static; do
    expect 0 "$kind consumer of find_package" "$tmp/find/build/$kind"
    same "$kind consumer of find_package" "$(cat "$tmp/out")" "$version"
done
# only the public API is visible in the shared library
nm -D --defined-only "$lib/libgem.so" | awk '{ print $3 }' | sort >"$tmp/exported"
grep -o 'gem_[a-z0-9_]*(' "$src/include/gem/gem.h" | tr -d '(' | sort -u >"$tmp/declared"
same "symbols beyond the public API" "$(comm -23 "$tmp/exported" "$tmp/declared" | tr '\n' ' ')" ""
finish
