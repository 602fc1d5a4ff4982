"""`split` of `advectio process`, and outputs that are made while the run goes on (`--follow`)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest
from advectio import following, processing
from advectio.awaiting import subscribed
from advectio.errors import UserError
from advectio.protocol import status_of
from advectio.worker import Outcome
from conftest import Pair
from running import Running, environment, output_files
from same import assert_same
from test_process import Result, done, process, values, worker, write_rules  # noqa: F401

SERIES = Path(__file__).parent / "programs" / "live" / "series.py"
FIRST = "2005-08-28_00:00:00.nc"
DAYS = ["2001-01-30", "2001-01-31", "2001-02-01", "2001-02-02"]


@pytest.fixture(scope="module")
def hourly(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three and a half days in files of five hours."""
    directory = tmp_path_factory.mktemp("hourly")
    files = []
    rain = np.zeros((4, 5))
    chance = np.random.default_rng(7)
    for first in range(0, 85, 5):
        path = directory / f"h{first:03d}.nc"
        files.append(path)
        with netCDF4.Dataset(path, "w") as file:
            for name, length in (("time", None), ("y", 4), ("x", 5)):
                file.createDimension(name, length)
            time = file.createVariable("time", "f8", ("time",))
            time.units = "hours since 2001-01-30"
            t = file.createVariable("t", "f4", ("time", "y", "x"), fill_value=-9)
            total = file.createVariable("rain", "f4", ("time", "y", "x"))
            file.createVariable("land", "i4", ("y", "x"))[:] = np.arange(20).reshape(4, 5)
            for k in range(min(5, 85 - first)):
                time[k] = first + k
                t[k] = np.ma.masked_less(chance.normal(0, 1, (4, 5)), -1.2)
                rain = rain + chance.random((4, 5))
                total[k] = rain
    return files


@pytest.mark.parametrize("rule", ["", ", mean: 6h", ", difference: 6h", ", time: [{max: 6h}, {mean: 1d}]"])
def test_files_of_periods_are_the_one_file(
    worker: Callable[..., Result],  # noqa: F811
    hourly: list[Path],
    tmp_path: Path,
    rule: str,
):
    done(worker([f"path: one.nc{rule}", f'path: "days/{{time}}.nc", split: 1d{rule}'], *hourly))
    made = output_files(tmp_path / "out" / "days")
    first = 1 if "difference" in rule else 0  # a window right before the first record
    assert made == [f"{day}.nc" for day in (["2001-01-29"] if "mean: 6h" in rule or "time" in rule else []) + DAYS][: len(made)]
    assert len(made) >= 4 - first
    for name in ("time", "t", "rain"):
        parts = np.concatenate([values(tmp_path / "out" / "days" / path, name) for path in made])
        np.testing.assert_array_equal(parts, values(tmp_path / "out" / "one.nc", name))
    assert (values(tmp_path / "out" / "days" / made[-1], "land") == np.arange(20).reshape(4, 5)).all()


def test_files_are_called_after_those_that_they_are_made_of(
    worker: Callable[..., Result],  # noqa: F811
    hourly: list[Path],
    tmp_path: Path,
):
    done(worker('path: "days/{name}", variables: [t], split: 1d', *hourly))
    assert output_files(tmp_path / "out" / "days") == ["h000.nc", "h020.nc", "h045.nc", "h070.nc"]
    result = worker('path: "hours/{name}", variables: [t], split: 1h', *hourly)
    assert result.code == 2 and "{time} in path tells the files of split apart" in result.stderr, result.said


RULES = ['path: "minutes/{time}.nc", variables: [T2], mean: 2min, split: 4min', "path: all.nc, variables: [T2], max: all"]


@pytest.fixture
def begin(pair: Pair) -> Callable[..., tuple[Running, subprocess.Popen[str]]]:
    """A run that holds after two files of four minutes, and who follows it."""

    def start(rules: list[str], *words: str) -> tuple[Running, subprocess.Popen[str]]:
        write_rules(pair.carried, rules)
        running = pair.advectio.start([sys.executable, SERIES, "./wrfout_{}.nc", "4", "4", "2"], pair.carried)
        running.wait_for(lambda: "begins\n" in running.lines, "it had begun")
        options = ["-c", "rules.yaml", "-o", "out", "--follow", "--run", os.fspath(pair.advectio.run_dirs[-1])]
        following = subprocess.Popen(
            [pair.advectio.command, "process", "wrfout*", *options, *words],
            cwd=pair.carried, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        (pair.carried / "go").touch()
        running.wait_for(lambda: "holds\n" in running.lines, "it held")
        return running, following

    return start


def end(pair: Pair, running: Running) -> None:
    (pair.carried / "more").touch()
    result = running.finish()
    assert result.code == 0, result.said


def test_outputs_come_while_the_run_goes_on_and_are_those_of_all_files(pair: Pair, begin: Callable[..., Any]):
    running, following = begin(RULES)
    running.wait_for(lambda: (pair.carried / "out" / "minutes" / FIRST).exists(), "an output came")
    assert not (pair.carried / "out" / "all.nc").exists()
    end(pair, running)
    said, errors = following.communicate(timeout=120)
    assert following.returncode == 0, errors
    write_rules(pair.plain, RULES)
    files = sorted(pair.carried.glob("wrfout*"))
    done(pair.advectio.call("process", *files, "-c", "rules.yaml", "-o", "out", directory=pair.plain))
    wanted = output_files(pair.plain / "out")
    assert output_files(pair.carried / "out") == wanted and len(wanted) >= 5
    for name in wanted:
        assert_same(pair.plain / "out" / name, pair.carried / "out" / name)
    assert said.count(" written") == len(wanted), "each is told of once"


def test_who_was_killed_goes_on_with_keep(pair: Pair, begin: Callable[..., Any]):
    running, following = begin(RULES)
    first = pair.carried / "out" / "minutes" / FIRST
    running.wait_for(first.exists, "an output came")
    following.kill()
    following.communicate()
    before = first.stat().st_mtime_ns
    end(pair, running)
    again = ["process", *sorted(pair.carried.glob("wrfout*")), "-c", "rules.yaml", "-o", "out"]
    refused = pair.advectio.call(*again, directory=pair.carried)
    assert refused.code == 2 and "is there already" in refused.stderr, refused.said
    done(pair.advectio.call(*again, "--keep", directory=pair.carried))
    assert first.stat().st_mtime_ns == before
    assert len(output_files(pair.carried / "out")) >= 5


@pytest.mark.parametrize(
    "rule",
    [
        'path: "{time}.nc", variables: [T3], split: 4min',
        'path: "{time}.nc", variables: [T3], split: 1d',
        "path: a.nc, variables: [T3]",
    ],
    ids=["of a period that is complete", "of one that is not", "of the whole run"],
)
def test_a_mistake_in_the_rules_ends_it_and_not_the_run(pair: Pair, begin: Callable[..., Any], rule: str):
    running, following = begin([rule])
    _, errors = following.communicate(timeout=120)
    assert following.returncode == 2 and "T3" in errors and "T2" in errors, errors
    end(pair, running)


def test_a_run_that_writes_nothing_of_that_name_is_told_of(pair: Pair, begin: Callable[..., Any]):
    running, following = begin(RULES)
    following.kill()
    following.communicate()
    options = ["-c", "rules.yaml", "-o", "none", "--follow", "--run", os.fspath(pair.advectio.run_dirs[-1])]
    other = subprocess.Popen(
        [pair.advectio.command, "process", "auxhist*", *options],
        cwd=pair.carried, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    running.wait_for(lambda: subscribed(status_of(os.fspath(pair.advectio.run_dirs[-1]), 60.0)) > 0, "it followed")
    end(pair, running)
    _, errors = other.communicate(timeout=120)
    assert other.returncode == 2 and "has written no file that matches auxhist*" in errors, errors


class Frame:
    def __init__(self, path: Path, complete: bool) -> None:
        self.path = os.fspath(path)
        self.commit = lambda path: None if complete else 1
        self._done = lambda: None


def test_where_a_run_dies_nothing_is_made_of_files_that_are_not_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).touch()
    went_on = threading.Event()

    def stream(*_: Any, **__: Any) -> Iterator[Frame]:
        yield Frame(tmp_path / "one", True)
        yield Frame(tmp_path / "two", False)
        assert went_on.wait(60)
        raise UserError("the run does not answer")

    given: list[tuple[list[str], bool]] = []

    def run_worker(command: list[str], files: list[str], _: object) -> Outcome:
        given.append(([Path(file).name for file in files], "--complete" in command))
        went_on.set()
        return Outcome(0, {"outputs": [], "files": len(files)})

    monkeypatch.setattr(following, "stream", stream)
    monkeypatch.setattr(following, "run_worker", run_worker)
    monkeypatch.setattr(following.os, "nice", lambda _: 0)
    with pytest.raises(UserError, match=r"does not answer; outputs of complete files are there.*advectio recover") as told:
        following.follow(processing.Options(["*"], "rules.yaml", "out"), None, 1.0)
    assert told.value.exit_code == 1
    assert given == [(["one"], True)]
