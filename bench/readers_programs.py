"""The programs that readers.py starts: a writer and readers, for Advectio (a plain netCDF4 program) and for ADIOS2's SST.

Each prints one JSON object for each frame. Clocks are those of the node (CLOCK_MONOTONIC), the same in all processes.
Writer and readers go in step by files in the current directory: the next frame is written when all readers have read the
one before, and a pause is over. So they do not fight for cores. Where that is what is to be measured, the writer waits for
no reader.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

FILE = "out.nc"
STREAM = "out"
SMALL = "ZNU"
NX, NY, LEVELS = 1900, 1300, 31  # with two fields of 3 dimensions and three of 2: 642 MB
MB_WHOLE = 648.0
WAIT_S_MAX = 300.0


def fields(frame_mb: float) -> dict[str, tuple[int, ...]]:
    """Name and shape of each variable of a frame, all float."""
    shrink = min(1.0, frame_mb / MB_WHOLE) ** 0.5
    ny, nx = max(2, int(NY * shrink)), max(2, int(NX * shrink))
    return {
        SMALL: (LEVELS,),
        "T2": (ny, nx),
        "PSFC": (ny, nx),
        "RAINNC": (ny, nx),
        "T": (LEVELS, ny, nx),
        "QVAPOR": (LEVELS, ny, nx),
    }


def frame_bytes(frame_mb: float) -> int:
    return 4 * sum(int(np.prod(shape)) for shape in fields(frame_mb).values())


def value(frame: int, name: str) -> float:
    """Of all elements but the last, which is one more."""
    return float(frame + len(name))


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_s_of(pid: int) -> float:
    after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def wait_for(paths: list[str]) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not all(os.path.exists(path) for path in paths):
        if time.monotonic() > until:
            raise SystemExit(f"waited {WAIT_S_MAX:.0f} s for {paths}")
        time.sleep(0.005)


# --- writers ---


class NetcdfFile:
    """A netCDF4 program; it does not know of Advectio."""

    def __init__(self, frame_mb: float, readers: int) -> None:
        import netCDF4

        self.shapes = fields(frame_mb)
        _, ny, nx = self.shapes["T"]
        self.file = netCDF4.Dataset(FILE, "w")
        for dimension, length in (("Time", None), ("z", LEVELS), ("y", ny), ("x", nx)):
            self.file.createDimension(dimension, length)
        for name, shape in self.shapes.items():
            dims = {1: ("z",), 2: ("y", "x"), 3: ("z", "y", "x")}[len(shape)]
            chunks = (1, *shape[-2:]) if len(shape) < 3 else (1, 1, *shape[-2:])
            self.file.createVariable(name, "f4", ("Time", *dims), chunksizes=chunks, contiguous=False)
        self.server = 0
        say(begins=True)
        if readers or os.environ.get("ADVECTIO_RUN"):
            wait_for(["server"])
            self.server = int(Path("server").read_text())

    def write(self, frame: int, values: dict[str, np.ndarray[Any, Any]]) -> None:
        for name, array in values.items():
            self.file[name][frame] = array
        self.file.sync()

    def server_cpu_s(self) -> float:
        return cpu_s_of(self.server) if self.server else 0.0

    def close(self) -> None:
        self.file.close()


def sst_engine(io: Any, mode: Any, interface: str, readers: int) -> Any:
    io.set_engine("SST")
    io.set_parameters(
        {
            "DataTransport": "WAN",
            "ControlTransport": "sockets",
            "RendezvousReaderCount": str(readers),
            "OpenTimeoutSecs": "60",
            **({"NetworkInterface": interface} if interface else {}),
            **({"SpeculativePreloadMode": "Off"} if os.environ.get("BENCH_ON_DEMAND") else {}),
        }
    )
    return io.open(STREAM, mode)


class SstStream:
    def __init__(self, frame_mb: float, readers: int) -> None:
        import adios2

        self.adios = adios2.Adios()
        self.io = self.adios.declare_io("out")
        self.variables = {
            name: self.io.define_variable(name, np.zeros(1, "f4"), list(shape), [0] * len(shape), list(shape), True)
            for name, shape in fields(frame_mb).items()
        }
        say(begins=True)
        self.engine = sst_engine(self.io, adios2.bindings.Mode.Write, os.environ.get("BENCH_INTERFACE", ""), readers)

    def write(self, frame: int, values: dict[str, np.ndarray[Any, Any]]) -> None:
        self.engine.begin_step()
        for name, array in values.items():
            self.engine.put(self.variables[name], array)
        self.engine.end_step()

    def server_cpu_s(self) -> float:
        return 0.0  # a thread of the writer

    def close(self) -> None:
        self.engine.close()


def write(kind: str, frames: int, frame_mb: float, readers: int, pause: float, in_step: bool) -> None:
    out = NetcdfFile(frame_mb, readers) if kind == "netcdf" else SstStream(frame_mb, readers)
    arrays = {name: np.zeros(shape, "f4") for name, shape in fields(frame_mb).items()}
    for frame in range(frames):
        for name, array in arrays.items():
            array[...] = value(frame, name)
            array.flat[-1] += 1
        server, cpu = out.server_cpu_s(), cpu_s()
        began = time.monotonic()
        out.write(frame, arrays)
        ended = time.monotonic()
        put_cpu = cpu_s() - cpu
        if in_step:
            wait_for([f"read.{reader}.{frame}" for reader in range(readers)])
        time.sleep(pause)
        say(
            frame=frame,
            began=began,
            ended=ended,
            put_cpu_s=put_cpu,
            later_cpu_s=cpu_s() - cpu - put_cpu,
            server_cpu_s=out.server_cpu_s() - server,
        )
    out.close()


# --- readers ---


class AdvectioFrames:
    def __init__(self, where: str) -> None:
        import advectio
        import xarray  # noqa: F401  (not part of the latency of the first frame)

        options: dict[str, Any] = {"contact": where} if where.endswith(".contact") else {"run": where}
        self.frames = advectio.frames(FILE, history=1000, **options)

    def next(self) -> bool:
        self.frame = next(self.frames, None)
        return self.frame is not None

    def small(self) -> float:
        assert self.frame is not None
        return float(self.frame[SMALL].values.flat[0])

    def values(self, names: list[str]) -> Any:
        """A view where there is one."""
        for name in names:
            yield name, self.frame[name].variable.values

    def done(self) -> None:
        assert self.frame is not None
        self.frame.close()
        self.frame = None


class SstSteps:
    def __init__(self, where: str) -> None:
        import adios2

        self.bindings = adios2.bindings
        self.adios = adios2.Adios()
        self.io = self.adios.declare_io("in")
        wait_for([f"{STREAM}.sst"])
        self.engine = sst_engine(self.io, self.bindings.Mode.Read, where, 0)

    def next(self) -> bool:
        return bool(self.engine.begin_step(self.bindings.StepMode.Read, 60.0) == self.bindings.StepStatus.OK)

    def get(self, names: list[str]) -> dict[str, np.ndarray[Any, Any]]:
        """All at once: that is faster than one after the other."""
        out = {}
        for name in names:
            variable = self.io.inquire_variable(name)
            out[name] = np.empty(variable.shape(), "f4")
            self.engine.get(variable, out[name], self.bindings.Mode.Deferred)
        self.engine.perform_gets()
        return out

    def small(self) -> float:
        return float(self.get([SMALL])[SMALL][0])

    def values(self, names: list[str]) -> Any:
        yield from self.get(names).items()

    def done(self) -> None:
        self.engine.end_step()


def read(kind: str, where: str, reader: int, frames: int, frame_mb: float) -> None:
    """Frames with an odd number are copied to memory of numpy, of the others all values are summed, in place where that can be."""
    shapes = fields(frame_mb)
    large = [name for name in shapes if name != SMALL]
    source = AdvectioFrames(where) if kind == "netcdf" else SstSteps(where)
    for frame in range(frames):
        assert source.next(), f"frame {frame} did not come"
        first = source.small()
        got = time.monotonic()
        assert first == value(frame, SMALL), f"{SMALL} of frame {frame} is {first}"
        cpu = cpu_s()
        copy = frame % 2 == 1
        kept = {}
        views = 0
        for name, array in source.values(large):
            views += not array.flags.writeable
            if copy:
                kept[name] = array if array.flags.writeable else np.array(array)
            else:
                mean = float(array.sum()) / array.size
                assert abs(mean - value(frame, name)) < 1e-3, f"{name} of frame {frame}: mean {mean}"
            del array
        ended = time.monotonic()
        cpu = cpu_s() - cpu
        for name, array in kept.items():
            assert array.reshape(-1)[-1] == value(frame, name) + 1 and array.reshape(-1)[0] == value(frame, name)
        kept.clear()
        source.done()
        Path(f"read.{reader}.{frame}").touch()
        say(
            frame=frame, first=got, ended=ended, way="copy" if copy else "look", read_s=ended - got, read_cpu_s=cpu, views=views
        )
    source.next()  # the end


def main() -> None:
    role, kind, *words = sys.argv[1:]
    if role == "write":
        write(kind, int(words[0]), float(words[1]), int(words[2]), float(words[3]), words[4] == "in-step")
    else:
        read(kind, words[0], int(words[1]), int(words[2]), float(words[3]))


if __name__ == "__main__":
    main()
