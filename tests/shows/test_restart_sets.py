"""Sets of files that are complete together: the link names the newest whole one, at any moment."""

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import PYTHON, STOPPING, TIMEOUT_S, Advectio, Result, Running
from test_crashes import kill_run, server_of
from two_hosts import HERE, Host

# Its arguments are what it does, one after the other. Values follow from the name of the file and from `attempt`.
PROGRAM = (
    STOPPING
    + """
import os, pathlib, signal, sys, time
import netCDF4
import numpy as np
kept = []
attempt = 0
def server(number):
    run = pathlib.Path(os.environ["ADVECTIO_RUN"])
    os.kill(int.from_bytes((run / "control").read_bytes()[12:16], "little"), number)
def write(name):
    file = netCDF4.Dataset(name, "w")
    file.createDimension("x", 50_000)
    file.createVariable("v", "f8", ("x",), zlib=True)[:] = np.random.default_rng([attempt, *name.encode()]).random(50_000)
    return file
for word in sys.argv[1:]:
    do, _, what = word.partition("=")
    if do == "attempt":
        attempt = int(what)
    elif do == "write":
        write(what).close()
    elif do == "open":
        kept.append(write(what))
        kept[-1].sync()
    elif do == "stop":
        stop_server()
    elif do == "go":
        server(signal.SIGCONT)
    elif do == "wait":
        while not os.path.lexists(what):
            time.sleep(0.01)
    elif do == "say":
        print(what, flush=True)
    elif do == "die":
        os.kill(os.getpid(), signal.SIGKILL)
"""
)
SETS = 'sets: [{name: restart, match: ["rst_d01_{instant}", "rst_d02_{instant}"], link: latest, keep: 2, pointer: pointer}]\n'


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def doing(*words: str) -> list[str | Path]:
    return [PYTHON, "-c", PROGRAM, *words]


def both(instant: object) -> list[str]:
    return [f"write=rst_d0{domain}_{instant}" for domain in (1, 2)]


def assert_whole(here: Path, instant: object, attempt: int = 0, names: Sequence[str] = ("rst_d01_", "rst_d02_")) -> None:
    """What the link names, as a job outside sees it."""
    found = sorted(p.relative_to(here / "latest").as_posix() for p in (here / "latest").rglob("*") if p.is_file())
    assert found == sorted(f"{name}{instant}" for name in names)
    for name in found:
        with netCDF4.Dataset(here / "latest" / name) as file:
            written = os.path.basename(name)
            np.testing.assert_array_equal(file["v"][:], np.random.default_rng([attempt, *written.encode()]).random(50_000))


def set_of(result: Result) -> dict:
    (told,) = result.summary["sets"]
    return told


def until_linked(running: Running, here: Path, instant: object) -> None:
    link = here / "latest"
    running.wait_for(lambda: os.path.lexists(link) and os.readlink(link).endswith(f"/{instant}"), f"the link names {instant}")


def test_the_link_names_the_newest_whole_set_and_older_ones_go(advectio: Advectio, output: Path):
    (output / "rst_d01_0").write_text("of another run")
    words = [word for instant in range(1, 5) for word in both(instant)]
    config = SETS + "datasets: [{match: '*', durable: false}]\n"
    result = advectio.run(doing(*words, "write=rst_d01_5"), output, config)
    assert_whole(output, 4)
    assert set_of(result)["newest"] == "4" and len(set_of(result)["files"]) == 2
    assert set_of(result)["half"] == [
        {"instant": "5", "missing": [{"member": "", "match": "rst_d02_{instant}", "path": None}]},
    ]
    assert "set restart: the newest whole one is 4" in result.stderr
    assert "set restart: 5 is half; it lacks rst_d02_{instant}" in result.stderr
    left = sorted(p.name for p in output.iterdir() if p.name.startswith("rst"))
    assert left == ["rst_d01_0", "rst_d01_3", "rst_d01_4", "rst_d01_5", "rst_d02_3", "rst_d02_4"]
    assert (output / "pointer").read_text().splitlines() == set_of(result)["files"]


@pytest.mark.parametrize("struck", [False, True])
def test_the_link_moves_when_the_set_is_whole(advectio: Advectio, output: Path, struck: bool):
    """Also where the server dies."""
    running = advectio.start(doing(*both(1), "wait=latest", "stop", *both(2), "say=written", "wait=on", "go"), output, SETS)
    running.wait_for(lambda: running.lines, "all was written")
    assert_whole(output, 1)
    if struck:
        for pid in server_of(running, advectio.run_dirs[-1]):
            os.kill(pid, signal.SIGKILL)
        until_linked(running, output, 2)
    (output / "on").touch()
    result = running.finish()
    assert result.code == 0, result.said
    assert_whole(output, 2)


def test_recover_finishes_a_half_set_that_is_in_the_stage(advectio: Advectio, output: Path):
    running = advectio.start(doing(*both(1), "wait=latest", "stop", *both(2), "say=written", "wait=never"), output, SETS)
    running.wait_for(lambda: running.lines, "all was written")
    run_dir = advectio.run_dirs[-1]
    kill_run(running, run_dir)
    assert_whole(output, 1)
    dry = advectio.call("recover", "--dry-run", run_dir, directory=output)
    assert dry.code == 0 and "set restart: the newest whole one is 1" in dry.stderr, dry.said
    assert json.loads(advectio.call("recover", "--dry-run", "--json", run_dir).stdout)["sets"][0]["newest"] == "1"
    assert_whole(output, 1)
    recovered = advectio.call("recover", run_dir)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    assert "set restart: the newest whole one is 2" in recovered.stderr
    assert_whole(output, 2)


def test_recover_says_that_a_set_stays_half(advectio: Advectio, output: Path):
    """The program was killed before it closed the file, of which a frame was synced."""
    words = doing(*both(1), "wait=latest", "write=rst_d01_2", "open=rst_d02_2", "say=written", "wait=never")
    running = advectio.start(words, output, SETS)
    running.wait_for(lambda: running.lines, "all was written")
    run_dir = advectio.run_dirs[-1]
    kill_run(running, run_dir)
    recovered = advectio.call("recover", "--json", run_dir)
    assert recovered.code == 0, recovered.said
    (told,) = json.loads(recovered.stdout)["sets"]
    assert told["newest"] == "1" and [h["instant"] for h in told["half"]] == ["2"]
    assert_whole(output, 1)
    assert (output / "rst_d01_2").exists() and (output / "rst_d02_2").exists()
    record = json.loads((output / ".latest.sets" / ".record.json").read_text())
    assert record["half"] == []


def test_a_program_that_dies_leaves_no_set_of_a_file_that_it_had_not_closed(advectio: Advectio, output: Path):
    result = advectio.start(doing(*both(1), "write=rst_d01_2", "open=rst_d02_2", "die"), output, SETS).finish()
    assert result.code == 137, result.said
    assert "set restart: 2 is half" in result.stderr
    assert_whole(output, 1)


@pytest.mark.parametrize("struck", [False, True])
def test_an_instant_that_is_written_anew_stays_whole(advectio: Advectio, output: Path, struck: bool):
    advectio.run(doing(*both(1)), output, SETS)
    running = advectio.start(doing("attempt=1", "stop", *both(1), "say=written", "wait=on", "go"), output, SETS)
    running.wait_for(lambda: running.lines, "all was written")
    assert_whole(output, 1)
    if struck:
        kill_run(running, advectio.run_dirs[-1])
        assert_whole(output, 1)
        assert advectio.call("recover", advectio.run_dirs[-1]).code == 0
    else:
        (output / "on").touch()
        assert running.finish().code == 0
    assert os.readlink(output / "latest") != ".latest.sets/1"
    made = {p.name for p in (output / "latest").iterdir()}
    assert made == {"rst_d01_1", "rst_d02_1"}
    for name in made:
        with netCDF4.Dataset(output / "latest" / name) as file:
            np.testing.assert_array_equal(file["v"][:], np.random.default_rng([1, *name.encode()]).random(50_000))


def test_a_half_written_new_version_leaves_the_old_set(advectio: Advectio, output: Path):
    advectio.run(doing(*both(1)), output, SETS)
    words = doing("attempt=1", "write=rst_d01_1", "open=rst_d02_1", "say=written", "wait=never")
    running = advectio.start(words, output, SETS)
    running.wait_for(lambda: running.lines, "all was written")
    kill_run(running, advectio.run_dirs[-1])
    assert advectio.call("recover", advectio.run_dirs[-1]).code == 0
    assert_whole(output, 1)


def test_recover_finishes_the_set_of_a_run_whose_server_has_ended_alone(advectio: Advectio, output: Path):
    """Nobody was there to note that the files are complete."""
    running = advectio.start(doing(*both(1), "wait=latest", "stop", *both(2), "say=written", "wait=on", "go"), output, SETS)
    running.wait_for(lambda: running.lines, "all was written")
    run_dir = advectio.run_dirs[-1]
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()
    (output / "on").touch()
    until = time.monotonic() + TIMEOUT_S
    while (run_dir / "control").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert_whole(output, 1)
    dry = advectio.call("recover", "--dry-run", run_dir)
    assert dry.code == 0 and "set restart: the newest whole one is 1" in dry.stderr, dry.said
    recovered = advectio.call("recover", "--json", run_dir)
    assert recovered.code == 0 and json.loads(recovered.stdout)["sets"][0]["newest"] == "2", recovered.said
    assert not run_dir.exists()
    assert_whole(output, 2)


MEMBERS = "sets: [{{name: r, match: '{own}_{{instant}}', link: ../latest, members: [atm, ocn]}}]\n"
SEA = MEMBERS.format(own="rst_o")


@pytest.mark.parametrize("in_workflow", [True, False])
def test_two_coupled_programs_make_one_set(advectio: Advectio, tmp_path: Path, in_workflow: bool):
    """Each in a directory of its own."""
    options: list[str | Path] = ["--workflow", tmp_path / "workflow"] if in_workflow else []
    couple = "couple: [{match: 'flux', from: atm, to: ocn}]\n" if in_workflow else ""
    started = {}
    for name, own in (("atm", "rst_a"), ("ocn", "rst_o")):
        (tmp_path / name).mkdir()
        words = doing(f"write={own}_1", "wait=../latest", f"write={own}_2", "say=second", "wait=on")
        config = couple + MEMBERS.format(own=own)
        started[name] = advectio.start(words, tmp_path / name, config, options=[*options, "--as", name])
        if name == "atm":
            record = tmp_path / ".latest.sets" / ".record.json"
            started[name].wait_for(lambda: record.exists() and '"durable"' in record.read_text(), "atm has its part")  # noqa: B023
            assert not (tmp_path / "latest").exists()
    until_linked(started["ocn"], tmp_path, 2)
    for name, running in started.items():
        (tmp_path / name / "on").touch()
        result = running.finish()
        assert result.code == 0 and set_of(result)["newest"] == "2", result.said
    assert_whole(tmp_path, 2, names=["atm/rst_a_", "ocn/rst_o_"])
    if in_workflow:
        advectio.call("status", "--workflow", tmp_path / "workflow", "--end")


def test_drained_later_the_link_moves_with_the_drain(advectio: Advectio, output: Path, tmp_path: Path):
    (tmp_path / "stage").mkdir()
    config = f"stage: {{directory: {tmp_path / 'stage'}, drain: later}}\nserver: {{drain_max: 64KiB}}\n{SETS}"
    run_dir = tmp_path / "stage" / "run"
    advectio.run_dirs.append(run_dir)
    assert advectio.start(doing(*both(1)), output, config, run_dir=run_dir).finish().code == 0
    assert not os.path.lexists(output / "latest")
    kept = run_dir / "advectio.yaml"
    kept.write_text(kept.read_text().replace("64KiB", "1GiB"))
    drained = advectio.call("drain", "--json", run_dir)
    assert drained.code == 0 and json.loads(drained.stdout)[0]["sets"][0]["newest"] == "1", drained.said
    assert_whole(output, 1)


def test_files_of_several_nodes(advectio: Advectio, output: Path):
    ranks = "import os, sys; sys.argv[1:] = ['write=rst_d0%d_1' % (int(os.environ['OMPI_COMM_WORLD_RANK']) + 1)]\n" + PROGRAM
    result = advectio.run(["mpirun", "-n", "2", PYTHON, "-c", ranks], output, SETS, datasets=2, nodes="1,1")
    assert_whole(output, 1)
    assert set_of(result)["newest"] == "1"


def test_files_of_two_hosts(advectio: Advectio, output: Path, host: Host):
    """Their events come together in the file alone."""
    ranks = "import os, sys; sys.argv[1:] = ['write=rst_d0%d_1' % (int(os.environ['OMPI_COMM_WORLD_RANK']) + 1)]\n" + PROGRAM
    command = ["mpirun", "--host", f"{HERE}:1,{host.name}:1", "-n", "2", "--map-by", "ppr:1:node", PYTHON, "-c", ranks]
    refused = advectio.start(command, output, SETS, extra=host.environment).finish()
    assert refused.code == 2 and "sets: this run has several nodes" in refused.stderr, refused.said
    result = advectio.start(command, output, "events: run.events\n" + SETS, extra=host.environment).finish()
    assert result.code == 0 and set_of(result)["newest"] == "1", result.said
    assert_whole(output, 1)


WRONG = {
    "something in the way": (SETS, [], "latest is there and no symbolic link"),
    "no such directory": (SETS.replace("link: latest", "link: nowhere/latest"), [], "nowhere is not a directory"),
    "no name": (SEA, [], "--as NAME"),
    "another name": (SEA, ["--as", "ice"], "no such member"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_said_before_the_model_starts(advectio: Advectio, output: Path, what: str):
    config, options, wanted = WRONG[what]
    (output / "latest").touch()
    result = advectio.start(["touch", "started"], output, config, options=options).finish()
    assert result.code == 2 and wanted in result.stderr, result.said
    assert len(result.stderr.splitlines()) == 1 and not (output / "started").exists()
    assert not advectio.run_dirs[-1].exists()


def test_exec_says_that_it_keeps_no_sets(advectio: Advectio, output: Path):
    (output / "advectio.yaml").write_text(SETS)
    done = advectio.call(
        "exec", "--", PYTHON, "-c", PROGRAM, *both(1), directory=output, extra={"ADVECTIO_KEEPER_IDLE_S": "0.1"}
    )
    assert done.code == 0 and "sets are not kept under `advectio exec`" in done.stderr, done.said
    assert advectio.call("wait", "rst_d0*", directory=output).code == 0
