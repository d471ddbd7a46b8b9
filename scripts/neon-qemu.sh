#!/usr/bin/env bash
# neon-qemu.sh: cross-build for 64-bit ARM and run the tests of kernels, formats and parsers under qemu-user.
# Needs the cross compiler and qemu (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static); the ARM
# libraries are unpacked below build/, the system stays as it is. --ops first: only the kernels and formats;
# --build-only: stop before the tests; further options go to ctest.
# Exit: 0 all tests passed, 3 cannot be done here, 4 the build failed, else ctest's code.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh disable=SC1091
. scripts/lib.sh

targets=() select=()
if [ "${1:-}" = --ops ]; then
    targets=(--target test_ops test_quant)
    select=(-R 'gem\.(ops|quant)$')
    shift
fi
need_for cross
command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null || die 3 "no ARM cross compiler or no qemu"
root=$PWD/build/arm64-root
if [ ! -f "$root/complete" ]; then
    command -v apt-get >/dev/null || die 3 "the ARM libraries come from apt, which is not here"
    state=$root/apt
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$state/deb"
    : >"$state/status"
    apt=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State=$state" -o "Dir::State::status=$state/status"
        -o "Dir::Cache=$state" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
    run_logged "$root/log" apt-get "${apt[@]}" update || die 3 "the ARM package lists could not be fetched"
    (cd "$state/deb" && run_logged "$root/log" apt-get "${apt[@]}" download libjansson-dev libjansson4 libssl-dev libssl3 \
        libutf8proc-dev libutf8proc2 libcmocka-dev libcmocka0) || die 3 "the ARM libraries could not be fetched"
    for deb in "$state"/deb/*.deb; do dpkg-deb -x "$deb" "$root"; done
    rm -rf "$state"
    touch "$root/complete"
fi
run_logged build/neon.log cmake --preset neon || die 4 "the ARM build could not be configured; see build/neon.log"
run_logged build/neon.log cmake --build --preset neon ${targets[@]+"${targets[@]}"} || die 4 "the ARM build failed; see build/neon.log"
[ "${1:-}" != --build-only ] || exit 0
exec ctest --test-dir build/neon --output-on-failure --timeout 900 -LE 'model|native' ${select[@]+"${select[@]}"} "$@"
