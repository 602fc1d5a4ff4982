"""Programs run plainly and under `advectio run`, as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "python"))  # forked.py, shapes.py
sys.path.append(str(ROOT / "tests" / "shows" / "programs"))  # stopping.py

from forked import forks  # noqa: E402
from stopping import stop_server  # noqa: E402, F401

# Programs that tests write on the spot begin with it: they stop the server.
STOPPING = (ROOT / "tests" / "shows" / "programs" / "stopping.py").read_text()
TIMEOUT_S = 180.0
COMMAND = ROOT / ".venv" / "bin" / "advectio"

# What Open MPI wants to be told before it runs for root and with more ranks than cores. By itself it looks for networks first, 0.2 s
# at each start.
MPI_ENVIRONMENT = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    # The same two for Open MPI 5, whose launcher is PRRTE.
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}

# See there. More ranks than cores wait without keeping others from theirs.
GIVE_WAY = ROOT / "build" / "release" / "examples" / "give_way" / "libgive_way.so"

CONFIG_NAME = "advectio.yaml"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    # Nor is a program here a rank of the job from which the tests were started.
    of_a_job = ("SLURM_", "PMI", "OMPI_COMM_WORLD_", "MV2_COMM_WORLD_")
    ours = ("ADVECTIO_RUN", "ADVECTIO_CONFIG", "LD_PRELOAD")
    clean = {k: v for k, v in os.environ.items() if k not in ours and not k.startswith(of_a_job)}
    # netCDF4's wheel and the like must not write bytecode or history that differs from run to run.
    waiting = {"LD_PRELOAD": str(GIVE_WAY)} if GIVE_WAY.exists() else {}
    return clean | MPI_ENVIRONMENT | waiting | {"TZ": "UTC"} | dict(extra or {})


@dataclass
class Result:
    command: list[str]
    code: int
    stdout: str
    stderr: str
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> str:
        return f"{' '.join(self.command)}\nexit code {self.code}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"

    def dataset(self, name: str) -> dict[str, Any]:
        """What the summary says about the file of that name."""
        found = [d for d in self.summary["datasets"] if Path(d["path"]).name == name]
        assert found, f"the summary does not name {name}: {[d['path'] for d in self.summary['datasets']]}"
        return found[-1]


def run_plainly(command: Sequence[str | Path], directory: Path, extra: Mapping[str, str] | None = None) -> Result:
    words = [os.fspath(word) for word in command]
    done = subprocess.run(
        words, cwd=directory, env=environment(extra), capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace"
    )
    return Result(words, done.returncode, done.stdout, done.stderr)


def parent_of(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rpartition(")")[2].split()[1])


def processes(name: str | None) -> Iterator[int]:
    """Pids of live processes of that name; None: of any."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if name is None or (entry / "comm").read_text().strip() == name[:15]:
                yield int(entry.name)
        except OSError:
            continue


def descendants(ancestor: int, name: str | None) -> list[int]:
    """Pids of that name (None: of any) below `ancestor`; so that no test touches what it has not started."""
    found = []
    for pid in processes(name):
        above = parent_of(pid)
        while above not in (0, 1, ancestor):
            above = parent_of(above)
        if above == ancestor:
            found.append(pid)
    return sorted(found)


def memory(pid: int) -> dict[str, int]:
    """Bytes of /proc/<pid>/status's Vm… and Rss… lines; empty when the process has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.startswith(("Vm", "Rss"))}


def allocated(directory: Path) -> int:
    """Bytes that the files below a directory really take; one renamed while we look counts once."""
    found: dict[int, int] = {}
    for path, _, names in os.walk(directory):
        for name in names:
            try:
                state = os.lstat(os.path.join(path, name))
            except OSError:
                continue
            found[state.st_ino] = state.st_blocks * 512
    return sum(found.values())


class Running:
    """A command under way, whose lines are read as they come."""

    def __init__(self, command: list[str], directory: Path, extra: Mapping[str, str] | None, json_file: Path):
        self.command = command
        self.json_file = json_file
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._news = threading.Condition()
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line)
                self._news.notify_all()

    @property
    def said(self) -> str:
        return f"{' '.join(self.command)}\n--- stdout\n{''.join(self.lines)}\n--- stderr\n{''.join(self.errors)}"

    def frames(self) -> int:
        """Frames whose sync has returned."""
        return sum(line.startswith("Timing for Writing") for line in self.lines)

    def wait_for(self, what: Callable[[], Any], described: str, timeout_s: float = TIMEOUT_S) -> Any:
        """Until `what` holds. Fails when the command ends first, or never gets there."""
        until = time.monotonic() + timeout_s
        while True:
            ended = self.process.poll() is not None
            found = what()
            if found:
                return found
            assert not ended, f"ended (exit code {self.process.returncode}) before {described}\n{self.said}"
            assert time.monotonic() < until, f"not {described} after {timeout_s} s\n{self.said}"
            with self._news:
                self._news.wait(0.02)

    def pids(self, name: str) -> list[int]:
        return descendants(self.process.pid, name)

    def kill(self, name: str) -> list[int]:
        """kill -9 of every process of that name below the command."""
        pids = self.wait_for(lambda: self.pids(name), f"there was a process {name}")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        return list(pids)

    def finish(self, timeout_s: float = TIMEOUT_S) -> Result:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s\n{self.said}") from None
        for reader in self._readers:
            reader.join(10.0)
        summary = json.loads(self.json_file.read_text()) if self.json_file.exists() else {}
        return Result(self.command, code, "".join(self.lines), "".join(self.errors), summary)

    def stop(self) -> None:
        """Whatever a failed test has left: the command's own processes, nobody else's."""
        if self.process.poll() is None:
            for pid in descendants(self.process.pid, None):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.kill()
            self.process.wait()


def with_little_warm(config: str | None, directory: Path) -> str | None:
    """A run of a second needs little memory made ready: that takes as much of the CPU as all the rest."""
    little = "warm_bytes: 64MiB"
    if config is None:
        return None if (directory / "advectio.yaml").exists() else f"stage: {{{little}}}\n"
    if "stage:" not in config:
        return f"stage: {{{little}}}\n{config}"
    return config if "bytes_max" in config or "warm_bytes" in config else config.replace("stage: {", f"stage: {{{little}, ", 1)


class Advectio:
    """The command `advectio`, each run with a directory of its own that is gone after the test."""

    def __init__(self, command: Path, scratch: Path, stage: Path):
        self.command = command
        self.scratch = scratch
        self.stage = stage
        self.run_dirs: list[Path] = []
        self.started: list[Running] = []

    def new_run_dir(self) -> Path:
        path = self.stage / f"advectio-shows-{os.getpid()}-{time.monotonic_ns()}"
        self.run_dirs.append(path)
        return path

    def call(self, *words: str | Path, directory: Path | None = None, extra: Mapping[str, str] | None = None) -> Result:
        directory = directory or self.scratch
        if self.command != COMMAND:
            return run_plainly([self.command, *words], directory, extra)
        text = [os.fspath(word) for word in words]
        done = forks().run(text, env=environment(extra), cwd=directory, timeout_s=TIMEOUT_S)
        return Result([os.fspath(self.command), *text], done.returncode, done.stdout, done.stderr)

    def start(
        self,
        command: Sequence[str | Path],
        directory: Path,
        config: str | None = None,
        run_dir: Path | None = None,
        extra: Mapping[str, str] | None = None,
        nodes: str | None = None,
        options: Sequence[str | Path] = (),
    ) -> Running:
        """`nodes`: how many ranks each of several simulated nodes has. `options`: more of `advectio run`."""
        number = len(self.run_dirs)
        run_dir = run_dir or self.new_run_dir()
        json_file = self.scratch / f"summary-{number}.json"
        options = [*options, "--run-dir", run_dir, "--json", json_file]
        if nodes is not None:
            options += ["--simulate-nodes", nodes]
        config = with_little_warm(config, directory)
        if config is not None:
            config_file = self.scratch / f"config-{number}.yaml"
            config_file.write_text(config)
            options += ["--config", config_file]
        words = [os.fspath(word) for word in (self.command, "run", *options, "--", *command)]
        running = Running(words, directory, extra, json_file)
        self.started.append(running)
        return running

    def run(
        self,
        command: Sequence[str | Path],
        directory: Path,
        config: str | None = None,
        *,
        datasets: int | None = None,
        nodes: str | None = None,
    ) -> Result:
        """Runs to a good end: exit code 0, every dataset finished, at least one (or exactly `datasets`) of them carried,
        and nothing left behind."""
        running = self.start(command, directory, config, nodes=nodes)
        result = running.finish()
        assert result.code == 0, result.said
        carried = result.summary["datasets"]
        assert carried if datasets is None else len(carried) == datasets, f"carried: {carried}\n{result.said}"
        assert not [d for d in carried if d["state"] != "finished" or d["error"]], f"{carried}\n{result.said}"
        assert not self.run_dirs[-1].exists(), f"{self.run_dirs[-1]} is left behind"
        left = [path.name for path in directory.rglob(".*advectio*")]
        assert not left, f"left beside the output: {left}"
        return result

    def recover_all(self) -> None:
        """Remove what runs that were killed as a whole have left, also outside of their run directories."""
        for path in self.run_dirs:
            if path.exists():
                recovered = self.call("recover", path)
                assert recovered.code == 0 and not path.exists(), recovered.said

    def clean(self) -> None:
        for running in self.started:
            running.stop()
        for path in self.run_dirs:
            shutil.rmtree(path, ignore_errors=True)


def output_files(directory: Path) -> list[str]:
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


PYTHON = sys.executable
