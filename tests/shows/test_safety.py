"""What a run keeps for its user alone, and what becomes of one whose stage somebody removes."""

import contextlib
import os
import shutil
import stat
import sys
from pathlib import Path

import netCDF4
import numpy as np
from running import Advectio, run_plainly

MANY_FILES = """
import resource, sys
import netCDF4
files = int(sys.argv[1])
open_files = [netCDF4.Dataset(f"station_{i:03}.nc", "w", format="NETCDF3_CLASSIC") for i in range(files)]
for f in open_files:
    f.createDimension("time", None)
    f.createVariable("t", "f8", ("time",))
for record in range(3):
    for i, f in enumerate(open_files):
        f["t"][record] = 1000 * record + i
        f.sync()
for f in open_files:
    f.close()
"""


def test_a_program_may_have_about_as_many_files_open_as_the_server_may(advectio: Advectio, tmp_path: Path):
    (tmp_path / "output").mkdir()
    files = 150
    limited = ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh"]
    run = [advectio.command, "run", "-q", "--run-dir", advectio.new_run_dir()]
    command = [*limited, *run, "--", sys.executable, "-c", MANY_FILES, str(files)]
    result = run_plainly(command, tmp_path / "output")
    assert (result.code, result.stderr) == (0, ""), result.said
    for i in range(files):
        with netCDF4.Dataset(tmp_path / "output" / f"station_{i:03}.nc") as f:
            np.testing.assert_array_equal(f["t"][:], [i, 1000 + i, 2000 + i])


def test_all_that_a_run_holds_is_private_under_any_umask(advectio: Advectio, replay: Path, made: Path, tmp_path: Path):
    (tmp_path / "output").mkdir()
    old = os.umask(0)
    try:
        running = advectio.start(
            [replay, "--frames", "1000", "--compute", "0.05", made], tmp_path / "output", "server: {threads: 1}\n"
        )
        running.wait_for(lambda: running.frames() >= 2, "a frame was written")
        run_dir = advectio.run_dirs[-1]
        modes = {}
        for path in [run_dir, *run_dir.rglob("*")]:
            with contextlib.suppress(FileNotFoundError):  # the run goes on
                modes[path] = path.lstat().st_mode
    finally:
        os.umask(old)
    running.kill("replay")
    running.finish()
    assert {"advectio.yaml", "advectiod.log", "secret", "socket"} <= {path.name for path in modes}
    open_to_others = {
        str(path): oct(mode) for path, mode in modes.items() if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }
    assert not open_to_others


def test_a_run_whose_stage_is_removed_ends_and_says_so(advectio: Advectio, replay: Path, made: Path, tmp_path: Path):
    (tmp_path / "output").mkdir()
    running = advectio.start([replay, "--frames", "30", "--compute", "0.05", made], tmp_path / "output")
    running.wait_for(lambda: running.frames() >= 2, "a frame was written")
    while advectio.run_dirs[-1].exists():  # something may be made in it meanwhile
        shutil.rmtree(advectio.run_dirs[-1], ignore_errors=True)
    result = running.finish(60)
    assert result.code != 0, result.said
    assert "has been removed under the run" in result.stderr, result.said
    assert not advectio.run_dirs[-1].exists(), "a new, empty stage was begun"


def test_a_run_directory_that_others_may_write_is_refused_in_one_line(
    advectio: Advectio, replay: Path, made: Path, tmp_path: Path
):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    for command in (("recover", theirs), ("status", theirs)):
        done = advectio.call(*command)
        assert done.code != 0
        assert "is not the run directory of a run" in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.said
    (theirs / "control").touch()
    for command in (("recover", theirs), ("status", theirs), ("inspect", theirs)):
        done = advectio.call(*command)
        assert done.code != 0
        assert "can be written by others, and is left alone\n" in done.stderr
        assert len(done.stderr.splitlines()) == 1, done.said
