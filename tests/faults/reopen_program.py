"""The program of reopen_runs.py: files that are opened again and again for writing, by one process or by one for each step.

Usage: reopen_program.py SEED STEPS. It comes into `said`, a line each: a frame before it is put, and its number once it is synced.
"""

import json
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import netCDF4
import numpy as np

X = 30_000
FORMATS = ("NETCDF4", "NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA")


def values(seed: int, file: str, frame: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.random.default_rng([seed, sum(file.encode()), frame]).random(X)


class Written:
    """One file, and what the program knows of it."""

    def __init__(self, seed: int, number: int, said: int, formats: tuple[str, ...]) -> None:
        self.seed, self.said = seed, said
        self.chance = random.Random(f"file {seed} {number}")
        self.format = self.chance.choice(formats)
        self.name = f"f{number}-{self.format}.nc"
        self.zlib = self.format.startswith("NETCDF4") and self.chance.random() < 0.5
        self.frames = self.records = 0
        self.at: dict[int, int] = {}  # by record: the frame that has put it last
        self.file: netCDF4.Dataset | None = None

    def tell(self, **what: object) -> None:
        os.write(self.said, (json.dumps({"file": self.name} | what) + "\n").encode())

    def open(self) -> netCDF4.Dataset:
        if self.records > 0 or self.frames > 0 or os.path.exists(self.name):
            file = netCDF4.Dataset(self.name, "a")
            if len(file.dimensions["t"]) != self.records:
                sys.exit(f"{self.name} has {len(file.dimensions['t'])} records, not {self.records}")
            return file
        file = netCDF4.Dataset(self.name, "w", format=self.format)
        file.createDimension("t", None)
        file.createDimension("x", X)
        file.createVariable("frame", "i4", ("t",))
        file.createVariable("v", "f8", ("t", "x"), zlib=self.zlib)
        if self.chance.random() < 0.3:  # FESOM2
            file.close()
            return self.open()
        return file

    def put(self, file: netCDF4.Dataset) -> None:
        self.frames += 1
        old = self.records > 0 and self.chance.random() < 0.2
        record = self.chance.randrange(self.records) if old else self.records
        self.tell(frame=self.frames, record=record)
        file["v"][record] = values(self.seed, self.name, self.frames)
        file["frame"][record] = self.frames
        self.at[record] = self.frames
        self.records = max(self.records, record + 1)

    def read(self, file: netCDF4.Dataset) -> None:
        if self.records == 0:
            return
        record = self.chance.randrange(self.records)
        if not np.array_equal(file["v"][record], values(self.seed, self.name, self.at[record])):
            sys.exit(f"{self.name}: record {record} is not what was put")
        if file["frame"][:].tolist() != [self.at[r] for r in range(self.records)]:
            sys.exit(f"{self.name}: {file['frame'][:].tolist()} is not what was put")

    def step(self, stays_open: bool = True) -> None:
        file = self.file or self.open()
        self.file = None
        for _ in range(self.chance.choice([0, 1, 1, 1, 2])):
            if self.chance.random() < 0.2:
                self.read(file)
            self.put(file)
            if self.chance.random() < 0.5:
                file.sync()
                self.tell(synced=self.frames)
        if stays_open and self.chance.random() < 0.25:
            self.file = file
        else:
            file.close()
            self.tell(synced=self.frames)


def step_in_another_process(files: list[Written]) -> list[Written]:
    Path("state").write_bytes(pickle.dumps(files))
    done = subprocess.run([sys.executable, __file__, "one-step"], check=False)
    if done.returncode != 0:
        sys.exit(f"a step has ended with {done.returncode}")
    return pickle.loads(Path("state").read_bytes())


def one_step() -> None:
    files: list[Written] = pickle.loads(Path("state").read_bytes())
    said = os.open("said", os.O_WRONLY | os.O_APPEND)
    for file in files:
        file.said = said
        file.step(stays_open=False)
    Path("state").write_bytes(pickle.dumps(files))


def main() -> None:
    seed, steps = map(int, sys.argv[1:])
    chance = random.Random(f"program {seed}")
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    number = chance.randint(1, 4)
    apart = random.Random(f"processes {seed}").random() < 0.35
    files = [Written(seed, n, said, FORMATS) for n in range(number)]
    for _ in range(steps):
        if apart:
            files = step_in_another_process(files)
        else:
            for file in files:
                file.step()
        time.sleep(chance.choice([0, 0, 0.02, 0.1]))
    for file in files:
        if file.file is not None:
            file.file.close()
            file.tell(synced=file.frames)


if __name__ == "__main__":
    one_step() if sys.argv[1:] == ["one-step"] else main()
