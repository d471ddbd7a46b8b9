#!/usr/bin/env bash
# analyze-fused-split-kv-ceiling.sh MODEL_64K.json OP_64K.json MODEL_128K.json OP_128K.json [OUT.json]
# Whole-token ceilings of a fused split-KV route at 64K and 128K, from evaluated selector-19 profiles and the
# split16 operator records that match them. Admits research, promotes nothing.
# Exit: 0 admissible, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis fused-split-kv-ceiling "$@"
