"""`python -m advectio` in a fork of a process that has imported it: Python's start and the imports take most of a short command.

A command still has a process, an environment and a directory of its own. What the loader and Python's start read of the
environment (LD_PRELOAD, PYTHONPATH) is that of the tests. Tests of the start itself, or with signals, start Python.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

COMMAND_LINE = (
    "advectio.cli", "advectio.checking", "advectio.draining", "advectio.inspecting", "advectio.recovering", "advectio.run",
    "advectio.watching", "rich.console", "rich.table", "typer._adapters", "typer.rich_utils",
)  # fmt: skip
PICTURES = (
    *COMMAND_LINE,
    "advectio.plotting",
    "advectio.pictures.drawing",
    "matplotlib.backends.backend_agg",
    "netCDF4",
    "xarray",
)


class Forks:
    """The process that forks. It has no threads, so that no fork finds a lock that nobody will open."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words = [sys.executable, __file__, str(other.fileno()), *modules]
        self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])
        other.close()
        atexit.register(self._end)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()

    def run(
        self, words: Sequence[str], *, env: Mapping[str, str], cwd: str | Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """As subprocess.run with its output captured: returns when all that hold the output have ended."""
        out, out_of_command = os.pipe()
        err, err_of_command = os.pipe()
        told = json.dumps({"words": list(words), "env": dict(env), "cwd": os.fspath(cwd)}).encode()
        socket.send_fds(self._control, [told], [out_of_command, err_of_command])
        os.close(out_of_command)
        os.close(err_of_command)
        pid = int(self._control.recv(64))
        try:
            said = _read_all((out, err), time.monotonic() + timeout_s)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["advectio", *words], timeout_s) from None
        finally:
            code = int(self._control.recv(64))
            os.close(out)
            os.close(err)
        return subprocess.CompletedProcess(["advectio", *words], code, *said)


def _read_all(pipes: Sequence[int], until: float) -> list[str]:
    found: dict[int, list[bytes]] = {pipe: [] for pipe in pipes}
    with selectors.DefaultSelector() as open_ones:
        for pipe in pipes:
            open_ones.register(pipe, selectors.EVENT_READ)
        while open_ones.get_map():
            ready = open_ones.select(max(until - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                some = os.read(key.fd, 65536)
                if some:
                    found[key.fd].append(some)
                else:
                    open_ones.unregister(key.fd)
    return [b"".join(found[pipe]).decode(errors="replace").replace("\r\n", "\n") for pipe in pipes]


@functools.cache
def forks(modules: Sequence[str] = COMMAND_LINE) -> Forks:
    """One for each choice of modules; it ends with this process."""
    return Forks(modules)


def _fork_for_each_request(control: socket.socket) -> list[str]:
    """Returns in the forks alone, with the words of their command."""
    while True:
        told, pipes, _, _ = socket.recv_fds(control, 1 << 20, 2)
        if not told:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            control.close()
            for number, pipe in enumerate(pipes, start=1):
                os.dup2(pipe, number)
                os.close(pipe)
            request = json.loads(told)
            os.environ.clear()
            os.environ.update(request["env"])
            time.tzset()
            os.chdir(request["cwd"])
            return list(request["words"])
        for pipe in pipes:
            os.close(pipe)
        control.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        control.send(str(os.waitstatus_to_exitcode(status)).encode())


def _run(words: Sequence[str]) -> int:
    """The exit code of `python -m advectio`, with all said that Python says at its end."""
    from advectio.__main__ import main

    sys.argv = ["advectio", *words]
    code: object = None
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0)  # type: ignore[call-overload]


if __name__ == "__main__":
    # As where `python -m advectio` is started: the tests' modules are not found.
    del sys.path[0]
    for module in sys.argv[2:]:
        if importlib.util.find_spec(module):  # not all are in every version
            importlib.import_module(module)
    gc.freeze()  # to look through these modules for garbage would copy them
    # Without Python's own end, which takes each of these modules apart.
    os._exit(_run(_fork_for_each_request(socket.socket(fileno=int(sys.argv[1])))))
