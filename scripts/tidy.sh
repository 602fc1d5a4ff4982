#!/bin/sh
# clang-tidy over src/, by the compile commands of a build directory. Files that have not changed since they last passed
# are not looked at again.
set -eu
build=$1
seen=$build/tidy
mkdir -p "$seen"
# A file's verdict holds as long as no header and no check has changed.
headers=$(cat .clang-tidy $(find src -name '*.h' | sort) | cksum | tr ' ' -)
# cmake's flags are gcc's; what clang does not know of them is no fault of the code.
find src -name '*.cpp' | sort | while read -r file; do
  mark=$seen/$(printf '%s' "$file" | tr / -).$headers.$(cksum <"$file" | tr ' ' -)
  [ -e "$mark" ] || printf '%s\t%s\n' "$file" "$mark"
done >"$seen/todo"
[ -s "$seen/todo" ] || exit 0
tr '\n' '\t' <"$seen/todo" | tr '\t' '\0' | xargs -0 -n 2 -P "$(nproc)" sh -c '
  clang-tidy --quiet -p "$0" --extra-arg=-Wno-unknown-warning-option "$1" 2>/dev/null || { echo "clang-tidy: $1" >&2; exit 1; }
  touch "$2"' "$build"
