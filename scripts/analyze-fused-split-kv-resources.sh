#!/usr/bin/env bash
# analyze-fused-split-kv-resources.sh RESOURCE_RECEIPT.json [RESOURCE_ANALYSIS.json]
# Compiled resources of the fused route: device, geometry, scratch, first pass (256 threads, eight SIMD groups, 16
# KiB dynamic memory), reducer (256 threads, none), digests of source and binary. No timing.
# Exit: 0 admitted, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis fused-split-kv-resources "$@"
