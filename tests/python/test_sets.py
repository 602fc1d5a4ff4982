"""Sets of files that are complete together: the record, the link, and what goes. Events are made up; the files are real."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from advectio import set_record, sets
from advectio.errors import UserError
from advectio.events import Event

MATCH = ["rst_d01_{instant}", "rst_d02_{instant}"]


class Run:
    """A program's run, as the keeper of its set hears of it."""

    number = 0
    time = 0

    def __init__(
        self, at: Path, member: str = "", match: list[str] | None = None, begin: bool = True, name: str = "", **more: Any
    ) -> None:
        Run.number += 1
        self.at = at
        self.directory = at / (name or f"run-{Run.number}")
        members = more.pop("members", [])
        rule = set_record.Rule(
            "restart", match or MATCH, str(at / "latest"), more.pop("pointer", None), more.pop("keep", None), members
        )
        self.keeper = sets.Keeper(rule, str(self.directory), member)
        self.ids = 0
        if begin:
            self.keeper.check()
            self.keeper.begin()

    def note(self, what: str, path: Path, id: str, **more: Any) -> None:
        event = {"event": what, "path": str(path), "id": id, "time": "", "run": str(self.directory), **more}
        self.keeper.note(Event(**event))  # type: ignore[typeddict-item]

    def begin(self, name: str, text: str = "") -> tuple[Path, str]:
        """As capture does it: what is there keeps its inode."""
        path = self.at / name
        self.ids += 1
        path.unlink(missing_ok=True)
        path.write_text(text or name)
        id = f"{self.directory.name}-{self.ids}.0"
        Run.time += 1
        self.note("begun", path, id, inode=path.stat().st_ino, created=f"2026-01-01T00:00:00.{Run.time:09}Z")
        return path, id

    def complete(self, path: Path, id: str, closed: bool = True) -> None:
        self.note("complete", path, id, closed=closed, frames=1, bytes=path.stat().st_size)

    def end(self, path: Path, id: str, closed: bool = True) -> None:
        self.complete(path, id, closed)
        self.note("durable", path, id, complete=True)

    def write(self, instant: str, *names: str, text: str = "") -> None:
        for name in names or ("rst_d01_", "rst_d02_"):
            self.end(*self.begin(f"{name}{instant}", text))


def newest(at: Path) -> dict[str, str]:
    """What the link leads to: names and texts."""
    directory = at / "latest"
    return {p.relative_to(directory).as_posix(): p.read_text() for p in sorted(directory.rglob("*")) if p.is_file()}


def record(at: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((at / ".latest.sets" / ".record.json").read_text())
    return found


@pytest.mark.parametrize(
    ("pattern", "path", "instant"),
    [
        ("rst_{instant}.nc", "/a/rst_00:10.nc", "00:10"),
        ("rst_{instant}.nc", "/a/rst_.nc", None),
        ("rst_{instant}.nc", "/a/xrst_1.nc", None),
        ("rst_d0[12]_{instant}", "/a/rst_d02_x", "x"),
        ("rst_d0[!12]_{instant}", "/a/rst_d02_x", None),
        ("*.{instant}.r?.nc", "/a/b/case.clm2.0001-01.rh.nc", "0001-01"),
        ("/a/*/rst_{instant}", "/a/b/c/rst_1", "1"),
        ("/a/*/rst_{instant}", "/b/b/c/rst_1", None),
        (r"rst\*_{instant}", "/a/rst*_1", "1"),
        (r"rst\*_{instant}", "/a/rstx_1", None),
        ("rst+(a)_{instant}$", "/a/rst+(a)_1$", "1"),
        ("[]a]{instant}", "/]1", "1"),
    ],
)
def test_the_instant_is_what_the_name_has_there(pattern: str, path: str, instant: str | None):
    assert sets.instant_of(pattern, path) == instant


def test_the_link_moves_when_all_files_are_durable(tmp_path: Path):
    run = Run(tmp_path)
    run.end(*run.begin("rst_d01_1"))
    second = run.begin("rst_d02_1")
    run.complete(*second)
    assert not (tmp_path / "latest").exists()
    run.note("durable", *second, complete=False)
    assert not (tmp_path / "latest").exists()
    run.note("durable", *second, complete=True)
    assert newest(tmp_path) == {"rst_d01_1": "rst_d01_1", "rst_d02_1": "rst_d02_1"}
    assert not os.path.isabs(os.readlink(tmp_path / "latest"))


def test_a_file_that_was_never_closed_or_lacks_frames_makes_no_set(tmp_path: Path):
    run = Run(tmp_path)
    run.write("1", "rst_d01_")
    run.end(*run.begin("rst_d02_1"), closed=False)
    assert not (tmp_path / "latest").exists()
    path, id = run.begin("rst_d02_1")
    run.note("left_out", path, id, frames=1)
    run.end(path, id)
    assert not (tmp_path / "latest").exists()
    run.write("1", "rst_d02_")
    assert (tmp_path / "latest").exists()


def test_a_file_that_the_disk_refuses_or_somebody_removes_makes_no_set(tmp_path: Path):
    run = Run(tmp_path)
    run.write("1", "rst_d01_")
    path, id = run.begin("rst_d02_1")
    run.complete(path, id)
    run.note("failed", path, id, error="make durable: Input/output error")
    run.note("durable", path, id, complete=True)
    assert not (tmp_path / "latest").exists()
    path, id = run.begin("rst_d02_1")
    path.unlink()
    run.note("complete", path, id, closed=True)
    run.note("durable", path, id, complete=True)
    assert not (tmp_path / "latest").exists()


def test_files_of_two_instants_make_no_set(tmp_path: Path):
    run = Run(tmp_path)
    run.write("1", "rst_d01_")
    run.write("2", "rst_d02_")
    assert not (tmp_path / "latest").exists()


def test_the_newest_is_what_was_begun_last(tmp_path: Path):
    """Not what is complete last, nor what comes last by its name: a run that begins at an earlier instant writes later ones anew."""
    run = Run(tmp_path)
    run.write("08", "rst_d01_")
    slow = run.begin("rst_d02_08")
    run.write("09")
    run.end(*slow)
    assert "rst_d01_09" in newest(tmp_path)
    run.write("02")
    assert "rst_d01_02" in newest(tmp_path)


def test_the_order_is_not_that_in_which_a_server_tells_of_files(tmp_path: Path):
    """One that takes up what another has left finds files in any order."""
    run = Run(tmp_path)
    for instant in "2413":
        for domain in "12":
            path = tmp_path / f"rst_d0{domain}_{instant}"
            path.write_text(instant)
            run.note("begun", path, path.name, inode=path.stat().st_ino, created=f"2026-01-01T00:00:0{instant}.000000000Z")
            run.end(path, path.name)
    assert set(newest(tmp_path).values()) == {"4"}
    assert [w["instant"] for w in record(tmp_path)["whole"]] == ["3", "4"]


def test_keep_removes_older_sets_and_nothing_else(tmp_path: Path):
    run = Run(tmp_path, keep=2)
    (tmp_path / "rst_d01_0").write_text("of another run")
    run.write("1", "rst_d01_")
    for instant in "2345":
        run.write(instant)
    left = sorted(p.name for p in tmp_path.glob("rst*"))
    assert left == ["rst_d01_0", "rst_d01_1", "rst_d01_4", "rst_d01_5", "rst_d02_4", "rst_d02_5"]
    assert sorted(p.name for p in (tmp_path / ".latest.sets").iterdir() if p.is_dir()) == ["4", "5"]


def test_without_keep_nothing_is_removed(tmp_path: Path):
    run = Run(tmp_path)
    for instant in "12345":
        run.write(instant)
    assert len(list(tmp_path.glob("rst*"))) == 10
    assert [w["instant"] for w in record(tmp_path)["whole"]] == ["4", "5"]


def test_keep_does_not_remove_what_was_written_anew_under_the_name(tmp_path: Path):
    run = Run(tmp_path, keep=1)
    run.write("1")
    run.begin("rst_d01_1", "anew")
    run.write("2")
    assert sorted(p.name for p in tmp_path.glob("rst*")) == ["rst_d01_1", "rst_d01_2", "rst_d02_2"]


def test_keep_does_not_remove_what_was_written_anew_with_the_inode_of_the_old_file(tmp_path: Path):
    run = Run(tmp_path, keep=2)
    run.write("1")
    run.write("2")
    (tmp_path / "rst_d01_1").write_text("RST_D01_1")
    os.utime(tmp_path / "rst_d01_1", ns=(1, 1))
    run.write("3")
    assert sorted(p.name for p in tmp_path.glob("rst*"))[0] == "rst_d01_1"


def test_an_instant_that_is_written_anew_stays_as_it_was_until_all_of_it_is_new(tmp_path: Path):
    run = Run(tmp_path)
    run.write("1", text="old")
    first, second = run.begin("rst_d01_1", "new"), run.begin("rst_d02_1", "new")
    assert set(newest(tmp_path).values()) == {"old"}
    run.end(*first)
    assert set(newest(tmp_path).values()) == {"old"}
    run.end(*second)
    assert set(newest(tmp_path).values()) == {"new"}
    assert len(record(tmp_path)["whole"]) == 1


def test_files_that_are_removed_stay_in_the_set(tmp_path: Path):
    run = Run(tmp_path)
    run.write("1")
    for path in tmp_path.glob("rst*"):
        path.unlink()
    assert len(newest(tmp_path)) == 2


def test_a_set_that_was_written_over_is_none_and_the_link_goes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = Run(tmp_path)
    run.write("1")
    run.write("2")
    (tmp_path / "rst_d02_2").write_text("by a program without Advectio")
    Run(tmp_path)
    assert "rst_d01_1" in newest(tmp_path)
    assert "2 is not whole any more" in capsys.readouterr().err
    (tmp_path / "rst_d02_1").write_text("")
    Run(tmp_path)
    assert not os.path.lexists(tmp_path / "latest")


def test_without_hard_links_a_set_that_is_written_anew_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refused)
    run = Run(tmp_path)
    run.write("1")
    run.write("2")
    assert "rst_d01_2" in newest(tmp_path)
    assert "cannot have a hard link" in capsys.readouterr().err
    run.begin("rst_d01_2")
    assert "rst_d01_1" in newest(tmp_path)


def test_the_pointer_lists_the_files(tmp_path: Path):
    run = Run(tmp_path, pointer=str(tmp_path / "pointer"), keep=1)
    for instant in "12":
        run.write(instant)
        lines = (tmp_path / "pointer").read_text().splitlines()
        assert [Path(line).read_text() for line in lines] == [f"rst_d01_{instant}", f"rst_d02_{instant}"]


def coupled(at: Path, **more: Any) -> tuple[Run, Run]:
    members = ["atm", "ocn"]
    return (
        Run(at, "atm", ["rst_{instant}"], members=members, **more),
        Run(at, "ocn", ["rst_o_{instant}", "ice_{instant}"], members=members, **more),
    )


def test_members_each_have_a_part(tmp_path: Path):
    atm = Run(tmp_path, "atm", ["rst_{instant}"], members=["atm", "ocn"])
    atm.write("1", "rst_")
    assert not (tmp_path / "latest").exists(), "ocn has not begun"
    assert sets.lines_of(atm.keeper.report())[1] == "set restart: 1 is half; it lacks all of ocn"
    ocn = Run(tmp_path, "ocn", ["sea_{instant}", "ice_{instant}"], members=["atm", "ocn"])
    ocn.write("1", "sea_")
    assert not (tmp_path / "latest").exists()
    ocn.write("1", "ice_")
    assert list(newest(tmp_path)) == ["atm/rst_1", "ocn/ice_1", "ocn/sea_1"]


def test_members_may_call_their_files_alike(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    members = ["a", "b"]
    for name in members:
        Run(tmp_path, name, [f"*/{name}/rst_{{instant}}"], members=members).write("1", f"{name}/rst_")
    assert list(newest(tmp_path)) == ["a/rst_1", "b/rst_1"]


def test_two_files_of_one_name_are_no_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    run = Run(tmp_path, match=["*/a/rst_{instant}", "*/b/rst_{instant}"])
    run.write("1", "a/rst_", "b/rst_")
    assert not (tmp_path / "latest").exists()
    assert "two of its files are called rst_1" in capsys.readouterr().err


def test_a_run_that_begins_takes_back_what_a_dead_one_has_left_half(tmp_path: Path):
    """Else the set would have files of two attempts."""
    members = ["atm", "ocn"]
    Run(tmp_path, "atm", ["rst_{instant}"], members=members).write("1", "rst_", text="first")
    again = Run(tmp_path, "atm", ["rst_{instant}"], members=members)
    Run(tmp_path, "ocn", ["sea_{instant}"], members=members).write("1", "sea_", text="second")
    assert not (tmp_path / "latest").exists()
    again.write("1", "rst_", text="second")
    assert set(newest(tmp_path).values()) == {"second"}


def test_parts_of_a_run_that_has_ended_well_stay(tmp_path: Path):
    """A program may be in its next cycle while another still writes."""
    members = ["atm", "ocn"]
    atm = Run(tmp_path, "atm", ["rst_{instant}"], members=members)
    atm.write("1", "rst_")
    atm.keeper.end(over=True, well=True)
    Run(tmp_path, "atm", ["rst_{instant}"], members=members)
    Run(tmp_path, "ocn", ["sea_{instant}"], members=members).write("1", "sea_")
    assert len(newest(tmp_path)) == 2


def test_a_run_that_was_left_for_a_drain_still_counts(tmp_path: Path):
    members = ["atm", "ocn"]
    atm = Run(tmp_path, "atm", ["rst_{instant}"], members=members, name="left")
    (tmp_path / "left").mkdir()
    begun = atm.begin("rst_1")
    atm.keeper.end(over=False, well=True, left=True)
    Run(tmp_path, "atm", ["rst_{instant}"], members=members)
    drained = Run(tmp_path, "", ["rst_{instant}"], begin=False, members=members, name="left")
    assert drained.keeper.take_up()
    drained.end(*begun)
    drained.keeper.end(over=True, well=False)
    Run(tmp_path, "atm", ["rst_{instant}"], members=members)
    Run(tmp_path, "ocn", ["sea_{instant}"], members=members).write("1", "sea_")
    assert len(newest(tmp_path)) == 2


def test_two_runs_at_a_time_are_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sets, "is_locked", lambda path: str(path).endswith("first/server.lock"))
    first = Run(tmp_path, name="first")
    Run(tmp_path, name="second")
    assert f"another run of it is under way ({first.directory})" in capsys.readouterr().err
    first.write("1")
    assert newest(tmp_path)


def test_files_of_a_run_count_no_more_when_a_later_one_has_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    dead = Run(tmp_path)
    Run(tmp_path)
    dead.write("1")
    assert not (tmp_path / "latest").exists() and "a later run" in capsys.readouterr().err
    assert not Run(tmp_path, begin=False, name=dead.directory.name).keeper.take_up()


def test_events_that_come_again_change_nothing(tmp_path: Path):
    run = Run(tmp_path)
    paths = [run.begin(f"rst_d0{i}_1") for i in (1, 2)]
    for path in paths:
        run.end(*path)
    before = record(tmp_path)
    for path, id in paths:
        run.note("begun", path, id, inode=path.stat().st_ino)
        run.end(path, id)
    assert record(tmp_path) == before


def test_recover_forces_to_the_disk_what_a_dead_server_has_completed(tmp_path: Path):
    run = Run(tmp_path, name="dead")
    run.write("1", "rst_d01_")
    run.complete(*run.begin("rst_d02_1"))
    again = Run(tmp_path, begin=False, name="dead")
    assert again.keeper.take_up()
    report = again.keeper.end(over=True, well=False)
    assert report["newest"] == "1" and not report["half"] and len(newest(tmp_path)) == 2


def test_a_complete_file_of_which_no_server_tells_is_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = Run(tmp_path)
    run.write("1", "rst_d01_")
    run.complete(*run.begin("rst_d02_1"))
    run.keeper.look()
    assert not (tmp_path / "latest").exists()
    monkeypatch.setattr(sets, "LATE_S", 0.0)
    run.keeper.look()
    assert len(newest(tmp_path)) == 2


def test_a_half_set_is_told_and_forgotten_and_its_files_stay(tmp_path: Path):
    run = Run(tmp_path, keep=1)
    run.write("1")
    run.write("2", "rst_d01_")
    report = run.keeper.end(over=True, well=False)
    assert sets.lines_of(report) == [
        "set restart: the newest whole one is 1",
        "set restart: 2 is half; it lacks rst_d02_{instant}",
    ]
    assert not record(tmp_path)["half"] and (tmp_path / "rst_d01_2").exists()


@pytest.mark.parametrize("at", ["made", "saved", "linked"])
def test_a_death_at_any_step_is_made_good_by_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str):
    class Death(BaseException):
        pass

    def die(*_: object) -> None:
        raise Death

    run = Run(tmp_path, keep=1)
    run.write("1")
    run.write("2", "rst_d01_")
    last = run.begin("rst_d02_2")
    run.complete(*last)
    with monkeypatch.context() as patched:
        patched.setattr(set_record.Place, {"made": "_save", "saved": "_lead", "linked": "_remove_files"}[at], die)
        with pytest.raises(Death):
            run.note("durable", *last, complete=True)
    whole = newest(tmp_path)
    assert list(whole) == (["rst_d01_2", "rst_d02_2"] if at == "linked" else ["rst_d01_1", "rst_d02_1"])
    run.keeper.end(over=True, well=False)  # as recover does: it forces what was complete
    assert list(newest(tmp_path)) == ["rst_d01_2", "rst_d02_2"]
    assert sorted(p.name for p in tmp_path.glob("rst*")) == ["rst_d01_2", "rst_d02_2"]
    assert not [p for p in (tmp_path / ".latest.sets").iterdir() if p.is_dir() and p.name != "2"], "one that no record has"


def test_instants_like_hidden_names(tmp_path: Path):
    run = Run(tmp_path)
    for instant in ("..", ".record.json", ".new-1"):
        run.write(instant)
        assert len(newest(tmp_path)) == 2


def test_what_is_in_the_way_is_refused(tmp_path: Path):
    (tmp_path / "latest").mkdir()
    with pytest.raises(UserError, match=r"latest is there and no symbolic link"):
        Run(tmp_path)
    (tmp_path / "latest").rmdir()
    (tmp_path / "latest").symlink_to("elsewhere")
    with pytest.raises(UserError, match=r"leads to elsewhere, which Advectio has not made"):
        Run(tmp_path)
    (tmp_path / "latest").unlink()
    (tmp_path / ".latest.sets").mkdir()
    (tmp_path / ".latest.sets" / ".record.json").write_text("{")
    with pytest.raises(UserError, match=r"is no record; remove .*\.latest\.sets to begin anew"):
        Run(tmp_path)
    (tmp_path / ".latest.sets" / ".record.json").write_text('{"version": 7}')
    with pytest.raises(UserError, match="another version"):
        Run(tmp_path)
    with pytest.raises(UserError, match="is not a directory"):
        Run(tmp_path / "absent")


CONFIG: dict[str, Any] = {
    "values": [{"key": "workflow.name", "value": "null"}],
    "sets": [{"name": "restart", "members": ["atm", "ocn"], "origin": "advectio.yaml:3"}],
}


def test_a_run_must_be_one_of_the_members():
    assert sets.member_of(CONFIG, "ocn") == "ocn"
    assert sets.member_of(CONFIG | {"values": [{"key": "workflow.name", "value": "atm"}]}, None) == "atm"
    with pytest.raises(UserError, match=r"advectio.yaml:3: set restart has members \(atm, ocn\): say which one .* --as NAME"):
        sets.member_of(CONFIG, None)
    with pytest.raises(UserError, match=r"--as ice: set restart has no such member; they are atm, ocn"):
        sets.member_of(CONFIG, "ice")
