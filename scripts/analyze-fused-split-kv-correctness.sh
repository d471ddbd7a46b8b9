#!/usr/bin/env bash
# analyze-fused-split-kv-correctness.sh CPU_GATE.json RESOURCE_ANALYSIS.json OP_8191.json OP_8192.json
# OP_8193.json OP_65536.json OP_131072.json MODEL_8191.json MODEL_8192.json MODEL_8193.json [OUT.json]
# Correctness of the fused route against forced selector 19: five operator comparisons and three evaluated prompts
# with equal argmax, ordered top 10 and eight greedy tokens; correlation at least 0.9999, NMSE at most 1e-4
# throughout. promotion_eligible is always false.
# Exit: 0 admitted, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis fused-split-kv-correctness "$@"
