# shellcheck shell=bash
# faults.sh - fault injection for analyzers. Source it behind check.sh; set `judge` (the command, as an
# array) and `inputs` (names of good files in $tmp).
command -v jq >/dev/null || { echo "jq is not installed"; exit 77; }

# passes WHAT [OPTION...]: the good inputs as they are. The report is in $tmp/report.json.
# shellcheck disable=SC2154
passes() {
    local what=$1
    shift
    rm -f "$tmp/report.json"
    expect 0 "$what" "${judge[@]}" "$@" "${inputs[@]/#/$tmp/}" "$tmp/report.json"
}

# breaks RULE[,RULE...] FILE FILTER [OPTION...]: FILE changed by a jq filter; exactly these rules must be
# named on stderr (which repeats the report's failed checks; `passes` and the tests read the report itself).
breaks() {
    local rules=$1 file=$2 filter=$3 name args=() code=0 line rule named=""
    shift 3
    for name in "${inputs[@]}"; do
        if [ "$name" = "$file" ]; then
            args+=("$tmp/broken/$name")
        else
            args+=("$tmp/$name")
        fi
    done
    mkdir -p "$tmp/broken"
    jq "$library $filter" "$tmp/$file" >"$tmp/broken/$file" || { fail "$rules: the filter"; return; }
    if cmp -s "$tmp/$file" "$tmp/broken/$file"; then fail "$rules: '$filter' changes nothing"; fi
    "${judge[@]}" "$@" "${args[@]}" "$tmp/report.json" >"$tmp/out" 2>"$tmp/err" </dev/null || code=$?
    while IFS= read -r line; do
        case $line in "refused: "*) ;; *) continue ;; esac
        rule=${line#refused: }
        rule=${rule%%:*}
        case ,$named, in *,"$rule",*) ;; *) named=$named${named:+,}$rule ;; esac
    done <"$tmp/err"
    for rule in ${rules//,/ }; do
        case ,$named, in *,"$rule",*) ;; *) code=missing ;; esac
    done
    if [ "$code" = 1 ] && [ ${#named} -eq ${#rules} ]; then
        ok
    else
        fail "$filter: exit $code, breaks $named, expected $rules"
    fi
}
library=
