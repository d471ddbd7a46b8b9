#!/usr/bin/env bash
# Shell scripts pass shellcheck; tracked text holds no paths of a developer's machine.
set -euo pipefail
src=$1
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
command -v shellcheck >/dev/null || { echo "shellcheck is not installed"; exit 77; }
cd "$src"
for script in scripts/*.sh tests/scripts/*.sh tests/evidence/*.sh tests/evidence/*/*.sh tests/scripts/fake-pip .ci/run; do
    expect 0 "shellcheck $script" shellcheck -S warning "$script"
    [ ! -s "$tmp/out" ] || cat "$tmp/out"
done
for script in scripts/*.sh .ci/run; do
    [[ $script == scripts/lib*.sh ]] || holds "$script is executable" test -x "$script"
done
finish
