"""Tiles as FMS, MITgcm, DALES and SCALE write them: `join` makes the file that one process of the model would write."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import tiles_of_models as made
from conftest import Pair
from running import Advectio, Result, output_files, run_plainly
from same import assert_same, differences

Join = Callable[..., Result]
JOIN = 'datasets: [{match: "*", join: true}]\n'


@pytest.fixture
def join(advectio: Advectio, tmp_path: Path) -> Join:
    return lambda *words: advectio.call("join", *words, directory=tmp_path)


def joined(result: Result) -> Result:
    assert result.code == 0, result.said
    return result


def refused(join: Join, *tiles: object) -> str:
    """Its words."""
    out = Path("refused.nc")
    result = join(*tiles, "-o", out)
    assert result.code == 2, result.said
    assert len(result.stderr.splitlines()) == 1, result.said
    return result.stderr


def change(path: Path, what: Callable[[netCDF4.Dataset], None]) -> Path:
    with netCDF4.Dataset(path, "a") as file:
        what(file)
    return path


# ---- FMS ----


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_64BIT_OFFSET"])
@pytest.mark.parametrize("columns, rows", [(4, 3), (1, 4), (1, 1)])
def test_fms_is_what_one_process_writes(join: Join, tmp_path: Path, columns: int, rows: int, format: str):
    made.fms(tmp_path, made.parts(23, columns), made.parts(14, rows), format=format)
    said = joined(join("atmos_daily.nc.0000", "-o", "joined/")).stdout
    assert f"{columns * rows} tile" in said and "of FMS" in said
    found = list(differences(tmp_path / "whole.nc", tmp_path / "joined" / "atmos_daily.nc"))
    assert found == []


def test_fms_counts_from_0_where_its_whole_does(join: Join, tmp_path: Path):
    """Faces of Canoe: 0 to N, each tile with both of its ends."""
    made.fms(tmp_path, made.parts(12, 3), made.parts(8, 2))

    def from_0(file: netCDF4.Dataset) -> None:
        file["lonb"].domain_decomposition = file["lonb"].domain_decomposition - np.int32(1)

    for path in [*tmp_path.glob("atmos_daily.nc.*"), tmp_path / "whole.nc"]:
        change(path, from_0)
    joined(join("atmos_daily.nc.0003", "-o", "joined.nc"))
    assert_same(tmp_path / "whole.nc", tmp_path / "joined.nc")


def test_land_that_fms_leaves_out_is_filled(join: Join, tmp_path: Path):
    model = made.fms(tmp_path, made.parts(12, 3), made.parts(8, 2), files=5)
    gone = tmp_path / "atmos_daily.nc.0004"
    with netCDF4.Dataset(gone) as file:
        lon, lat = (slice(d[2] - 1, d[3]) for d in (file["lon"].domain_decomposition, file["lat"].domain_decomposition))
    gone.unlink()
    said = joined(join("atmos_daily.nc.0000", "-o", "joined.nc")).stdout
    assert "points are in no tile (land that FMS leaves out)" in said
    with netCDF4.Dataset(tmp_path / "joined.nc") as file:
        file.set_auto_mask(False)
        expected = model.values("temp")
        expected[:, :, lat, lon] = np.float32(1e20)
        assert np.array_equal(file["temp"][:], expected)


def test_a_tile_of_fms_that_is_missing_is_said(join: Join, tmp_path: Path):
    made.fms(tmp_path, made.parts(12, 3), made.parts(8, 2))
    (tmp_path / "atmos_daily.nc.0004").unlink()
    said = refused(join, "atmos_daily.nc.0000")
    assert "a part of the domain is in no tile: lat " in said and "; 5 of 6 tiles are there" in said


def test_a_tile_of_fms_that_is_there_twice_does_not_count_for_a_missing_one(join: Join, tmp_path: Path):
    made.fms(tmp_path, made.parts(12, 3), made.parts(8, 2))
    shutil.copy(tmp_path / "atmos_daily.nc.0003", tmp_path / "atmos_daily.nc.0004")
    assert "; 5 of 6 tiles are there" in refused(join, "atmos_daily.nc.0000")


def test_tiles_of_fms_that_overlap_are_refused(join: Join, tmp_path: Path):
    made.fms(tmp_path, [slice(0, 6), slice(4, 12)], [slice(0, 8)])
    assert "overlap but are not the same: lon 5 to 6" in refused(join, "atmos_daily.nc.0000")


def test_what_fms_does_not_say_is_named(join: Join, tmp_path: Path):
    made.fms(tmp_path, made.parts(12, 3), made.parts(8, 2))
    tile = tmp_path / "atmos_daily.nc.0004"

    def without(*names: str) -> Callable[[netCDF4.Dataset], None]:
        return lambda file: [file[name].delncattr("domain_decomposition") for name in names]

    change(tile, without("lon"))
    assert "atmos_daily.nc.0004" in (said := refused(join, "atmos_daily.nc.0000"))
    assert "not tiles of one dataset: dimension lon is " in said
    change(tile, without("lonb", "lat", "latb"))
    said = refused(join, "atmos_daily.nc.0000")
    assert "atmos_daily.nc.0004: NumFilesInSet is 6, but no coordinate variable has domain_decomposition" in said
    change(tile, lambda file: file["lat"].setncattr("domain_decomposition", np.array([1, 8, 1, 3], "i4")))
    assert "dimension lat has" in (said := refused(join, "atmos_daily.nc.0000"))
    assert "domain_decomposition says 1 to 3" in said


# ---- MITgcm ----


@pytest.mark.parametrize("in_directories", [False, True])
@pytest.mark.parametrize("tiles", [(4, 3), (1, 2), (3, 1)])
def test_mitgcm_is_what_one_process_writes(join: Join, tmp_path: Path, tiles: tuple[int, int], in_directories: bool):
    made.mitgcm(tmp_path, (3, 4), tiles, in_directories=in_directories)
    first = "mnc_test_0001/state.0000000000.t001.nc" if in_directories else "state.0000000000.t001.nc"
    said = joined(join(first, "-o", "joined/")).stdout
    assert f"{tiles[0] * tiles[1]} tiles of MITgcm" in said
    assert_same(tmp_path / "whole.nc", tmp_path / "joined" / "state.0000000000.nc")


def test_all_tiles_of_mitgcm_may_be_named(join: Join, tmp_path: Path):
    made.mitgcm(tmp_path, (3, 4), (2, 2), in_directories=True)
    joined(join(tmp_path / "mnc_*" / "*.t*.nc", "-o", "joined.nc"))
    assert_same(tmp_path / "whole.nc", tmp_path / "joined.nc")


@pytest.mark.parametrize("blank", [(), (3, 8)])
def test_faces_of_a_cube_lie_where_exch2_says(join: Join, tmp_path: Path, blank: tuple[int, ...]):
    tiles = made.mitgcm_cube(tmp_path, 4, blank=blank)
    joined(join(*tiles, "-o", "joined.nc"))
    with netCDF4.Dataset(tmp_path / "joined.nc") as whole:
        whole.set_auto_mask(False)
        fill = netCDF4.default_fillvals["f8"]
        expected, edges = np.full((4, 24), fill), np.full((4, 25), fill)
        for path in tiles:
            with netCDF4.Dataset(path) as tile:
                x, y = tile.exch2_txGlobalo - 1, tile.exch2_tyGlobalo - 1
                expected[y : y + 2, x : x + 4] = tile["rA"][:]
                last = 5 if x == 20 else 4  # the face behind has the edge
                edges[y : y + 2, x : x + last] = tile["dyG"][:, :last]
        assert np.array_equal(whole["rA"][:], expected)
        assert np.array_equal(whole["dyG"][:], edges)
        assert (whole.sNx, whole.sNy, whole.nSx, whole.tile_number) == (24, 4, 1, 1)


def test_a_tile_of_mitgcm_that_is_missing_is_said(join: Join, tmp_path: Path):
    made.mitgcm(tmp_path, (3, 4), (4, 3))
    (tmp_path / "state.0000000000.t006.nc").unlink()
    said = refused(join, "state.0000000000.t001.nc")
    assert "is in no tile: Y 5 to 8, X 4 to 6" in said and "missing of 12 tiles: number 5" in said


def test_what_mitgcm_does_not_say_is_named(join: Join, tmp_path: Path):
    made.mitgcm(tmp_path, (3, 4), (2, 2))
    tile = tmp_path / "state.0000000000.t003.nc"
    change(tile, lambda file: file.setncattr("tile_number", np.int32(5)))
    assert "t003.nc: tile_number is 5 of 4" in refused(join, "state.0000000000.t001.nc")
    change(tile, lambda file: file.delncattr("tile_number"))
    assert "t003.nc: attribute tile_number is missing" in refused(join, "state.0000000000.t001.nc")
    change(tile, lambda file: file.setncattr("tile_number", np.int32(2)))
    said = refused(join, "state.0000000000.t001.nc")
    assert "missing of 4 tiles: number 2" in said or "disagree about" in said
    change(tile, lambda file: file.setncattr("sNx", np.int32(4)))
    assert "t003.nc: dimension X has 3 points, but the tile has 4 cells" in refused(join, "state.0000000000.t001.nc")


# ---- tiles that only their coordinates place: DALES ----


@pytest.mark.parametrize("processors", [(4, 3), (1, 4), (3, 1)])
def test_dales_is_placed_by_its_coordinates(join: Join, tmp_path: Path, processors: tuple[int, int]):
    made.dales(tmp_path, (3, 4), processors)
    said = joined(join("fielddump.000.000.001.nc", "-o", "joined/")).stdout
    assert f"{processors[0] * processors[1]} tiles placed by their coordinates" in said
    assert_same(tmp_path / "whole.nc", tmp_path / "joined" / "fielddump.001.nc")


def test_a_file_alone_that_says_nothing_is_refused(join: Join, tmp_path: Path):
    made.dales(tmp_path, (3, 4), (1, 1))
    assert "is not a tile of split output" in refused(join, "fielddump.000.000.001.nc")


@pytest.mark.parametrize(
    "gone, says", [("001.001", "a part of the domain is in no tile"), ("001.*", "coordinate xt is in no tile")]
)
def test_a_part_of_dales_that_is_missing_is_said(join: Join, tmp_path: Path, gone: str, says: str):
    made.dales(tmp_path, (3, 4), (4, 3))
    for path in tmp_path.glob(f"fielddump.{gone}.001.nc"):
        path.unlink()
    assert says in refused(join, "fielddump.000.000.001.nc")


@pytest.mark.parametrize(
    "shift, says",
    [
        (lambda i, j: (-75.0 * i, 0), "tiles overlap in the coordinate xt: "),
        (lambda i, j: (0, 50.0 * j), "a part of the coordinate yt is in no tile: "),
        (lambda i, j: (-150.0 * i, 0), "the coordinate xt is not in the order of the processors"),
        (lambda i, j: (-300.0 * i, 0), "the coordinate xt is not in the order of the processors"),
        # As older versions: all count from 0 in x, and by their rank in y.
        (lambda i, j: (-150.0 * i, 200.0 * (3 * i + j) - 200.0 * j), "is not in the order of the processors"),
    ],
)
def test_coordinates_that_do_not_fit_are_refused(
    join: Join, tmp_path: Path, shift: Callable[[int, int], tuple[float, float]], says: str
):
    made.dales(tmp_path, (3, 4), (3, 3), shift=shift)
    said = refused(join, "fielddump.000.000.001.nc")
    assert says in said


def plain(path: Path, **axes: object) -> Path:
    """A file of two axes and one field of their sums."""
    with netCDF4.Dataset(path, "w") as file:
        for name, values in axes.items():
            file.createDimension(name, len(values))  # type: ignore[arg-type]
            file.createVariable(name, "f8", (name,))[:] = values
        file.createVariable("sum", "f8", tuple(axes))[:] = np.add.outer(*axes.values())
    return path


def test_any_axes_place_tiles(join: Join, tmp_path: Path):
    """Falling latitudes with steps of their own; longitudes of which both neighbours have the edge; in any order."""
    lat, lon = np.array([80.0, 60, 45, 30, 10, 0, -20]), np.array([0.0, 1, 3, 6, 8, 9, 11])
    tiles = [
        plain(tmp_path / f"part{i}{j}.nc", lat=lat[a], lon=lon[b])
        for i, a in enumerate((slice(0, 1), slice(1, 5), slice(5, 7)))
        for j, b in enumerate((slice(0, 4), slice(3, 7)))
    ]
    joined(join(*reversed(tiles), "-o", "joined.nc"))
    assert_same(plain(tmp_path / "whole.nc", lat=lat, lon=lon), tmp_path / "joined.nc")


@pytest.mark.parametrize(
    "one, other, says",
    [
        ([1.0, 2], [1.0, 2], "have the same coordinates"),
        ([1.0, 2, 3], [2.0, 3], "tiles overlap in the coordinate x: "),
        ([1.0, 2, 3], [1.0, 2], "tiles overlap in the coordinate x: "),
        ([1.0, 2, 3], [6.0, 7], "a part of the coordinate x is in no tile: "),
        ([1.0, 2, 3], [6.0, 5, 4], "one.nc: its coordinate x does not fall from 1 to 2"),
        ([1.0, 2, 2], [3.0, 4], "one.nc: its coordinate x does not rise from 2 to 2"),
        ([1.0, 2], [3.0, np.nan], "other.nc: its coordinate x does not rise from 3 to nan"),
    ],
)
def test_axes_that_do_not_fit_are_refused(join: Join, tmp_path: Path, one: list[float], other: list[float], says: str):
    tiles = [plain(tmp_path / name, y=[1.0, 2], x=x) for name, x in (("one.nc", one), ("other.nc", other))]
    assert says in refused(join, *tiles)


def test_a_tile_among_others_that_says_nothing_is_named(join: Join, tmp_path: Path):
    made.mitgcm(tmp_path, (3, 4), (2, 2))
    shutil.copy(plain(tmp_path / "a.nc", y=[1.0], x=[1.0, 2]), tmp_path / "state.0000000000.t003.nc")
    assert "t003.nc is not a tile of split output" in refused(join, "state.0000000000.t001.nc")


# ---- SCALE ----


@pytest.mark.parametrize("outer, inner", [(0, 0), (2, 0), (2, 2)])
def test_halos_of_scale_are_those_of_one_process(join: Join, tmp_path: Path, outer: int, inner: int):
    made.scale(tmp_path, (4, 5), (3, 2), outer=outer, inner=inner)
    joined(join("history.pe000000.nc", "-o", "joined.nc"))
    assert_same(tmp_path / "whole.nc", tmp_path / "joined.nc")


# ---- by the other commands ----


def test_convert_reads_tiles_of_fms_and_mitgcm_as_their_whole(advectio: Advectio, tmp_path: Path):
    made.fms(tmp_path, made.parts(12, 3), made.parts(8, 2))
    result = advectio.call("convert", "atmos_daily.nc.*", "fms.nc", directory=tmp_path)
    assert result.code == 0 and "6 tiles of FMS" in result.stdout, result.said
    assert_same(tmp_path / "whole.nc", tmp_path / "fms.nc")
    made.mitgcm(tmp_path, (3, 4), (2, 2), in_directories=True)
    result = advectio.call("convert", "mnc_test_*/state.*.nc", "mitgcm.nc", directory=tmp_path)
    assert result.code == 0 and "4 tiles of MITgcm" in result.stdout, result.said
    assert_same(tmp_path / "whole.nc", tmp_path / "mitgcm.nc")


def test_convert_does_not_take_one_face_for_the_whole(advectio: Advectio, tmp_path: Path):
    """Alone it reaches as far as it says that the whole does."""
    first = made.mitgcm_cube(tmp_path, 4)[0]
    result = advectio.call("convert", first, "face.nc", directory=tmp_path)
    assert result.code == 2 and "1 of 12 tiles are there" in result.stderr, result.said


# ---- while the program runs ----


@pytest.fixture
def write_tiles(pair: Pair, tool: Callable[[str], str]) -> Callable[..., Result]:
    """Each tile by a process of its own under `join: true`."""

    def write(directory: Path, pattern: str, datasets: int) -> Result:
        tiles = sorted(directory.rglob(pattern))
        script = pair.advectio.scratch / "job.sh"
        copies = [f"{tool('nccopy')} {tile} {tile.relative_to(directory)} &" for tile in tiles]
        homes = {str(tile.parent.relative_to(directory)) for tile in tiles}
        script.write_text("\n".join([f"mkdir -p {' '.join(homes)}", *copies, "wait"]) + "\n")
        return pair.advectio.run(["sh", script], pair.carried, JOIN, datasets=datasets)

    return write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


def assert_copied(source: Path, carried: Path) -> None:
    """nccopy sets no fill mode."""
    assert [line for line in differences(source, carried) if ": fill (off" not in line] == []


@pytest.mark.parametrize("counted", [True, False])
def test_fms_is_joined_as_it_is_written(write_tiles: Callable[..., Result], source: Path, pair: Pair, counted: bool):
    made.fms(source, made.parts(23, 3), made.parts(14, 2))
    if not counted:
        for path in source.iterdir():
            change(path, lambda file: file.delncattr("NumFilesInSet"))
    result = write_tiles(source, "atmos_daily.nc.*", 1)
    assert output_files(pair.carried) == ["atmos_daily.nc"], result.said
    assert_copied(source / "whole.nc", pair.carried / "atmos_daily.nc")


def test_land_that_fms_leaves_out_is_filled_as_it_is_written(
    write_tiles: Callable[..., Result], source: Path, pair: Pair, join: Join, tmp_path: Path
):
    made.fms(source, made.parts(12, 3), made.parts(8, 2), files=5)
    (source / "atmos_daily.nc.0004").unlink()
    result = write_tiles(source, "atmos_daily.nc.*", 1)
    assert output_files(pair.carried) == ["atmos_daily.nc"], result.said
    joined(join(source / "atmos_daily.nc.0000", "-o", tmp_path / "joined.nc"))
    assert_copied(tmp_path / "joined.nc", pair.carried / "atmos_daily.nc")


def test_tiles_of_fms_without_one_are_files_of_their_own(write_tiles: Callable[..., Result], source: Path, pair: Pair):
    made.fms(source, made.parts(12, 3), made.parts(8, 2))
    (source / "atmos_daily.nc.0004").unlink()
    result = write_tiles(source, "atmos_daily.nc.*", 5)
    assert "in no tile: lat " in result.stderr and "5 of 6 tiles are there" in result.stderr, result.said
    for path in source.glob("atmos_daily.nc.*"):
        assert_copied(path, pair.carried / path.name)


@pytest.mark.parametrize("in_directories", [False, True])
def test_mitgcm_is_joined_as_it_is_written(write_tiles: Callable[..., Result], source: Path, pair: Pair, in_directories: bool):
    made.mitgcm(source, (3, 4), (3, 2), in_directories=in_directories)
    result = write_tiles(source, "state.*.nc", 1)
    assert output_files(pair.carried) == ["state.0000000000.nc"], result.said
    assert_same(source / "whole.nc", pair.carried / "state.0000000000.nc")


@pytest.mark.parametrize("in_directories", [False, True])
def test_tiles_may_grow_from_sync_to_sync(source: Path, pair: Pair, in_directories: bool):
    """MITgcm defines, puts and syncs each variable with its dimensions before the next."""
    made.mitgcm(source, (3, 4), (2, 2))
    script = pair.advectio.scratch / "tile.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(made.__file__).parent)!r})\n"
        "from pathlib import Path\nfrom tiles_of_models import mitgcm\n"
        f"mitgcm(Path(), (3, 4), (2, 2), only=int(sys.argv[1]), in_directories={in_directories})\n"
    )
    job = pair.advectio.scratch / "job.sh"
    python = pair.advectio.command.with_name("python")
    job.write_text("\n".join([*(f"{python} {script} {tile} &" for tile in range(4)), "wait"]) + "\n")
    result = pair.advectio.run(["sh", job], pair.carried, JOIN, datasets=1)
    assert output_files(pair.carried) == ["state.0000000000.nc"], result.said
    changed = set(differences(source / "whole.nc", pair.carried / "state.0000000000.nc"))
    assert not changed, result.said


def test_dales_is_written_as_it_is(write_tiles: Callable[..., Result], source: Path, pair: Pair):
    """Values are not known before they are joined."""
    made.dales(source, (3, 4), (2, 1))
    result = write_tiles(source, "fielddump.*", 2)
    assert output_files(pair.carried) == ["fielddump.000.000.001.nc", "fielddump.001.000.001.nc"], result.said
    assert "not named like a tile" in result.stderr
    for name in output_files(pair.carried):
        assert_copied(source / name, pair.carried / name)
    assert run_plainly([pair.advectio.command, "join", "fielddump.000.000.001.nc", "-o", "joined.nc"], pair.carried).code == 0
    assert_copied(source / "whole.nc", pair.carried / "joined.nc")
