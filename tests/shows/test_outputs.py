"""Further outputs of a dataset: each is right, and one that fails does not hold up the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from conftest import Pair
from running import run_plainly
from test_crashes import FOREVER, SMALL_STAGE, kill_all, kill_server

BITS = 10
MARK = "_QuantizeBitRoundNumberOfSignificantBits"
SMALL = f'datasets: [{{match: "*", outputs: [{{path: "small/{{name}}", codec: deflate, level: 3, round: {{"*": {BITS}}}}}]}}]\n'
CLASSIC = f'datasets: [{{match: "*", outputs: [{{path: "small/{{name}}", format: cdf5, round: {{"*": {BITS}}}}}, {{path: "{{name}}.4", codec: none}}]}}]\n'


def rounded(values: np.ndarray) -> np.ndarray:
    """As netCDF's BitRound: half of the last place that is kept is added, the rest is cleared."""
    if values.dtype != np.float32:
        return values
    drop = 23 - BITS
    bits = (values.view(np.uint32) + np.uint32(1 << (drop - 1))) & np.uint32(0xFFFFFFFF << drop & 0xFFFFFFFF)
    keep = ~np.isfinite(values) | (values == np.float32(netCDF4.default_fillvals["f4"]))
    return np.where(keep, values, bits.view(np.float32))


def assert_rounded(plain: Path, small: Path) -> None:
    with netCDF4.Dataset(plain) as a, netCDF4.Dataset(small) as b:
        a.set_auto_mask(False)
        b.set_auto_mask(False)
        assert list(a.variables) == list(b.variables)
        for name, one in a.variables.items():
            other = b.variables[name]
            assert one.shape == other.shape, name
            if one.dtype == np.float32:
                assert getattr(other, MARK) == BITS, name
            assert rounded(one[...]).tobytes() == other[...].tobytes(), f"{name} of {small}"


def assert_all_rounded(pair: Pair, below: Path, at_least: int = 1) -> None:
    names = sorted(p.name for p in pair.plain.iterdir() if p.name.startswith("wrfout"))
    assert len(names) >= at_least
    assert sorted(p.name for p in below.iterdir() if not p.name.startswith(".")) == names
    for name in names:
        assert_rounded(pair.plain / name, below / name)
        assert (below / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("io", "ranks"), [("serial", 1), ("split", 3), ("pnetcdf", 3)], ids=["serial", "three tiles", "three ranks together"]
)
@pytest.mark.parametrize("kills", [0, 2], ids=["undisturbed", "server killed"])
def test_two_outputs_are_both_right(made: Path, replay: Path, pair: Pair, io: str, ranks: int, kills: int):
    launch: list[str | Path] = ["mpirun", "-n", str(ranks)] if ranks > 1 else []
    command = [*launch, replay, "--io", io, "--frames", "12", "--frames-per-file", "3", made]
    assert run_plainly(command, pair.plain).code == 0
    running = pair.advectio.start([*command, "--compute", "0.05"], pair.carried, SMALL)
    for n in range(kills):
        running.wait_for(lambda n=n: running.frames() >= 3 + 4 * n, f"{3 + 4 * n} frames were written")
        kill_server(running, pair.advectio.run_dirs[-1])
    result = running.finish()
    assert result.code == 0, result.said
    small = pair.carried / "small"
    assert_all_rounded(pair, small, at_least=4)
    rows = [d for d in result.summary["datasets"] if d["output_of"]]
    assert rows and all(d["state"] == "finished" for d in rows), result.said
    if kills == 0:  # a server that takes over does not know of what was finished before
        assert len(rows) == len(list(small.glob("wrfout*"))), result.said
        assert all(d["frames_durable"] == d["frames_synced"] for d in result.summary["datasets"]), result.said
    for path in small.iterdir():
        path.unlink()
    small.rmdir()
    pair.assert_same(at_least=4)
    assert not list(pair.carried.rglob(".*advectio*"))


def test_a_classic_output_is_rounded_and_a_third_is_beside_the_first(made: Path, replay: Path, pair: Pair):
    command = [replay, "--frames", "4", "--frames-per-file", "2", made]
    assert run_plainly(command, pair.plain).code == 0
    result = pair.advectio.run(command, pair.carried, CLASSIC)
    assert result.code == 0, result.said
    assert_all_rounded(pair, pair.carried / "small", at_least=2)
    for name in sorted(p.name for p in pair.plain.glob("wrfout*")):
        with netCDF4.Dataset(pair.plain / name) as a, netCDF4.Dataset(pair.carried / f"{name}.4") as b:
            assert b.data_model == "NETCDF4" or b.data_model == a.data_model
            for v in a.variables:
                assert a[v][...].tobytes() == b[v][...].tobytes(), v


@pytest.mark.parametrize("kills", [0, 1], ids=["undisturbed", "server killed"])
def test_a_full_disk_of_one_output_does_not_hold_up_the_other(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path], kills: int
):
    disk = small_disk("3m")
    config = f'datasets: [{{match: "*", outputs: [{{path: "{disk}/{{name}}", codec: none, round: {{"*": {BITS}}}}}]}}]\n'
    command = [replay, "--frames", "30", "--frames-per-file", "10", made]
    assert run_plainly(command, pair.plain).code == 0
    running = pair.advectio.start([*command, "--compute", "0.05"], pair.carried, config)
    run_dir = pair.advectio.run_dirs[-1]
    for _ in range(kills):
        running.wait_for(lambda: running.frames() >= 15, "15 frames were written")
        kill_server(running, run_dir)
    result = running.finish()
    pair.assert_same(at_least=3)
    first = [d for d in result.summary["datasets"] if not d["output_of"]]
    assert all(d["state"] == "finished" and d["frames_durable"] == 10 for d in first), result.said
    assert result.summary["stage"]["waits"] == 0, result.said
    assert result.code == 3, result.said
    assert "No space left on device" in str(result.summary["errors"]), result.said
    small_disk("1g")
    recovered = pair.advectio.call("recover", run_dir, "--config", pair.carried / "advectio.yaml", directory=pair.carried)
    if "No such option" in recovered.stderr:
        recovered = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert recovered.code == 0, recovered.said
    assert sorted(p.name for p in disk.glob("wrfout*")) == sorted(p.name for p in pair.plain.glob("wrfout*"))
    assert not run_dir.exists()


def test_an_output_that_fails_is_given_up_where_the_stage_is_full(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path]
):
    disk = small_disk("1m")
    config = SMALL_STAGE + f'datasets: [{{match: "*", outputs: [{{path: "{disk}/{{name}}", codec: none}}]}}]\n'
    command = [replay, "--tile", "2x2", "--frames", "12", "--frames-per-file", "12", made]
    assert run_plainly(command, pair.plain).code == 0
    result = pair.advectio.start(command, pair.carried, config).finish()
    pair.assert_same()
    assert "is given up, as the stage is full" in str(result.summary["errors"]), result.said
    assert result.code == 3, result.said


def test_what_a_kill_of_all_leaves_of_each_output_is_recovered(made: Path, replay: Path, pair: Pair):
    config = SMALL + "server: {restarts_max: 0}\n"
    base: list[str | Path] = [replay, made]
    run_dir = pair.advectio.new_run_dir()
    running = pair.advectio.start([*base, *FOREVER], pair.carried, config, run_dir)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    kill_all(running, run_dir)
    recovered = pair.advectio.call("recover", run_dir, directory=pair.carried)
    assert recovered.code == 0, recovered.said
    small = pair.carried / "small"
    names = sorted(p.name for p in small.glob("wrfout*"))
    assert names == sorted(p.name for p in pair.carried.glob("wrfout*")) and names
    for name in names:
        with netCDF4.Dataset(pair.carried / name) as a, netCDF4.Dataset(small / name) as b:
            assert {n: v.shape for n, v in a.variables.items()} == {n: v.shape for n, v in b.variables.items()}
            for v in a.variables:
                a[v].set_auto_mask(False)
                b[v].set_auto_mask(False)
                assert rounded(a[v][...]).tobytes() == rounded(b[v][...]).tobytes(), v
    assert not list(pair.carried.rglob(".*advectio*"))


def test_an_output_never_takes_the_place_of_the_programs_file(made: Path, replay: Path, pair: Pair):
    command = [replay, "--frames", "4", "--frames-per-file", "2", made]
    assert run_plainly(command, pair.plain).code == 0
    config = 'datasets: [{match: "*", outputs: [{path: "./{name}", round: {"*": 3}}]}]\n'
    result = pair.advectio.start(command, pair.carried, config).finish()
    pair.assert_same(at_least=2)
    assert result.code == 3, result.said
    assert "a program of this run writes that file" in str(result.summary["errors"]), result.said
