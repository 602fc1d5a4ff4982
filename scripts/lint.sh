#!/usr/bin/env bash
# Static checks of a few seconds; `make deep-tidy` has the slow one. One that fails does not end
# the rest; the end of what it printed comes last.
set -uo pipefail
cd "$(dirname "$0")/.."
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT
failed=()

check() {
  local name=$1 began=$SECONDS
  shift
  if "$@" >"$output/$name" 2>&1; then
    printf 'lint: %s: ok, %d s\n' "$name" $((SECONDS - began))
  else
    printf 'lint: %s: FAILED (code %d), %d s\n' "$name" $? $((SECONDS - began))
    failed+=("$name")
  fi
}

find src tests examples bench -name '*.h' -o -name '*.cpp' -o -name '*.c' | sort >"$output/files"
check clang-format xargs -a "$output/files" clang-format --dry-run -Werror
check ruff-check .venv/bin/ruff check .
check ruff-format .venv/bin/ruff format --check .
check mypy .venv/bin/mypy
check includes .venv/bin/python -m pytest -q tests/includes

for name in "${failed[@]}"; do
  printf '\nlint: the end of what %s printed:\n' "$name"
  tail -n 40 "$output/$name"
done
((${#failed[@]} == 0)) || printf '\nlint: failed: %s\n' "${failed[*]}"
((${#failed[@]} == 0))
