#!/bin/sh
# clang-tidy over src/. The sources of a target are looked at together: most of its time goes into the headers, which
# they share.
set -eu
cmake --preset lint >/dev/null
# A file that joins sources includes .cpp files: no fault. The flags are of gcc; clang passes over those it does not know.
python3 -c '
import json
print("\n".join(sorted({entry["file"] for entry in json.load(open("build/lint/compile_commands.json"))})))' |
  xargs -P "$(nproc)" -n 1 sh -c '
    output=$(clang-tidy --quiet -p build/lint --checks=-bugprone-suspicious-include --extra-arg=-Wno-unknown-warning-option "$0" 2>&1) && exit
    printf "clang-tidy: %s: failed\n%s\n" "$0" "$output"
    exit 1'
