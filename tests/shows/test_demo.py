"""The demo and the benchmark, at a small size: they end, compare, draw, and say what they measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]


def ran(arguments: list[str | Path]) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_compares_and_draws(tmp_path: Path):
    output = tmp_path / "demo"
    small = ["--ranks", "2", "--nx", "24", "--minutes", "12", "--history-minutes", "2"]
    said = ran([ROOT / "examples/demo/demo.py", *small, "--output", output])
    result = json.loads((output / "result.json").read_text())
    assert result["differences"] == [] and result["compared"]["files"] == 7 and result["compared"]["values"] > 1e6
    assert len(result["waited_s"]["plain"]) == len(result["waited_s"]["advectio"]) == 7
    assert "The files are equal" in said and "no output" in said
    assert "Watched while it ran" in said and list((output / "live" / "pictures").glob("*.png"))
    for name in ("storm.png", "cross_section.png", "waiting.png", "storm.gif"):
        assert str(output / name) in said
        with Image.open(output / name) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10, f"{name} is empty"
            assert getattr(picture, "n_frames", 1) == (7 if name.endswith("gif") else 1)


def test_the_demo_notices_a_difference(tmp_path: Path):
    """A command in Advectio's place that changes one value."""
    spoil = tmp_path / "advectio"
    spoil.write_text(
        f"#!{sys.executable}\n"
        "import json, subprocess, sys, netCDF4, pathlib\n"
        "command = sys.argv[sys.argv.index('--') + 1:]\n"
        "subprocess.run(command, check=True)\n"
        "with netCDF4.Dataset(sorted(pathlib.Path('.').glob('squall_d01_*'))[-1], 'a') as file:\n"
        "    file['T'][0, 3, 4, 5] += 1e-3\n"
        "pathlib.Path(sys.argv[sys.argv.index('--json') + 1]).write_text(json.dumps({'datasets': [{'stall_s': {'median': 1}}]}))\n"
    )
    spoil.chmod(0o755)
    small = ["--ranks", "1", "--nx", "16", "--minutes", "4", "--history-minutes", "2", "--output", str(tmp_path / "demo")]
    done = subprocess.run(
        [sys.executable, ROOT / "examples/demo/demo.py", *small],
        env=os.environ | {"ADVECTIO_COMMAND": str(spoil)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "The files differ" in done.stdout and "T" in done.stdout, done.stdout + done.stderr


def test_what_others_free_does_not_count_against_the_measured_command():
    """Memory is a process' own and what came to /dev/shm, which other programs use and leave as well."""
    measures = f"""
import pathlib, sys, tempfile
sys.path.insert(0, {str(ROOT / "bench")!r})
from measuring import measure
with tempfile.TemporaryDirectory(dir="/dev/shm") as other, tempfile.TemporaryDirectory() as here:
    held = pathlib.Path(other, "held")
    held.write_bytes(bytes(2**26))
    takes = f"import os, time; os.unlink({{str(held)!r}}); own = b'x' * 2**25; time.sleep(0.5)"
    command = [sys.executable, "-c", takes]
    print(measure(command, pathlib.Path(here), 60).memory_peak)
"""
    peak = int(ran(["-c", measures]))
    assert peak > 2**25, f"{peak} bytes"


def test_the_benchmark_measures_every_method_it_is_asked_for(tmp_path: Path):
    methods = ["write*", "serial classic", "Advectio, deflate (I*", "Advectio, split, unc*"]
    small = [
        "--ranks",
        "2",
        "--target-mb",
        "5",
        "--frames",
        "2",
        "--repeat",
        "1",
        "--compute",
        "0.1",
        "--spare",
        "none",
        "--no-warm",
        "--storm-minutes",
        "4",
    ]
    said = ran([ROOT / "bench/bench.py", *small, "--output", tmp_path, "--methods", *methods])
    result = json.loads((tmp_path / "result.json").read_text())
    table = {row["name"]: row for row in result["layouts"]["none-2"]["table"]}
    expected = [
        "write() by each rank",
        "serial netCDF-4, shuffle + deflate",
        "serial classic",
        "Advectio, deflate (ISA-L)",
        "Advectio, split, uncompressed",
    ]
    assert list(table) == expected
    for row in table.values():
        assert 0 < row["stall"] <= row["stall_max"] and row["readable"] > 0 and row["megabytes"] > 0 and row["memory"] > 0
    # Uncompressed files hold what was given; compressed ones are smaller.
    assert table["serial classic"]["megabytes"] > 2 * table["Advectio, deflate (ISA-L)"]["megabytes"]
    assert result["compared_with_plain"] == {"Advectio, deflate (ISA-L)": "equal"}
    assert "stall / memcpy" in said
    assert (tmp_path / "table.md").read_text().count("\n| Advectio") == 2
    assert (tmp_path / "bench-none-2.png").stat().st_size > 10_000
    assert not (tmp_path / "runs").exists()


def test_the_benchmark_of_readers_says_what_readers_saw():
    # Below tmp_path the name of the run's socket may be too long.
    with tempfile.TemporaryDirectory(prefix="readers-") as directory:
        small = ["--frame-mb", "3", "--rounds", "1", "--frames", "4", "--pause", "0.1", "--only", "mapped"]
        result = json.loads(ran([ROOT / "bench/readers.py", "--json", *small, "--directory", directory]))
        assert os.listdir(directory) == []
    rows = result["methods"]
    assert [(row["method"], row["readers"]) for row in rows] == [("Advectio, mapped", 1), ("Advectio, mapped", 4)]
    assert 2e6 < result["frame_bytes"] < 3e6
    for row in rows:
        assert row["put_ms"] > 0 and row["first_ms"] > row["latency_ms"] and row["copy_mb_s"] > 0 and row["look_mb_s"] > 0
        (run,) = row["runs"]
        assert [[line["frame"] for line in reader] for reader in run["readers"]] == [[2, 3]] * row["readers"]
