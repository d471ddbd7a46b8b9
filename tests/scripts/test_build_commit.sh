#!/usr/bin/env bash
# The commit that a binary names is that of its build: cmake/build-info.cmake in a small repository.
set -euo pipefail
src=$1
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v git >/dev/null || { echo "git is not installed"; exit 77; }

git=(git -C "$tmp/repo" -c user.name=t -c user.email=t@t -c commit.gpgsign=false)
build() {
    cmake "-DGIT=$(command -v git)" "-DSOURCE=$tmp/repo" "-DOUT=$tmp/gem_build.h" "-DCOMPILER=GNU 1" -DTYPE=Release \
        "-DSANITIZE=address,undefined" "-DSYSTEM=Linux x" -P "$src/cmake/build-info.cmake"
    sed -n 's/#define GEM_BUILD_COMMIT "\(.*\)"/\1/p' "$tmp/gem_build.h"
}

mkdir "$tmp/repo"
same "no repository" "$(build)" unknown
"${git[@]}" init -q
echo one >"$tmp/repo/file"
"${git[@]}" add file
"${git[@]}" commit -qm one
one=$("${git[@]}" rev-parse --short=12 HEAD)
same "the commit" "$(build)" "$one"
touch -d '2001-01-01' "$tmp/gem_build.h"
build >/dev/null
same "nothing new: the header stays" "$(stat -c %Y "$tmp/gem_build.h")" "$(date -d 2001-01-01 +%s)"
echo two >"$tmp/repo/file"
same "changed files" "$(build)" "$one-dirty"
"${git[@]}" commit -qam two
same "the next commit, without another configuring" "$(build)" "$("${git[@]}" rev-parse --short=12 HEAD)"
has "what else a record names" "$tmp/gem_build.h" 'GEM_BUILD_SANITIZE "address,undefined"'
finish
