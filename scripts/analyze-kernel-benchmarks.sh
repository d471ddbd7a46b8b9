#!/usr/bin/env bash
# analyze-kernel-benchmarks.sh BASELINE.json CANDIDATE.json [OUT.json]
# Compare two records of gem-kernel-bench: same shape and counts, one changed axis (buffer mode, matrix slots,
# command span, ...), the working set and effective warm-up in both. The report's promotion.eligible is always
# false: an operator microbenchmark guides an implementation and promotes nothing.
# Exit: 0 comparable, 1 refused (rules on stderr), 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis kernel-benchmarks "$@"
