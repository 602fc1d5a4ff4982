"""What one of several ranks cannot have more of: all ranks go on together, or get errors. None waits for the others for ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import Advectio

KINDS = ("memory", "mapping", "descriptor", "thread", "link", "disk", "rename")
WIDTH, RECORDS = 500, 3


@dataclass(frozen=True)
class Sweep:
    """`whose`: the rank whose calls fail; -1: of all ranks. `step`: every how many calls one fails; 0: the
    first one alone, of ranks that have written nothing before."""

    api: str  # netcdf, pnetcdf
    ranks: int
    kind: str
    whose: int
    times: str
    then: str
    calls: str
    step: int = 1

    def __str__(self) -> str:
        return "-".join(map(str, (self.api, self.ranks, self.kind, self.whose, self.times, self.then, self.calls)))


FEW = [
    Sweep("pnetcdf", 2, "memory", 0, "once", "goes-on", "read", 7),
    Sweep("pnetcdf", 2, "memory", 1, "once", "goes-on", "short", 5),
    Sweep("pnetcdf", 2, "descriptor", 1, "once", "stops", "short", 3),
    Sweep("pnetcdf", 1, "mapping", 0, "all", "goes-on", "short"),
    Sweep("netcdf", 2, "memory", 1, "once", "goes-on", "read", 11),
    Sweep("netcdf", 2, "descriptor", 1, "once", "goes-on", "short", 3),
]
EVERY = [
    # Threads are made once.
    Sweep(library, ranks, kind, whose, times, then, calls, 0 if kind == "thread" else 1)
    for library in ("pnetcdf", "netcdf")
    for ranks in (1, 2)
    for kind in KINDS
    for whose in (0, 1, -1)
    for times in ("once", "all")
    for then in ("stops", "goes-on")
    for calls in ("short", "read")
    # A rank that stops, or can do nothing more, lets the others wait where they read together, also without Advectio.
    if whose < ranks and (ranks > 1 or whose == 0) and (then, calls) != ("stops", "read")
    if (library, ranks) != ("netcdf", 1) and ((times, calls) != ("all", "read") or ranks == 1)
]


@pytest.fixture(params=[pytest.param(s, id=str(s)) for s in FEW] + [pytest.param(s, id=f"every-{s}") for s in EVERY])
def sweep(request: pytest.FixtureRequest) -> Sweep:
    found: Sweep = request.param
    return found


def test_one_call_of_a_rank_at_a_time_fails_and_the_file_is_right_or_the_ranks_are_told(
    replay: Path, advectio: Advectio, tmp_path: Path, sweep: Sweep
) -> None:
    """The nth allocation, mapping, … of the capture fails, for every n, each in a file of its own."""
    folder = replay.parents[2] / "tests" / "capture"
    program = folder / sweep.api / f"{sweep.api}_runs_out_together"
    if not program.exists():
        pytest.skip(f"{program} is not built: no such library with MPI here")
    command: list[str | Path] = ["mpirun", "-n", str(sweep.ranks), "sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"']
    command += [folder / "netcdf" / "libnetcdf_fails_at.so", program]
    command += [sweep.kind, str(sweep.whose), sweep.times, sweep.then, sweep.calls, "1", str(sweep.step)]
    output = tmp_path / "output"
    output.mkdir()
    result = advectio.start(command, output, "stage: {warm_bytes: 16MiB, bytes_max: 256MiB, segment_bytes: 1MiB}\n").finish()
    lines = [line for line in result.stdout.splitlines() if line.startswith(f"{sweep.kind}-")]  # libraries print, too
    assert len(lines) >= sweep.ranks, result.said
    # Rank 1 makes no file.
    assert sweep.whose == 1 or any(line.split()[2] == "1" for line in lines), result.said
    wrong = []
    for first in range(0, len(lines), sweep.ranks):
        told = lines[first : first + sweep.ranks]
        codes = [codes_of(line) for line in told]
        wrong += ["\n".join([*told, f"  {why}"]) for why in what_is_wrong(output / told[0].split()[0], codes)]
    assert not wrong, "\n".join([*wrong, result.stderr])
    # The last file came to its end.
    assert sweep.step == 0 or all(line.split()[2] == "0" for line in lines[-sweep.ranks :]), result.said
    # A rank without any memory cannot even end the file: the run says what is lost.
    assert result.code == 0 or (result.code == 3 and sweep.times == "all"), result.said
    left = [path.name for path in output.rglob(".*advectio*")]
    assert not left, f"left beside the output: {left}\n{result.stderr}"


@pytest.mark.parametrize("library", ["pnetcdf", "netcdf"])
@pytest.mark.parametrize("whose", [0, 1])
def test_one_allocation_for_the_first_file_of_ranks_fails(
    replay: Path, advectio: Advectio, tmp_path: Path, library: str, whose: int
) -> None:
    """Each n in ranks of its own, which have loaded nothing yet."""
    folder = replay.parents[2] / "tests" / "capture"
    program = folder / library / f"{library}_runs_out_together"
    if not program.exists():
        pytest.skip(f"{program} is not built: no such library with MPI here")
    script = (
        f'n=1; while mpirun -n 2 "$@" memory {whose} once goes-on short $n 0 > told && cat told && '
        f'grep -q "nc {whose} 1" told; do n=$((n + 7)); done'
    )
    command: list[str | Path] = ["sh", "-c", script, "sh", "sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"']
    command += [folder / "netcdf" / "libnetcdf_fails_at.so", program]
    result = advectio.start(command, tmp_path, "stage: {warm_bytes: 16MiB, bytes_max: 256MiB, segment_bytes: 1MiB}\n").finish()
    lines = [line for line in result.stdout.splitlines() if line.startswith("memory-")]
    assert len(lines) > 20 and lines[-2 + whose].split()[2] == "0", result.said
    wrong = []
    for told in zip(lines[::2], lines[1::2], strict=True):
        wrong += [
            "\n".join([*told, f"  {why}"]) for why in what_is_wrong(tmp_path / told[0].split()[0], [*map(codes_of, told)])
        ]
    assert not wrong, "\n".join([*wrong, result.stderr])


def codes_of(line: str) -> list[tuple[str, int]]:
    return [(call, int(code)) for call, _, code in (answer.partition("=") for answer in line.split()[3:])]


def frames_of(codes: list[tuple[str, int]]) -> list[set[int]]:
    """The records that a rank has put before each of its syncs and its close, all without an error."""
    frames: list[set[int]] = [set()]
    for call, code in codes:
        if call.startswith("put") and code == 0:
            frames[-1].add(int(call[3:]))
        elif call in ("sync", "close"):
            frames.append(set())
    return frames[:-1]


def what_is_wrong(path: Path, ranks: list[list[tuple[str, int]]]) -> Iterator[str]:
    """A file of ranks that have heard of no error is whole. Else it has what each rank was promised, if all have defined it."""
    created = [codes[0][1] == 0 for codes in ranks]
    if any(created) and not all(created):
        yield "created on some ranks only"
    if not all(created):
        return
    well = all(code == 0 for codes in ranks for _, code in codes)
    if any(code for codes in ranks for call, code in codes if call in ("dim", "var", "att", "enddef")):
        return
    # A frame ends when all ranks have synced.
    frames = list(zip(*(frames_of(codes) for codes in ranks), strict=False))
    promised = [set().union(*(frame[rank] for frame in frames)) for rank in range(len(ranks))]
    if any(code for codes in ranks for call, code in codes if call in ("sync", "close")):
        return
    try:
        with netCDF4.Dataset(path) as file:
            variable = file["T"]
            if well and (variable.shape != (RECORDS, WIDTH * len(ranks)) or variable.units != "K"):
                yield f"shape {variable.shape}"
            for rank, records in enumerate(promised):
                part = slice(rank * WIDTH, (rank + 1) * WIDTH)
                for record in sorted(records):
                    row = np.ma.filled(variable[record, part], -1) if record < variable.shape[0] else None
                    if row is None or not np.array_equal(row, 1000 * (record + 1) + rank * WIDTH + np.arange(WIDTH)):
                        yield f"record {record} of rank {rank} is missing or wrong"
    except OSError as error:
        yield str(error)
