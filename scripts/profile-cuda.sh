#!/usr/bin/env bash
# profile-cuda.sh BINARY MODEL.gguf OUTPUT.ncu-rep
# profile-cuda.sh OUTPUT.ncu-rep -- COMMAND [ARGUMENT...]
# Counters of the CUDA kernels of the production server answering one request, or of COMMAND, by NVIDIA Nsight Compute.
# Kernels are replayed to be counted, so times seen from outside mean nothing. What was traced, digests, driver, clocks and
# set stand beside the report in OUTPUT.ncu-rep.json. For candidates that cleared the 3 % threshold.
#   GEM_NCU               another ncu; default: the one in PATH or under /usr/local/cuda
#   GEM_NCU_SET           sections; default: full
#   GEM_NCU_CLOCKS        none (default: clocks as they are) or base (held down while counting)
#   GEM_NCU_LAUNCH_SKIP, GEM_NCU_LAUNCH_COUNT   kernels left out first, and counted; default 200 and 200
#   GEM_MODEL_SHA256      a digest that was verified before
#   GEM_PROFILE_PORT, GEM_PROFILE_PROMPT   of the server's one request; default 18080 and a short question
# Exit: 0 traced, 1 the traced command or the request failed, 2 usage, 3 no Nsight Compute, no GPU or no such file.
# shellcheck disable=SC2154 # lib-gate.sh sets them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=scripts/lib.sh disable=SC1091
. "$here/lib.sh"
# shellcheck source=scripts/lib-gate.sh disable=SC1091
. "$here/lib-gate.sh"

case ${1:-} in -h | --help) script_help "$0" ;; esac
# shellcheck disable=SC2034 # profile_arguments takes it
profile_backend=(--backend cuda)
profile_arguments ncu-rep "$@"
ncu=${GEM_NCU:-$(command -v ncu || true)}
for file in /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do
    if [ -z "$ncu" ] && [ -x "$file" ]; then ncu=$file; fi
done
[ -n "$ncu" ] && [ -x "$ncu" ] || die 3 "Nsight Compute (ncu) is not installed here"
nvidia-smi -L >/dev/null 2>&1 || die 3 "no NVIDIA GPU answers here"
skip=${GEM_NCU_LAUNCH_SKIP:-200} count=${GEM_NCU_LAUNCH_COUNT:-200} set_=${GEM_NCU_SET:-full} clocks=${GEM_NCU_CLOCKS:-none}
[[ $skip =~ ^[0-9]{1,9}$ ]] || die 2 "GEM_NCU_LAUNCH_SKIP is '$skip', expected a count"
need_count GEM_NCU_LAUNCH_COUNT "$count"

profile_begin
code=0
traced "$ncu" --set "$set_" --clock-control "$clocks" --target-processes all --launch-skip "$skip" --launch-count "$count" --force-overwrite \
    --export "$part/trace" || code=$?
if [ ! -e "$part/trace" ] && [ -e "$part/trace.ncu-rep" ]; then mv "$part/trace.ncu-rep" "$part/trace"; fi
profile_end "$code" tool=ncu "set=$set_" "clock_control=$clocks" "launch_skip:=$skip" "launch_count:=$count" \
    "tool_version=$("$ncu" --version | tail -n 1)" \
    "device=$(nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw --format=csv,noheader | tr '\n' ';')"
