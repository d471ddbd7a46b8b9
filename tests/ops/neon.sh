#!/bin/sh
# neon.sh OUT - the NEON kernels against ref on a machine that has no NEON: cross-compiled, static, run
# by qemu's user emulation. Bits only; times mean nothing there. GEM_OPS_EVERY=1 runs all cases, which
# takes minutes; the default is a share of each group. Exit 77: not possible here.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cc=${AARCH64_CC:-aarch64-linux-gnu-gcc}
qemu=${QEMU_AARCH64:-qemu-aarch64-static}
for tool in "$cc" "$qemu"; do
    if ! command -v "$tool" >/dev/null; then
        echo "skipped: $tool is not installed"
        exit 77
    fi
done
"$here/static.sh" "$1" "$cc"
GEM_CPU_ISA=neon GEM_OPS_EVERY=${GEM_OPS_EVERY:-31} exec "$qemu" -cpu max "$1"
