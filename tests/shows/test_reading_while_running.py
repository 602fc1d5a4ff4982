"""Ordinary readers, outside of the run, that open a file while its program writes it, and keep it open. HDF5's lock keeps them
out of a file that the library writes; of one that Advectio writes they see the last commit, and harm nobody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Advectio, environment

FRAMES = 3
MODEL = """
import sys, netCDF4
def turn():
    print("done", flush=True)
    sys.stdin.readline()
with netCDF4.Dataset("out.nc", "w") as file:
    file.createDimension("time", None)
    file.createDimension("x", 1000)
    t = file.createVariable("t", "f4", ("time", "x"))
    for frame in range(3):
        t[frame] = frame
        file.sync()
        turn()
turn()
if len(sys.argv) > 1:
    netCDF4.Dataset("out.nc", sys.argv[1]).close()
"""
READER = "import netCDF4; print(len(netCDF4.Dataset('out.nc').dimensions['time']))"
CONFIG = 'datasets:\n  - match: "*"\n    promise: visible\n'  # a sync returns when the frame is in the file


class Model:
    def __init__(self, before: Sequence[str | Path], directory: Path, *words: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen(
            [*map(str, before), sys.executable, "-c", MODEL, *words], cwd=directory, env=environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def done(self) -> None:
        """It has synced the next frame, or closed the file, and waits."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line != "done\n":
            raise AssertionError(f"{line}{self.process.communicate(timeout=60)[1]}")

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        said = self.process.communicate(timeout=60)[1]
        return self.process.returncode, said

    def seen(self) -> str:
        """By a reader that comes now."""
        told = subprocess.run(
            [sys.executable, "-c", READER], cwd=self.directory, env=environment(), capture_output=True, text=True, check=False
        )
        return told.stdout.strip() or told.stderr.splitlines()[-1]


def test_the_library_keeps_readers_out(tmp_path: Path):
    model = Model([], tmp_path)
    for _ in range(FRAMES):
        model.done()
        assert model.seen() == "OSError: [Errno -101] NetCDF: HDF error: 'out.nc'"
        model.go_on()
    model.done()
    model.go_on()
    assert model.end() == (0, "")


def test_advectio_lets_them_in_and_one_that_stays_harms_nobody(advectio: Advectio, tmp_path: Path):
    (tmp_path / "advectio.yaml").write_text(CONFIG)
    model = Model([advectio.command, "run", "-q", "--"], tmp_path)
    model.done()
    with netCDF4.Dataset(tmp_path / "out.nc") as stays:
        for frame in range(FRAMES):
            if frame:
                model.done()
            assert model.seen() == str(frame + 1)
            model.go_on()
        model.done()
        model.go_on()
        assert model.end() == (0, "")
        np.testing.assert_array_equal(stays["t"][:], np.zeros((1, 1000)), "it keeps what it has opened")
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        np.testing.assert_array_equal(file["t"][:, 0], np.arange(FRAMES))


@pytest.mark.parametrize(("mode", "error"), [("a", "NetCDF: HDF error: 'out.nc'"), ("w", "Permission denied: 'out.nc'")])
@pytest.mark.parametrize("carried", [False, True])
def test_one_that_stays_keeps_a_program_from_its_closed_file(
    advectio: Advectio, tmp_path: Path, mode: str, error: str, carried: bool
):
    """Opened again for writing (the library does it, with Advectio too), or made anew in place."""
    (tmp_path / "advectio.yaml").write_text(CONFIG + "    appear: create\n")
    model = Model([advectio.command, "run", "-q", "--"] if carried else [], tmp_path, mode)
    for _ in range(FRAMES):
        model.done()
        model.go_on()
    model.done()
    with netCDF4.Dataset(tmp_path / "out.nc"):
        model.go_on()
        code, said = model.end()
    assert code == 1
    assert error in said


def test_one_that_stays_keeps_the_file_that_a_program_makes_anew(advectio: Advectio, tmp_path: Path):
    (tmp_path / "advectio.yaml").write_text(CONFIG)
    model = Model([advectio.command, "run", "-q", "--"], tmp_path, "w")
    for _ in range(FRAMES):
        model.done()
        model.go_on()
    model.done()
    with netCDF4.Dataset(tmp_path / "out.nc") as stays:
        model.go_on()
        assert model.end() == (0, "")
        np.testing.assert_array_equal(stays["t"][:, 0], np.arange(FRAMES))
    with netCDF4.Dataset(tmp_path / "out.nc") as file:
        assert not file.variables
