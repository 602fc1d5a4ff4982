"""Forecasts and a Kalman filter in turn, by files: the analysis knows more than the forecast, and the bits are the same
each time and on any number of processes."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import netCDF4
import pytest
from PIL import Image
from running import ROOT

sys.path.append(str(ROOT / "examples" / "cycle"))

from cycling import CycleError, Experiment, run


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Experiment:
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    experiment = Experiment(
        tmp_path_factory.mktemp("cycle"), members=4, cycles=3, hours=6, frames=2, nx=32, ny=20, dx_km=240, tiles=(2, 1),
        together=1, filter_ranks=2, stations=80, days=20, apart=3,
    )  # fmt: skip
    assert (experiment.programs / "forecast").exists(), "the programs are not built; `make build` builds them"
    experiment.make_ready()
    return experiment


def test_the_analysis_is_nearer_to_nature_than_the_forecast_and_than_no_assimilation(small: Experiment, tmp_path: Path):
    free = small.free()
    timing = small.by_files(tmp_path / "files")
    assert [(s.program, s.cycle) for s in timing.spent] == [(p, c) for c in (1, 2, 3) for p in ("forecast", "filter")]
    assert all(s.all > s.files > 0 for s in timing.spent)
    errors = small.errors(tmp_path / "files", free)
    for what in ("wind", "interface"):
        last = {name: values[-1][what] for name, values in errors.items()}
        assert last["analysis"] < 0.7 * last["free"], errors
        mean = {name: sum(v[what] for v in values) / 3 for name, values in errors.items()}
        assert mean["analysis"] < mean["forecast"] < mean["free"], errors
    # Once more, by other numbers of processes.
    other = dataclasses.replace(small, together=2, filter_ranks=3)
    other.by_files(tmp_path / "others")
    found, count = small.different(tmp_path / "files", tmp_path / "others")
    assert found == [] and count == 2 * 3 * (4 + 4) * 3 * 32 * 20


def test_coupled_programs_have_the_same_bits(small: Experiment, advectio_command: Path, tmp_path: Path):
    """Both at once, each waits for the other's files; history is never on the disk, restart files are as by files."""
    small.by_files(tmp_path / "files")
    timing = small.coupled(tmp_path / "coupled", advectio_command)
    assert sorted((s.program, s.cycle) for s in timing.spent) == [(p, c) for p in ("filter", "forecast") for c in (1, 2, 3)]
    found, count = small.different(tmp_path / "files", tmp_path / "coupled")
    assert found == [] and count == 2 * 3 * (4 + 4) * 3 * 32 * 20
    assert not list((tmp_path / "coupled").rglob("history.*"))
    assert list((tmp_path / "files").rglob("history.*"))
    # Only with a restart file of a member changed is a difference seen: the comparison can fail.
    with netCDF4.Dataset(small.files(tmp_path / "coupled", 2, "restart.0003")[1], "a") as file:
        file["H"][1, 5, 5] += 1e-9
    assert len(small.different(tmp_path / "files", tmp_path / "coupled")[0]) == 1


def test_files_of_several_tiles_are_those_of_one_put_together(small: Experiment, tmp_path: Path):
    """The forecast of one process and of four, from the same first state."""
    one = dataclasses.replace(small, directory=tmp_path, tiles=(1, 1), members=1, cycles=1)
    four = dataclasses.replace(one, tiles=(2, 2))
    for name, experiment in (("one", one), ("four", four)):
        (tmp_path / name / "0000").mkdir(parents=True)
        (tmp_path / name / "0001").mkdir()
        run([*experiment.forecast(1, 1), "--prepare", "2"], tmp_path / name)
        run(experiment.forecast(1, 1), tmp_path / name)
    whole, parts = one.state(tmp_path / "one", 1, "restart.0001"), four.state(tmp_path / "four", 1, "restart.0001")
    for v in whole:
        assert whole[v].tobytes() == parts[v].tobytes(), v


def ran(*arguments: str | Path) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_compares_and_draws(small: Experiment, tmp_path: Path):
    size = ["--members", "3", "--cycles", "2", "--nx", "32", "--ny", "20", "--dx", "240", "--days", "10"]
    said = ran(ROOT / "examples/cycle/cycle.py", *size, "--ways", "disk", "memory", "--output", tmp_path / "demo")
    result = json.loads((tmp_path / "demo" / "result.json").read_text())
    assert result["differences"] == [] and result["compared"] == 2 * (4 + 3) * 3 * 2 * 32 * 20
    assert "The results are equal" in said
    for name in ("errors.png", "maps.png"):
        with Image.open(tmp_path / "demo" / name) as picture:
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 10, f"{name} is empty"


def test_the_benchmark_compares_files_with_coupled_programs(small: Experiment, advectio_command: Path, tmp_path: Path):
    size = ["--members", "3", "--small", "--cycles", "2", "--rounds", "1", "--nx", "32", "--ny", "20"]
    ran(ROOT / "bench/cycle.py", *size, "--ways", "disk", "coupled", "--output", tmp_path / "bench")
    rows = json.loads((tmp_path / "bench" / "result.json").read_text())["rows"]
    assert [(row["case"], row["way"]) for row in rows] == [("3 members", "disk"), ("3 members", "coupled")]
    for row in rows:
        assert 0 < row["forecast"] < row["cycle"] and 0 < row["filter"] < row["cycle"] and row["open"] > 0
        assert len(row["runs"]) == 1 and len(row["runs"][0]["spent"]) == 4
    assert (tmp_path / "bench" / "cycle.png").stat().st_size > 5_000


def test_the_programs_say_what_is_wrong(small: Experiment, tmp_path: Path):
    with pytest.raises(CycleError, match=r"cannot open 0004/restart\.0001\.pe00000\d\.nc: No such file"):
        run(small.forecast(5, 1), tmp_path)
    with pytest.raises(CycleError, match="unknown option --membres"):
        run(small.forecast(1, 1, "--membres", "4"), tmp_path)
