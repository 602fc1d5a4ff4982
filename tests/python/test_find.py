"""Which run a live reader takes that names none."""

import os

import pytest
from advectio.errors import UserError
from advectio.live import find


@pytest.fixture
def runs(monkeypatch):
    """Run directories, and where each was started."""
    begun: list[tuple[str, str]] = []
    monkeypatch.setattr(find, "live_runs", lambda: list(begun))
    monkeypatch.setattr(find.places, "runs", lambda: [run for run, _ in begun])
    return begun


def begins_at_the_third_look(monkeypatch, run):
    """Of another run nothing is taken until then."""
    looks = iter([*[[("/shm/a", "/a"), ("/shm/b", "/b")]] * 2, [("/shm/a", "/a"), run, ("/shm/b", "/b")]])
    monkeypatch.setattr(find, "live_runs", lambda: next(looks))


def test_a_reader_waits_for_the_run_of_its_directory_whatever_else_is_under_way(monkeypatch, tmp_path):
    monkeypatch.setattr(find.time, "sleep", lambda _: None)
    monkeypatch.chdir(tmp_path)
    for match in (["out*"], find.patterns(tmp_path / "out*"), find.patterns("./x/../out*")):
        begins_at_the_third_look(monkeypatch, ("/shm/mine", os.fspath(tmp_path)))
        assert find.run_of(match, 600) == "/shm/mine"


@pytest.mark.parametrize("where", ["/scratch", "/scratch/job/run"])
def test_a_run_above_or_below_counts_where_none_is_in_the_very_directory(runs, where):
    runs += [("/shm/far", "/scratch2/job"), ("/shm/near", where)]
    assert find.run_of(["/scratch/job/out*"], 0) == "/shm/near"
    runs.append(("/shm/there", "/scratch/job"))
    assert find.run_of(["/scratch/job/out*"], 0) == "/shm/there"
    assert find.nearer_than("/shm/near", ["/scratch/job/out*"])
    assert not find.nearer_than("/shm/there", ["/scratch/job/out*"])


def test_when_the_time_is_over_the_error_names_the_runs_that_there_were(runs):
    runs.append(("/shm/far", "/elsewhere"))
    with pytest.raises(UserError) as error:
        find.run_of(["/scratch/job/out*"], 0)
    assert str(error.value) == (
        "no run was started in /scratch/job, nor above or below it. To follow a run that was started elsewhere, name it with run= "
        "(--run of a command):\n  /shm/far  started in /elsewhere"
    )
    runs += [("/shm/one", "/scratch/job"), ("/shm/two", "/scratch/job")]
    with pytest.raises(UserError, match="2 runs are under way; say which one with run=") as error:
        find.run_of(["/scratch/job/out*"], 0)
    assert "/elsewhere" not in str(error.value)
