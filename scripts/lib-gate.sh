# shellcheck shell=bash
# lib-gate.sh - what the gates share: one folder, one run at a time, children that end with it. Source it behind
# lib.sh; it starts nothing. The caller sets `here`. Everything is made in $part, a hidden folder inside the gate's
# own, and reaches its final name by a rename.

# shellcheck disable=SC2034 # used by those that source this
gem=${GEM:-} tokenize=${GEM_TOKENIZE:-} tether=${GEM_TETHER:-} host_state=${GEM_HOST_STATE:-}

# refuse RULE TEXT...: a check of the gate's own does not hold.
refuse() { local rule=$1; shift; printf 'refused: %s: %s\n' "$rule" "$*" >&2; exit 1; }
# say_running TEXT...: progress, with the time since the start.
say_running() { say "$((SECONDS / 60))m$(printf '%02d' $((SECONDS % 60)))s: $*"; }

sha256() { # sha256 FILE
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}
# need_program VARIABLE NAME: $VARIABLE, or build/NAME; sets VARIABLE.
need_program() {
    local value=${!1:-$here/../build/$2}
    [ -x "$value" ] || die 3 "$value is missing: build gem first"
    printf -v "$1" '%s' "$value"
}
need_count() { # need_count NAME VALUE
    [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || die 2 "$1 is '$2', expected a count"
}
need_positive() {
    if ! [[ $2 =~ ^[0-9]+(\.[0-9]+)?$ ]] || [[ $2 =~ ^0+(\.0+)?$ ]]; then die 2 "$1 is '$2', expected a number above zero"; fi
}
# need_digest NAME VALUE: VALUE is 64 lower-case hexadecimal digits.
need_digest() { [[ $2 =~ ^[0-9a-f]{64}$ ]] || die 2 "$1 is '$2', expected 64 lower-case hexadecimal digits"; }
need_tools() {
    local tool
    [ "${BASH_VERSINFO[0]}" -ge 5 ] || die 3 "bash 5 is needed"
    for tool; do command -v "$tool" >/dev/null || die 3 "$tool is needed"; done
}

# ---- the folder ----
dir='' part='' children=() server=''
# gate_open DIR RESUME NAME...: take the folder. Without resume it must be new or empty; with it, it must hold a
# run that was begun and not sealed, and no file but NAMEs (patterns). One run at a time.
gate_open() {
    local resume=$2 file base pattern known old
    dir=$1
    shift 2
    [ ! -e "$dir" ] || [ -d "$dir" ] || die 2 "$dir is no folder"
    mkdir -p "$dir" || die 4 "$dir cannot be made"
    [ ! -e "$dir/MANIFEST.sha256" ] || refuse sealed "$dir holds a finished run"
    trap gate_cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    if ! (set -C && echo "$$" >"$dir/.gate-lock") 2>/dev/null; then
        old=$(cat "$dir/.gate-lock" 2>/dev/null || true)
        if [[ $old =~ ^[0-9]+$ ]] && kill -0 "$old" 2>/dev/null; then refuse locked "run $old is at work in $dir"; fi
        rm -f "$dir/.gate-lock"
        (set -C && echo "$$" >"$dir/.gate-lock") 2>/dev/null || refuse locked "another run took $dir"
    fi
    for file in "$dir"/* "$dir"/.[!.]*; do
        [ -e "$file" ] || continue
        base=${file##*/}
        case $base in .gate-lock) continue ;; .part.*) rm -rf "$file"; continue ;; esac
        [ "$resume" = 1 ] || refuse dirty "$dir is not empty; GEM_GATE_RESUME=1 goes on with a run where the gate can"
        known=0
        for pattern; do
            # shellcheck disable=SC2254 # a pattern
            case $base in $pattern) known=1 ;; esac
        done
        [ "$known" -eq 1 ] && [ -f "$file" ] && [ ! -L "$file" ] || refuse dirty "$base is no file of this gate"
    done
    part=$dir/.part.$$.$RANDOM
    mkdir "$part"
}
gate_cleanup() {
    local pid
    [ "$BASHPID" = "$$" ] || return 0 # a child that was ended before it became its program
    trap '' INT TERM HUP
    for pid in ${children[@]+"${children[@]}"}; do kill "$pid" 2>/dev/null || true; done
    if [ -n "$server" ]; then end_server now; fi
    if [ -n "$part" ]; then rm -rf "$part"; fi
    if [ -n "$dir" ] && [ "$(cat "$dir/.gate-lock" 2>/dev/null)" = "$$" ]; then rm -f "$dir/.gate-lock"; fi
}
# keep NAME...: files of $part under their final names, in this order.
keep() { local name; for name; do mv "$part/$name" "$dir/$name"; done; }
# gate_seal: close the folder.
gate_seal() {
    rm -rf "$part" "$dir/.gate-lock"
    part=''
    gem_analyze seal "$dir"
}

# ---- the server ----
free_port() { # refuse when somebody answers there
    need_count PORT "$1"
    [ "$1" -le 65535 ] || die 2 "port $1 is above 65535"
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then refuse port "127.0.0.1:$1 is taken"; fi
}
# start_server LOG PORT ARGUMENT...: gem serve, tied to this script; $server is its pid's keeper.
start_server() {
    local log=$1 port=$2 waited=0
    shift 2
    free_port "$port"
    "$tether" --starter "$$" -- "$gem" serve "$@" --host 127.0.0.1 --port "$port" </dev/null 2>"$log" >/dev/null &
    server=$!
    stay_awake "$server"
    while ! [ "$(health "$port")" = 200 ]; do
        if ! kill -0 "$server" 2>/dev/null; then
            tail -n 3 "$log" >&2
            server=''
            if grep -qsiE 'in use|bind' "$log"; then refuse port "127.0.0.1:$port is taken"; fi
            die 3 "the server did not start"
        fi
        pause 0.1
        waited=$((waited + 1))
        [ $((waited % 300)) -ne 0 ] || say_running "waiting for the model to be loaded"
    done
}
health() { curl -s -o /dev/null -m "${2:-5}" -w '%{http_code}' "http://127.0.0.1:$1/health" 2>/dev/null || true; }
# pause SECONDS: sleep so that a signal is answered at once.
pause() { sleep "$1" & wait "$!" || true; }
end_server() { # end_server [now]: it has nothing left to do, or is told twice
    local n=0
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    if [ "${1:-}" = now ]; then sleep 0.3; kill "$server" 2>/dev/null || true; fi
    while kill -0 "$server" 2>/dev/null; do
        n=$((n + 1))
        [ "$n" -lt 300 ] || kill "$server" 2>/dev/null || true
        sleep 0.05
    done
    wait "$server" 2>/dev/null || true
    server=''
}
# idle_assertion: how this machine can be kept awake.
idle_assertion() {
    if command -v caffeinate >/dev/null; then
        echo 'caffeinate -i -w'
    elif command -v systemd-inhibit >/dev/null && systemd-inhibit --what=idle:sleep true 2>/dev/null; then
        echo 'systemd-inhibit --what=idle:sleep'
    else
        echo none
    fi
}
awake=${awake:-}
stay_awake() { # stay_awake PID: until that process ends
    case $awake in
    caffeinate*) caffeinate -i -w "$1" & ;;
    systemd-inhibit*) systemd-inhibit --what=idle:sleep --who=gem --why="a gate measures" tail --pid="$1" -f /dev/null & ;;
    esac
}
forget() { # forget PID: it has ended
    local pid rest=()
    for pid in ${children[@]+"${children[@]}"}; do [ "$pid" = "$1" ] || rest+=("$pid"); done
    children=(${rest[@]+"${rest[@]}"})
}
# run_child COMMAND...: in the background, so that a signal ends this script at once. Its status.
run_child() {
    local pid code=0
    "$@" &
    pid=$!
    children+=("$pid")
    wait "$pid" || code=$?
    forget "$pid"
    return "$code"
}

# ---- the host ----
host_policy_arguments() { # the recorded policy as members of a document
    printf '%s\n' "host_policy.preflight_min_tokens:=$least" "host_policy.max_load_per_cpu:=$max_load" \
        "host_policy.max_short_window_busy_cpu_percent:=$max_busy" "host_policy.monitor_seconds:=$interval" \
        "host_policy.monitor_failures:=$failures" "host_policy.idle_assertion=$awake"
}
read_host_policy() {
    least=${GEM_GATE_PREFLIGHT_MIN_TOKENS:-65536} max_load=${GEM_GATE_MAX_LOAD_PER_CPU:-1.0}
    max_busy=${GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT:-10} interval=${GEM_GATE_HOST_MONITOR_SECONDS:-30}
    failures=${GEM_GATE_HOST_MONITOR_FAILURES:-3}
    need_count GEM_GATE_PREFLIGHT_MIN_TOKENS "$least"
    need_positive GEM_GATE_MAX_LOAD_PER_CPU "$max_load"
    need_positive GEM_GATE_MAX_SHORT_WINDOW_BUSY_CPU_PERCENT "$max_busy"
    need_count GEM_GATE_HOST_MONITOR_SECONDS "$interval"
    need_count GEM_GATE_HOST_MONITOR_FAILURES "$failures"
    awake=$(idle_assertion)
    awake=${awake:-none}
}
host_snapshot() { # host_snapshot OPTION...: judged by the policy; refusals on stderr
    "$host_state" --check --max-load-per-cpu "$max_load" --max-busy-percent "$max_busy" "$@"
}
# preflight FILE: a receipt of the host before a measurement; its refusals on stderr, its status 1 then.
preflight() {
    local code=0
    host_snapshot >"$1" || code=$?
    [ "$code" -le 1 ] || die 4 "a snapshot of the host failed"
    return "$code"
}
# monitor FILE: snapshots while the measured work runs, until this script or the monitored process ends; after
# $failures violations in a row it writes $part/abort and ends the server or the child.
monitor() {
    local streak=0 code next=$SECONDS line
    while :; do
        code=0 next=$((next + interval)) # by the clock: a snapshot takes its time as well
        line=$(host_snapshot --at-work --compact 2>"$part/why") || code=$?
        [ -z "$line" ] || printf '%s\n' "$line" >>"$1" # whole, and never behind the end of this
        [ "$code" -eq 1 ] && streak=$((streak + 1)) || streak=0
        if [ "$code" -gt 1 ]; then echo "refused: host-monitor: a snapshot failed" >"$part/why"; fi
        if [ "$code" -gt 1 ] || [ "$streak" -ge "$failures" ]; then
            mv "$part/why" "$part/abort"
            if [ "$2" = "$$" ]; then kill -USR1 "$$"; return 0; fi
            kill "$2" 2>/dev/null || true
            sleep 0.3
            kill "$2" 2>/dev/null || true # at once, whatever is running
            return 0
        fi
        while [ "$SECONDS" -lt "$next" ]; do
            sleep 1
            kill -0 "$$" 2>/dev/null && kill -0 "$2" 2>/dev/null && [ -d "$part" ] || return 0
        done
    done
}
# first_snapshot FILE PID: the monitor has looked once, before what is measured begins.
first_snapshot() { while [ ! -s "$1" ] && kill -0 "$2" 2>/dev/null; do pause 0.05; done; }
# aborted: the monitor ended the work; says which rules were broken.
aborted() {
    [ -e "$part/abort" ] || return 1
    cat "$part/abort" >&2
    say "$failures snapshots in a row broke the host policy"
}

# ---- operator gates ----
backend=() # arguments of the measured programs
[ -z "${GEM_GATE_BACKEND:-}" ] || backend=(--backend "$GEM_GATE_BACKEND")
# freeze SCHEMA VERSION PROGRAM_PATH... -- MEMBER...: digests of programs, sources and linkage, then the configuration.
freeze() {
    local schema=$1 version=$2 program programs=() root=$here/.. source
    shift 2
    while [ "$1" != -- ]; do programs+=("$1"); shift; done
    shift
    : >"$part/linkage.txt"
    for program in "${programs[@]}"; do
        printf '%s  %s\n' "$(sha256 "$program")" "${program##*/}" >>"$part/live-binary-sha256.txt"
        { echo "${program##*/}:"; linkage_of "$program"; } >>"$part/linkage.txt"
    done
    [ -d "$root/src" ] || die 3 "$root holds no sources whose digest could be kept"
    (cd "$root" && find src include CMakeLists.txt -type f -print0 | LC_ALL=C sort -z |
        if command -v sha256sum >/dev/null; then xargs -0 sha256sum; else xargs -0 shasum -a 256; fi) >"$part/sources"
    source=$(sha256 "$part/sources")
    rm "$part/sources"
    mapfile -t policy < <(host_policy_arguments)
    gem_analyze document "$part/gate-config.json" "schema=$schema" "schema_version:=$version" "source_sha256=$source" \
        "linkage_sha256=$(sha256 "$part/linkage.txt")" "$@" "${policy[@]}"
}
linkage_of() { # without the addresses, which differ in every run
    if command -v otool >/dev/null; then otool -L "$1" | tail -n +2; else ldd "$1" 2>/dev/null | sed 's/ (0x[0-9a-f]*)$//' || echo static; fi
}
# still_frozen PROGRAM...: none was changed since.
still_frozen() {
    local program
    for program; do
        grep -qF "$(sha256 "$program")  ${program##*/}" "$part/live-binary-sha256.txt" || refuse binary "${program##*/} was changed since the run began"
    done
}
# model_identity MODEL: sets model_sha.
model_identity() {
    model_sha=${GEM_MODEL_SHA256:-}
    [ -z "$model_sha" ] || return 0
    say_running "reading the model for its digest"
    model_sha=$(sha256 "$1")
}
watcher=''
# watch SUFFIX: preflight, then the monitor beside what follows. unwatch SUFFIX: its end, then the postflight.
watch() {
    preflight "$part/host-preflight$1.json" || exit 1
    trap 'aborted && refused' USR1 # from the monitor
    monitor "$part/host-monitor$1.ndjson" "$$" &
    watcher=$!
    children+=("$watcher")
    first_snapshot "$part/host-monitor$1.ndjson" "$watcher"
}
unwatch() {
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    forget "$watcher"
    watcher=''
    rm -f "$part/why"
    preflight "$part/host-postflight$1.json" || { say "the host did not pass behind the measurement"; refused; }
}
# measure OUT COMMAND...: a tool's record; its status 1 (checked and it does not hold) is the judge's business.
measure() {
    local out=$1 code=0
    shift
    run_child "$tether" --starter "$$" -- "$@" >"$part/$out" || code=$?
    [ "$code" -le 1 ] || die "$([ "$code" -eq 3 ] && echo 3 || echo 4)" "$(basename "$1") failed ($code)"
}
# refused: what was seen stays below refused/, and the folder is not used again.
refused() {
    local pid
    for pid in ${children[@]+"${children[@]}"}; do kill "$pid" 2>/dev/null || true; done
    mv "$part" "$dir/refused"
    part=''
    exit 1
}
# conclude JUDGE [OPTION...]: the report over what lies in $part; kept and sealed when it holds.
conclude() {
    local code=0 files
    gem_analyze "$@" "$part" "$part/summary.json" || code=$?
    [ "$code" -le 1 ] || die 4 "gem-analyze failed"
    [ "$code" -eq 0 ] || refused
    mapfile -t files < <(cd "$part" && find . -type f ! -name summary.json | sed 's/^\.\///')
    keep "${files[@]}" summary.json
    gate_seal
    say_running "$(jq -r .verdict "$dir/summary.json"): $dir/summary.json"
}
# receipt OUT PROGRAM REASON: what a program that only some platforms have says, or why it says nothing.
receipt() {
    local code=0
    if [ -x "$2" ]; then "$2" >"$part/$1" 2>"$part/why" || code=$?; else echo "$3" >"$part/why"; code=3; fi
    if [ "$code" -ne 0 ]; then
        gem_analyze document "$part/$1" schema=gem-gate-receipt/1 available:=false "reason=$(head -n 1 "$part/why")"
    fi
    rm -f "$part/why"
}
now_utc() { date -u +%Y-%m-%dT%H:%M:%SZ; }

# ---- profiles ----
# profile_arguments ENDING ARGUMENT...: both forms of a profile-*.sh. Sets output, model and subject (the command to trace;
# for a server everything but its port). profile_backend: further arguments of the server, set before.
profile_arguments() {
    local ending=$1
    shift
    model=''
    if [ $# -ge 3 ] && [ "$2" = -- ]; then
        output=$1
        shift 2
        subject=("$@")
    elif [ $# -eq 3 ]; then
        output=$3 model=$2 profile_port=${GEM_PROFILE_PORT:-18080}
        need_count GEM_PROFILE_PORT "$profile_port"
        subject=("$1" serve "$2" --host 127.0.0.1 --port "$profile_port" --context 16384
            ${profile_backend[@]+"${profile_backend[@]}"})
    else
        die 2 "BINARY MODEL OUTPUT.$ending, or OUTPUT.$ending -- COMMAND..., is needed; see --help"
    fi
    case $output in *."$ending") ;; *) die 2 "'$output' does not end in .$ending" ;; esac
}
profile_begin() { # checks what is to be traced; makes $part beside the output
    command -v "${subject[0]}" >/dev/null || die 3 "${subject[0]}: no such program"
    [ -z "$model" ] || [ -f "$model" ] || die 3 "$model: no such model"
    [ ! -e "$output" ] && [ ! -e "$output.json" ] || refuse dirty "$output exists"
    need_program tether gem-tether
    model_sha=''
    [ -z "$model" ] || model_identity "$model"
    mkdir -p "$(dirname "$output")"
    part=$(dirname "$output")/.part.$$.$RANDOM
    mkdir "$part"
    trap gate_cleanup EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    started=$(now_utc)
}
# traced TRACER...: the tracer with the subject behind it; a server gets its one request and is ended.
traced() {
    local code=0 n=0
    if [ -z "$model" ]; then
        run_child "$tether" --starter "$$" -- "$@" "${subject[@]}" >&2 || code=$?
        return "$code"
    fi
    free_port "$profile_port"
    "$tether" --starter "$$" -- "$@" "${subject[@]}" >&2 </dev/null &
    server=$!
    while [ "$(health "$profile_port")" != 200 ]; do
        kill -0 "$server" 2>/dev/null || { wait "$server" || code=$?; server=''; return $((code ? code : 1)); }
        pause 0.2
        n=$((n + 1))
        [ $((n % 100)) -ne 0 ] || say_running "waiting for the model to be loaded"
    done
    printf '%s' "${GEM_PROFILE_PROMPT:-Write one sentence about the sea.}" >"$part/prompt"
    GEM_STREAM_MAX_TOKENS=64 run_child "$here/server-probe.sh" "http://127.0.0.1:$profile_port" "${model##*/}" "$part/prompt" "$part/request.json" || code=$?
    # the server itself ends by SIGTERM, so that the tracer finishes its file
    kill "$(child_of "$(child_of "$server")")" 2>/dev/null || kill "$server" 2>/dev/null || true
    wait "$server" || true
    server=''
    return "$code"
}
child_of() { # the first child; the tracer below the tether, the server below the tracer. Else the process itself.
    local pid
    pid=$(ps -A -o pid= -o ppid= | awk -v p="$1" '$2 == p { print $1; exit }')
    echo "${pid:-$1}"
}
# profile_end CODE MEMBER...: the trace under its name, and what it is of beside it.
profile_end() {
    local code=$1 commit
    shift
    [ -e "$part/trace" ] || { say "no trace was written"; [ "$code" -ne 0 ] || code=1; exit 1; }
    commit=$("$here/../build/gem" --version 2>/dev/null || true)
    gem_analyze document "$part/about.json" schema=gem-profile/1 "started=$started" "command=${subject[*]}" \
        "program_sha256=$(sha256 "$(command -v "${subject[0]}")")" "model=$model" "model_sha256=$model_sha" "gem=$commit" \
        "exit:=$code" "benchmark:=false" "$@"
    mv "$part/trace" "$output"
    mv "$part/about.json" "$output.json"
    [ "$code" -eq 0 ] || die 1 "what was traced ended with $code; the trace is kept"
    say_running "traced: $output"
}
