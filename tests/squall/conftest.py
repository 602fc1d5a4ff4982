"""Runs of the squall model. The program is $SQUALL, else the newest one under the project's build directories."""

import os
import pathlib
import shutil
import subprocess

import netCDF4
import numpy as np
import pytest

PROJECT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program():
    if "SQUALL" in os.environ:
        return os.environ["SQUALL"]
    built = sorted(PROJECT.glob("build/**/examples/squall/squall"), key=lambda p: p.stat().st_mtime)
    if not built:
        pytest.skip("squall is not built: set SQUALL to the program")
    return str(built[-1])


@pytest.fixture(scope="session")
def launch(program):
    """launch(ranks, *flags) → the finished process, whatever became of it."""
    mpirun = shutil.which("mpirun") or shutil.which("mpiexec")
    if not mpirun:
        pytest.skip("no mpirun")
    # More ranks than cores, which may be busy with other tests: wait without spinning.
    environment = dict(
        os.environ,
        OMPI_MCA_rmaps_base_oversubscribe="1",
        OMPI_MCA_mpi_yield_when_idle="1",
        OMPI_MCA_pml="ob1",
        PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
    )
    give_way = PROJECT / "build/release/examples/give_way/libgive_way.so"
    if give_way.exists():
        environment["LD_PRELOAD"] = str(give_way)
    if os.geteuid() == 0:
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(ranks, *flags, wrapper=()):
        command = [mpirun, "-n", str(ranks), *wrapper, program, "--quiet", *map(str, flags)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return run


@pytest.fixture(scope="session")
def squall(launch, tmp_path_factory):
    """squall(ranks, *flags) → the directory of the files of a run that succeeded."""

    def run(ranks, *flags):
        directory = tmp_path_factory.mktemp("squall")
        done = launch(ranks, "--output", directory, *flags)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "squall: SUCCESS COMPLETE"
        return directory

    return run


@pytest.fixture(scope="session")
def read():
    """read(path, name…) → double arrays of the last frame of a file; without names a dict of all raw variables."""

    def values(path, *names):
        with netCDF4.Dataset(path) as data:
            data.set_auto_maskandscale(False)
            if not names:
                return {name: variable[:] for name, variable in data.variables.items()}
            arrays = [np.asarray(data[name][-1], dtype="f8") for name in names]
            return arrays[0] if len(arrays) == 1 else arrays

    return values


@pytest.fixture(scope="session")
def assert_same_files(read):
    """Every file of one directory which another has too: the same variables, bit for bit."""

    def compare(one, other, at_least):
        names = sorted({p.name for p in one.iterdir()} & {p.name for p in other.iterdir()})
        assert len(names) >= at_least
        for name in names:
            a, b = read(one / name), read(other / name)
            assert a.keys() == b.keys()
            for variable in a:
                assert a[variable].tobytes() == b[variable].tobytes(), f"{name}: {variable} differs"

    return compare
