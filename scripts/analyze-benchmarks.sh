#!/usr/bin/env bash
# analyze-benchmarks.sh [--primary tg|pp] [--allow-model-change] BASELINE.json CANDIDATE.json [OUT.json]
# May a candidate be promoted? Both files are records of gem-bench. The primary KPI (generation unless --primary
# pp) has to gain more than 3 % and more than the larger run's variation, by samples that noise does not explain;
# the other KPI may not lose more than 2 % beyond its variation; exactly one axis may differ, and the model may
# only with --allow-model-change. Exit: 0 promote, 1 refused (rules on stderr), 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
analysis benchmarks "$@"
