from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from advectio import cli
from running import COMMAND, ROOT, Advectio, Result, environment, output_files, run_plainly
from same import differences
from two_hosts import host  # noqa: F401  (a fixture)

# In the background of a shell without job control everything that is started here would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(os.environ.get("ADVECTIO_SHARED", ROOT.parent / "shared"))


LONG = ROOT / "tests" / "long.txt"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of all of tests/: `make test` leaves out what long.txt names, ADVECTIO_LONG=1 runs that alone."""
    if any("::" in argument for argument in config.args):
        return
    lines = [line for line in LONG.read_text().splitlines() if line and not line.startswith("#")]
    found = {line: [item for item in items if re.search(line, item.nodeid)] for line in lines}
    unused = [line for line, long in found.items() if not long]
    if unused and config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("lf"):
        raise pytest.UsageError(f"{LONG}: no test is called so: {', '.join(unused)}")
    long = {item for named in found.values() for item in named}
    asked = bool(os.environ.get("ADVECTIO_LONG"))
    left_out = [item for item in items if (item in long) != asked]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if (item in long) == asked]


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """A file of real model output; the test skips where there is none."""

    def find(name: str) -> Path:
        path = SHARED / "data" / name
        if not path.exists():
            pytest.skip(f"no real model output here: {path} is absent")
        return path

    return find


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WRF-like file of the project's own, two frames."""
    path = tmp_path_factory.mktemp("made") / "wrfout_d01_made"
    script = ROOT / "examples" / "replay" / "make_input.py"
    subprocess.run([sys.executable, script, path], check=True, env=environment())
    return path


@pytest.fixture(scope="session")
def source(shared: Callable[[str], Path], made: Path) -> Callable[[str], Path]:
    """An input by name: `made`, or a file of real output."""
    return lambda name: made if name == "made" else shared(name)


@pytest.fixture(scope="session")
def replay() -> Path:
    path = Path(os.environ.get("ADVECTIO_REPLAY", ROOT / "build" / "release" / "examples" / "replay" / "replay"))
    if not path.exists():
        pytest.fail(f"{path} is not built; `make build` builds it")
    return path


def built(replay: Path, name: str) -> Path:
    path = replay.parents[2] / "tests" / "capture" / "pnetcdf" / name
    if not path.exists():
        pytest.skip(f"{path} is not built: no PnetCDF here")
    return path


@pytest.fixture(scope="session")
def families(replay: Path) -> Path:
    return built(replay, "pnetcdf_families")


@pytest.fixture(scope="session")
def replay_mpi(replay: Path) -> Path:
    path = replay.parent / "replay_netcdf_mpi"
    if not path.exists():
        pytest.skip(f"{path} is not built: no netCDF library with MPI here")
    return path


@pytest.fixture(scope="session")
def calls(replay_mpi: Path) -> Path:
    return replay_mpi.parents[2] / "tests" / "capture" / "netcdf" / "netcdf_parallel_calls"


@pytest.fixture(scope="session")
def advectio_command() -> Path:
    path = Path(os.environ.get("ADVECTIO_COMMAND", COMMAND))
    if not path.exists():
        pytest.fail(f"{path} is not there; `make build` makes it")
    return path


@pytest.fixture
def advectio(advectio_command: Path, tmp_path: Path) -> Iterator[Advectio]:
    scratch = tmp_path / "advectio"
    scratch.mkdir()
    found = Advectio(advectio_command, scratch, Path("/dev/shm"))
    yield found
    found.clean()


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """The command line within this process: Python's start would take most of the time."""

    def run(*words: str | Path) -> Result:
        command = ["advectio", *map(str, words)]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", command)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return Result(command, int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def convert(call: Callable[..., Result]) -> Callable[..., Result]:
    def done(*words: str | Path) -> Result:
        # The disk need not be waited for.
        result = call("convert", *words, *(() if "--rule" in words else ("--rule", "durable: false")))
        assert result.code == 0, result.said
        return result

    return done


@pytest.fixture
def refused(call: Callable[..., Result], tmp_path: Path) -> Callable[..., str]:
    """One line, the exit code of a mistake, and nothing that was not there before."""

    def refuse(*words: str | Path, code: int = 2) -> str:
        before = sorted(tmp_path.rglob("*"))
        result = call("convert", *words)
        assert result.code == code, result.said
        assert len(result.stderr.splitlines()) == 1, result.said
        assert sorted(tmp_path.rglob("*")) == before
        return result.stderr

    return refuse


@dataclass
class Pair:
    """Two directories: `plain` for the program by itself, `carried` for the same under `advectio run`."""

    plain: Path
    carried: Path
    advectio: Advectio

    def run(
        self, command: list[str | Path], config: str | None = None, *, datasets: int | None = None, nodes: str | None = None
    ) -> Result:
        done = run_plainly(command, self.plain)
        assert done.code == 0, done.said
        return self.advectio.run(command, self.carried, config, datasets=datasets, nodes=nodes)

    def assert_same(self, *, storage: bool = True, at_least: int = 1, attribute_order: bool = True) -> None:
        """The same names in both directories, and every netCDF file the same."""
        plain, carried = output_files(self.plain), output_files(self.carried)
        assert plain == carried
        netcdf = [name for name in plain if is_netcdf(self.plain / name)]
        assert len(netcdf) >= at_least, f"only {netcdf} was written"
        for name in netcdf:
            found = differences(self.plain / name, self.carried / name, storage)
            wrong = [line for line in found if attribute_order or not line.endswith(": another order")]
            assert not wrong, "\n  ".join([f"{self.plain / name} and {self.carried / name} differ:", *wrong])


def is_netcdf(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(8)
    return start.startswith((b"CDF", b"\x89HDF"))


@pytest.fixture
def pair(tmp_path: Path, advectio: Advectio) -> Pair:
    for name in ("plain", "carried"):
        (tmp_path / name).mkdir()
    return Pair(tmp_path / "plain", tmp_path / "carried", advectio)


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """A program of the netCDF world; the test skips where it is not installed."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        return path

    return find


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A tmpfs of a given size. Called again, it changes the size."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount the small disk that this test fills")
    disk = tmp_path / "disk"
    disk.mkdir()

    def make(size: str) -> Path:
        options = f"size={size}" if not os.path.ismount(disk) else f"remount,size={size}"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
        return disk

    yield make
    if os.path.ismount(disk):
        subprocess.run(["umount", "-l", disk], check=True)
