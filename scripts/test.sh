#!/usr/bin/env bash
# test.sh: everything that can be checked on this machine. Installs what testing needs, builds the release,
# fetches the two small models once, runs all tests; then those that run our C on no real weights again
# under ASan and UBSan. A share of the ARM kernels' cases runs under qemu; scripts/neon-qemu.sh runs all of
# that build. The CUDA kernels run too, by an emulator on the host; with an NVIDIA device, or --cuda, they
# are built for it and tested there (without a device they only compile). --browser installs Chromium for the tests of the web page, which run wherever one is found.
# Ends with one line: N passed, N failed. Exit 0 when none failed.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh disable=SC1091
. scripts/lib.sh

cuda=no
[ ! -e /dev/nvidiactl ] || cuda=yes
browser=no
for option; do
    case $option in
        --cuda) cuda=yes ;;
        --browser) browser=yes ;;
        *)
            say "usage: scripts/test.sh [--cuda] [--browser]"
            exit 2
            ;;
    esac
done
started=$SECONDS
passed=0
failed=0
step() { say "== $* ($((SECONDS - started)) s)"; }

# build PRESET OPTION...: configure and build; a failure counts as one failed test.
build() {
    local preset=$1 log
    shift
    log=build/test-$preset.log
    step "building $preset"
    if run_logged "$log" cmake --preset "$preset" "$@" && run_logged "$log" cmake --build --preset "$preset"; then
        return 0
    fi
    failed=$((failed + 1))
    say "the $preset build failed; see $log"
    return 1
}

# attribute FILE NAME: a number of the first <testsuite> of a JUnit report.
attribute() { grep -oE "(^|[[:space:]])$2=\"[0-9]+\"" "$1" | head -n 1 | tr -dc 0-9; }

# tests FOLDER OPTION...: ctest, adding to the counts. Tests that skip themselves are neither.
tests() {
    local dir=$1 report all bad skipped code=0
    shift
    report=$PWD/$dir/test-report.xml
    rm -f "$report"
    ctest --test-dir "$dir" -j "$(nproc)" --output-on-failure --timeout 600 --output-junit "$report" "$@" || code=$?
    if [ ! -s "$report" ]; then
        failed=$((failed + 1))
        return
    fi
    all=$(attribute "$report" tests) bad=$(attribute "$report" failures) skipped=$(attribute "$report" skipped)
    [ "$code" -eq 0 ] || [ "$bad" -gt 0 ] || bad=1 # a test that could not even be started
    passed=$((passed + all - bad - skipped))
    failed=$((failed + bad))
}

need_for build fetch test cross
[ "$browser" = no ] || (need_for browser) || say "no Chromium: the tests of the web page skip themselves"
mkdir -p build
release=0
build release -DGEM_TESTS=ON || release=$?
step "fetching models"
for model in gemma-3-270m qwen2.5-coder-0.5b; do
    scripts/fetch-model.sh "$model" >/dev/null || say "no $model: the tests that need it skip themselves"
done
step "clients"
# The server's tests speak to it through the openai package; without it they skip themselves.
if ! python3 -c 'import pytest, openai' 2>/dev/null; then
    [ -x build/clients/bin/python ] || python3 -m venv build/clients >/dev/null 2>&1 || true
    if build/clients/bin/pip install -q pytest openai >/dev/null 2>&1; then
        export GEM_TEST_PYTHON=$PWD/build/clients/bin/python
    else
        say "no openai package: the tests of clients skip themselves"
    fi
fi
if [ "$release" -eq 0 ]; then
    step "testing release"
    tests build
fi
if build dev -DCMAKE_C_FLAGS_DEBUG="-O1 -g1"; then
    step "testing under ASan and UBSan, without real weights and long server tests, kernels at every fifth case"
    GEM_OPS_EVERY=5 GEM_TEST_REAL_MODELS=0 GEM_TEST_SHORT=1 tests build/dev -LE 'model|scripts' -E 'gem\.ops_neon$'
fi
if [ "$(uname -m)" = x86_64 ]; then # the emulator changes stacks by hand
    step "building the CUDA kernels for the host"
    if run_logged build/test-emulated.log cmake --preset emulated &&
        run_logged build/test-emulated.log cmake --build --preset emulated --target test_cuda_ops test_cuda_models; then
        step "testing them there"
        tests build/emulated -R 'gem\.cuda_'
    else
        failed=$((failed + 1))
        say "the emulated build failed; see build/test-emulated.log"
    fi
fi
if [ "$cuda" = yes ] && { command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; }; then
    step "building the CUDA backend and its tests"
    if run_logged build/test-cuda.log cmake --preset cuda -DGEM_CUDA_ARCHS=90a &&
        run_logged build/test-cuda.log cmake --build --preset cuda --target test_cuda_ops test_cuda_models test_cuda_trace; then
        tests build/cuda -R 'gem\.cuda_'
    else
        failed=$((failed + 1))
        say "the CUDA build failed; see build/test-cuda.log"
    fi
fi
say "== done after $((SECONDS - started)) s"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
