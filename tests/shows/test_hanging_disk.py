"""One file lies on a disk that stops answering. Files on other disks are complete meanwhile."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Advectio

PROGRAM = """
import os, signal, subprocess, sys, time
import netCDF4, numpy
disk, there, here, form, advectio = int(sys.argv[1]), *sys.argv[2:]
a, b = (netCDF4.Dataset(name, "w", format=form) for name in (there, here))
for file, length in ((a, 1 << 18), (b, 1000)):
    file.createDimension("t", None)
    file.createDimension("x", length)
    file.createVariable("v", "f4", ("t", "x"))
a["v"][0] = 1.0
a.sync()
# A server that opens a file there, or names it, may wait for that disk. It has done so when the first frame is there.
subprocess.run([advectio, "wait", there, "--frames", "1"], check=True)
b["v"][0] = 0.0
b.sync()
os.kill(disk, signal.SIGSTOP)
a["v"][1] = 2.0
a.sync()
# Longer than the kernel keeps what it knows of files there.
for frame in range(1, 9):
    b["v"][frame] = frame
    b.sync()
    time.sleep(0.25)
os.kill(disk, signal.SIGCONT)
b.close()
a.close()
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A directory on a file system of its own, and the process that serves it."""
    bindfs = shutil.which("bindfs")
    if bindfs is None or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("needs bindfs and /dev/fuse")
    below, mounted = tmp_path / "below", tmp_path / "mounted"
    below.mkdir()
    mounted.mkdir()
    serving = subprocess.Popen([bindfs, "-f", below, mounted], stderr=subprocess.PIPE, text=True)
    while not os.path.ismount(mounted):
        if serving.poll() is not None:
            pytest.skip(f"bindfs cannot mount here: {serving.stderr.read() if serving.stderr else ''}")
        time.sleep(0.01)
    yield mounted, serving.pid
    serving.send_signal(signal.SIGCONT)
    serving.terminate()
    serving.wait()
    subprocess.run(["umount", "-l", mounted], check=False, capture_output=True)


@pytest.mark.parametrize("promise", ["visible", "durable"])
@pytest.mark.parametrize("form", ["NETCDF4", "NETCDF3_64BIT_OFFSET"])
def test_a_disk_that_hangs_holds_up_its_own_files_only(
    advectio: Advectio, disk: tuple[Path, int], form: str, promise: str, tmp_path: Path
):
    mounted, pid = disk
    (tmp_path / "output").mkdir()
    # The program waits in each sync of b.nc until the frame is in the file, or on its disk.
    config = f'datasets: [{{match: "*b.nc", promise: {promise}}}]\n'
    command = [sys.executable, "-c", PROGRAM, str(pid), mounted / "a.nc", "b.nc", form, advectio.command]
    running = advectio.start(command, tmp_path / "output", config)
    result = running.finish()
    assert result.code == 0, result.said
    with netCDF4.Dataset(mounted / "a.nc") as a, netCDF4.Dataset(tmp_path / "output" / "b.nc") as b:
        np.testing.assert_array_equal(a["v"][:, 0], [1, 2])
        np.testing.assert_array_equal(b["v"][:, 0], range(9))
