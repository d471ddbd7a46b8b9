#!/usr/bin/env bash
# run.sh BUILD_DIR TEST_FILE: one file of server tests. Exit 77 when Python, pytest or openai is missing.
# $GEM_TEST_PYTHON names another interpreter; GEM_TEST_SHORT=1 leaves out the tests marked long, and half the damages to disk caches.
set -euo pipefail
bin=$1
file=$2
python=${GEM_TEST_PYTHON:-python3}
if ! "$python" -c 'import pytest, openai' 2>/dev/null; then
    echo "skipped: $python has no pytest or no openai (pip install pytest openai)"
    exit 77
fi
export GEM_BIN_DIR=$bin PYTHONDONTWRITEBYTECODE=1
unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy GEM_API_KEY
select=()
[ "${GEM_TEST_SHORT:-}" != 1 ] || select=(-m "not long")
code=0
"$python" -m pytest -q -p no:cacheprovider ${select[@]+"${select[@]}"} "$file" || code=$?
[ "$code" -ne 5 ] || code=77 # nothing was collected
exit "$code"
