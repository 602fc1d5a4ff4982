"""A made-up installation: the command line as it is, with a stand-in for advectiod and a preload library that does nothing."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from forked import forks

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "python" / "src"


def dataset(path="/out/wrfout_d01", state="finished", error=None, **changes):
    return {
        "path": path, "format": "netCDF-4", "state": state, "writer": "0-1", "tiles": None, "frames_synced": 3, "frames_visible": 3,
        "frames_durable": 3, "frames_dropped": 0, "promise": "staged", "bytes_put": 3_000_000_000, "bytes_written": 1_000_000_000, "ratio": 3.0,
        "stall_s": {"median": 0.031, "max": 0.2}, "to_visible_s": {"median": 1.5, "max": 2.0},
        "to_durable_s": {"median": 1.75, "max": 2.5}, "drain_bytes_per_s": 5e8, "error": error,
    } | changes  # fmt: skip


def rule(match, origin="advectio.yaml:3", **values):
    """Of a config, as advectiod tells it."""
    return {
        "match": match,
        "origin": origin,
        "values": [
            {"key": key, "value": value, "origin": origin, "type": "", "doc": "", "number": None}
            for key, value in values.items()
        ],
        "processed": [],
        "outputs": [],
    }


def survey_of_dataset(path="/out/wrfout_d01", **changes):
    return {
        "path": path, "link": path, "format": "netCDF-4", "state": "in flight", "closed": False, "file": "there",
        "error": None, "frames_synced": 3, "frames_visible": 1, "frames_durable": 1, "frames_staged": 2, "bytes_put": 4000,
        "bytes_staged": 2000, "bytes_unsynced": 0, "frames_dropped": 0, "writers": 1, "tiles": None, "whole": None, "owner": None,
    } | changes  # fmt: skip


def survey_of_journal(**changes):
    return {
        "name": "0-4711-0badcafe", "host": "localhost", "pid": 4711, "rank": 0, "command": "./wrf.exe", "started_s": 1.7e9,
        "alive": False, "mirror": False, "segments": 2, "segment_bytes": 2000, "records_bytes": 1500,
        "records": {"create": 1, "put": 7, "sync": 3}, "first_sequence": 1, "last_sequence": 11, "payloads_checked": 0,
        "payloads_wrong": 0, "damage": None,
    } | changes  # fmt: skip


class Fake:
    """One made-up installation with its stage."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.directory = directory
        self.prefix = directory / "prefix"
        (self.prefix / "bin").mkdir(parents=True)
        (self.prefix / "lib").mkdir()
        (self.prefix / "lib" / library.name).symlink_to(library)
        self.add_program("advectiod")
        self.stage = directory / "stage"
        self.stage.mkdir()
        self.work = directory / "work"
        self.work.mkdir()
        (self.work / "advectio.yaml").write_text(f"stage:\n  directory: {self.stage}\n")
        self.env = {
            k: v for k, v in os.environ.items() if not k.startswith(("ADVECTIO_", "SLURM_", "PMI", "OMPI_", "PBS_", "LSB_"))
        }
        self.env |= {
            "ADVECTIO_PREFIX": str(self.prefix),
            "FAKE_ADVECTIOD": str(directory / "told.json"),
            "PYTHONPATH": str(SOURCE),
            "ADVECTIO_KEEPER_IDLE_S": "0.3",
        }
        self.tell()

    def add_program(self, name: str) -> None:
        self.add_script(
            self.prefix / "bin" / name, f'FAKE_NAME={name} exec {sys.executable} -S {HERE / "fake_advectiod.py"} "$@"'
        )

    def add_script(self, path: Path, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def tell(self, **what) -> None:
        (self.directory / "told.json").write_text(json.dumps(what))

    @property
    def log(self) -> list[str]:
        log = self.directory / "events.log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def events(self) -> list[str]:
        return [e for e in self.log if not e.startswith("pid ")]

    def clean(self) -> None:
        """Nothing of a test that failed half-way stays: no server, no link among the runs of this user."""
        for pid in (e.split()[1] for e in self.log if e.startswith("pid ")):
            with contextlib.suppress(OSError):
                if b"fake_advectiod" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
        for entry in Path(f"/dev/shm/advectio-{os.getuid()}").glob("*"):
            if entry.is_symlink() and self.directory in Path(os.readlink(entry)).parents:
                entry.unlink()

    @property
    def run_directories(self) -> list[Path]:
        return [p for p in self.stage.glob("advectio-*/*") if not p.name.startswith(".")]

    def command(self, *arguments) -> list[str]:
        return [sys.executable, "-m", "advectio", *map(str, arguments)]

    def run(self, *arguments, env=None) -> subprocess.CompletedProcess:
        words = [str(argument) for argument in arguments]
        return forks().run(words, env=self.env | (env or {}), cwd=self.work, timeout_s=60)

    def start(self, *arguments, **options) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(*arguments),
            env=self.env,
            cwd=self.work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def wait_for_event(self, text: str) -> None:
        until(lambda: any(e.startswith(text) for e in self.events), f"event {text}")


def until(condition, what: str, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
