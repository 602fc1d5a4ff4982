"""What the benchmark measures with: a command's time, CPU and memory, and the state of the machine before it."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30
WARM_SECONDS_MAX = 60.0  # once, before the first run
REWARM_SECONDS_MAX = 10.0  # before each: what the run before it has freed
FREE_ENOUGH = 1.5 * GIB
SAMPLE_SECONDS = 0.1
MAPPED_SAMPLE_SECONDS = 0.2


class MeasureError(Exception):
    """Something the user can do something about; the text says what."""


@dataclass
class Measured:
    ended_at: float  # wall clock, seconds since 1970
    cpu_s: float  # user and system time of the command and all its children
    memory_peak: int  # bytes: anonymous memory of all its processes, and what came to /dev/shm


def environment() -> dict[str, str]:
    """This process' own, without a surrounding run's Advectio, and with what Open MPI wants from root."""
    clean = {k: v for k, v in os.environ.items() if k not in ("ADVECTIO_RUN", "ADVECTIO_CONFIG", "LD_PRELOAD")}
    return clean | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def memory_info(key: str) -> int:
    """Bytes of a line of /proc/meminfo."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


class WarmMemory:
    """Keeps free memory filled with page cache, so that no method pays for pages which the machine under a virtual machine
    has taken back: the first touch of such a page costs several times a copy into it. Reading a hole does it without disk."""

    def __init__(self, directory: Path) -> None:
        self.hole = (directory / ".warm").open("wb+", buffering=0)
        Path(self.hole.name).unlink()
        # A hole's end is never reached: free memory or time is over before.
        self.hole.truncate(16 * memory_info("MemTotal"))
        self.piece = bytearray(8 * 2**20)

    def fill(self, seconds: float, tell: Callable[[int], None] = lambda _: None) -> int:
        """Until little is free, or the time is over; bytes that were touched."""
        begin, warmed = time.monotonic(), 0
        while memory_info("MemFree") > FREE_ENOUGH and time.monotonic() - begin < seconds:
            if not self.hole.readinto(self.piece):
                self.hole.seek(0)
            warmed += len(self.piece)
            tell(warmed)
        return warmed


def make_durable(paths: Iterable[Path]) -> float:
    """fsync, as a careful program would; the wall clock when all of it had reached the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    return time.time()


def session_memory(session: int, file: str, field: str) -> int:
    """Memory of the processes of a session, bytes: the sum of `field` of /proc/PID/`file`.

    RssAnon of status counts the anonymous memory; Pss of smaps_rollup counts also the process' share of mapped files.
    """
    total = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            # pid (name) state ppid pgrp session ...; the name may hold anything, so count from its last bracket
            after = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            if int(after[3]) != session:
                continue
            for line in Path(entry.path, file).read_text().splitlines():
                if line.startswith(f"{field}:"):
                    total += int(line.split()[1]) * 1024
        except (OSError, ValueError):
            continue  # it has ended
    return total


def _shared_memory() -> int:
    disk = os.statvfs("/dev/shm")
    return (disk.f_blocks - disk.f_bfree) * disk.f_frsize


class _Sampler(threading.Thread):
    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.session, self.ended, self.peak = session, threading.Event(), 0
        # Whatever else lets go of /dev/shm meanwhile must not count against what the command takes.
        self.shared_least = _shared_memory()

    def run(self) -> None:
        # mpirun gives its ranks process groups of their own; the session stays the same.
        while not self.ended.wait(SAMPLE_SECONDS):
            shared = _shared_memory()
            self.shared_least = min(self.shared_least, shared)
            self.peak = max(self.peak, session_memory(self.session, "status", "RssAnon") + shared - self.shared_least)


def measure(command: list[str], directory: Path, seconds_max: float) -> Measured:
    """Runs the command in `directory` to its end; what it says goes to said.txt there.
    Raises MeasureError where it fails or takes longer than `seconds_max` (it is ended then)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = directory / "said.txt"
    with said.open("w") as out:
        process = subprocess.Popen(
            command, cwd=directory, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        sampler = _Sampler(process.pid)
        sampler.start()
        try:
            code = process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise MeasureError(f"ran longer than {seconds_max:.0f} s, ended: {' '.join(command)}") from None
        finally:
            ended = time.time()
            sampler.ended.set()
            sampler.join()
    if code != 0:
        raise MeasureError(f"exit code {code}: {' '.join(command)}\n{said.read_text()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Measured(ended, cpu, sampler.peak)


def measure_mapped(command: list[str | Path], directory: Path) -> dict[str, float]:
    """Runs the command in `directory` to its end: `seconds`, `cpu_seconds` and `memory_mib`, its processes' largest sum of
    proportional set sizes, which counts mapped files too. Looking costs more than `measure` does. Exits where it fails."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    said = directory / "said.txt"  # HDF5 tells dask's threads of every attribute that is not there
    with said.open("w") as out:
        process = subprocess.Popen(command, cwd=directory, stdout=out, stderr=out, start_new_session=True)
    ended, peaks = threading.Event(), [0]

    def sample() -> None:
        while not ended.wait(MAPPED_SAMPLE_SECONDS):
            peaks[0] = max(peaks[0], session_memory(process.pid, "smaps_rollup", "Pss"))

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    code, seconds = process.wait(), time.monotonic() - began
    ended.set()
    sampler.join()
    if code != 0:
        sys.exit(f"exit code {code}: {' '.join(map(str, command))}\n{said.read_text()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, "memory_mib": peaks[0] / 2**20}
