"""What a process cannot have more of: it goes on without, or gets an error. Memory: interposer_test.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from conftest import Pair
from running import Advectio, run_plainly
from same import assert_same

# Kind, format, calls, once or all from then on, whether the program stops at an error, and every how many.
FEW = [
    (kind, format, "short", "once", "stops", 1)
    for kind in ("mapping", "descriptor", "link")
    for format in ("netcdf4", "classic")
]
FEW += [("thread", "netcdf4", "short", "once", "stops", 1), ("mapping", "netcdf4", "short", "all", "stops", 1)]
FEW += [("memory", format, "short", "once", "stops", 7) for format in ("netcdf4", "classic")]
FEW += [("memory", "netcdf4", calls, "once", "goes-on", 23) for calls in ("over", "read")]
EVERY = [
    (kind, format, calls, times, then, 1)
    for kind in ("memory", "mapping", "descriptor", "thread", "link", "disk", "rename")
    for format in ("netcdf4", "classic")
    for calls in ("short", "over", "read", "group")
    for times in ("once", "all")
    for then in ("stops", "goes-on")
    if (format, calls) != ("classic", "group") and (kind, times) != ("rename", "all")
]


@pytest.fixture(
    params=[pytest.param(s, id="-".join(map(str, s[:5]))) for s in FEW]
    + [pytest.param(s, id="every-" + "-".join(s[:5])) for s in EVERY]
)
def sweep(request: pytest.FixtureRequest) -> tuple[str, str, str, str, str, int]:
    found: tuple[str, str, str, str, str, int] = request.param
    return found


@pytest.mark.parametrize("format", ["1", "3"])
def test_a_program_that_may_have_no_thread_writes_the_same(replay: Path, pair: Pair, format: str):
    folder = replay.parents[2] / "tests" / "capture" / "netcdf"
    command: list[str | Path] = [folder / "netcdf_chosen_calls", "netcdf_2_on_netcdf_3", format]
    plain = run_plainly(command, pair.plain)
    assert plain.code == 0, plain.said
    without = [
        "sh",
        "-c",
        'LD_PRELOAD="$LD_PRELOAD:$0" RUNS_OUT_THREADS=netcdf_chosen exec "$@"',
        folder / "libnetcdf_runs_out.so",
    ]
    carried = pair.advectio.run([*without, *command], pair.carried)
    assert "runs out: threads" in carried.stderr, carried.said
    assert plain.stdout == carried.stdout
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


WIDTH, RECORDS = 500, 3
ENDED = ("finished", "dropped", "removed")  # the last two where the library has the file


def test_one_call_at_a_time_fails_and_the_file_is_right_or_the_program_is_told(
    replay: Path, advectio: Advectio, tmp_path: Path, sweep: tuple[str, str, str, str, str, int]
) -> None:
    """The nth allocation, mapping, … of the capture fails, for every n, each in a process of its own."""
    kind, format, calls, times, then, step = sweep
    folder = replay.parents[2] / "tests" / "capture" / "netcdf"
    command: list[str | Path] = ["sh", "-c", 'LD_PRELOAD="$LD_PRELOAD:$0" exec "$@"', folder / "libnetcdf_fails_at.so"]
    command += [folder / "netcdf_runs_out_at", kind, format, calls, times, then, "1", str(step)]
    output = tmp_path / "output"
    output.mkdir()
    running = advectio.start(command, output, "stage: {warm_bytes: 16MiB, bytes_max: 256MiB, segment_bytes: 1MiB}\n")
    result = running.finish()
    lines = result.stdout.splitlines()
    assert lines and "0 0 create=0" in lines[-1], result.said  # the last one came to its end
    wrong = []
    for line in lines:
        name, status, _, *answers = line.split()
        codes = [(call, int(code)) for call, _, code in (answer.partition("=") for answer in answers)]
        wrong += [f"{line}: {why}" for why in what_is_wrong(output / name, int(status), codes)]
    assert not wrong, "\n".join([*wrong, result.stderr])
    # The program ends with 0. What the server has lost without the program's knowledge gives 3.
    unfinished = [d["path"] for d in result.summary["datasets"] if d["state"] not in ENDED or d["error"]]
    assert result.code == (3 if unfinished else 0) and not unfinished, result.said
    left = [path.name for path in output.rglob(".*advectio*")]
    assert not left, f"left beside the output: {left}\n{result.stderr}"


def what_is_wrong(path: Path, status: int, codes: list[tuple[str, int]]) -> Iterator[str]:
    """A process that has heard of no error has all in its file. One that has heard of some has what was promised before."""
    if status not in (0, 3):
        yield "killed by a signal" if status < 0 else f"exit code {status}"
        return
    if codes[0] != ("create", 0):
        # A file of before may stay.
        if path.exists() and path.stat().st_size > len("old"):
            yield "a file that was not created"
        return
    all_is_well = status == 0
    if any(code for call, code in codes if call in ("dim", "var", "att", "enddef")):
        return
    put: list[int] = []
    promised: list[int] = list(range(RECORDS)) if all_is_well else []
    for call, code in codes if not all_is_well else ():
        if call.startswith("put") and code == 0:
            put.append(int(call[3:]))
        elif call in ("sync", "close") and code == 0:
            promised, put = promised + put, []
    if not promised:
        return
    try:
        with netCDF4.Dataset(path) as file:
            variable = file["T"]
            if all_is_well and (variable.shape != (RECORDS, WIDTH) or variable.units != "K"):
                yield f"shape {variable.shape}"
            for record in promised:
                row = variable[record].filled(-1) if record < variable.shape[0] else None
                if row is None or not np.array_equal(row, 1000 * (record + 1) + np.arange(WIDTH)):
                    yield f"record {record} is missing or wrong"
    except OSError as error:
        yield str(error)
