#!/usr/bin/env bash
# analyze-prefill-stages.sh [--layers N --full-layers N] PROFILE.json [OUT.json]
# Rank the nine stages of a record of gem-long-prefill-stage-profile, sliding and full layers apart. Required: the
# graph of 60 layers, 50 sliding and 10 full (other models: the options), three sample matrices, timestamps that
# cover 95 % of every tile. The selected axis is a hypothesis.
# Exit: 0 ranked, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis prefill-stages "$@"
