"""The config's stage.in and stage.out: what is copied, what is refused, and what is left alone."""

import os
import subprocess
import sys

import pytest
from advectio import transferring
from advectio.errors import UserError
from advectio.transferring import Rule, plan, stage_in, stage_out


def copy_out(*wanted, skip=()):
    return stage_out(list(wanted), skip, False, lambda: False)


@pytest.fixture
def source(tmp_path):
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "rsl.out.0000").write_bytes(b"zero")
    (source / "rsl.out.0001").write_bytes(b"one" * 5_000_000)
    (source / "deep" / "er" / "table").write_text("table")
    (source / "deep" / "link").symlink_to(source / "rsl.out.0000")
    for number, path in enumerate(sorted(source.rglob("*"))):
        if path.is_file() and not path.is_symlink():
            os.utime(path, ns=(10**18 + number, 10**18 + number))
    return source


def files(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def test_files_and_trees_are_copied_with_their_times_and_links_followed(source, tmp_path):
    to = tmp_path / "to"
    done = copy_out(Rule(f"{source}/rsl.*", str(to)), Rule(f"{source}/deep", str(to)))
    assert done.failed == {}
    assert files(to) == {
        "rsl.out.0000": b"zero",
        "rsl.out.0001": b"one" * 5_000_000,
        "deep/er/table": b"table",
        "deep/link": b"zero",
    }
    assert not (to / "deep" / "link").is_symlink()
    assert (to / "deep/er/table").stat().st_mtime_ns == (source / "deep/er/table").stat().st_mtime_ns
    assert (done.files, done.bytes) == (4, 4 + 15_000_000 + 5 + 4)


def test_what_is_newer_is_kept_and_named_and_the_rest_is_copied(source, tmp_path):
    to = tmp_path / "to"
    to.mkdir()
    (to / "rsl.out.0000").write_text("of another run")
    done = copy_out(Rule(f"{source}/rsl.*", str(to)))
    assert list(done.failed) == [f"{source}/rsl.out.0000"]
    assert "newer than what would replace it" in done.failed[f"{source}/rsl.out.0000"]
    assert (to / "rsl.out.0000").read_text() == "of another run"
    assert (to / "rsl.out.0001").stat().st_size == 15_000_000


def test_what_is_older_is_replaced_and_what_is_the_same_is_left(source, tmp_path):
    to = tmp_path / "to"
    to.mkdir()
    old = to / "rsl.out.0000"
    old.write_text("old")
    os.utime(old, ns=(10**17, 10**17))
    assert copy_out(Rule(f"{source}/rsl.*", str(to))).failed == {}
    assert old.read_bytes() == b"zero"
    inode = old.stat().st_ino
    assert copy_out(Rule(f"{source}/rsl.*", str(to))).failed == {}
    assert old.stat().st_ino == inode


def test_a_copy_that_fails_leaves_nothing_under_any_name(source, tmp_path, monkeypatch):
    to = tmp_path / "to"

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transferring.os, "fsync", full)
    done = copy_out(Rule(f"{source}/rsl.*", str(to)))
    assert set(done.failed.values()) == {"No space left on device"}
    assert files(to) == {}


def test_a_file_that_changes_meanwhile_is_not_put_in_place(source, tmp_path):
    to = tmp_path / "to"
    path = source / "rsl.out.0001"
    copy = plan([Rule(str(path), str(to))]).copies[0]

    def grows(done):
        with path.open("ab") as more:
            more.write(b"!")

    with pytest.raises(OSError, match="was changed while it was copied"):
        transferring._copy(copy, True, grows)
    assert files(to) == {}
    assert path.stat().st_size < 15_000_100, "a file that grows as fast as it is read is not read for ever"


def test_what_advectio_has_not_finished_is_not_copied(source, tmp_path):
    path = source / "rsl.out.0000"
    done = copy_out(Rule(f"{source}/rsl.*", str(tmp_path / "to")), skip={os.path.realpath(path)})
    assert done.failed == {str(path): "is not complete: it waits in Advectio's stage"}
    assert done.files == 1


def test_a_link_to_above_does_not_go_on_for_ever(source, tmp_path):
    (source / "deep" / "above").symlink_to(source)
    found = plan([Rule(f"{source}/deep", str(tmp_path / "to"))])
    assert len(found.copies) < 10


def test_two_files_of_one_name_are_refused(source, tmp_path):
    (source / "deep" / "rsl.out.0000").write_text("another")
    found = plan([Rule(f"{source}/rsl.out.0000", str(tmp_path)), Rule(f"{source}/deep/rsl.out.0000", str(tmp_path))])
    assert list(found.failed) == [f"{source}/deep/rsl.out.0000"]


def test_stage_in_refuses_what_is_not_there_and_what_does_not_fit(source, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"stage\.in: .*wrfinput.*: matches nothing"):
        stage_in([Rule(f"{source}/wrfinput*", str(tmp_path / "to"))], False)
    (source / "dangling").symlink_to(source / "gone")
    with pytest.raises(UserError, match=r"dangling: No such file"):
        stage_in([Rule(f"{source}/dangling", str(tmp_path / "to"))], False)
    space = os.statvfs(tmp_path)
    small = os.statvfs_result((*tuple(space)[:4], 1, *tuple(space)[5:]))
    monkeypatch.setattr(transferring.os, "statvfs", lambda _: small)
    with pytest.raises(UserError, match=r"stage\.in: 15\.0 MB are to be copied to .*, where .* are free"):
        stage_in([Rule(f"{source}/rsl.*", str(tmp_path / "to"))], False)
    assert not (tmp_path / "to").exists()


def test_variables_are_expanded_and_must_be_set(monkeypatch):
    monkeypatch.setenv("SCRATCH_OF_TEST", "/s")
    raw = {"transfers": {"in": [{"from": "wrfinput*", "to": "$SCRATCH_OF_TEST/run"}]}}
    assert transferring.rules(raw, "in", "/model") == [Rule("/model/wrfinput*", "/s/run")]
    monkeypatch.delenv("SCRATCH_OF_TEST")
    with pytest.raises(UserError, match="no such environment variable"):
        transferring.rules(raw, "in", "/model")


def test_run_copies_in_before_and_out_after_also_when_the_command_fails(fake):
    fake.tell(transfers={"in": [{"from": "input*", "to": "burst"}], "out": [{"from": "burst/*.log", "to": "saved"}]})
    (fake.work / "input1").write_text("in")
    done = fake.run("run", "--", "sh", "-c", "cat burst/input1; echo out > burst/model.log; exit 5")
    assert done.returncode == 5, done.stderr
    assert done.stdout == "in"
    assert (fake.work / "saved/model.log").read_text() == "out\n"


def test_run_says_what_could_not_be_copied_out_and_returns_3(fake):
    fake.tell(transfers={"out": [{"from": "model.log", "to": "saved"}]})
    (fake.work / "saved").write_text("in the way")
    done = fake.run("run", "--", "sh", "-c", "echo out > model.log")
    assert done.returncode == 3
    assert f"stage.out: {fake.work}/model.log: " in done.stderr
    assert (fake.work / "model.log").exists()


def test_run_does_not_start_without_its_input(fake):
    fake.tell(transfers={"in": [{"from": "input*", "to": "burst"}]})
    done = fake.run("run", "--", "touch", "started")
    assert done.returncode == 2
    assert done.stderr == f"advectio: error: stage.in: {fake.work}/input*: matches nothing\n"
    assert not (fake.work / "started").exists()
    assert fake.events == []


def test_check_says_before_the_job_what_is_missing(fake):
    fake.tell(transfers={"in": [{"from": "input*", "to": "burst"}]})
    done = fake.run("check")
    assert done.returncode == 1
    assert f"stage.in: {fake.work}/input*: matches nothing" in done.stdout
    (fake.work / "input").write_text("in")
    done = fake.run("check")
    assert "stage.in: 1 file, 2 B" in done.stdout


def test_transferring_needs_no_server_to_be_imported():
    done = subprocess.run([sys.executable, "-c", "import advectio.transferring"], capture_output=True, check=False)
    assert done.returncode == 0
