"""A run with readers of several kinds, one of which is killed and one stopped for a while. For a test and bench/beside.py."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
from advectio.protocol import NoServer, status_of
from running import PYTHON, environment

PROGRAM = Path(__file__).parent / "programs" / "live" / "digests.py"


class Reader:
    """digests.py, and what it has said so far."""

    def __init__(
        self, run: str, policy: str, group: str = "-", pause_s: float = 0.0, prefix: Sequence[str] = (), transport: str = "tcp"
    ) -> None:
        self.policy, self.group = policy, group
        words = [*prefix, PYTHON, PROGRAM, run, policy, group, str(pause_s), transport]
        self.process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True)
        self.seen: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    @property
    def frames(self) -> list[tuple[str, int]]:
        return [(f["file"], f["frame"]) for f in self.seen]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, timeout_s: float = 900.0) -> int:
        code = self.process.wait(timeout_s)
        self._thread.join(timeout_s)
        return code

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class Watch(threading.Thread):
    """The status of a run, looked at until it has gone: the largest numbers."""

    run_dir: str
    readers_bytes: int = 0
    frames_held: int = 0
    stage_bytes: int = 0
    looks: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    gone: bool = False

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while not self.gone:
            try:
                status = status_of(self.run_dir)
            except NoServer:
                continue
            readers = status.get("readers")
            if readers and not status["final"]:
                self.looks += 1
                self.readers_bytes = max(self.readers_bytes, readers["bytes_held"])
                self.frames_held = max([self.frames_held, *(r["frames_held"] for r in readers["connected"])])
                self.last = dict(status)
            self.stage_bytes = max(self.stage_bytes, status["stage"]["bytes_allocated"])
            time.sleep(0.05)


def trouble(killed: Reader, stopped: Reader, wait_until: Callable[[Callable[[], bool], str], object], seconds: float) -> None:
    """Kills the one when it has had a frame, stops the other when it has had one, and lets it go on after a while."""
    wait_until(lambda: bool(killed.seen), "the reader that is to die has had a frame")
    killed.signal(signal.SIGKILL)
    wait_until(lambda: bool(stopped.seen), "the reader that is to be stopped has had a frame")
    stopped.signal(signal.SIGSTOP)
    time.sleep(seconds)
    stopped.signal(signal.SIGCONT)


def differences(directory: Path, readers: Sequence[Reader]) -> tuple[list[str], int]:
    """Frames that a reader saw otherwise than they are in the file; and how many variables were compared."""
    wrong, compared = [], 0
    files: dict[str, netCDF4.Dataset] = {}
    known: dict[tuple[str, int], dict[str, str]] = {}
    for reader in readers:
        for about in reader.seen:
            key = (about["file"], about["frame"])
            if key not in known:
                if about["file"] not in files:
                    files[about["file"]] = netCDF4.Dataset(os.fspath(directory / about["file"]))
                    files[about["file"]].set_auto_mask(False)
                    files[about["file"]].set_auto_chartostring(False)
                known[key] = _digests(files[about["file"]], about["frame"])
            compared += len(known[key])
            if about["digests"] != known[key]:
                names = {n for n in known[key] | about["digests"] if known[key].get(n) != about["digests"].get(n)}
                wrong.append(f"{key} as {reader.policy} saw it: {sorted(names)[:5]}")
    for file in files.values():
        file.close()
    return wrong, compared


def _digests(file: netCDF4.Dataset, record: int) -> dict[str, str]:
    out = {}
    for name, v in file.variables.items():
        axis = next((i for i, d in enumerate(v.dimensions) if file.dimensions[d].isunlimited()), None)
        values = v[...] if axis is None else v[tuple([slice(None)] * axis + [slice(record, record + 1)])]
        out[name] = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return out
