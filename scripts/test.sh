#!/usr/bin/env bash
# All tests of `make test`. A test that fails runs once more, by itself; one that then passes is
# flaky: it is printed, kept in docs/lab/flaky.md, and does not make the run fail.
#   WORKERS=3 scripts/test.sh
set -uo pipefail
cd "$(dirname "$0")/.."
workers=${WORKERS:-$(($(nproc) + 1))}
build=build/release
reports=$PWD/build/reports
mkdir -p "$reports"
rm -f "$reports"/{ctest,pytest}{,-again}.xml

# Tests start programs that compute. Whatever else this machine does goes first.
(($(nice) >= 5)) || renice -n 5 $$ >/dev/null

ctest --test-dir "$build" -j "$workers" --timeout 240 --output-on-failure --no-tests=error \
  --output-junit "$reports/ctest.xml" ||
  ctest --test-dir "$build" -j 1 --timeout 240 --output-on-failure --rerun-failed \
    --output-junit "$reports/ctest-again.xml"

unset PYTHONDONTWRITEBYTECODE
pytest=(.venv/bin/python -m pytest)
"${pytest[@]}" -n "$workers" --dist worksteal --durations 15 --junitxml "$reports/pytest.xml" ||
  "${pytest[@]}" --last-failed --last-failed-no-failures none --junitxml "$reports/pytest-again.xml"

again=()
for report in "$reports"/{ctest,pytest}-again.xml; do
  [ ! -e "$report" ] || again+=(--again "$report")
done
python3 scripts/tally.py "${again[@]}" --flaky docs/lab/flaky.md "$reports"/{ctest,pytest}.xml
