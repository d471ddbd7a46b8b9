#!/usr/bin/env bash
# profile-metal.sh BINARY MODEL.gguf OUTPUT.trace
# profile-metal.sh OUTPUT.trace -- COMMAND [ARGUMENT...]
# A trace of the production server answering one request, or of COMMAND, by Xcode's xctrace. An explicit DEVELOPER_DIR is
# honoured; else an installed Xcode, stable or beta, is taken when the active developer folder has only command line
# tools. xcode-select is not changed. What was traced, digests, system, power and template stand beside the trace in
# OUTPUT.trace.json. For candidates that cleared the 3 % threshold; a trace is no benchmark.
#   GEM_XCTRACE_TEMPLATE     default: Metal System Trace
#   GEM_XCTRACE_INSTRUMENT   one more instrument, such as 'Metal GPU Counters'
#   GEM_MODEL_SHA256         a digest that was verified before
#   GEM_PROFILE_PORT, GEM_PROFILE_PROMPT   of the server's one request; default 18080 and a short question
#   GEM_PROFILE_SECONDS      most seconds of a trace; default 120
# Exit: 0 traced, 1 the traced command or the request failed, 2 usage, 3 no macOS, no Xcode or no such file.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
profile_arguments trace "$@"
[ "$(uname -s)" = Darwin ] || die 3 "Metal is traced on macOS; for an NVIDIA GPU there is profile-cuda.sh"
template=${GEM_XCTRACE_TEMPLATE:-Metal System Trace} seconds=${GEM_PROFILE_SECONDS:-120}
need_count GEM_PROFILE_SECONDS "$seconds"
if [ -z "${DEVELOPER_DIR:-}" ] && ! xcrun --find xctrace >/dev/null 2>&1; then
    for app in "${GEM_APPLICATIONS:-/Applications}"/Xcode.app "${GEM_APPLICATIONS:-/Applications}"/Xcode*.app; do
        [ -x "$app/Contents/Developer/usr/bin/xctrace" ] || continue
        export DEVELOPER_DIR=$app/Contents/Developer
        break
    done
fi
xcrun --find xctrace >/dev/null 2>&1 || die 3 "xctrace is missing: install Xcode, or set DEVELOPER_DIR"
instrument=()
[ -z "${GEM_XCTRACE_INSTRUMENT:-}" ] || instrument=(--instrument "$GEM_XCTRACE_INSTRUMENT")

profile_begin
code=0
traced xcrun xctrace record --template "$template" ${instrument[@]+"${instrument[@]}"} --time-limit "${seconds}s" \
    --output "$part/trace" --launch -- || code=$?
profile_end "$code" tool=xctrace "template=$template" "instrument=${GEM_XCTRACE_INSTRUMENT:-}" \
    "developer_dir=${DEVELOPER_DIR:-}" "system=$(sw_vers 2>/dev/null | tr '\n\t' '; ' || true)" \
    "power=$(pmset -g batt 2>/dev/null | head -n 1 || true)" "thermal=$(pmset -g therm 2>/dev/null | tr '\n' ';' || true)"
