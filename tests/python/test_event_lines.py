"""Events of runs, `advectio wait`, and commands for events: against lines that a test writes in a server's place."""

import fcntl
import json
import os
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from advectio import await_files, events, on_events, places
from advectio.await_files import Options, Waiting
from fake_installation import Fake
from shapes import must_fit
from test_commands import final

PATH = "/out/hist.nc"


class FakeRun:
    """A run directory, with a server that lives as long as its lock is held."""

    def __init__(self, directory: Path, started_in: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700)
        (directory / "control").touch()
        self._lock = os.open(directory / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.fcntl(self._lock, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))  # F_OFD_SETLK
        self.say("run_begun", directory=str(started_in))

    def say(self, event: str, path: object = None, **keys: object) -> None:
        line = {"event": event, **({"path": str(path)} if path else {}), **keys}
        line |= {"time": "2026-01-01T00:00:00.000Z", "run": str(self.directory)}
        if path and "id" not in line:
            line["id"] = f"{zlib.crc32(str(path).encode()):x}-1.0"
        with open(self.directory / "events", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def die(self) -> None:
        os.close(self._lock)

    def end(self, complete: bool = True) -> None:
        self.say("run_ended", complete=complete)
        self.die()
        if complete:
            for entry in self.directory.iterdir():
                entry.unlink()
            self.directory.rmdir()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directories of this user's runs."""
    directory = tmp_path / "runs"
    directory.mkdir(mode=0o700)
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(places, "user_directory", lambda stage="/dev/shm": str(directory))
    monkeypatch.delenv("ADVECTIO_RUN", raising=False)
    return directory


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> FakeRun:
    return FakeRun(runs / "1", tmp_path)


def reached(waiting: Waiting) -> list[bool]:
    return [f["reached"] for f in waiting.look()]


def why(waiting: Waiting) -> list[str | None]:
    return [f["why"] for f in waiting.look()]


def test_a_file_is_visible_complete_and_durable_one_after_the_other(run: FakeRun, tmp_path: Path):
    file = tmp_path / "out" / "a.nc"
    all_three = [Waiting(Options([str(file)], wanted)) for wanted in ("visible", "complete", "durable")]
    frames = Waiting(Options([str(file)], "visible", 2))

    def now() -> list[bool]:
        return [reached(w)[0] for w in (*all_three, frames)]

    assert now() == [False] * 4
    file.touch()
    run.say("begun", file)
    assert now() == [False] * 4
    run.say("frame", file, frame=0)
    assert now() == [True, False, False, False]
    run.say("frame", file, frame=1)
    assert now() == [True, False, False, True]
    run.say("durable", file, frames=2, complete=False)
    assert now() == [True, False, False, True]
    run.say("complete", file, frames=2)
    assert now() == [True, True, False, True]
    run.say("durable", file, frames=2, complete=True)
    assert now() == [True] * 4
    run.end()
    assert now() == [True] * 4


@pytest.mark.parametrize("event", ["removed", "dropped"])
def test_a_file_that_will_not_be(run: FakeRun, tmp_path: Path, event: str):
    file = tmp_path / "out" / "a.nc"
    waiting = Waiting(Options([str(file)]))
    run.say("begun", file)
    run.say("failed", file, error="No space left on device")
    assert why(waiting) == [None], "it is tried again"
    run.say(event, file, frames=0)
    assert why(waiting) != [None]


def test_a_failure_that_has_gone_by_is_forgotten(run: FakeRun, tmp_path: Path):
    file = tmp_path / "out" / "a.nc"
    waiting = Waiting(Options([str(file)], "durable"))
    run.say("begun", file)
    run.say("failed", file, error="No space left on device")
    run.say("frame", file, frame=0)
    run.say("complete", file, frames=1)
    assert why(waiting) == [None]
    run.say("failed", file, error="make durable: Input/output error")
    assert why(waiting) == ["make durable: Input/output error"]


def test_a_run_that_ends_without_the_file(run: FakeRun, tmp_path: Path):
    missing, there, left = (Waiting(Options([str(tmp_path / "out" / name)])) for name in ("no.nc", "plain.nc", "left.nc"))
    (tmp_path / "out" / "plain.nc").touch()
    run.say("begun", tmp_path / "out" / "left.nc")
    for waiting in (missing, there, left):
        assert why(waiting) == [None] and reached(waiting) == [False], "the run may still write it"
    run.end(complete=False)
    assert why(missing) == ["the run has ended without it"]
    assert [(f["reached"], f["known_by"]) for f in there.look()] == [(True, "file")]
    assert "advectio recover (or drain) finishes it" in str(why(left))


def test_fewer_frames_than_are_wanted(run: FakeRun, tmp_path: Path):
    file = tmp_path / "out" / "a.nc"
    waiting = Waiting(Options([str(file)], "visible", 3))
    run.say("begun", file)
    run.say("complete", file, frames=2)
    assert why(waiting) == ["it is complete with 2 of 3 frames"]


def test_waiting_begins_before_the_run(runs: Path, tmp_path: Path):
    file = tmp_path / "out" / "a.nc"
    waiting = Waiting(Options([str(file)]))
    assert [f["state"] for f in waiting.look()] == ["missing"]
    FakeRun(runs / "elsewhere", Path("/elsewhere")).end()
    assert why(waiting) == [None], "a run that has nothing to do with it"
    run = FakeRun(runs / "2", tmp_path / "out")
    run.say("begun", file)
    assert [f["state"] for f in waiting.look()] == ["open"]
    run.say("complete", file, frames=1)
    assert reached(waiting) == [True]


def test_a_run_that_was_over_before_says_nothing_of_the_next_one(runs: Path, tmp_path: Path):
    old = FakeRun(runs / "1", tmp_path / "out")
    old.end(complete=False)
    waiting = Waiting(Options([str(tmp_path / "out" / "a.nc")]))
    assert why(waiting) == [None]


def test_files_by_every_name_that_they_have(run: FakeRun, tmp_path: Path):
    out = tmp_path / "out"
    (tmp_path / "link").symlink_to(out)
    for name in ("plain.nc", "made.nc.tmp"):
        (out / name).touch()
    run.say("begun", f"{out}/./plain.nc")
    run.say("begun", out / "made.nc.tmp", inode=os.stat(out / "made.nc.tmp").st_ino)
    run.say("begun", out / "store.zarr", in_place_of=str(out / "store.nc"))
    (out / "made.nc.tmp").rename(out / "made.nc")
    for name in ("out/plain.nc", "link/plain.nc", "out/made.nc", "out/store.nc", "out/store.zarr", "out/*.zarr", "link/st*"):
        waiting = Waiting(Options([str(tmp_path / name)]))
        assert [f["state"] for f in waiting.look()] == ["open"], name
    assert [f["state"] for f in Waiting(Options([str(tmp_path / "out" / "other*")])).look()] == ["missing"]


def test_all_files_of_a_pattern_and_all_paths(run: FakeRun, tmp_path: Path):
    out = tmp_path / "out"
    pattern = Waiting(Options([str(out / "*.nc")]))
    both = Waiting(Options([str(out / "a.nc"), str(out / "b.nc")]))
    for name in ("a.nc", "b.nc"):
        run.say("begun", out / name)
    run.say("complete", out / "a.nc", frames=1)
    assert (reached(pattern), reached(both)) == ([False], [True, False])
    run.say("complete", out / "b.nc", frames=1)
    assert (reached(pattern), reached(both)) == ([True], [True, True])


def test_of_two_files_of_one_name_the_later_one_counts(run: FakeRun, tmp_path: Path):
    file = tmp_path / "out" / "a.nc"
    waiting = Waiting(Options([str(file)]))
    run.say("begun", file, id="1-1.0")
    run.say("removed", file, id="1-1.0", frames=0)
    run.say("begun", file, id="1-2.0")
    assert why(waiting) == [None]
    run.say("complete", file, id="1-2.0", frames=1)
    assert reached(waiting) == [True]


def test_a_file_of_no_run_counts_as_complete_unless_it_shows_that_it_is_not(runs: Path, tmp_path: Path):
    file = tmp_path / "out" / "a.nc"
    file.touch()
    waiting = Waiting(Options([str(file)]))
    assert reached(waiting) == [True]
    links = tmp_path / f".advectio-{os.getuid()}"
    links.mkdir()
    os.link(file, links / "a.nc-1")
    assert [(f["reached"], f["state"]) for f in waiting.look()] == [(False, "open")]
    (links / "a.nc-1").unlink()
    with open(file, "rb") as mark:
        fcntl.fcntl(mark, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 1 << 62, 1, 0))
        assert reached(waiting) == [False]
    assert reached(waiting) == [True]
    assert why(Waiting(Options([str(file)], "visible", 3))) != [None]


def test_a_marker_is_complete_when_it_is_there(run: FakeRun, tmp_path: Path):
    (run.directory / "markers.conf").write_text("*.done\nlog.f[0-9]*\n")
    marker, plain = (Waiting(Options([str(tmp_path / "out" / name)])) for name in ("log.f006", "log.txt"))
    assert reached(marker) == [False]
    for name in ("log.f006", "log.txt"):
        (tmp_path / "out" / name).touch()
    assert [f["known_by"] for f in marker.look()] == ["marker"] and reached(marker) == [True]
    assert reached(plain) == [False], "its program may still write it"


def test_in_a_run_files_of_other_runs_are_known_too(run: FakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = FakeRun(run.directory.parent / "own", Path("/elsewhere"))
    monkeypatch.setenv("ADVECTIO_RUN", str(own.directory))
    of_own, of_other = (Waiting(Options([str(tmp_path / "out" / name)])) for name in ("own.nc", "other.nc"))
    own.say("complete", tmp_path / "out" / "own.nc", frames=1)
    run.say("complete", tmp_path / "out" / "other.nc", frames=1)
    assert reached(of_own) == reached(of_other) == [True]
    never = Waiting(Options([str(tmp_path / "out" / "never.nc")]))
    assert why(never) == [None]
    own.end()
    run.end()
    assert why(never) == ["the run has ended without it"]


def test_exit_codes_and_what_is_said(run: FakeRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = str(tmp_path / "out" / "a.nc")
    assert await_files.wait(Options([file], timeout_s=0.0)) == 124
    assert "is not complete after 0 s (state: missing)" in capsys.readouterr().err
    run.say("begun", file)
    run.say("dropped", file, frames=0)
    assert await_files.wait(Options([file], as_json=True)) == 3
    said = capsys.readouterr()
    assert "will not be complete: nothing of it was ever synced" in said.err
    told = json.loads(said.out)
    must_fit(told, await_files.Waited)
    assert told["files"][0]["state"] == "dropped" and not told["reached"]
    run.say("begun", file, id="2")
    run.say("complete", file, frames=1, id="2")
    assert await_files.wait(Options([file])) == 0
    assert capsys.readouterr() == ("", "")


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path):
    path = tmp_path / "events"
    path.write_text('{"event": "begun"}\n{"event": "fr')
    lines = events.Lines(str(path))
    assert [e["event"] for _, e in lines.read()] == ["begun"]
    assert lines.read() == []
    with open(path, "a") as file:
        file.write('ame"}\nnothing\n{"event": "complete"}\n')
    assert [e["event"] for _, e in lines.read()] == ["frame", "complete"]


def test_events_are_shown_until_the_run_ends(run: FakeRun, capsys: pytest.CaptureFixture[str]):
    run.say("begun", PATH)
    run.say("frame", PATH, frame=0, model_time="2005-08-28T12:00:00", bytes=2048)
    assert events.show(None, False, False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["00:00:00.000", "begun", "hist.nc"]
    assert lines[2].split() == ["00:00:00.000", "frame", "hist.nc", "frame", "0", "2005-08-28T12:00:00", "2.05", "kB"]
    run.say("run_ended", complete=False)
    assert events.show(str(run.directory), True, True) == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == [
        "run_begun",
        "begun",
        "frame",
        "run_ended",
    ]
    assert events.show(str(run.directory / "events"), True, True) == 0, "a file of events ends with its latest run"


def event(name: str, **keys: object) -> events.Event:
    return {"event": name, "path": PATH, "time": "", "run": "", **keys}  # type: ignore[typeddict-item]


def test_names_with_blanks_stay_one_word():
    words = on_events.words_of(["cp", "{path}", "to/{name}.{frame}"], event("frame", path="/a b/{name} '$x", frame=3))
    assert words == ["cp", "/a b/{name} '$x", "to/{name} '$x.3"]


APPEND = [
    sys.executable,
    "-c",
    "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT), sys.argv[2].encode() + b'\\n')",
]


def settings_of(commands: dict[str, list[str]], timeout_s: float = 300.0, at_once: int = 2) -> on_events.Settings:
    return on_events.Settings(commands, at_once, timeout_s, None)


def test_commands_of_one_file_come_in_order_and_all_are_done(run: FakeRun, tmp_path: Path):
    done = tmp_path / "done"
    commands = on_events.Commands(
        settings_of({e: [*APPEND, str(done), f"{e} {{name}} {{frame}}"] for e in ("begun", "frame", "complete")}),
        str(run.directory),
        str(tmp_path),
    )
    for name in ("a b.nc", "c.nc"):
        run.say("begun", f"/out/{name}")
        for frame in range(3):
            run.say("frame", f"/out/{name}", frame=frame)
        run.say("complete", f"/out/{name}", frames=3)
    assert commands.end() == {"run": 10, "failed": 0}
    lines = done.read_text().splitlines()
    for name in ("a b.nc", "c.nc"):
        assert [line.rstrip() for line in lines if name in line] == [
            f"begun {name}", *[f"frame {name} {i}" for i in range(3)], f"complete {name}",
        ]  # fmt: skip


def test_commands_run_without_our_libraries(run: FakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADVECTIO_RUN", str(run.directory))
    monkeypatch.setenv("LD_PRELOAD", "")
    seen = tmp_path / "seen"
    script = f"import json, os; json.dump([dict(os.environ), os.getcwd()], open({str(seen)!r}, 'w'))"
    commands = on_events.Commands(settings_of({"begun": [sys.executable, "-c", script]}), str(run.directory), str(tmp_path))
    run.say("begun", PATH)
    assert commands.end() == {"run": 1, "failed": 0}
    environment, directory = json.loads(seen.read_text())
    assert not {"ADVECTIO_RUN", "LD_PRELOAD"} & set(environment) and directory == str(tmp_path)


def test_a_command_that_fails_is_told_with_its_last_lines(run: FakeRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    fails = "import sys; [print(i) for i in range(9)]; sys.exit('no such host')"
    commands = on_events.Commands(
        settings_of({"complete": [sys.executable, "-c", fails], "begun": ["/no/such/command", "{path}"]}),
        str(run.directory),
        str(tmp_path),
    )
    run.say("begun", PATH)
    run.say("complete", PATH, frames=0)
    assert commands.end() == {"run": 2, "failed": 2}
    said = capfd.readouterr().err
    assert "exit code 1" in said and "no such host" in said and "/no/such/command: No such file" in said
    assert "| 8 |" in said or "8 | no such host" in said


def test_commands_that_take_too_long_are_killed(run: FakeRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    commands = on_events.Commands(
        settings_of({"begun": ["sleep", "1000"]}, timeout_s=1.0, at_once=1), str(run.directory), str(tmp_path)
    )
    for name in ("a", "b", "c"):
        run.say("begun", f"/out/{name}")
    told = commands.end()
    assert told["run"] == told["failed"] >= 1
    assert "killed" in capfd.readouterr().err


def test_a_recovery_runs_the_commands_that_are_left(run: FakeRun, tmp_path: Path):
    done, go_on = tmp_path / "done", tmp_path / "go on"
    waits = f"import os, sys, time\nwhile sys.argv[1] == 'b.nc' and not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n"
    waits += f"open({str(done)!r}, 'a').write(sys.argv[1] + chr(10))"
    wanted = settings_of({"complete": [sys.executable, "-c", waits, "{name}"]}, at_once=1)
    begin = (
        "import sys; from advectio import on_events; import json\n"
        "wanted = on_events.Settings(*json.loads(sys.argv[1]))\n"
        "on_events.Commands(wanted, sys.argv[2], '/')._thread.join()\n"
    )
    for name in ("a.nc", "b.nc", "c.nc"):
        run.say("complete", f"/out/{name}", frames=1)
    first = subprocess.Popen([sys.executable, "-c", begin, json.dumps(wanted), str(run.directory)], start_new_session=True)
    places_file = run.directory / places.ON_FILE
    while not places_file.exists():
        assert first.poll() is None
        time.sleep(0.01)
    first.kill()
    first.wait()
    go_on.touch()
    on_events.Commands(wanted, str(run.directory), "/").end()
    lines = done.read_text().split()
    assert lines.count("a.nc") == 1 and lines.count("c.nc") == 1, "what was done is not done again"
    assert lines.count("b.nc") in (1, 2), "what was under way may be"


def test_a_run_that_is_under_way_keeps_its_commands(fake: Fake):
    """`advectio recover` of it is refused, and must not run any either."""
    (fake.directory / "left").mkdir()
    run = FakeRun(fake.directory / "left" / "run", fake.work)
    (run.directory / "advectio.yaml").write_text("on: {begun: touch done}\n")
    run.say("begun", PATH)
    fake.tell(on={"commands": {"begun": "touch done"}}, recover=final())
    assert on_events.of_left_run(str(run.directory)) is None
    run.die()
    done = fake.run("recover", "--json", run.directory)
    assert json.loads(done.stdout)["on"] == {"run": 1, "failed": 0}, done.stderr
    assert (fake.work / "done").exists()


def test_commands_begin_before_all_servers_have(run: FakeRun, tmp_path: Path):
    done = tmp_path / "done"
    (run.directory / "events").rename(tmp_path / "later")
    commands = on_events.Commands(settings_of({"begun": [*APPEND, str(done), "{name}"]}), str(run.directory), str(tmp_path))
    (tmp_path / "later").rename(run.directory / "events")
    run.say("begun", PATH)
    while not done.exists():
        time.sleep(0.01)
    assert commands.end() == {"run": 1, "failed": 0}


def test_several_nodes_need_a_file_of_events():
    with pytest.raises(on_events.UserError, match="events: FILE"):
        on_events.several_nodes_need_a_file(settings_of({"begun": ["true"]}))


def test_a_run_is_followed_whose_directory_is_made_before_its_first_page(tmp_path, monkeypatch, capsys):
    (tmp_path / "run").mkdir()

    def begins(_: float) -> None:
        (tmp_path / "run").rmdir()
        run = FakeRun(tmp_path / "run", tmp_path)
        (run.directory / "events").write_text(json.dumps({"event": "run_ended", "time": "", "run": str(run.directory)}) + "\n")
        os.close(run._lock)
        monkeypatch.undo()

    monkeypatch.setattr(events.time, "sleep", begins)
    assert events.show(str(tmp_path / "run"), follow=True, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["event"] == "run_ended"


def test_a_directory_that_does_not_become_a_run_is_not_followed_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "BEGINS_S", 0.0)
    with pytest.raises(events.UserError, match="neither a file of events nor the run directory"):
        events.show(str(tmp_path), follow=True, as_json=True)
