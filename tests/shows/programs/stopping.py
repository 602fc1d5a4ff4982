"""Stops a server, but not while it holds the lock of the markers: programs would wait for that until they give up."""

import fcntl
import os
import pathlib
import signal
import struct
import time

F_OFD_SETLK = 37


def server_of_stage(stage: pathlib.Path) -> int:
    return int.from_bytes((stage / "control").read_bytes()[12:16], "little")


def holds_markers(stage: pathlib.Path) -> bool:
    try:
        with (stage / "markers.lock").open("r+b") as file:
            fcntl.fcntl(file, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def stop_server(stage: str | pathlib.Path | None = None) -> int:
    """The server of that stage; None: of this process' run. Returns its pid."""
    stage = pathlib.Path(stage or os.environ["ADVECTIO_RUN"])
    server = server_of_stage(stage)
    while True:
        os.kill(server, signal.SIGSTOP)
        while pathlib.Path(f"/proc/{server}/stat").read_text().rpartition(") ")[2][0] not in "tT":
            time.sleep(0.001)
        if not holds_markers(stage):
            return server
        os.kill(server, signal.SIGCONT)
        time.sleep(0.001)
