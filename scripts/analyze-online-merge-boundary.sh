#!/usr/bin/env bash
# analyze-online-merge-boundary.sh 8191.json 8192.json 8193.json 65536.json 131072.json [OUT.json]
# Audit five records of gem-online-merge-check: D512, 32 partitions, repeated hashes equal, correlation at least
# 0.9999, NMSE at most 1e-4, exactly these positions. CPU reduction algebra only.
# Exit: 0 admitted, 1 refused, 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis online-merge-boundary "$@"
