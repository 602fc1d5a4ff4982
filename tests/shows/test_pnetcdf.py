"""Parallel programs that write one file together by PnetCDF: the same with and without Advectio, whatever becomes of a rank."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Pair, built, is_netcdf
from running import output_files, run_plainly
from same import assert_same
from test_crashes import assert_beginning_is_same, records, synced_frames

Source = Callable[[str], Path]

FILES = ["made", "wrf471/serial/wrfout_d01_4frames.nc"]
IO = ["pnetcdf", "pnetcdf-nonblocking"]


def ranks_of(count: int) -> list[str]:
    return ["mpirun", "-n", str(count)]


@functools.cache
def depends_on_every_enddef() -> bool:
    """In PnetCDF 1.14, where data begin depends on the enddefs before the first variable. The shadow leaves these out."""
    asked = subprocess.run(["pkg-config", "--modversion", "pnetcdf"], capture_output=True, text=True, check=False)
    return asked.returncode == 0 and tuple(int(part) for part in asked.stdout.split(".")[:2]) >= (1, 14)


def comparable(answers: list[str]) -> list[str]:
    """Without the bytes at which data begin, where the library has other ones for the shadow."""
    if not depends_on_every_enddef():
        return answers
    asked = ("ncmpi_inq_header_extent(nc, ", "ncmpi_inq_varoffset(nc, ")
    return [line for before, line in itertools.pairwise(["", *answers]) if not any(call in before for call in asked)]


def assert_same_answers(pair: Pair, ranks: int, at_least: int) -> None:
    for rank in range(ranks):
        plain, carried = ((d / f"out.nc.{rank}").read_text().splitlines() for d in (pair.plain, pair.carried))
        assert len(plain) >= at_least
        assert comparable(plain) == comparable(carried)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("format", [1, 2, 5])
def test_every_family_gives_the_same_answers_and_the_same_file(families: Path, pair: Pair, format: int, ranks: int):
    pair.run([*ranks_of(ranks), families, str(format), "out.nc"], datasets=2 if format == 5 else 3)
    assert_same_answers(pair, ranks, 1000)
    for name in ("out.nc", "modes.nc"):
        assert_same(pair.plain / name, pair.carried / name)


CHOSEN = {  # and how many datasets are written
    "reads_between_puts": 1,
    "negative_counts": 1,
    "too_large_from_the_start": 3,
    "too_large_after_data": 1,
    "gives_up_definitions": 1,
    "gives_up_all_definitions": 1,
    "fills_what_is_added": 1,
    "fills_what_has_no_records": 1,
    "fill_modes": 1,
    "wrong_posted_calls": 1,
    "reads_while_a_request_is_pending": 1,
    "odd_room": 1,
    "last_rank_puts_first": 1,
    "boxes_with_gaps": 1,
    "modes_by_rank": 1,
    "closes_with_pending_calls": 1,
    "without_variables": 2,
    "wrong_calls_of_one_rank": 1,
}


@pytest.mark.parametrize("ranks", [1, 2])
def test_chosen_calls_give_the_same_answers_and_the_same_files(replay: Path, pair: Pair, ranks: int):
    """All in one program: each has files of its own."""
    command = [*ranks_of(ranks), built(replay, "pnetcdf_chosen_calls"), *CHOSEN]
    # PnetCDF 1.12.3 itself crashes now and then on wrong calls.
    plainly = run_plainly(command, pair.plain)
    if plainly.code == 139:
        plainly = run_plainly(command, pair.plain)
    assert plainly.code == 0, plainly.said
    result = pair.advectio.start(command, pair.carried).finish()
    assert result.code == 0, result.said
    assert Counter(Path(d["path"]).name.replace("-", ".").split(".")[0] for d in result.summary["datasets"]) == CHOSEN, (
        result.said
    )
    assert not any(d["error"] for d in result.summary["datasets"])
    assert not pair.advectio.run_dirs[-1].exists(), "something is left in the stage"
    for which in CHOSEN:
        for rank in range(ranks):
            plain, carried = ((d / f"{which}.nc.{rank}").read_text().splitlines() for d in (pair.plain, pair.carried))
            assert len(plain) >= 5 and plain == carried, which
    assert output_files(pair.plain) == output_files(pair.carried)
    for name in output_files(pair.plain):
        if is_netcdf(pair.plain / name):
            assert_same(pair.plain / name, pair.carried / name)


def test_a_variable_of_too_many_dimensions_is_refused_where_it_is_defined(replay: Path, pair: Pair):
    command = [*ranks_of(2), built(replay, "pnetcdf_chosen_calls"), "many_dimensions"]
    result = pair.advectio.start(command, pair.carried).finish()
    assert result.code == 0, result.said
    assert "a variable of 1025 dimensions is refused" in result.said
    for rank in range(2):
        answers = (pair.carried / f"many_dimensions.nc.{rank}").read_text().splitlines()
        codes = [line.split()[-1] for line in answers]
        assert codes == ["ok", "ok", "ok", "NC_EMAXDIMS", "ok"], answers


def conversations(answers: Path) -> dict[str, list[str]]:
    """What was answered, by seed."""
    parts = ("\n" + answers.read_text(errors="replace")).split("\nseed ")[1:]
    return {part.split("\n", 1)[0]: part.splitlines()[1:] for part in parts}


def first_difference(plain: list[str], carried: list[str]) -> str:
    at = next((i for i, (a, b) in enumerate(zip(plain, carried, strict=False)) if a != b), min(len(plain), len(carried)))
    return f"line {at}: {plain[at : at + 1]} / {carried[at : at + 1]}, after {plain[max(0, at - 2) : at]}"


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_random_conversations_give_the_same_answers_and_leave_the_same_files(replay: Path, pair: Pair, ranks: int):
    # ADVECTIO_SEEDS: how many; ADVECTIO_FIRST_SEED: beginning with that one.
    first = int(os.environ.get("ADVECTIO_FIRST_SEED", str(100 * ranks)))
    end = first + int(os.environ.get("ADVECTIO_SEEDS", "12"))
    at_once = 50
    wrong = []
    for seed in range(first, end, at_once):
        seeds = str(seed), str(min(seed + at_once, end) - 1)
        command = [*ranks_of(ranks), built(replay, "pnetcdf_random_calls"), *seeds]
        plain = run_plainly(command, pair.plain)
        carried = pair.advectio.start(command, pair.carried).finish()
        assert plain.code == carried.code == 0, f"{plain.said}\n{carried.said}"
        assert sorted(plain.stdout.splitlines()) == sorted(carried.stdout.splitlines())
        for rank in range(ranks):
            ours = conversations(pair.carried / f"answers.{rank}")
            for name, answers in conversations(pair.plain / f"answers.{rank}").items():
                if answers != ours[name]:
                    wrong.append(f"seed {name}, rank {rank}, {first_difference(answers, ours[name])}")
        assert not pair.advectio.run_dirs[-1].exists(), "something is left in the stage"
    assert not wrong, "\n".join(wrong)
    # Every file has been read above, by the same program: of what is left the names are enough.
    assert output_files(pair.plain) == output_files(pair.carried)


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_fortran_program_gets_the_same_answers_and_the_same_file(replay: Path, pair: Pair, ranks: int):
    pair.run([*ranks_of(ranks), built(replay, "pnetcdf_fortran_calls"), "out.nc"], datasets=1)
    assert_same_answers(pair, ranks, 50)
    answers = (pair.plain / "out.nc.0").read_text()
    assert answers.count("as it was put: T") == 3 and "beyond the edge: ok" not in answers
    assert_same(pair.plain / "out.nc", pair.carried / "out.nc")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("name", FILES)
def test_replay_of_wrf_is_the_same(source: Source, replay: Path, pair: Pair, name: str, io: str, ranks: int):
    result = pair.run([*ranks_of(ranks), replay, "--io", io, source(name)], datasets=1)
    pair.assert_same()
    (dataset,) = result.summary["datasets"]
    assert dataset["frames_synced"] == dataset["frames_durable"] >= 2


@pytest.mark.parametrize("io", IO)
def test_several_frames_and_files_are_the_same(made: Path, replay: Path, pair: Pair, io: str):
    command = [*ranks_of(3), replay, "--io", io, "--frames", "7", "--frames-per-file", "3", "--report", "report.json", made]
    result = pair.run(command, datasets=3)
    for directory in (pair.plain, pair.carried):
        report = directory / "report.json"
        named = json.loads(report.read_text())["files"]
        report.unlink()
        assert sorted(named) == output_files(directory), "each file is named once, whoever writes it"
    pair.assert_same(at_least=3)
    assert [d["frames_synced"] for d in result.summary["datasets"]] == [3, 3, 1]


def test_a_stage_smaller_than_a_frame_is_enough(made: Path, replay: Path, pair: Pair):
    config = "stage: {bytes_max: 24MiB, segment_bytes: 2MiB}\n"
    command = [*ranks_of(3), replay, "--io", "pnetcdf-nonblocking", "--tile", "4x4", "--frames", "3", made]
    result = pair.run(command, config)
    assert result.summary["datasets"][0]["bytes_put"] > 24 * 2**20, "too little data for this test to mean anything"
    pair.assert_same()


def test_compressed_by_config_it_holds_the_same_values(made: Path, replay: Path, pair: Pair):
    config = 'datasets: [{match: "*", format: netcdf4, codec: deflate}]\n'
    pair.run([*ranks_of(4), replay, "--io", "pnetcdf", made], config, datasets=1)
    (name,) = output_files(pair.carried)
    assert_beginning_is_same(pair.plain / name, pair.carried / name)
    assert records(pair.carried / name) == records(pair.plain / name)
    assert (pair.carried / name).read_bytes()[1:4] == b"HDF"


def test_ranks_under_exec_are_the_same(made: Path, replay: Path, pair: Pair):
    forget = ["env", "-u", "LD_PRELOAD"]
    program = [replay, "--io", "pnetcdf", made]
    pair.run([*ranks_of(2), *program], datasets=1)
    for name in output_files(pair.carried):
        (pair.carried / name).unlink()
    command = pair.advectio.command
    pair.advectio.run([*ranks_of(2), *forget, command, "exec", "--", *program], pair.carried, datasets=1)
    pair.assert_same()


def assert_that_a_killed_rank_loses_no_frame_that_all_had_synced(
    pair: Pair, base: list[str | Path], name: str, victim: int, nodes: str | None = None
) -> None:
    """`base`: a replay by several ranks; `name`: its program."""
    forever = ["--frames", "100000", "--frames-per-file", "4", "--compute", "0.05"]
    running = pair.advectio.start([*base, *forever], pair.carried, nodes=nodes)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    os.kill(running.pids(name)[victim], signal.SIGKILL)
    result = running.finish()
    assert result.code != 0, result.said
    # Rank 0 says a frame when its own sync has returned; the others may not have come so far with the last.
    said = sum(synced_frames(running.lines).values())
    names = output_files(pair.carried)
    held = sum(records(pair.carried / file) for file in names)
    assert said - 1 <= held <= said + 1, f"{said} frames were synced, the files have {held}"
    done = run_plainly([*base, "--frames", str(held + 4), "--frames-per-file", "4"], pair.plain)
    assert done.code == 0, done.said
    for file in names:
        assert_beginning_is_same(pair.plain / file, pair.carried / file)
    assert not pair.advectio.run_dirs[-1].exists()


@pytest.mark.parametrize("io", IO)
@pytest.mark.parametrize("victim", [0, 2])
def test_kill_of_one_rank_keeps_every_frame_that_all_had_synced(made: Path, replay: Path, pair: Pair, io: str, victim: int):
    base: list[str | Path] = [*ranks_of(3), replay, "--io", io, made]
    assert_that_a_killed_rank_loses_no_frame_that_all_had_synced(pair, base, "replay", victim)
