#!/usr/bin/env bash
# analyze-decode-residual.sh MODEL_PROFILE.json OPERATOR_PROFILE.json [OUT.json]
# What a better value kernel could bring a whole token: binds a record of gem-decode-profile to one of gem-decode-
# attention-profile at the same position, attributes ten full layers, and reports the whole-token ceiling and the
# share of the kernel's time that must go for 3 %.
# Exit: 0 admissible, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis decode-residual "$@"
