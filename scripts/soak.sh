#!/bin/sh
# What chance finds, given time: libFuzzer on every target of tests/fuzz, then long runs and runs with faults (tests/faults). In between
# 3 GB through a stage of 256 MiB by each policy (tests/shows/test_full_stage.py), and the tests that `make test` leaves out, some minutes.
#   SOAK_MINUTES=60 scripts/soak.sh             both, half of the time each
#   SOAK_MINUTES=60 scripts/soak.sh TARGET…     these targets alone
# What is interesting is kept in build/soak/corpus, so that the next soak goes on from there; what is wrong in build/soak/found, and
# ends it with code 1. A finding becomes a file in tests/fuzz/corpus/TARGET, which `make test` plays for ever.
set -eu
cd "$(dirname "$0")/.."
minutes=${SOAK_MINUTES:-10}
jobs=${JOBS:-$(nproc)}
scripts/setup.sh soak

compiler() {
  for name in "$1" "$1-14" "$1-15" "$1-16" "$1-17" "$1-18" "$1-19"; do
    if command -v "$name"; then return; fi
  done
  echo "soak: there is no $1" >&2
  exit 1
}
CC=$(compiler clang) CXX=$(compiler clang++) cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$jobs"

targets=${*:-$(ls tests/fuzz/corpus)}
number=$(echo "$targets" | wc -w)
[ $# -gt 0 ] || minutes_of_faults=$((minutes / 2))
seconds=$(((minutes - ${minutes_of_faults:-0}) * 60 * jobs / number))
mkdir -p build/soak/found
echo "soak: $number targets, $((seconds / 60)) min $((seconds % 60)) s each"

# Memory: no input may ask for much. `found` is empty when all is well.
# shellcheck disable=SC2016
echo "$targets" | tr ' ' '\n' | xargs -P "$jobs" -I TARGET sh -c '
  mkdir -p build/soak/corpus/TARGET
  build/fuzz/tests/fuzz/fuzz_TARGET -max_total_time="$0" -max_len=16384 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=256 \
    -print_final_stats=1 -artifact_prefix=build/soak/found/TARGET- build/soak/corpus/TARGET tests/fuzz/corpus/TARGET \
    >build/soak/TARGET.log 2>&1 || echo "soak: TARGET: $(grep -m 1 -E "does not hold|runtime error|ERROR" build/soak/TARGET.log)" >&2
  printf "soak: TARGET: %s inputs\n" "$(sed -n "s/^stat::number_of_executed_units: *//p" build/soak/TARGET.log)"
' "$seconds"

if [ -n "$(ls -A build/soak/found)" ]; then
  echo "soak: found:" build/soak/found/* >&2
  echo "soak: build/fuzz/tests/fuzz/fuzz_TARGET FILE shows it again; -minimize_crash=1 makes it small" >&2
  exit 1
fi

[ -n "${minutes_of_faults:-}" ] || exit 0
full=tests/shows/test_full_stage.py
ADVECTIO_FULL_STAGE=20 .venv/bin/python -m pytest -q -s "$full::test_wait_loses_nothing" "$full::test_spill_loses_nothing" "$full"
ADVECTIO_LONG=1 .venv/bin/python -m pytest -q -n "$jobs" --dist worksteal
# Nothing may grow with the number of frames, in many files and in one; then faults by seed, in little and from end to end.
.venv/bin/python tests/faults/many_frames.py --frames 12000 --frames-per-file 60
.venv/bin/python tests/faults/many_frames.py --frames 12000 --frames-per-file 12000
cmake --build --preset release -j "$jobs" --target fault_runs
build/release/tests/faults/fault_runs --first "$(date +%s)" --runs $((minutes_of_faults * 200)) --jobs "$jobs" --table
build/release/tests/faults/fault_runs --power --first "$(date +%s)" --runs $((minutes_of_faults * 200)) --jobs "$jobs" --table
# Live readers that come, go, die and lie.
.venv/bin/python tests/faults/reader_runs.py --first "$(date +%s)" --runs $((minutes_of_faults * 20)) --jobs "$jobs"
# Markers, and a job outside the run that copies what they name.
.venv/bin/python tests/faults/marker_runs.py --first "$(date +%s)" --runs $((minutes_of_faults * 20)) --jobs "$jobs"
# Files that are opened again for each output time.
.venv/bin/python tests/faults/reopen_runs.py --first "$(date +%s)" --runs $((minutes_of_faults * 20)) --jobs "$jobs"
.venv/bin/python tests/faults/reopen_runs.py --together --first "$(date +%s)" --runs $((minutes_of_faults * 20)) --jobs "$jobs"
# Two programs that go on from the newest whole set of their restarts.
.venv/bin/python tests/faults/restart_set_runs.py --first "$(date +%s)" --runs $((minutes_of_faults * 10)) --jobs "$jobs"
# Programs of a workflow that come late, die and are misspelt.
.venv/bin/python tests/faults/coupling_runs.py --first "$(date +%s)" --runs $((minutes_of_faults * 10)) --jobs "$jobs"
exec .venv/bin/python tests/faults/faults.py --minutes "$minutes_of_faults"
