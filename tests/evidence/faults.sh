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
# named, in the report and on stderr.
breaks() {
    local rules=$1 file=$2 filter=$3 name args=() rule
    shift 3
    mkdir -p "$tmp/broken"
    rm -f "$tmp/report.json"
    for name in "${inputs[@]}"; do
        if [ "$name" = "$file" ]; then
            jq "$library $filter" "$tmp/$name" >"$tmp/broken/$name" || { fail "$rules: the filter"; return; }
            if cmp -s "$tmp/$name" "$tmp/broken/$name"; then fail "$rules: '$filter' changes nothing"; fi
            args+=("$tmp/broken/$name")
        else
            args+=("$tmp/$name")
        fi
    done
    expect 1 "$rules by $filter" "${judge[@]}" "$@" "${args[@]}" "$tmp/report.json"
    if jq -e --arg rules "$rules" '.verdict == "refuse" and (.failed_rules | sort) == ($rules / "," | sort)' \
        "$tmp/report.json" >/dev/null; then
        ok
    else
        fail "$filter breaks $(jq -c .failed_rules "$tmp/report.json"), expected $rules"
    fi
    for rule in ${rules//,/ }; do has "stderr of $filter" "$tmp/err" "refused: $rule: "; done
}
library=
