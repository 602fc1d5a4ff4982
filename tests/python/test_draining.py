"""`advectio run --drain-later`, and `advectio drain`: what is left, what is refused, and what a second call finds."""

import json
import os
import signal
import subprocess

import pytest
from advectio import places
from fake_installation import dataset, survey_of_dataset, survey_of_journal, until
from test_commands import final


@pytest.fixture
def on_disk(fake):
    """The stage of these tests is in memory where /tmp is."""
    if places.in_memory(str(fake.stage)):
        pytest.skip(f"{fake.stage} is in memory: nothing can be left there")
    return fake


@pytest.fixture
def left(fake):
    """A run directory as such a run leaves it."""
    directory = fake.stage / f"advectio-{os.getuid()}" / "run1"
    directory.mkdir(parents=True)
    (directory / "control").touch()
    (directory / "left.json").write_text("{}")
    fake.tell(recover=final(), inspect={"datasets": [survey_of_dataset()]})
    return directory


def test_a_run_that_is_drained_later_ends_with_its_command_and_says_what_waits_where(on_disk):
    on_disk.tell(left=True, datasets=[dataset(state="open")], inspect={"datasets": [survey_of_dataset()]})
    done = on_disk.run("run", "--drain-later", "--json", "s.json", "--", "true")
    assert done.returncode == 0, done.stderr
    (run,) = on_disk.run_directories
    assert on_disk.events[0].endswith("--drain-later")
    assert on_disk.events[1:3] == ["leave", "end 3"]
    assert done.stderr.splitlines()[-1] == (
        f"advectio: 1 dataset (2.00 kB) wait in {run}; `advectio drain {run}` writes them to their files"
    )
    assert json.loads((run / "left.json").read_text())["command"] == ["true"]
    assert json.loads((on_disk.work / "s.json").read_text())["left"] is True
    assert "1 dataset, not all of it written yet" in done.stderr


def test_a_run_that_is_drained_later_and_has_written_all_leaves_nothing(on_disk):
    on_disk.tell(datasets=[dataset()])
    done = on_disk.run("run", "--drain-later", "--", "true")
    assert done.returncode == 0, done.stderr
    assert "wait in" not in done.stderr
    assert on_disk.run_directories == []


def test_the_config_may_say_so(on_disk):
    with (on_disk.work / "advectio.yaml").open("a") as config:
        config.write("  drain: later\n")
    assert on_disk.run("run", "--", "true").returncode == 0
    assert "leave" in on_disk.events


def test_a_stage_in_memory_cannot_be_left(fake):
    (fake.work / "advectio.yaml").unlink()  # /dev/shm
    done = fake.run("run", "--drain-later", "--", "touch", "started")
    assert done.returncode == 2
    assert "the stage in /dev/shm is in memory (tmpfs)" in done.stderr
    assert not (fake.work / "started").exists()


def test_drain_writes_a_run_and_a_second_one_finds_nothing(fake, left):
    done = fake.run("drain", left)
    assert done.returncode == 0, done.stderr
    assert fake.events == [f"inspect {left} --progress", f"recover {left} --json"]
    assert "1 → 3" in done.stderr
    assert fake.run("drain", left).returncode == 4


def test_drain_of_a_stage_is_all_runs_there(fake, left):
    other = left.parent / "run2"
    other.mkdir()
    (other / "control").touch()
    done = fake.run("drain", "--json", fake.stage)
    assert done.returncode == 0, done.stderr
    assert [run["recovered"][0]["path"] for run in json.loads(done.stdout)] == ["/out/wrfout_d01"] * 2
    assert [e for e in fake.events if e.startswith("recover")] == [f"recover {left} --json", f"recover {other} --json"]
    done = fake.run("drain", fake.stage)
    assert (done.returncode, done.stderr) == (0, f"advectio: {fake.stage}: no run of yours is left there\n")


@pytest.mark.parametrize(
    "found, why",
    [
        ({"served": True, "server_pid": 77}, "is served by process 77: its run is still under way"),
        ({"journals": [survey_of_journal(alive=True)]}, "is still in use by wrf.exe (4711) on localhost"),
    ],
)
def test_drain_refuses_what_is_in_use(fake, left, found, why):
    fake.tell(recover=final(), inspect=found)
    done = fake.run("drain", left)
    assert done.returncode == 2
    assert why in done.stderr
    assert not [e for e in fake.events if e.startswith("recover")]


def test_drain_believes_a_run_of_another_host_only_that_it_has_ended(fake, left):
    fake.tell(recover=final(), inspect={"journals": [survey_of_journal(host="far-away")]})
    (left / "left.json").unlink()
    done = fake.run("drain", left)
    assert done.returncode == 2
    assert "was written by wrf.exe (4711) on far-away, and did not end with --drain-later" in done.stderr
    (left / "left.json").write_text("{}")
    assert fake.run("drain", left).returncode == 0


def test_drain_refuses_what_is_no_run_directory(fake):
    done = fake.run("drain", fake.work)
    assert done.returncode == 2
    assert "is neither a run directory nor a stage.directory that holds one" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_drain_may_be_interrupted_and_ends_its_server(fake, left, number):
    fake.tell(inspect={"datasets": [survey_of_dataset()]}, recover_s=60)
    process = fake.start("drain", left)
    until(lambda: any(e.startswith("pid ") for e in fake.log), "the recovery")
    (pid,) = (int(e.split()[1]) for e in fake.log if e.startswith("pid "))
    process.send_signal(number)
    _, said = process.communicate(timeout=30)

    def gone():
        return subprocess.run(["kill", "-0", str(pid)], capture_output=True, check=False).returncode != 0

    until(gone, "the end of the server")
    assert left.exists()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert f"`advectio drain {left}` goes on" in said
