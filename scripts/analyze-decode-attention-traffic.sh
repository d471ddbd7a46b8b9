#!/usr/bin/env bash
# analyze-decode-attention-traffic.sh PROFILE.json [OUT.json]
# Least logical traffic of a split-score record of gem-decode-attention-profile: K and V, raw scores, three passes
# of normalisation, scores read again by every group of value dimensions, value partials. A model of addresses, no
# measured bandwidth.
# Exit: 0 modelled, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis decode-attention-traffic "$@"
