#!/usr/bin/env bash
# analyze-decode-attention-abba.sh A1.json B1.json B2.json A2.json [OUT.json]
# Pool four records of gem-decode-attention-profile in A/B/B/A order, after the controls of each arm were found
# identical. Reports opening and closing improvement, drift of each arm, and whether every candidate sample beats
# every baseline sample. A screen, never a promotion.
# Exit: 0 comparable, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis decode-attention-abba "$@"
