#!/usr/bin/env bash
# The checks that take long: once before an issue is resolved, not for each change.
#   scripts/deep.sh                  all
#   scripts/deep.sh tidy asan …      these
# tidy        clang-tidy over src/
# asan        C++ tests with the address and undefined-behaviour sanitizers
# asan-shows  programs, preloaded libraries and server with the same
# tsan        C++ tests with the thread sanitizer
# long        the tests that `make test` leaves out
# seeds       fault runs: SEEDS=500 from FIRST=now
# debian13    build and tests on Debian 13 (scripts/debian13.sh; root). Only where it is named
# Each prints one line when it is done; build/reports/deep.txt keeps them with date and commit.
set -uo pipefail
cd "$(dirname "$0")/.."
reports=$PWD/build/reports
mkdir -p "$reports"
jobs=$(nproc)
workers=$((jobs + 1))
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit+changes
export CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
command -v ccache >/dev/null && CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
(($(nice) >= 10)) || renice -n 10 $$ >/dev/null

# Build tests with a sanitizer, and run those whose names match. The address space is not
# randomised: some kernels place mappings where the thread sanitizer wants its shadow.
sanitized() {
  local preset=$1 tests=$2
  shift 2
  cmake --preset "$preset" -DADVECTIO_EXAMPLES=OFF >/dev/null || return
  cmake --build --preset "$preset" -j "$jobs" --target "$@" || return
  setarch "$(uname -m)" -R ctest --test-dir "build/$preset" -j "$workers" -R "$tests" \
    --timeout 600 --no-tests=error --output-on-failure --output-junit "$reports/$preset.xml"
}

tidy() {
  scripts/tidy.sh
}

asan() {
  ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1 \
    LSAN_OPTIONS=suppressions=$PWD/tests/leaks.txt:print_suppressions=0 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    sanitized asan \
    '^(core|platform|workflow|journal|config|readers|operators|assembly|cluster|server|sinks|sources|netcdf_interposer)' \
    test_{core,platform,workflow,journal,config,readers,operators,assembly,cluster,server,sinks,sources,netcdf_interposer}
}

# What MPI does not free at its end is not ours.
asan_shows() {
  cmake --preset asan -DADVECTIO_EXAMPLES=ON >/dev/null || return
  cmake --build --preset asan -j "$jobs" --target \
    advectiod advectiod_mpi advectio_netcdf advectio_pnetcdf replay replay_netcdf_mpi \
    pnetcdf_families pnetcdf_fortran_calls netcdf_parallel_calls || return
  ADVECTIO_PREFIX=$PWD/build/asan ADVECTIO_REPLAY=$PWD/build/asan/examples/replay/replay \
    ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0:detect_stack_use_after_return=1 \
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    .venv/bin/python -m pytest -n "$jobs" --dist worksteal \
    tests/shows/test_{pnetcdf,parallel_netcdf,model_output,several_nodes}.py \
    -k "every_family or fortran or made or kill" --junitxml "$reports/asan-shows.xml"
}

# Programs of tests fork, and their children begin threads.
tsan() {
  TSAN_OPTIONS=die_after_fork=0 sanitized tsan '^(core|platform|workflow|journal|readers|assembly|cluster|server)' \
    test_{core,platform,workflow,journal,readers,assembly,cluster,server}
}

long() {
  ADVECTIO_LONG=1 .venv/bin/python -m pytest -n "$workers" --dist worksteal \
    --junitxml "$reports/long.xml"
}

seeds() {
  local first=${FIRST:-$(date +%s)} runs=${SEEDS:-500}
  cmake --build --preset release -j "$jobs" --target fault_runs || return
  echo "seeds $first to $((first + runs - 1))"
  build/release/tests/faults/fault_runs --first "$first" --runs "$runs" --jobs "$jobs" &&
    build/release/tests/faults/fault_runs --power --first "$first" --runs $((runs / 5)) --jobs "$jobs" &&
    build/release/tests/faults/fault_runs --store zarr --first "$first" --runs $((runs / 5)) --jobs "$jobs" &&
    build/release/tests/faults/fault_runs --store zarr --power --first "$first" --runs $((runs / 5)) --jobs "$jobs" &&
    .venv/bin/python tests/faults/reader_runs.py --first "$first" --runs $((runs / 10)) --jobs "$jobs" &&
    .venv/bin/python tests/faults/marker_runs.py --first "$first" --runs $((runs / 10)) --jobs "$jobs" &&
    .venv/bin/python tests/faults/reopen_runs.py --first "$first" --runs $((runs / 10)) --jobs "$jobs" &&
    .venv/bin/python tests/faults/reopen_runs.py --together --first "$first" --runs $((runs / 10)) --jobs "$jobs" &&
    .venv/bin/python tests/faults/restart_set_runs.py --first "$first" --runs $((runs / 10)) --jobs "$jobs" &&
    .venv/bin/python tests/faults/coupling_runs.py --first "$first" --runs $((runs / 10)) --jobs "$jobs"
}

debian13() {
  scripts/debian13.sh make JOBS="$jobs" test
}

scripts/setup.sh deep || exit
failed=0
for name in ${*:-tidy asan asan-shows tsan long seeds}; do
  since=$SECONDS
  if "${name//-/_}" >"$reports/deep-$name.log" 2>&1; then word=ok; else word=FAILED failed=1; fi
  last=$(grep -E '(passed|tests failed|seeds [0-9])' "$reports/deep-$name.log" | tail -n 1)
  printf '%s %s %s: %s, %d s %s\n' "$(date +%F)" "$commit" "$name" "$word" $((SECONDS - since)) "$last" |
    tee -a "$reports/deep.txt"
  [ "$word" = ok ] || tail -n 40 "$reports/deep-$name.log"
done
exit "$failed"
