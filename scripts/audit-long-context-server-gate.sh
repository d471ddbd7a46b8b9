#!/usr/bin/env bash
# audit-long-context-server-gate.sh OUTPUT_DIR BINARY [MODEL.gguf]
# Is a finished server gate what it says? From its raw files again: the manifest, the program as it was frozen (BINARY),
# digests of model and prompt, every stream's terminator, records of exactly 100 % and of prefix hits, receipts of the
# host, the bytes of keys and values by formula, and the summary, byte for byte. With MODEL the model is read again.
# The report, one JSON document, goes to stdout, which may be OUTPUT_DIR/audit.json.
#   GEM_ANALYZE   another build of gem-analyze
# Exit: 0 accepted, 1 refused (rules on stderr), 2 usage, 3 a file is missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
[ $# -eq 2 ] || [ $# -eq 3 ] || die 2 "OUTPUT_DIR and BINARY are needed; see --help"
[ -f "$2" ] || die 3 "$2: no such program"
model=()
if [ $# -eq 3 ]; then
    [ -f "$3" ] || die 3 "$3: no such model"
    model=(--model "$3")
fi
gem_analyze long-context-audit --binary "$2" ${model[@]+"${model[@]}"} "$1"
