"""The program of marker_runs.py: writes files, renames some, and makes after each step a marker that names them.

Usage: marker_program.py SEED STEPS RANKS DEFLATE. One process; its ranks are processes that it forks. Each marker that is made
comes into `said`, a line each, after it was made.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np


def values(seed: int, rank: int, step: int, frame: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.random.default_rng([seed, rank, step, frame]).random(40_000)


def frames_of(seed: int, rank: int, step: int) -> int:
    return random.Random(f"{seed} {rank} {step}").choice([1, 1, 2, 4])


def is_renamed(seed: int, rank: int, step: int) -> bool:
    return random.Random(f"{seed} {rank} {step} name").random() < 0.4


def name_of(seed: int, rank: int, step: int) -> str:
    return f"{'final' if is_renamed(seed, rank, step) else 'hist'}.{rank}.{step:03}.nc"


def write(seed: int, rank: int, step: int, deflate: bool, chance: random.Random) -> None:
    format = chance.choice(["NETCDF4", "NETCDF4", "NETCDF3_64BIT_OFFSET"])
    name = name_of(seed, rank, step)
    first = f"{name}.tmp" if is_renamed(seed, rank, step) else name
    with netCDF4.Dataset(first, "w", format=format) as file:
        file.createDimension("t", None)
        file.createDimension("x", 40_000)
        v = file.createVariable("v", "f8", ("t", "x"), zlib=deflate and format == "NETCDF4")
        for frame in range(frames_of(seed, rank, step)):
            v[frame] = values(seed, rank, step, frame)
            if chance.random() < 0.5:
                file.sync()
    if first != name:
        os.rename(first, name)


def mark(step: int, text: str, chance: random.Random) -> str:
    kind = chance.choice(["open", "shell", "rename", "link", "touch"])
    name = {"open": f"log.f{step:03}", "shell": f"s{step:03}.done", "rename": f"r{step:03}.ok"}.get(kind, f"m{step:03}.ready")
    if kind == "open":
        Path(name).write_text(text)
    elif kind == "shell":
        subprocess.run(["sh", "-c", 'printf %s "$1" > "$2"', "sh", text, name], check=True)
    elif kind == "rename":
        Path("draft").write_text(text)
        os.rename("draft", name)
    elif kind == "link":
        Path(f"text{step:03}").write_text(text)
        os.link(f"text{step:03}", name)
    else:
        subprocess.run(["touch", name], check=True)
        with open(name, "a") as file:
            file.write(text)
    return name


def main() -> None:
    seed, steps, ranks = map(int, sys.argv[1:4])
    deflate = sys.argv[4] == "1"
    chance = random.Random(f"program {seed}")
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for step in range(steps):
        children = []
        for rank in range(ranks):
            if rank == 0 or chance.random() < 0.7:
                child = os.fork() if rank > 0 else 0
                if child == 0:
                    write(seed, rank, step, deflate, random.Random(f"{seed} {rank} {step} write"))
                    if rank > 0:
                        os._exit(0)
                else:
                    children.append((child, rank))
        files = [name_of(seed, 0, step)]
        for child, rank in children:
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
                sys.exit(f"rank {rank} has failed")
            files.append(name_of(seed, rank, step))
        text = json.dumps({"step": step, "files": files}) + "\n"
        name = mark(step, text, chance)
        if not os.path.exists(name) or Path(name).read_text() != text:
            sys.exit(f"{name} is not what the program has made")
        os.write(said, (json.dumps({"marker": name, "text": text}) + "\n").encode())


if __name__ == "__main__":
    main()
