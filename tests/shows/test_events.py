"""Events of a run's files, commands for them, and `advectio wait`."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import COMMAND, PYTHON, STOPPING, Advectio, environment
from test_coupling import Workflow
from test_crashes import kill_run, server_of
from test_live_readers import LISTEN
from two_hosts import HERE, Host

# Stops the server before the file can be complete, and says `closed` when it has closed it. Then it goes on when `on` is there.
WRITE = (
    STOPPING
    + """
import os, pathlib, signal, sys, time
import netCDF4
import numpy as np
def server():
    return int.from_bytes(pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()[12:16], "little")
name = sys.argv[1]
with netCDF4.Dataset(name, "w") as file:
    file.createDimension("Time", None)
    file.createDimension("DateStrLen", 19)
    file.createDimension("x", 100_000)
    times = file.createVariable("Times", "S1", ("Time", "DateStrLen"))
    v = file.createVariable("v", "f8", ("Time", "x"), zlib=True)
    if "stop" in sys.argv:
        stop_server()
    for frame in range(3):
        times[frame] = np.array(list(f"2005-08-28_{12 + frame}:00:00"), "S1")
        v[frame] = np.random.default_rng(frame).random(100_000)
        file.sync()
print("closed", flush=True)
while "stop" in sys.argv and not os.path.exists("on"):
    time.sleep(0.01)
if "stop" in sys.argv:
    os.kill(server(), signal.SIGCONT)
"""
)
CF = """
import netCDF4
with netCDF4.Dataset("cf.nc", "w") as file:
    file.createDimension("time", None)
    time = file.createVariable("time", "f8", ("time",))
    time.units, time.calendar = "hours since 2000-02-27", "noleap"
    for frame in range(2):
        time[frame] = 24.0 + 36.5 * frame
        file.sync()
"""
# Outside of the run: as a job that Advectio has not started.
OUTSIDE = {name: value for name, value in environment().items() if name != "LD_PRELOAD"}


@pytest.fixture
def workflow(advectio: Advectio, tmp_path: Path) -> Iterator[Workflow]:
    made = Workflow(advectio, tmp_path)
    yield made
    advectio.clean()
    advectio.call("status", "--workflow", made.directory, "--end")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def events_in(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def in_order(events: list[dict]) -> list[str]:
    """Of one file; durable ones come when the disk has it."""
    return [
        " ".join([e["event"], *[str(e[k]) for k in ("frame", "frames") if k in e]]) for e in events if e["event"] != "durable"
    ]


ALL = ["run_begun", "begun", "frame 0", "frame 1", "frame 2", "complete 3", "run_ended"]


def assert_whole(path: Path) -> None:
    with netCDF4.Dataset(path) as file:
        for frame in range(3):
            np.testing.assert_array_equal(file["v"][frame], np.random.default_rng(frame).random(100_000))


def start_outside(directory: Path, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [os.fspath(COMMAND), *words], cwd=directory, env=OUTSIDE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_events_have_what_becomes_of_a_file(advectio: Advectio, output: Path):
    for _ in range(2):
        advectio.run([PYTHON, "-c", WRITE, "hist.nc"], output, "events: run.events\n")
    events = events_in(output / "run.events")
    for number, run_dir in enumerate(advectio.run_dirs[-2:]):
        of_run = [e for e in events if e["run"] == str(run_dir)]
        assert in_order(of_run) == ALL, f"run {number}"
        assert of_run[0]["directory"] == str(output)
        assert all(e["path"] == str(output / "hist.nc") for e in of_run if "path" in e)
        frames = [e for e in of_run if e["event"] == "frame"]
        assert [e["model_time"] for e in frames] == [f"2005-08-28T{12 + i}:00:00" for i in range(3)]
        (complete,) = (e for e in of_run if e["event"] == "complete")
        assert complete["bytes"] == os.path.getsize(output / "hist.nc")
        durable = [e for e in of_run if e["event"] == "durable"]
        assert durable[-1]["complete"] and durable[-1]["frames"] == 3
        assert of_run[-1]["complete"]
    assert_whole(output / "hist.nc")


def test_a_coordinate_of_time_in_its_calendar(advectio: Advectio, output: Path):
    advectio.run([PYTHON, "-c", CF], output, "events: run.events\n")
    times = [e["model_time"] for e in events_in(output / "run.events") if e["event"] == "frame"]
    assert times == ["2000-02-28T00:00:00", "2000-03-01T12:30:00"]


def test_events_speak_of_what_readers_open(advectio: Advectio, output: Path):
    config = "events: run.events\ndatasets: [{match: 'hist*', format: zarr, outputs: [{path: 'small-{name}', codec: zstd}]}]\n"
    advectio.run([PYTHON, "-c", WRITE, "hist.nc"], output, config)
    events = events_in(output / "run.events")
    paths = {e["path"]: e.get("in_place_of") for e in events if e["event"] == "complete"}
    assert paths == {str(output / "hist.zarr"): str(output / "hist.nc"), str(output / "small-hist.nc"): None}


def test_events_of_several_nodes_say_which(advectio: Advectio, output: Path):
    ranks = "import os, sys; sys.argv[1:] = ['hist.' + os.environ['OMPI_COMM_WORLD_RANK'] + '.nc']\n" + WRITE
    config = "events: run.events\non: {complete: 'cp {path} copied-{name}'}\n".replace("copied-{name}", "copies/{name}")
    (output / "copies").mkdir()
    result = advectio.run(["mpirun", "-n", "2", PYTHON, "-c", ranks], output, config, datasets=2, nodes="1,1")
    events = events_in(output / "run.events")
    nodes = {e["path"]: e["node"] for e in events if e["event"] == "complete"}
    assert len(set(nodes.values())) == 2 and sorted(map(os.path.basename, nodes)) == ["hist.0.nc", "hist.1.nc"]
    assert result.summary["on"] == {"run": 2, "failed": 0}
    for rank in range(2):
        assert_whole(output / "copies" / f"hist.{rank}.nc")


def test_two_hosts(advectio: Advectio, output: Path, host: Host):
    """Their events come together in the file alone. The first host waits for files of the other, too."""
    (output / "copies").mkdir()
    ranks = "import os, sys; sys.argv[1:] = ['hist.' + os.environ['OMPI_COMM_WORLD_RANK'] + '.nc']\n" + WRITE
    ranks += "\nwhile not os.path.exists('done'): time.sleep(0.01)"
    config = "events: run.events\non: {complete: 'cp {path} copies/'}\n"
    command = ["mpirun", "--host", f"{HERE}:1,{host.name}:1", "-n", "2", "--map-by", "ppr:1:node", PYTHON, "-c", ranks]
    running = advectio.start(command, output, config, extra=host.environment)
    running.wait_for(lambda: len(list((output / "copies").iterdir())) == 2, "both files were copied")
    waiting = start_outside(output, "wait", "hist.0.nc", "hist.1.nc", "--run", str(advectio.run_dirs[-1]))
    _, error = waiting.communicate()
    assert waiting.returncode == 0, error
    (output / "done").touch()
    result = running.finish()
    assert result.code == 0, result.said
    events = [e for e in events_in(output / "run.events") if e["event"] == "complete"]
    assert {e["node"] for e in events} == {HERE, host.name} and result.summary["on"] == {"run": 2, "failed": 0}
    for rank in range(2):
        assert_whole(output / "copies" / f"hist.{rank}.nc")
    refused = advectio.start(command, output, "on: {complete: 'cp {path} copies/'}\n", extra=host.environment).finish()
    assert refused.code == 2 and "set events: FILE" in refused.stderr, refused.said


def test_tiles_are_told_of_as_the_file_that_they_become(advectio: Advectio, output: Path, made: Path, replay: Path):
    command = ["mpirun", "-n", "2", replay, "--io", "split", "--frames", "2", "--frames-per-file", "2", made]
    advectio.run(command, output, "events: run.events\ndatasets: [{match: '*', join: true}]\n")
    (name,) = (path.name for path in output.iterdir() if path.name != "run.events")
    events = events_in(output / "run.events")
    assert {e["path"] for e in events if "path" in e} == {str(output / name)}
    assert in_order(events) == ["run_begun", "begun", "frame 0", "frame 1", "complete 2", "run_ended"]


@pytest.mark.parametrize("mode", ["memory", "memory+file"])
def test_coupled_files_by_the_name_that_programs_have_for_them(workflow: Workflow, mode: str):
    config = f"events: run.events\nworkflow: {{wait_max: 20s}}\ncouple: [{{match: hist.nc, from: a, to: b, mode: {mode}}}]\n"
    read = [PYTHON, "-c", "import netCDF4; print(len(netCDF4.Dataset('hist.nc')['v']))"]
    reading = workflow.start("b", read, config.replace("events: run.events\n", ""))
    writing = workflow.start("a", [PYTHON, "-c", WRITE, "hist.nc"], config)
    assert writing.finish().code == 0, writing.said
    assert reading.finish().stdout == "3\n", reading.said
    events = events_in(workflow.here / "run.events")
    assert {e["path"] for e in events if "path" in e} == {str(workflow.here / "hist.nc")}
    assert in_order(events) == ALL
    if mode == "memory+file":
        assert_whole(workflow.here / "hist.nc")


def test_events_are_there_once_though_the_server_dies(advectio: Advectio, output: Path):
    running = advectio.start([PYTHON, "-c", WRITE, "hist.nc", "stop"], output, "events: run.events\n")
    waiting = start_outside(output, "wait", "hist.nc", "--json")
    running.wait_for(lambda: running.lines, "the file was closed")
    assert "frame" not in {e["event"] for e in events_in(output / "run.events")}
    (server,) = server_of(running, advectio.run_dirs[-1])
    os.kill(server, signal.SIGKILL)
    running.wait_for(lambda: "complete" in (output / "run.events").read_text(), "the next server had completed it")
    (output / "on").touch()
    result = running.finish()
    assert result.code == 0, result.said
    assert in_order(events_in(output / "run.events")) == ALL
    out, error = waiting.communicate()
    assert waiting.returncode == 0 and json.loads(out)["reached"], error
    assert_whole(output / "hist.nc")


def test_recover_tells_the_rest_and_runs_the_commands(advectio: Advectio, output: Path):
    (output / "copies").mkdir()
    config = "events: run.events\non: {complete: 'cp {path} copies/'}\n"
    running = advectio.start([PYTHON, "-c", WRITE, "hist.nc", "stop"], output, config)
    running.wait_for(lambda: running.lines, "the file was closed")
    run_dir = advectio.run_dirs[-1]
    kill_run(running, run_dir)
    recovered = advectio.call("recover", "--json", run_dir)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    assert json.loads(recovered.stdout)["on"] == {"run": 1, "failed": 0}
    assert in_order(events_in(output / "run.events")) == ALL
    assert_whole(output / "copies" / "hist.nc")


def test_a_copy_behind_wait_is_whole(advectio: Advectio, output: Path):
    """Started before the run, beside it."""
    script = f"{COMMAND} wait hist.nc 'hist*' && cp hist.nc copy.nc"
    copying = subprocess.Popen(["sh", "-c", script], cwd=output, env=OUTSIDE, stderr=subprocess.PIPE, text=True)
    running = advectio.start([PYTHON, "-c", WRITE, "hist.nc", "stop"], output)
    running.wait_for(lambda: running.lines, "the file was closed")
    assert not (output / "copy.nc").exists() and copying.poll() is None
    (output / "on").touch()
    assert running.finish().code == 0
    _, error = copying.communicate()
    assert copying.returncode == 0, error
    assert_whole(output / "copy.nc")


def test_wait_in_a_script_of_the_run(advectio: Advectio, output: Path):
    script = (
        f'{PYTHON} -c "$0" hist.nc stop & {COMMAND} wait hist.nc --frames 3; echo $?; {COMMAND} wait hist.nc --for durable; echo $?;'
        f"env -u LD_PRELOAD -u ADVECTIO_RUN cp hist.nc copy.nc; {COMMAND} wait never.nc --timeout 1ms; echo $?; wait"
    )
    running = advectio.start(["bash", "-c", script, WRITE], output)
    running.wait_for(lambda: running.lines, "the file was closed")
    (output / "on").touch()
    result = running.finish()
    assert result.stdout.split() == ["closed", "0", "0", "124"], result.said
    assert "never.nc is not complete after 0.001 s" in result.stderr
    assert_whole(output / "copy.nc")


def test_wait_says_that_a_file_will_not_be(advectio: Advectio, output: Path):
    running = advectio.start([PYTHON, "-c", WRITE, "hist.nc", "stop"], output, "datasets: [{match: '*', appear: create}]\n")
    running.wait_for(lambda: running.lines, "the file was closed")
    run_dir = str(advectio.run_dirs[-1])
    never, removed = (start_outside(output, "wait", name, "--run", run_dir, "--json") for name in ("never.nc", "hist.nc"))
    for waiting in (never, removed):
        assert "waiting for" in waiting.stderr.readline(), "it has begun to look"
    os.unlink(output / "hist.nc")
    (output / "on").touch()
    running.finish()
    for waiting, why in ((removed, "it was removed before it was complete"), (never, "the run has ended without it")):
        out, error = waiting.communicate()
        assert waiting.returncode == 3 and json.loads(out)["files"][0]["why"] == why, error


def test_wait_by_a_contact_file(advectio: Advectio, output: Path):
    """As on another node. The run goes on until all have returned."""
    script = f'{PYTHON} -c "$0" hist.nc stop; until [ -e done ]; do sleep 0.01; done'
    running = advectio.start(["bash", "-c", script, WRITE], output, LISTEN)
    running.wait_for(lambda: running.lines, "the file was closed")
    contact = str(output / "advectio.contact")
    all_waiting = [
        start_outside(output, "wait", "hist.nc", "--contact", contact, "--json", *more)
        for more in ([], ["--frames", "2"], ["--for", "durable"])
    ]
    (output / "on").touch()
    for waiting in all_waiting:
        out, error = waiting.communicate()
        assert waiting.returncode == 0 and json.loads(out)["files"][0]["known_by"] == "contact", error
    (output / "done").touch()
    assert running.finish().code == 0


def test_commands_get_names_with_blanks_and_their_failures_are_told(advectio: Advectio, output: Path):
    (output / "copies here").mkdir()
    config = (
        "on:\n  complete: \"cp {path} 'copies here/{name}'\"\n"
        "  frame: \"sh -c 'echo no such host >&2; exit 7'\"\n  begun: env\n  at_once: 3\n"
    )
    result = advectio.run([PYTHON, "-c", WRITE, "his $tory (1).nc"], output, config)
    assert_whole(output / "copies here" / "his $tory (1).nc")
    assert result.summary["on"] == {"run": 5, "failed": 3}
    warnings = [line for line in result.stderr.splitlines() if "on frame" in line]
    assert len(warnings) == 3 and all("exit code 7: no such host" in line for line in warnings), result.said


def test_a_run_waits_for_its_commands_and_kills_what_takes_too_long(advectio: Advectio, output: Path):
    result = advectio.run([PYTHON, "-c", WRITE, "hist.nc"], output, "on: {complete: 'sleep 1000', timeout: 2s}\n")
    assert "killed" in result.stderr and result.summary["on"] == {"run": 1, "failed": 1}, result.said


def test_exec_says_that_it_runs_no_commands(advectio: Advectio, output: Path):
    (output / "advectio.yaml").write_text("on: {complete: 'touch done'}\nevents: run.events\n")
    done = advectio.call(
        "exec", "--", PYTHON, "-c", WRITE, "hist.nc", directory=output, extra={"ADVECTIO_KEEPER_IDLE_S": "0.1"}
    )
    assert done.code == 0 and "are not run under `advectio exec`" in done.stderr, done.said
    # The keeper ends behind the program.
    assert advectio.call("wait", "hist.nc", directory=output).code == 0
    assert not (output / "done").exists()
    assert "complete 3" in in_order(events_in(output / "run.events"))


def test_events_are_followed_to_the_end_of_the_run(advectio: Advectio, output: Path):
    run_dir = advectio.new_run_dir()
    following = [
        start_outside(output, "events", "--follow", *more)
        for more in ([os.fspath(run_dir)], [os.fspath(run_dir), "--json"], ["run.events", "--json"])
    ]
    running = advectio.start([PYTHON, "-c", WRITE, "hist.nc", "stop"], output, "events: run.events\n", run_dir=run_dir)
    running.wait_for(lambda: running.lines, "the file was closed")
    first = [process.stdout.readline() for process in following]
    (output / "on").touch()
    assert running.finish().code == 0
    for number, process in enumerate(following):
        lines = (first[number] + process.stdout.read()).splitlines()
        assert process.wait() == 0, process.stderr.read()
        if number == 0:
            assert [line.split()[1] for line in lines if "durable" not in line] == [w.split()[0] for w in ALL]
        else:
            assert in_order([json.loads(line) for line in lines]) == ALL


def test_drained_later_events_and_commands_come_with_the_drain(advectio: Advectio, output: Path, tmp_path: Path):
    (tmp_path / "stage").mkdir()
    (output / "copies").mkdir()
    config = (
        f"stage: {{directory: {tmp_path / 'stage'}, drain: later}}\nserver: {{drain_max: 64KiB}}\nevents: run.events\n"
        "on: {complete: 'cp {path} copies/'}\n"
    )
    advectio.run_dirs.append(tmp_path / "stage" / "run")
    # The first file takes all that may be written for a long time.
    script = ["bash", "-c", f'{PYTHON} -c "$0" first.nc; {PYTHON} -c "$0" hist.nc', WRITE]
    running = advectio.start(script, output, config, run_dir=tmp_path / "stage" / "run")
    assert running.finish().code == 0
    assert not (output / "copies" / "hist.nc").exists()
    shutil.copy(tmp_path / "stage" / "run" / "advectio.yaml", tmp_path / "kept.yaml")
    (tmp_path / "stage" / "run" / "advectio.yaml").write_text((tmp_path / "kept.yaml").read_text().replace("64KiB", "1GiB"))
    drained = advectio.call("drain", tmp_path / "stage" / "run")
    assert drained.code == 0, drained.said
    assert_whole(output / "copies" / "hist.nc")
    of_file = [e for e in events_in(output / "run.events") if e.get("path") == str(output / "hist.nc")]
    assert in_order(of_file) == ALL[1:-1]
