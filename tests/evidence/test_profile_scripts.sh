#!/usr/bin/env bash
# profile-metal.sh and profile-cuda.sh: where the tools are not, one sentence and 3; with stand-ins for them, a trace and
# what it is of, for a command and for a server.
set -euo pipefail
src=$1 bin=$2
tmp=$(mktemp -d)
# shellcheck source=tests/scripts/check.sh disable=SC1091
. "$src/tests/scripts/check.sh"
# shellcheck source=tests/evidence/gate/gate.sh disable=SC1091
. "$src/tests/evidence/gate/gate.sh"
: "${bin:?}" "${port:?}"
s=$src/scripts
export GEM_PROFILE_PORT=$port
if [ "$(uname -s)" != Darwin ]; then
    expect 3 "no macOS" "$s/profile-metal.sh" "$tmp/t.trace" -- true
    same "one sentence" "$(wc -l <"$tmp/err")" 1
fi
if [ ! -x /usr/local/cuda/bin/ncu ] && ! command -v ncu >/dev/null && ! compgen -G '/opt/nvidia/nsight-compute/*/ncu' >/dev/null; then
    expect 3 "no Nsight Compute" "$s/profile-cuda.sh" "$tmp/t.ncu-rep" -- true
    has "one sentence" "$tmp/err" "Nsight Compute (ncu) is not installed here"
fi
expect 2 "no arguments" "$s/profile-cuda.sh"
expect 2 "another ending" "$s/profile-cuda.sh" "$tmp/t.trace" -- true

# stand-ins: a Mac with two Xcodes, of which the active folder has none; and an NVIDIA machine
mkdir -p "$tmp/path" "$tmp/Applications/Xcode-beta.app/Contents/Developer/usr/bin"
cat >"$tmp/path/uname" <<'SH'
#!/bin/sh
echo Darwin
SH
cat >"$tmp/path/xcrun" <<'SH'
#!/usr/bin/env bash
if [ "$1" = --find ]; then [ -n "${DEVELOPER_DIR:-}" ]; exit; fi
shift 2
while [ "$1" != --launch ]; do [ "$1" != --output ] || out=$2; printf '%s ' "$1" >>"$SEEN"; shift; done
shift 2
echo trace >"$out"
"$@"
SH
cat >"$tmp/path/nvidia-smi" <<'SH'
#!/bin/sh
echo "NVIDIA Stand-in, 1.0"
SH
cat >"$tmp/path/ncu" <<'SH'
#!/usr/bin/env bash
if [ "$1" = --version ]; then echo "Version 1"; exit; fi
while [[ $1 == --* ]]; do
    printf '%s ' "$1" >>"$SEEN"
    case $1 in --export) out=$2 ;; --force-overwrite) shift; continue ;; esac
    shift 2
done
echo report >"$out.ncu-rep"
"$@"
SH
cp "$tmp/path/xcrun" "$tmp/Applications/Xcode-beta.app/Contents/Developer/usr/bin/xctrace"
chmod +x "$tmp/path"/* "$tmp/Applications/Xcode-beta.app/Contents/Developer/usr/bin/xctrace"
export SEEN=$tmp/seen GEM_APPLICATIONS=$tmp/Applications PATH=$tmp/path:$PATH
unset DEVELOPER_DIR
GEM_XCTRACE_INSTRUMENT='Metal GPU Counters' expect 0 "a command on a Mac" "$s/profile-metal.sh" "$tmp/a/candidate.trace" -- sh -c 'echo hello'
same "what it is of" "$(jq -c '[.tool, .template, .instrument, .command, .exit, .benchmark, (.program_sha256 | length)]' "$tmp/a/candidate.trace.json")" \
    '["xctrace","Metal System Trace","Metal GPU Counters","sh -c echo hello",0,false,64]'
has "the installed Xcode" "$tmp/a/candidate.trace.json" Xcode-beta.app
has "the instrument was asked for" "$tmp/seen" "--instrument"
GEM_XCTRACE_TEMPLATE='Game Performance' expect 0 "the production server" "$s/profile-metal.sh" "$tmp/gem" "$tmp/model.gguf" "$tmp/a/production.trace"
same "what it is of" "$(jq -c '[.template, .model_sha256 == "'"$(sha256sum "$tmp/model.gguf" | cut -d' ' -f1)"'"]' "$tmp/a/production.trace.json")" '["Game Performance",true]'
holds "no server is left" until_there 60 silent
expect 1 "a trace is written once" "$s/profile-metal.sh" "$tmp/a/candidate.trace" -- true
same "why" "$(rules)" dirty
expect 1 "a command that fails" "$s/profile-metal.sh" "$tmp/a/failed.trace" -- sh -c 'exit 9'
same "its exit is kept" "$(jq .exit "$tmp/a/failed.trace.json")" 9
rm -r "$tmp/Applications"
expect 3 "no Xcode" "$s/profile-metal.sh" "$tmp/a/none.trace" -- true

GEM_NCU_LAUNCH_COUNT=3 expect 0 "a command on a GPU" "$s/profile-cuda.sh" "$tmp/b/candidate.ncu-rep" -- sh -c 'echo hello'
same "what it is of" "$(jq -c '[.tool, .set, .clock_control, .launch_skip, .launch_count, .device]' "$tmp/b/candidate.ncu-rep.json")" '["ncu","full","none",200,3,"NVIDIA Stand-in, 1.0;"]'
expect 0 "the production server" "$s/profile-cuda.sh" "$tmp/gem" "$tmp/model.gguf" "$tmp/b/production.ncu-rep"
has "the server runs on the GPU" "$tmp/b/production.ncu-rep.json" "--backend cuda"
holds "no server is left" until_there 60 silent
same "nothing hidden is left" "$(find "$tmp/a" "$tmp/b" -name '.*')" ''
finish
