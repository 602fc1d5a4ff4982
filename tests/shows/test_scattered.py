"""Many small pieces of an unstructured grid: every value is where the library alone puts it, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from conftest import Pair
from same import assert_same

RANKS: list[str | Path] = ["mpirun", "-n", "3"]
SMALL = ["--columns", "301", "--levels", "7", "--variables", "2", "--records", "3"]


@pytest.fixture(scope="session")
def scattered(replay: Path) -> Path:
    path = replay.parents[1] / "scattered" / "scattered"
    if not path.exists():
        pytest.skip(f"{path} is not built: no PnetCDF here")
    return path


def arrays_of(path: Path) -> dict[str, Any]:
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        return {name: np.asarray(variable[...]) for name, variable in file.variables.items()}


def assert_same_values(ours: dict[str, Any], theirs: dict[str, Any], holes: int = 0) -> None:
    """`holes`: every so many-th column has been put by nobody, and may be anything."""
    assert ours.keys() == theirs.keys() and len(theirs) == 4
    for name, values in theirs.items():
        put = np.arange(values.shape[-1]) % holes != 0 if holes else np.full(values.shape[-1], True)
        assert ours[name].shape == values.shape
        assert np.array_equal(ours[name][..., put], values[..., put]), name
        assert len(np.unique(values[..., put])) > 100


@pytest.mark.parametrize("way", ["iput_varn", "bput_varn", "put_varn", "put_vara"])
@pytest.mark.parametrize("decomposition", ["round-robin", "curve", "shuffled"])
def test_every_way_and_decomposition_makes_the_same_file(scattered: Path, pair: Pair, decomposition: str, way: str):
    pair.run([*RANKS, scattered, *SMALL, "--decomposition", decomposition, "--way", way, "out.nc"])
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("decomposition", ["round-robin", "shuffled"])
def test_holes_keep_the_fill_value(scattered: Path, pair: Pair, decomposition: str):
    words = [*RANKS, scattered, *SMALL, "--decomposition", decomposition, "--holes", "3", "--check", "out.nc"]
    done = pair.run(words)
    assert "wrong values 0" in done.said
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("decomposition", ["round-robin", "curve"])
def test_elements_that_are_not_put_keep_their_values(scattered: Path, pair: Pair, decomposition: str):
    words = [*RANKS, scattered, *SMALL, "--decomposition", decomposition, "--holes", "3", "--no-fill", "--check", "out.nc"]
    assert "wrong values 0" in pair.run(words).said
    assert_same_values(arrays_of(pair.carried / "out.nc"), arrays_of(pair.plain / "out.nc"), holes=3)


@pytest.mark.parametrize("rule", ["", ", round: {'*': 23}"], ids=["as put", "operators"])
@pytest.mark.parametrize("holes", [0, 3])
@pytest.mark.parametrize("format", ["netcdf4", "zarr"])
def test_other_formats_hold_the_same_values(scattered: Path, pair: Pair, format: str, holes: int, rule: str):
    words = [*RANKS, scattered, *SMALL, "--decomposition", "shuffled", "--holes", str(holes), "out.nc"]
    pair.run(words, f"datasets: [{{match: '*', format: {format}{rule}}}]\n")
    if format == "zarr":
        zarr = pytest.importorskip("zarr", minversion="3.1")
        arrays = zarr.open_group(next(pair.carried.glob("*.zarr")), mode="r")
        ours = {name: np.asarray(arrays[name][...]) for name in arrays}
    else:
        ours = arrays_of(pair.carried / "out.nc")
    assert_same_values(ours, arrays_of(pair.plain / "out.nc"))


def test_ranks_of_two_nodes_put_into_one_file(scattered: Path, pair: Pair):
    pair.run([*RANKS, scattered, *SMALL, "--decomposition", "shuffled", "out.nc"], nodes="2,1")
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_a_small_stage_takes_a_large_frame(scattered: Path, pair: Pair):
    """Segments that are full, and commits in the midst of frames."""
    words = [*RANKS, scattered, "--columns", "6001", "--levels", "60", "--variables", "2", "--records", "2"]
    pair.run([*words, "--decomposition", "round-robin", "out.nc"], "stage: {bytes_max: 16MiB}\ndatasets: [{match: '*'}]\n")
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


def test_netcdf4_by_all_ranks_puts_each_piece(replay_mpi: Path, pair: Pair):
    program = replay_mpi.parents[1] / "scattered" / "scattered_netcdf_mpi"
    pair.run([*RANKS, program, "--columns", "101", "--levels", "3", "--variables", "2", "--records", "2", "out.nc"])
    assert_same_values(arrays_of(pair.carried / "out.nc"), arrays_of(pair.plain / "out.nc"))
