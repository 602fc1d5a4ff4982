"""Split output becomes one file: `advectio join` on tiles that real models have written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Advectio, Result, environment, run_plainly
from same import File, assert_same, differences

Shared = Callable[[str], Path]
HISTORY, LATER = "wrfout_d01_0001-01-01_00:20:00", "wrfout_d01_0001-01-01_00:30:00"
RESTART = "wrfrst_d01_0001-01-01_00:20:00"


def tiles_of(shared: Shared, name: str) -> list[Path]:
    """All tiles beside the one named."""
    first = shared(name)
    end = first.name.index("0000") if "mesh" in first.name else -4
    stem = first.name[:end] if ".pe" not in first.name else first.name.partition(".pe")[0] + ".pe"
    return sorted(p for p in first.parent.iterdir() if p.name.startswith(stem) and p.name != "mesh_mask.nc")


@pytest.fixture
def join(advectio: Advectio, tmp_path: Path) -> Callable[..., Result]:
    return lambda *words: advectio.call("join", *words, directory=tmp_path)


def linked(tiles: list[Path], directory: Path) -> list[Path]:
    """The same files, named as tiles of one."""
    links = [directory / f"mixed_{number:04d}" for number in range(len(tiles))]
    for link, tile in zip(links, tiles, strict=True):
        link.symlink_to(tile)
    return links


def joined(result: Result) -> Result:
    assert result.code == 0, result.said
    return result


def refused(result: Result, out: Path, *, code: int = 2) -> str:
    assert result.code == code, result.said
    assert len(result.stderr.splitlines()) == 1, result.said
    assert not out.exists()
    left = [p.name for p in out.parent.iterdir() if "advectio-join" in p.name]
    assert not left, f"left behind: {left}"
    return result.stderr


@pytest.mark.parametrize("split, name", [("split4", HISTORY), ("split4", LATER), ("split6", LATER), ("split4", RESTART)])
def test_wrf_is_what_it_writes_serially(shared: Shared, join: Callable[..., Result], tmp_path: Path, split: str, name: str):
    serial = shared(f"wrf471/serial/{name}")
    first = shared(f"wrf471/{split}/{name}_0000")
    out = tmp_path / name
    joined(join(first, "-o", out))
    with File(out) as file:
        assert file.var_count() == {HISTORY: 165, LATER: 165, RESTART: 538}[name]
    found = list(differences(serial, out, storage=True))
    # The split run with 6 tasks says so itself; the serial one had 4.
    expected = {"NTASKS_X", "NTASKS_Y", "NTASKS_TOTAL"} if split == "split6" else set()
    assert [line for line in found if line.split()[1] not in expected] == []


def test_nemo_is_what_one_process_writes(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "mesh_mask.nc"
    joined(join(*tiles_of(shared, "nemo/mesh_mask_0000.nc"), "-o", out))
    assert_same(shared("nemo/mesh_mask.nc"), out)


@pytest.mark.parametrize("base, frames", [("history", 13), ("init_00000101-000000.000", 0)])
def test_scale_is_its_global_fields(shared: Shared, join: Callable[..., Result], tmp_path: Path, base: str, frames: int):
    tiles = tiles_of(shared, f"scale/{base}.pe000000.nc")
    out = tmp_path / f"{base}.nc"
    result = joined(join(tiles[0], "-o", out, "--json"))
    assert json.loads(result.stdout)["joined"][0]["frames"] == frames
    opened = [netCDF4.Dataset(path) for path in (out, *tiles)]
    for dataset in opened:
        dataset.set_auto_mask(False)
    whole, south, north = opened
    assert len(whole.dimensions["y"]) == len(whole.dimensions["yh"]) == 40
    assert list(whole.variables) == list(south.variables)
    for name, variable in whole.variables.items():
        values, parts = variable[...], [tile[name][...] for tile in (south, north)]
        axis = [i for i, d in enumerate(variable.dimensions) if d in ("y", "yh")]
        if axis:
            # Every value against both tiles.
            expected = np.concatenate(parts, axis=axis[0])
        elif variable.dimensions in (("CY",), ("FY",)):
            # The grid with its halos: the model wrote it for the whole domain, too.
            expected = south[f"{name}G"][...]
            assert len(values) == (44 if variable.dimensions == ("CY",) else 45)
        else:
            assert parts[0].tobytes() == parts[1].tobytes(), name
            expected = parts[0]
        assert values.shape == expected.shape and values.tobytes() == expected.tobytes(), name
    for name in ("y", "yh", "CY", "FY", "CYG", "FYG"):
        assert np.all(np.diff(whole[name][...]) > 0), name
    assert whole["y"].start_global == 1 and list(whole["y"].halo_local) == [0, 0] and whole["y"].size_global == 40
    assert (whole.rankid, whole.scale_cartesC_prc_num_y, whole.scale_cartesC_prc_rank_y) == (0, 1, 0)


@pytest.fixture
def write_split(replay: Path, tmp_path: Path) -> Callable[..., list[Path]]:
    """A file of real output, as that many ranks write it split."""

    def write(source: Path, ranks: int, *options: str) -> list[Path]:
        directory = tmp_path / f"split{ranks}"
        directory.mkdir()
        done = run_plainly(["mpirun", "-n", str(ranks), replay, "--io", "split", *options, source], directory)
        assert done.code == 0, done.said
        return sorted(directory.iterdir())

    return write


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 12])
def test_any_number_of_ranks_joins_to_the_same(
    shared: Shared, write_split: Callable[..., list[Path]], join: Callable[..., Result], tmp_path: Path, ranks: int
):
    serial = shared(f"wrf471/serial/{LATER}")
    tiles = write_split(serial, ranks)
    assert len(tiles) == ranks
    joined(join(*tiles, "-o", tmp_path / "whole"))
    with netCDF4.Dataset(serial) as a, netCDF4.Dataset(tmp_path / "whole") as b:
        assert len(a.variables) == len(b.variables) == 165
    changed = [line for line in differences(serial, tmp_path / "whole") if not line.startswith("attribute NTASKS")]
    assert changed == []


def test_several_frames_and_files_at_once(
    shared: Shared,
    write_split: Callable[..., list[Path]],
    join: Callable[..., Result],
    replay: Path,
    tmp_path: Path,
):
    frames = ["--frames", "5", "--frames-per-file", "3"]
    source = shared("wrf471/serial/wrfout_d01_4frames.nc")
    tiles = write_split(source, 6, *frames)
    (tmp_path / "serial").mkdir()
    assert run_plainly([replay, *frames, source], tmp_path / "serial").code == 0
    result = joined(join(tiles[0].parent / "*_0000", "-o", "whole/", "--json"))
    assert [j["frames"] for j in json.loads(result.stdout)["joined"]] == [3, 2]
    names = sorted(p.name for p in (tmp_path / "serial").iterdir())
    assert sorted(p.name for p in (tmp_path / "whole").iterdir()) == names
    for name in names:
        changed = differences(tmp_path / "serial" / name, tmp_path / "whole" / name, storage=True)
        assert [line for line in changed if not line.startswith("attribute NTASKS")] == []


def test_it_is_stored_as_the_rule_says(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    serial = shared(f"wrf471/serial/{LATER}")
    tiles = tiles_of(shared, f"wrf471/split4/{LATER}_0000")
    (tmp_path / "advectio.yaml").write_text('datasets: [{match: "zstd*", codec: zstd}, {match: "*", shuffle: none}]\n')
    joined(join(*tiles, "-o", tmp_path / "zstd.nc"))
    joined(join(*tiles, "-o", tmp_path / "ruled.nc", "--rule", "format: cdf5"))
    assert list(differences(serial, tmp_path / "zstd.nc")) == []
    with File(tmp_path / "zstd.nc") as file:
        t = next(v for v in range(file.var_count()) if file.var(v)[0] == "T")
        assert [identifier for identifier, _ in file.storage(t)["filters"]] == [32015]  # type: ignore[attr-defined]
    (only,) = differences(serial, tmp_path / "ruled.nc")
    assert only == "format: netCDF-4 / CDF-5"


@pytest.mark.parametrize("threads", [1, 3])
def test_little_memory_is_enough(shared: Shared, join: Callable[..., Result], tmp_path: Path, threads: int):
    """Fields that do not fit are read alone; what has been read is committed many times on the way."""
    (tmp_path / "advectio.yaml").write_text(f"server: {{memory_max: 1MiB, threads: {threads}}}\n")
    joined(join(shared(f"wrf471/split4/{RESTART}_0000"), "-o", tmp_path / RESTART))
    assert_same(shared(f"wrf471/serial/{RESTART}"), tmp_path / RESTART)


def nemo_like(path: Path, first: tuple[int, int], last: tuple[int, int], fill: Callable[[netCDF4.Dataset], None]) -> Path:
    """A tile of 6 × 4 points, made up."""
    with netCDF4.Dataset(path, "w") as tile:
        size = [b - a + 1 for a, b in zip(first, last, strict=True)]
        tile.createDimension("x", size[0])
        tile.createDimension("y", size[1])
        tile.createDimension("t", None)
        tile.createDimension("n", None)
        for name, value in {
            "dimensions_ids": (1, 2), "size_global": (6, 4), "size_local": size, "position_first": first,
            "position_last": last, "halo_size_start": (0, 0), "halo_size_end": (0, 0),
        }.items():  # fmt: skip
            tile.setncattr(f"DOMAIN_{name}", np.array(value, "i4"))
        fill(tile)
    return path


def test_strings_and_several_unlimited_dimensions(join: Callable[..., Result], tmp_path: Path):
    rows = [slice(0, 1), slice(1, 4)]
    field = np.arange(2 * 3 * 4 * 6, dtype="i8").reshape(2, 3, 4, 6)
    names = np.array([[f"{j},{i}" * i for i in range(6)] for j in range(4)], object)

    def fill(row: slice) -> Callable[[netCDF4.Dataset], None]:
        def put(tile: netCDF4.Dataset) -> None:
            tile.createVariable("field", "i8", ("t", "n", "y", "x"), zlib=True)[:] = field[:, :, row]
            tile.createVariable("names", str, ("y", "x"))[:] = names[row]
            tile.createVariable("empty", "f4", ("y",), fill_value=-1.0)

        return put

    tiles = [
        nemo_like(tmp_path / f"made_000{k}.nc", (1, row.start + 1), (6, row.stop), fill(row)) for k, row in enumerate(rows)
    ]
    joined(join(*tiles, "-o", tmp_path / "made.nc"))
    with netCDF4.Dataset(tmp_path / "made.nc") as whole:
        assert np.array_equal(whole["field"][...], field)
        assert np.array_equal(whole["names"][...], names)
        whole.set_auto_mask(False)
        assert np.array_equal(whole["empty"][...], np.full(4, -1.0))


def test_land_that_nemo_leaves_out_is_filled(join: Callable[..., Result], tmp_path: Path):
    def put(tile: netCDF4.Dataset) -> None:
        tile.DOMAIN_number_total, tile.DOMAIN_number = np.int32(2), np.int32(tile.DOMAIN_position_first[1] > 1)
        tile.createVariable("sst", "f4", ("y", "x"))[:] = 7.0
        tile.createVariable("mask", "i1", ("y", "x"), fill_value=0)[:] = 1

    tiles = [
        nemo_like(tmp_path / "made_0000.nc", (1, 1), (6, 2), put),
        nemo_like(tmp_path / "made_0001.nc", (1, 3), (4, 4), put),
    ]
    result = joined(join(*tiles, "-o", tmp_path / "made.nc"))
    assert "4 points are in no tile" in result.stdout
    with netCDF4.Dataset(tmp_path / "made.nc") as whole:
        whole.set_auto_mask(False)
        land = np.zeros((4, 6), bool)
        land[2:, 4:] = True
        assert np.array_equal(whole["sst"][...], np.where(land, netCDF4.default_fillvals["f4"], 7).astype("f4"))
        assert np.array_equal(whole["mask"][...], ~land)
        assert whole.DOMAIN_number_total == 1 and list(whole.DOMAIN_position_last) == [6, 4]


def test_a_bad_rule_is_one_line(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    tiles = tiles_of(shared, "nemo/mesh_mask_0000.nc")
    out = tmp_path / "out.nc"
    assert "unknown key datasets[0].codek; did you mean datasets.codec?" in refused(
        join(*tiles, "-o", out, "-r", "codek: zstd"), out
    )


def test_the_missing_part_is_named(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "out.nc"
    tiles = tiles_of(shared, f"wrf471/split4/{LATER}_0000")
    said = refused(join(*tiles[:2], tiles[3], "-o", out), out)
    assert "in no tile: south_north 22 to 42, west_east 1 to 21 (counted from 1)" in said
    said = refused(join(*tiles_of(shared, "nemo/mesh_mask_0000.nc")[1:], "-o", out), out)
    assert "missing of 4 tiles: number 0" in said


def test_tiles_of_another_run_are_refused(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "out.nc"
    four, six = (tiles_of(shared, f"wrf471/{split}/{LATER}_0000") for split in ("split4", "split6"))
    # As if a tile of one had been copied over the other's.
    mixed = linked([six[0], *four[1:]], tmp_path)
    assert "are not tiles of one dataset: attribute NTASKS_Y is " in refused(join(*mixed, "-o", out), out)


def test_tiles_of_another_time_are_refused(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "out.nc"
    now, later = (tiles_of(shared, f"wrf471/split4/{name}_0000") for name in (HISTORY, LATER))
    mixed = linked([now[0], *later[1:]], tmp_path)
    said = refused(join(*mixed, "-o", out), out)
    assert "disagree about Times, which is neither's own" in said
    # Whoever insists gets what he asked for, and is told.
    result = joined(join(*mixed, "-o", out, "--take-first"))
    assert "tiles disagree, the first one's values are taken: Times" in result.stdout
    with netCDF4.Dataset(out) as whole, netCDF4.Dataset(now[0]) as first:
        assert whole["Times"][...].tobytes() == first["Times"][...].tobytes()


def test_tiles_with_another_number_of_frames_are_refused(
    shared: Shared, write_split: Callable[..., list[Path]], join: Callable[..., Result], tmp_path: Path
):
    source = shared("wrf471/serial/wrfout_d01_4frames.nc")
    long = write_split(source, 2, "--frames", "3", "--frames-per-file", "3")
    short = tmp_path / "short"
    short.mkdir()
    (tmp_path / "split2").rename(short / "long")
    short_tiles = write_split(source, 2, "--frames", "2", "--frames-per-file", "2")
    out = tmp_path / "out.nc"
    said = refused(join(short / "long" / long[0].name, short_tiles[1], "-o", out), out)
    assert "are in several directories" in said
    shutil.copy(short / "long" / long[1].name, short_tiles[1])
    assert "has 3 records of Time" in refused(join(*short_tiles, "-o", out), out)


def test_what_is_no_tile_is_refused(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "out.nc"
    plain = shared("metgrid/met_em.d01.2005-08-28_12_00_00.nc")
    (tmp_path / "text_0000").write_text("not netCDF")
    assert "NetCDF: Unknown file format" in refused(join(tmp_path / "text_0000", "-o", out), out)
    with netCDF4.Dataset(tmp_path / "plain_0000", "w") as made:
        made.createDimension("x", 3)
    assert "is not a tile of split output" in refused(join(tmp_path / "plain_0000", "-o", out), out)
    # METGRID marks its files as WRF does: one process wrote this one, so it is the whole.
    joined(join(plain, "-o", out))
    assert_same(plain, out)


def test_a_tile_that_is_cut_off_is_refused(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "out.nc"
    tiles = [tmp_path / tile.name for tile in tiles_of(shared, f"wrf471/split4/{LATER}_0000")]
    for tile in tiles:
        shutil.copy(shared(f"wrf471/split4/{tile.name}"), tile)
    os.truncate(tiles[2], tiles[2].stat().st_size // 2)
    assert tiles[2].name in refused(join(*tiles, "-o", out), out, code=1)


def test_what_is_there_stays_unless_forced(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    out = tmp_path / "out.nc"
    out.write_text("precious")
    tiles = tiles_of(shared, "nemo/mesh_mask_0000.nc")
    result = join(*tiles, "-o", out)
    assert result.code == 2 and "is there already; --force replaces it" in result.stderr, result.said
    assert out.read_text() == "precious"
    assert join(*tiles[1:], "-o", out, "--force").code == 2
    assert out.read_text() == "precious"
    joined(join(*tiles, "-o", out, "--force"))
    assert_same(shared("nemo/mesh_mask.nc"), out)


def test_no_tile_is_written_over(shared: Shared, join: Callable[..., Result], tmp_path: Path):
    tiles = []
    for tile in tiles_of(shared, "nemo/mesh_mask_0000.nc"):
        tiles.append(tmp_path / tile.name)
        shutil.copy(tile, tiles[-1])
    before = tiles[0].read_bytes()
    result = join(*tiles, "-o", tiles[0], "--force")
    assert result.code == 2 and "is one of the tiles" in result.stderr, result.said
    assert tiles[0].read_bytes() == before


def test_ctrl_c_is_one_line_and_keeps_what_is_joined(shared: Shared, advectio: Advectio, tmp_path: Path):
    """Of two files the first is complete when the second is interrupted."""
    for tile in tiles_of(shared, "nemo/mesh_mask_0000.nc"):
        (tmp_path / tile.name).symlink_to(tile)
    for tile in tiles_of(shared, f"wrf471/split4/{RESTART}_0000"):
        (tmp_path / tile.name).symlink_to(tile)
    command = [advectio.command, "join", "mesh_mask_0000.nc", f"{RESTART}_0000", "-o", "out"]
    for _ in range(10):  # on a busy machine it may be through before the signal is sent
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        (tmp_path / "out").mkdir()
        running = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        until = time.monotonic() + 60
        while not (tmp_path / "out" / f".{RESTART}.advectio-join").exists():
            assert running.poll() is None and time.monotonic() < until
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        stdout, stderr = running.communicate(timeout=60)
        if running.returncode != 0:
            break
    assert running.returncode == 130, stderr
    assert stderr == f"advectio: error: out/{RESTART}: interrupted; it is not written\n"
    assert stdout.startswith("out/mesh_mask.nc: 4 tiles of NEMO, 53 variables")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mesh_mask.nc"]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_join_leaves_nothing_at_its_path(
    shared: Shared, advectio: Advectio, join: Callable[..., Result], tmp_path: Path, by: signal.Signals
):
    server = Path(joined_server(advectio))
    tiles = tiles_of(shared, f"wrf471/split4/{RESTART}_0000")
    out = tmp_path / "out.nc"
    worker = subprocess.Popen(
        [server, "join", "--output", out, *tiles], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )
    assert worker.stdout and worker.stderr
    worker.stdout.readline()  # the first variable is done, hundreds are not
    readers = children(worker.pid)
    assert readers
    worker.send_signal(by)
    _, errors = worker.communicate(timeout=60)
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in readers):
        assert time.monotonic() < until, "a reader is still there"
        time.sleep(0.02)
    assert worker.returncode == (1 if by == signal.SIGTERM else -by), errors
    assert not out.exists()
    left = [p.name for p in tmp_path.iterdir() if "advectio-join" in p.name]
    assert left if by == signal.SIGKILL else not left
    # What a killed one has left is in nobody's way.
    joined(join(*tiles, "-o", out))
    assert_same(shared(f"wrf471/serial/{RESTART}"), out)
    assert not [p.name for p in tmp_path.iterdir() if "advectio-join" in p.name]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_reader_that_dies_is_said(shared: Shared, advectio: Advectio, tmp_path: Path):
    command = [joined_server(advectio), "join", "--output", tmp_path / "out.nc"]
    worker = subprocess.Popen(
        [*command, *tiles_of(shared, f"wrf471/split4/{RESTART}_0000")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert worker.stdout
    worker.stdout.readline()
    os.kill(children(worker.pid)[0], signal.SIGKILL)
    _, errors = worker.communicate(timeout=60)
    assert (worker.returncode, errors) == (1, "advectiod: error: a process that reads files has ended\n")
    assert list(tmp_path.glob("*out.nc*")) == [] and list(tmp_path.glob(".*out.nc*")) == []


def joined_server(advectio: Advectio) -> str:
    """advectiod, as the command line finds it."""
    code = "from advectio import installation; print(installation.find().server)"
    done = run_plainly([advectio.command.with_name("python"), "-c", code], advectio.scratch)
    assert done.code == 0, done.said
    return done.stdout.strip()


def test_a_full_disk_is_said_and_leaves_nothing(shared: Shared, advectio: Advectio, tmp_path: Path):
    tiles = tiles_of(shared, f"wrf471/split4/{RESTART}_0000")
    out = tmp_path / "out.nc"
    limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 2000; exec "$@"', "sh", advectio.command]
    result = run_plainly([*limited, "join", *tiles, "-o", out], tmp_path)
    assert "File too large" in refused(result, out, code=1)


def test_two_joins_of_one_file_do_not_meet(shared: Shared, advectio: Advectio, tmp_path: Path):
    tiles = tiles_of(shared, f"wrf471/split4/{RESTART}_0000")
    command = [joined_server(advectio), "join", "--output", tmp_path / "out.nc", *tiles]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment())
    assert first.stdout
    first.stdout.readline()
    second = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=60, check=False)
    until = time.monotonic() + 60
    first.communicate(timeout=max(1.0, until - time.monotonic()))
    assert first.returncode == 0
    assert second.returncode == 2, second.stderr
    assert "is just being made by another process" in second.stderr or "is there already" in second.stderr
    assert_same(shared(f"wrf471/serial/{RESTART}"), tmp_path / "out.nc")


def test_tiles_written_under_advectio_join_as_well(shared: Shared, advectio: Advectio, replay: Path, tmp_path: Path):
    """The script of a run may join what its model has just written."""
    source = shared(f"wrf471/serial/{LATER}")
    script = tmp_path / "job.sh"
    script.write_text(
        f"mpirun -n 4 {replay} --io split {source} > /dev/null && {advectio.command} join *_0000 -o whole.nc --rule 'format: cdf5'\n"
    )
    work = tmp_path / "work"
    work.mkdir()
    advectio.run(["sh", script], work, datasets=4)
    changed = [line for line in differences(source, work / "whole.nc") if not line.startswith("attribute NTASKS")]
    assert changed == ["format: netCDF-4 / CDF-5"]
