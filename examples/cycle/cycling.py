"""An experiment of data assimilation with the two programs of this folder: nature, observations, forecasts, analyses, errors.

Used by `cycle.py` (the demo) and by `bench/cycle.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import netCDF4
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GIVE_WAY = ROOT / "build/release/examples/give_way/libgive_way.so"
SECONDS_MAX = 600.0  # of one program; longer means that it hangs
KINDS = ("U", "V", "H")
# The standard deviation of the observations' errors, of the fields, and what is observed at a station.
ERRORS = (1.5, 1.5, 80.0)  # m/s, m/s, m
OBSERVED = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1))  # kind, layer: winds of both layers, thickness of the lower one
# Both programs stay as they are: which file goes where is said here. The files of cycle 0 are there already.
COUPLE = """\
couple:
  - {{match: "*/history.0*.nc", from: forecast, to: filter}}
  - {{match: "*/restart.0*.nc", from: forecast, to: filter, mode: {mode}, exclude: "*/0000/*"}}
  - {{match: "*/restart.0*.nc", from: filter, to: forecast, mode: {mode}, exclude: "*/0000/*"}}
"""
LINE = re.compile(r"(forecast|filter): cycle (\d+) took ([\d.]+) s; .*open ([\d.]+) read ([\d.]+) write ([\d.]+)")
State = dict[str, np.ndarray]  # U, V, H: [layer][y][x]


class CycleError(Exception):
    """Something the user can do something about; the text says what."""


@dataclass(frozen=True)
class Spent:
    """What a program says of one cycle, in seconds: all of it, and in calls of files, of its slowest process."""

    program: str
    cycle: int
    all: float
    open: float
    read: float
    write: float

    @property
    def files(self) -> float:
        return self.open + self.read + self.write


@dataclass
class Timing:
    spent: list[Spent] = field(default_factory=list)
    wall_s: float = 0.0  # of all cycles, programs' starts included
    synced_s: float = 0.0  # in it, in fsync after the programs

    def of(self, program: str) -> list[Spent]:
        return [s for s in self.spent if s.program == program]


def sync(directory: Path) -> float:
    """Force all files below it to the disk. Seconds."""
    began = time.monotonic()
    for path in directory.rglob("*.nc"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
    return time.monotonic() - began


@dataclass(frozen=True)
class Experiment:
    """Settings, and the programs run with them. `directory` gets one directory for each part."""

    directory: Path
    members: int = 8
    cycles: int = 12
    hours: float = 12
    frames: int = 4
    nx: int = 72
    ny: int = 32
    dx_km: float = 150
    tiles: tuple[int, int] = (2, 1)
    together: int = 2  # members that run side by side
    filter_ranks: int = 2
    stations: int = 150
    days: float = 30  # of the long run before the first restart
    apart: float = 2  # days between the members' first states
    seed: int = 1
    filter_options: tuple[str, ...] = ()
    programs: Path = field(
        default_factory=lambda: Path(os.environ.get("ADVECTIO_CYCLE", ROOT / "build/release/examples/cycle"))
    )

    # ---- commands ----

    @property
    def grid(self) -> list[str]:
        tiles = f"{self.tiles[0]}x{self.tiles[1]}"
        return [
            "--nx",
            str(self.nx),
            "--ny",
            str(self.ny),
            "--dx",
            str(self.dx_km),
            "--tiles",
            tiles,
            "--members",
            str(self.members),
        ]

    def forecast(
        self, first: int, cycles: int, *more: str, together: int | None = None, frames: int | None = None
    ) -> list[str]:
        ranks = self.tiles[0] * self.tiles[1] * (together or min(self.together, self.members))
        return [
            *mpirun(ranks), str(self.programs / "forecast"), *self.grid, "--hours", str(self.hours), "--frames", str(frames or self.frames),
            "--first-cycle", str(first), "--cycles", str(cycles), *more,
        ]  # fmt: skip

    def filter(self, first: int, cycles: int) -> list[str]:
        return [
            *mpirun(self.filter_ranks), str(self.programs / "filter"), *self.grid, "--observations", str(self.directory / "observations"),
            "--first-cycle", str(first), "--cycles", str(cycles), *self.filter_options,
        ]  # fmt: skip

    # ---- parts ----

    def make_ready(self, parts: Callable[[str], None] = lambda _: None) -> None:
        """Nature, its observations, and the states that all ensembles begin from."""
        parts("a long run, for the first states")
        start = self.directory / "start"
        (start / "0000").mkdir(parents=True)
        grid = ["--prepare", str(self.days), "--apart", str(self.apart)]
        run([*mpirun(1), str(self.programs / "forecast"), *self.grid, *grid], start)
        parts("nature")
        nature = self.begin(self.directory / "nature", "truth")
        run(self.forecast(1, self.cycles, "--name", "truth", together=1), nature)
        parts("observations")
        self._observe(nature)

    def begin(self, directory: Path, members: str = "0*") -> Path:
        """A directory for the cycles, with the restart files to start from."""
        for cycle in range(self.cycles + 1):
            (directory / f"{cycle:04d}").mkdir(parents=True, exist_ok=True)
        for path in (self.directory / "start" / "0000").glob(f"restart.{members}.*"):
            shutil.copy(path, directory / "0000")
        return directory

    def free(self) -> Path:
        """The ensemble without assimilation."""
        directory = self.begin(self.directory / "free")
        run(self.forecast(1, self.cycles, frames=1), directory)
        return directory

    def by_files(self, directory: Path, told: Callable[[int], None] = lambda _: None, *, synced: bool = False) -> Timing:
        """Forecast and filter in turn: each cycle starts both programs anew, which exchange files in `directory`. `synced`:
        what a program has written is forced to the disk before the next one starts."""
        self.begin(directory)
        timing, began = Timing(), time.monotonic()
        for cycle in range(1, self.cycles + 1):
            for command in (self.forecast(cycle, 1), self.filter(cycle, 1)):
                timing.spent += spent(run(command, directory))
                if synced:
                    timing.synced_s += sync(directory)
            told(cycle)
        timing.wall_s = time.monotonic() - began
        return timing

    def coupled(self, directory: Path, advectio: Path, mode: str = "memory+file") -> Timing:
        """Both programs at once, each for all cycles, under `advectio run`: a program that opens a file of the other waits
        until it is there. `mode`: of the restart files; history is in memory alone."""
        self.begin(directory)
        (directory / "advectio.yaml").write_text(COUPLE.format(mode=mode))
        commands = {"forecast": self.forecast(1, self.cycles), "filter": self.filter(1, self.cycles)}
        began = time.monotonic()
        running = {}
        for name, command in commands.items():
            words = [str(advectio), "run", "--quiet", "--workflow", str(directory / "workflow"), "--as", name, "--", *command]
            with (directory / f"{name}.txt").open("w") as out:
                running[name] = subprocess.Popen(
                    words, cwd=directory, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
                )
        try:
            while any(p.poll() is None for p in running.values()):
                failed = [name for name, p in running.items() if p.poll() not in (None, 0)]
                if failed or time.monotonic() - began > SECONDS_MAX:
                    raise CycleError("coupled: " + (f"{failed[0]} failed" if failed else f"longer than {SECONDS_MAX:.0f} s"))
                time.sleep(0.02)
            wall_s = time.monotonic() - began
            if any(p.returncode != 0 for p in running.values()):
                raise CycleError("coupled: a program failed")
        except CycleError as error:
            said = "\n".join(f"--- {name}\n{(directory / f'{name}.txt').read_text().strip()[-1500:]}" for name in running)
            raise CycleError(f"{error}\n{said}") from None
        finally:
            for p in running.values():
                if p.poll() is None:
                    p.terminate()
            for p in running.values():
                p.wait()
            # The last analysis waits for a forecast that does not come.
            subprocess.run(
                [str(advectio), "status", "--workflow", str(directory / "workflow"), "--end"],
                env=environment(), capture_output=True, check=False,
            )  # fmt: skip
        timing = Timing(wall_s=wall_s)
        for name in running:
            timing.spent += spent((directory / f"{name}.txt").read_text())
        return timing

    def _observe(self, nature: Path) -> None:
        """Stations measure nature's history once a cycle, at times of their own, with errors from a fixed seed."""
        random = np.random.default_rng(self.seed)
        x = random.uniform(0, self.nx, self.stations)
        y = random.uniform(0.5, self.ny - 0.5, self.stations)
        for cycle in range(1, self.cycles + 1):
            times, frames = self._history(nature, cycle)
            when = random.uniform(times[0], times[-1], self.stations)
            rows = []
            for kind, layer in OBSERVED:
                seen = interpolated(frames[KINDS[kind]][:, layer], times, x, y, when)
                error = np.full(self.stations, ERRORS[kind])
                value = seen + error * random.standard_normal(self.stations)
                rows.append(
                    [
                        x * self.dx_km * 1e3,
                        y * self.dx_km * 1e3,
                        when,
                        np.full_like(x, kind),
                        np.full_like(x, layer),
                        value,
                        error,
                    ]
                )
            columns = np.concatenate(rows, axis=1)
            path = self.directory / "observations" / f"{cycle:04d}" / "observations.nc"
            path.parent.mkdir(parents=True)
            with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as file:
                file.createDimension("observation", columns.shape[1])
                for name, values in zip(("x", "y", "time", "kind", "layer", "value", "error"), columns, strict=True):
                    file.createVariable(name, "f8", ("observation",))[:] = values

    def _history(self, directory: Path, cycle: int) -> tuple[np.ndarray, State]:
        paths = self.files(directory, cycle, "history.truth")
        with netCDF4.Dataset(paths[0]) as file:
            times = file["time"][:].data
        return times, {name: self._whole(paths, name) for name in KINDS}

    # ---- results ----

    def files(self, directory: Path, cycle: int, name: str) -> list[Path]:
        count = self.tiles[0] * self.tiles[1]
        return [directory / f"{cycle:04d}" / f"{name}.pe{number:06d}.nc" for number in range(count)]

    def _whole(self, paths: Sequence[Path], name: str) -> np.ndarray:
        """The tiles' values put together, in double precision."""
        parts = []
        for path in paths:
            with netCDF4.Dataset(path) as file:
                parts.append(file[name][:].data.astype("f8"))
        along_x = self.tiles[0]
        rows = [np.concatenate(parts[i : i + along_x], axis=-1) for i in range(0, len(parts), along_x)]
        return np.concatenate(rows, axis=-2)

    def state(self, directory: Path, cycle: int, name: str) -> State:
        paths = self.files(directory, cycle, name)
        return {v: self._whole(paths, v) for v in KINDS}

    def mean_and_spread(self, directory: Path, cycle: int) -> tuple[State, State]:
        members = [self.state(directory, cycle, f"restart.{m:04d}") for m in range(1, self.members + 1)]
        stacked = {v: np.stack([m[v] for m in members]) for v in KINDS}
        return {v: s.mean(0) for v, s in stacked.items()}, {v: s.std(0, ddof=1) for v, s in stacked.items()}

    def errors(self, directory: Path, free: Path) -> dict[str, list[dict[str, float]]]:
        """By cycle: how far the mean is from nature, and the ensemble's spread."""
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ("free", "forecast", "analysis")}
        for cycle in range(1, self.cycles + 1):
            truth = self.state(self.directory / "nature", cycle, "restart.truth")
            of = {
                "free": self.mean_and_spread(free, cycle),
                "forecast": tuple(self.state(directory, cycle, n) for n in ("guess.mean", "guess.spread")),
                "analysis": tuple(self.state(directory, cycle, n) for n in ("mean", "spread")),
            }
            for name, (mean, spread) in of.items():
                off = {v: mean[v] - truth[v] for v in KINDS}
                found[name].append({**size(off), **{f"{k}_spread": v for k, v in size(spread).items()}})
        return found

    def different(self, one: Path, other: Path, restarts: bool = True) -> tuple[list[str], int]:
        """Files of the results whose values are not the same, bit for bit, and the number of values that were compared:
        mean and spread of guess and analysis of all cycles, and every member's restart."""
        names = ["guess.mean", "guess.spread", "mean", "spread"]
        names += [f"restart.{m:04d}" for m in range(1, self.members + 1)] if restarts else []
        found, count = [], 0
        for cycle in range(1, self.cycles + 1):
            for name in names:
                for a, b in zip(self.files(one, cycle, name), self.files(other, cycle, name), strict=True):
                    for v in KINDS:
                        with netCDF4.Dataset(a) as file, netCDF4.Dataset(b) as second:
                            values, others = file[v][:].data, second[v][:].data
                        count += values.size
                        if values.tobytes() != others.tobytes():
                            found.append(f"{v} of {a} and {b}")
        return found, count


def size(state: State) -> dict[str, float]:
    """Root mean squares: of the wind as a vector, of the interface's height."""
    return {
        "wind": float(np.sqrt(np.mean(state["U"] ** 2 + state["V"] ** 2))),
        "interface": float(np.sqrt(np.mean(state["H"][1] ** 2))),
    }


def interpolated(frames: np.ndarray, times: np.ndarray, x: np.ndarray, y: np.ndarray, when: np.ndarray) -> np.ndarray:
    """Bilinear in space, linear in time; x and y in cells from the south-western corner. The filter does the same."""
    after = np.clip(np.searchsorted(times, when, side="right"), 1, len(times) - 1)
    late = (when - times[after - 1]) / (times[after] - times[after - 1])
    column, row = x - 0.5, np.clip(y - 0.5, 0, frames.shape[1] - 1)
    i, j = np.floor(column).astype(int), np.minimum(row.astype(int), frames.shape[1] - 2)
    a, b, nx = column - i, row - j, frames.shape[2]

    def at(frame: np.ndarray) -> np.ndarray:
        south = (1 - a) * frames[frame, j, i % nx] + a * frames[frame, j, (i + 1) % nx]
        north = (1 - a) * frames[frame, j + 1, i % nx] + a * frames[frame, j + 1, (i + 1) % nx]
        return (1 - b) * south + b * north

    return (1 - late) * at(after - 1) + late * at(after)


def mpirun(ranks: int) -> list[str]:
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)]


def environment() -> dict[str, str]:
    """Without a surrounding run's Advectio; with what Open MPI wants from root and more ranks than cores."""
    clean = {k: v for k, v in os.environ.items() if k not in ("ADVECTIO_RUN", "ADVECTIO_CONFIG", "LD_PRELOAD")}
    clean |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_pml": "ob1"}
    # The filter's many small eigenproblems are no work for threads.
    clean |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    return clean | ({"LD_PRELOAD": str(GIVE_WAY)} if GIVE_WAY.exists() else {})


def run(command: list[str], directory: Path) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise CycleError(f"ran longer than {SECONDS_MAX:.0f} s: {' '.join(command)}") from None
    if done.returncode != 0:
        raise CycleError(f"exit code {done.returncode}: {' '.join(command)}\n{(done.stdout + done.stderr).strip()[-2000:]}")
    return done.stdout


def spent(said: str) -> list[Spent]:
    return [Spent(m[1], int(m[2]), *(float(n) for n in m.groups()[2:])) for m in LINE.finditer(said)]
