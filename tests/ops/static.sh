#!/bin/sh
# static.sh OUT [CC [FLAGS...]] - test_ops as one static program that needs only the C library, to be
# carried to another machine or run under an emulator. Kernels as src/CMakeLists.txt builds them.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
out=$1
cc=${2:-cc}
shift
[ $# -eq 0 ] || shift
objects=$out.objects
mkdir -p "$objects"
rm -f "$objects"/*.o
compile() { # ISA FLAGS... : one folder of kernels, or (ref) what every machine has
    isa=$1
    shift
    if [ "$isa" = ref ]; then
        set -- "$root"/src/backend/cpu/isa.c "$root"/src/backend/cpu/pack.c "$root"/src/backend/cpu/ref/*.c \
            "$root"/src/quant/*.c "$root"/src/base/error.c "$root"/src/base/clock.c "$root"/tests/ops/*.c
        isa_flags=
    else
        isa_flags=$*
        set -- "$root"/src/backend/cpu/"$isa"/*.c
    fi
    for file; do
        # shellcheck disable=SC2086 # flags are words
        "$cc" -std=c11 -O2 -Wall -Wextra -Wpedantic -ffp-contract=off -fno-math-errno -D_GNU_SOURCE \
            -DGEM_VERSION='"static"' -I"$root/include" -I"$root/src" $extra $isa_flags \
            -c "$file" -o "$objects/$(basename "$file" .c).o"
    done
}
extra=$*
case $("$cc" -dumpmachine) in
x86_64*)
    compile avx2 -mavx2 -mfma -mf16c
    compile avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
    ;;
aarch64*) compile neon -march=armv8.2-a+dotprod+fp16 ;;
esac
compile ref
# shellcheck disable=SC2086
"$cc" -static $extra "$objects"/*.o -lm -o "$out"
rm -r "$objects"
