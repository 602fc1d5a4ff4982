"""Several processes that have one file open for writing, in turns that the command line gives.

    python two_writers.py NAME FORMAT TURN...

A TURN is PROCESS:CALL, as `a:create`. Processes are a, b, c, d. Each ends its call before the next
turn begins; those of `abc:CALL` make it at the same time.

Calls: create, open, put=BLOCK, record, sync, redef, close. `own` opens, puts a block of this
process alone, and closes. `wait` is an open that has to wait: the next turns begin when a line on stderr
says so, and its answer comes before that process' next call. stdout gets a line for each call that
failed.
"""

from __future__ import annotations

import pathlib
import select
import subprocess
import sys

import netCDF4
import numpy as np

BLOCK = 1 << 14  # values: further apart than what the library keeps of a file


class Process:
    def __init__(self, name: str, path: str, format: str) -> None:
        self.name, self.path, self.format = name, path, format
        self.file: netCDF4.Dataset | None = None

    def create(self) -> None:
        self.file = netCDF4.Dataset(self.path, "w", format=self.format)
        self.file.createDimension("time", None)
        self.file.createDimension("x", 16 * BLOCK)
        self.file.createVariable("v", "i4", ("x",))
        self.file.createVariable("t", "f8", ("time", "x"))

    def call(self, what: str) -> None:
        what, _, block = what.partition("=")
        if what == "create":
            return self.create()
        if what in ("open", "wait"):
            self.file = netCDF4.Dataset(self.path, "r+")
            return None
        if what == "own":
            for one in ("open", f"put={1 + 2 * (ord(self.name) - ord('a'))}", "close"):
                self.call(one)
            return None
        assert self.file is not None
        if what == "put":
            first = int(block) * BLOCK
            self.file["v"][first : first + BLOCK] = np.arange(first, first + BLOCK) + 1000 * ord(self.name)
        elif what == "record":
            records = self.file["t"].shape[0]
            self.file["t"][records] = records + np.arange(16 * BLOCK)
        elif what == "redef":
            self.file.createVariable(f"by_{self.name}", "i2", ("x",))[:] = ord(self.name)
        elif what == "sync":
            self.file.sync()
        elif what == "close":
            self.file.close()
            self.file = None
        else:
            raise ValueError(what)
        return None


def be(name: str, path: str, format: str) -> None:
    process = Process(name, path, format)
    for line in sys.stdin:
        try:
            process.call(line.strip())
            print("done", flush=True)
        except (OSError, RuntimeError) as error:
            print(f"{line.strip()}: {type(error).__name__}", flush=True)


def start(name: str, path: str, format: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "be", name, path, format]
    with open(f"said-{name}", "w") as said:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)


def await_answer(name: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    if (answer := process.stdout.readline().strip()) != "done":
        print(f"{name}: {answer}")


def await_line(said: pathlib.Path, process: subprocess.Popen[str]) -> None:
    """Until the process says that it waits. It has answered instead: the call did not wait."""
    assert process.stdout is not None
    while "waits until" not in said.read_text():
        if select.select([process.stdout], [], [], 0.01)[0]:
            sys.exit(f"the call did not wait: {said.read_text()}")


def main() -> None:
    path, format, *turns = sys.argv[1:]
    processes = {name: start(name, path, format) for name in sorted({c for turn in turns for c in turn.partition(":")[0]})}
    waiting = ""
    for turn in turns:
        names, _, call = turn.partition(":")
        if waiting and waiting in names:
            await_answer(waiting, processes[waiting])
            waiting = ""
        for name in names:
            to = processes[name].stdin
            assert to is not None
            to.write(call + "\n")
            to.flush()
        if call == "wait":
            waiting = names
            await_line(pathlib.Path(f"said-{names}"), processes[names])
            continue
        for name in names:
            await_answer(name, processes[name])
    for name, process in processes.items():
        process.communicate()
        said = pathlib.Path(f"said-{name}")
        sys.stderr.write(said.read_text())
        said.unlink()


if __name__ == "__main__":
    be(*sys.argv[2:]) if sys.argv[1] == "be" else main()
