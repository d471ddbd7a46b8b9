# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with those that source this
# gate.sh - server gates without a model: the runner's programs are the real ones but for gem itself and gem-tokenize,
# which are fake-gem. Source it behind check.sh with $src and $bin set.
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }
command -v curl >/dev/null || { echo "curl is not installed"; exit 77; }
[ "${BASH_VERSINFO[0]}" -ge 5 ] || { echo "bash 5 is needed"; exit 77; }
here=$src/tests/evidence
# shellcheck disable=SC2154
python=$(python3 -c 'import sys; print(sys.executable)') || { echo "python3 is not installed"; exit 77; }
fake() { { printf '#!%s -SE\n' "$python"; tail -n +2 "$here/gate/fake-gem"; } >"$tmp/gem"; } # no wrapper: it starts often
fake
chmod +x "$tmp/gem"
ln -s gem "$tmp/gem-tokenize"
cat >"$tmp/host-state" <<SH
#!/usr/bin/env bash
host=\${FAKE_HOST:-macos-clean}
[ ! -e "$tmp/host" ] || host=\$(cat "$tmp/host")
exec "$bin/gem-host-state" --recorded "$here/host/\$host" --platform macos "\$@"
SH
chmod +x "$tmp/host-state"
export GEM=$tmp/gem GEM_TOKENIZE=$tmp/gem-tokenize GEM_HOST_STATE=$tmp/host-state GEM_ANALYZE=$bin/gem-analyze \
    GEM_TETHER=$bin/gem-tether
unset GEM_API_KEY GEM_GATE_RESUME GEM_MODEL_SHA256 GEM_PREFIX_EXTENSION_TEXT GEM_STREAM_MAX_TOKENS GEM_KV_TYPE
echo GGUF >"$tmp/model.gguf"
printf 'a long prompt %.0s' {1..40} >"$tmp/prompt.txt"
# a port of this test's own: by its process, and below those that the system gives to clients; nobody listens there now
port=$((16384 + $$ * 7 % 16384))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done

# background COMMAND...: with signals as a terminal would give them; its pid in $run.
background() {
    set -m
    "$@" >"$tmp/bg.out" 2>"$tmp/bg.err" </dev/null &
    run=$!
    set +m
}
# until_there SECONDS COMMAND...: wait for it to hold.
until_there() {
    local n=$(($1 * 20))
    shift
    while ! "$@"; do
        n=$((n - 1))
        [ "$n" -gt 0 ] || return 1
        sleep 0.05
    done
}
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
silent() { ! listening; }
# ended_by SIGNAL: $run is sent it and waited for, its exit in $code. False: it had come to its own end before.
ended_by() {
    code=0
    kill -"$1" "$run" 2>/dev/null || true
    wait "$run" 2>/dev/null || code=$?
    [ "$code" -ne 0 ]
}
# stopped WHAT DIR SIGNAL: $code is that of a run that was sent it; nothing of it is left, and nothing half written has a
# final name.
stopped() {
    local file
    case $3 in
    KILL) same "$1: exit" "$code" 137 ;;
    INT) same "$1: exit" "$code" 130 ;;
    TERM) same "$1: exit" "$code" 143 ;;
    esac
    holds "$1: no server is left" until_there 60 silent
    for file in "$2"/*.json; do
        [ ! -e "$file" ] || holds "$1: ${file##*/} is whole" jq -e . "$file" >/dev/null
    done
    for file in "$2"/*.sse; do
        [ ! -e "$file" ] || same "$1: ${file##*/} has its end" "$(grep -c '^data: \[DONE\]' "$file")" 1
    done
    [ "$3" = KILL ] || holds "$1: nothing hidden is left" test -z "$(find "$2" -name '.*' ! -path "$2" 2>/dev/null)"
}
# flip FILE AT: one bit of that byte.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N1 "$1" | tr -d ' ')
    # shellcheck disable=SC2059 # an octal escape
    printf "\\$(printf '%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# mutations DIR COMMAND...: a bit of every file is flipped, in the middle and at the end (GEM_MUTATE_ALL=1: of every
# byte, some minutes); the command must fail each time, and hold when all is put back.
mutations() {
    local folder=$1 file size at missed=0 n=0
    shift
    if [ "${GEM_MUTATE_ALL:-0}" = 1 ]; then
        expect 0 "every byte of $folder" python3 "$src/tests/evidence/gate/mutate.py" "$folder" "$@"
        cat "$tmp/out"
        return
    fi
    while IFS= read -r file; do
        size=$(wc -c <"$file")
        [ "$size" -gt 0 ] || continue
        cp "$file" "$tmp/kept"
        for at in $((size / 2)) $((size - 1)); do
            flip "$file" "$at"
            code=0
            "$@" >/dev/null 2>&1 || code=$?
            n=$((n + 1))
            [ "$code" -ne 0 ] || { missed=$((missed + 1)); fail "byte $at of ${file##*/} was changed unseen"; }
            cp "$tmp/kept" "$file"
        done
    done < <(find "$folder" -type f | sort)
    same "bytes that changed unseen, of $n" "$missed" 0
    expect 0 "put back" "$@"
}
# rules: the rules named on stderr, sorted.
rules() { sed -n 's/^refused: \([a-z0-9-]*\):.*/\1/p' "$tmp/err" | sort -u | paste -sd, -; }
