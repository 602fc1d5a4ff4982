#!/usr/bin/env bash
# The wheel in a fresh environment, away from the source tree: installed, it carries the output of a program that knows
# nothing of it, into the same file that the program writes without it.
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$work/venv/bin/pip" wheel --quiet --no-deps --config-settings=build-dir="$source/build/wheel" -w "$work/wheels" "$source"
"$work/venv/bin/pip" install --quiet "$work"/wheels/advectio-*.whl
read -ra netcdf <<<"$(pkg-config --cflags --libs netcdf)"
cc -o "$work/frames" "$source/tests/consumers/frames.c" "${netcdf[@]}"

cd "$work"
unset ADVECTIO_PREFIX ADVECTIO_RUN ADVECTIO_CONFIG LD_PRELOAD PYTHONPATH
advectio=$work/venv/bin/advectio
"$advectio" --version
"$advectio" config explain >/dev/null
"$advectio" check
# The dashboard's page and coastlines are in it.
"$work/venv/bin/python" -c "from importlib.resources import files as f; [(f('advectio') / n).read_bytes() for n in ('view/page/index.html', 'view/page/app.js', 'pictures/coastlines.npz')]"
./frames plain.nc
"$advectio" run --json summary.json -- ./frames carried.nc
"$work/venv/bin/python" - <<'PYTHON'
import json

(dataset,) = json.load(open("summary.json"))["datasets"]
assert dataset["state"] == "finished" and dataset["frames_durable"] == 3, dataset
PYTHON
for file in plain carried; do ncdump -n same -p 9,17 "$file.nc" >"$file.cdl"; done
cmp plain.cdl carried.cdl
echo "consumers: the installed wheel carries a program's output, and the file is the same"
