"""Outputs of the config that operators make while the run goes on: they are what `advectio process` makes of its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Pair
from running import GIVE_WAY, ROOT, TIMEOUT_S, Result, Running, output_files
from same import assert_same, differences
from test_crashes import FOREVER, kill_all, kill_server, server_of
from test_drain_later import SLOW, on_disk  # noqa: F401
from test_pnetcdf import ranks_of
from test_several_nodes import kill_a_server

SERIES = Path(__file__).parent / "programs" / "live" / "series.py"
SQUALL = ROOT / "build" / "release" / "examples" / "squall" / "squall"
RULE_AT = "attribute history of the file"  # names the file that has the rule
FIRST = "2005-08-28_00:00:00.nc"
MINUTES = [
    '{path: "minutes/{time}.nc", variables: [T2], mean: 2min, split: 4min}',
    "{path: all.nc, variables: [T2], max: all, cf: true}",
]


def config(outputs: list[str], match: str = "wrfout*", more: str = "") -> str:
    return f'datasets:\n  - match: "{match}"\n    outputs:\n' + "".join(f"      - {line}\n" for line in outputs) + more


def process(pair: Pair, outputs: list[str], files: list[Path], into: Path) -> None:
    """The same rules as rules of `advectio process`."""
    rules = pair.plain / "rules.yaml"
    rules.write_text("outputs:\n" + "".join(f"  - {line}\n" for line in outputs))
    done = pair.advectio.call("process", *files, "-c", rules, "-o", into, directory=pair.plain)
    assert done.code == 0, done.said


def assert_made(pair: Pair, outputs: list[str], files: list[Path], names: list[str]) -> None:
    """`names` are there, beside the files, with the bits of `advectio process`."""
    wanted = pair.plain / "wanted"
    process(pair, outputs, files, wanted)
    assert output_files(wanted) == sorted(names)
    for name in names:
        found = [d for d in differences(wanted / name, pair.carried / name) if not d.startswith(RULE_AT)]
        assert not found, f"{name}: {found}"
    assert not list(pair.carried.rglob(".*advectio*"))


def series(pair: Pair, outputs: list[str], more: str = "") -> Running:
    """A run that holds after two files of four minutes, of four."""
    running = pair.advectio.start(
        [sys.executable, SERIES, "./wrfout_{}.nc", "4", "4", "2"], pair.carried, config(outputs, more=more)
    )
    (pair.carried / "go").touch()
    running.wait_for(lambda: "holds\n" in running.lines, "it held")
    return running


def config_file(running: Running) -> str:
    return running.command[running.command.index("--config") + 1]


def end(pair: Pair, running: Running) -> Result:
    (pair.carried / "more").touch()
    return running.finish()


NAMES = ["all.nc", *(f"minutes/2005-08-28_00:{m:02d}:00.nc" for m in (0, 4, 8, 12))]


def names_made(pair: Pair) -> list[str]:
    """As there may be a period before the first record."""
    return [n for n in output_files(pair.carried) if n.startswith("minutes/") or n == "all.nc"]


def files_of(pair: Pair) -> list[Path]:
    return sorted(pair.carried.glob("wrfout*"))


@pytest.mark.parametrize("kills", [0, 1], ids=["undisturbed", "server killed"])
def test_they_come_while_the_run_goes_on_and_are_those_of_process(pair: Pair, kills: int):
    running = series(pair, MINUTES)
    running.wait_for(lambda: (pair.carried / "minutes" / FIRST).exists(), "an output came")
    assert not (pair.carried / "all.nc").exists()
    for _ in range(kills):
        kill_server(running, pair.advectio.run_dirs[-1])
    result = end(pair, running)
    assert result.code == 0, result.said
    made = names_made(pair)
    assert len(made) >= 5 and "all.nc" in made, made
    assert_made(pair, MINUTES, files_of(pair), made)
    again = pair.plain / "again"
    again.mkdir()
    for file in files_of(pair):
        shutil.copy(file, again)
    of_files = pair.advectio.call("process", *sorted(again.iterdir()), "-c", config_file(running), directory=again)
    assert of_files.code == 0, of_files.said
    for name in made:
        assert_same(again / name, pair.carried / name)
    told = result.summary["processed"]
    assert [(m["state"], m["error"], len(m["files"])) for m in told] == [("complete", None, 4)] * 2, told
    assert sorted(o["path"] for m in told for o in m["outputs"]) == sorted(os.fspath(pair.carried / n) for n in made)
    assert "all.nc (" in result.stderr and "1 output of 4 files" in result.stderr, result.said
    assert not pair.advectio.run_dirs[-1].exists()


def test_status_names_them(pair: Pair):
    running = series(pair, MINUTES)
    run = pair.advectio.run_dirs[-1]
    running.wait_for(lambda: (pair.carried / "minutes" / FIRST).exists(), "an output came")

    def told() -> bool:
        said = json.loads(pair.advectio.call("status", run, "--json").stdout)
        return any(made["outputs"] for made in said.get("processed", []))

    running.wait_for(told, "the status named it")
    assert "minutes/{time}.nc" in pair.advectio.call("status", run).stdout
    assert end(pair, running).code == 0


def test_squall_on_two_ranks(pair: Pair):
    outputs = [
        '{path: "means/{name}", variables: ["*"], mean: 2min}',
        '{path: "most/{name}", max: all, codec: zstd}',
    ]
    command: list[str | Path] = ["mpirun", "-n", "2", SQUALL, "--minutes", "4", "--history-minutes", "1"]
    result = pair.advectio.run(command, pair.carried, config(outputs, "squall*"))
    files = sorted(pair.carried.glob("squall_d01*"))
    assert len(files) >= 4, result.said
    first = files[0].name
    assert_made(pair, outputs, files, [f"means/{first}", f"most/{first}"])


def test_real_output_of_wrf(shared: Callable[[str], Path], replay: Path, pair: Pair):
    source = shared("wrf471/storm141/wrfout_d01_0001-01-01_01:00:00")
    outputs = [
        '{path: "daily/{name}", variables: [T2, U10, V10], mean: 1d, cf: true}',
        '{path: "levels/{name}", levels: {pressure: [850, 500, 250 hPa], preset: wrf}, variables: [T, U, V]}',
    ]
    result = pair.advectio.run([replay, "--frames", "3", "--frames-per-file", "1", source], pair.carried, config(outputs))
    files = files_of(pair)
    assert len(files) == 3, result.said
    assert_made(pair, outputs, files, [f"{kind}/{files[0].name}" for kind in ("daily", "levels")])


def test_a_mistyped_key_is_told_before_the_run(pair: Pair):
    written = pair.carried / "advectio.yaml"
    written.write_text(config(['{path: "d/{name}", meen: 1d}']))
    line = "advectio.yaml:4: datasets[0].outputs[0]: unknown key meen; did you mean mean?"
    for words in (["check"], ["run", "--", "touch", "ran"]):
        done = pair.advectio.call(*words, directory=pair.carried)
        assert done.code != 0 and line in done.stdout + done.stderr, done.said
    assert not (pair.carried / "ran").exists()


def test_check_and_explain_name_them(pair: Pair):
    (pair.carried / "advectio.yaml").write_text(config(MINUTES))
    checked = pair.advectio.call("check", directory=pair.carried)
    assert "outputs by operators: minutes/{time}.nc, all.nc" in checked.stdout, checked.said
    explained = pair.advectio.call("config", "explain", directory=pair.carried)
    for number, line in enumerate(MINUTES):
        assert f"datasets[0].outputs[{number}], by operators (advectio.yaml:{number + 4}): {line}" in explained.stdout, (
            explained.said
        )


def test_a_file_that_a_rule_names_is_looked_for_before_the_run(pair: Pair):
    written = pair.carried / "advectio.yaml"
    written.write_text(config(["{path: places.nc, points: places.csv}"]))
    done = pair.advectio.call("run", "--", "touch", "ran", directory=pair.carried)
    assert done.code == 2 and "advectio.yaml:4: datasets[0].outputs[0].points: " in done.stderr, done.said
    assert not (pair.carried / "ran").exists()


def test_an_unknown_variable_is_told_at_the_first_file_and_the_others_are_made(pair: Pair):
    wrong = "{path: wrong.nc, variables: [T3], max: all}"
    running = series(pair, [wrong, *MINUTES])
    running.wait_for(lambda: any("T3" in line and "T2" in line for line in running.errors), "it was told")
    result = end(pair, running)
    assert result.code == 3, result.said
    assert ".yaml:5: variable T3 is not in the files; did you mean T2?" in result.stderr, result.said
    assert len(files_of(pair)) == 4 and not (pair.carried / "wrong.nc").exists()
    assert_made(pair, MINUTES, files_of(pair), names_made(pair))
    assert [m["state"] for m in result.summary["processed"]] == ["failed", "complete", "complete"]
    assert not pair.advectio.run_dirs[-1].exists(), "the run's own files are complete"


def test_a_directory_that_cannot_be_written_fails_that_output_alone(pair: Pair):
    (pair.carried / "in the way").write_text("a file")
    running = series(pair, ['{path: "in the way/{name}", variables: [T2], max: all}', *MINUTES])
    result = end(pair, running)
    assert result.code == 3 and "in the way" in result.stderr, result.said
    assert_made(pair, MINUTES, files_of(pair), names_made(pair))
    (pair.carried / "in the way").unlink()
    done = pair.advectio.call("process", *files_of(pair), "-c", config_file(running), "--keep", directory=pair.carried)
    assert done.code == 0 and (pair.carried / "in the way" / "wrfout_0.nc").exists(), done.said


def test_a_full_disk_fails_that_output_and_neither_the_model_nor_its_files(
    shared: Callable[[str], Path], replay: Path, pair: Pair, small_disk: Callable[[str], Path]
):
    source = shared("wrf471/storm141/wrfout_d01_0001-01-01_01:00:00")
    disk = small_disk("1m")
    outputs = [f'{{path: "{disk}/{{name}}", codec: none, mean: 1d}}', "{path: t2.nc, variables: [T2], mean: 1d}"]
    command = [replay, "--frames", "2", "--frames-per-file", "1", source]
    result = pair.advectio.start(command, pair.carried, config(outputs)).finish()
    assert result.code == 3 and "No space left on device" in result.stderr, result.said
    assert all(d["state"] == "finished" for d in result.summary["datasets"]), result.said
    assert (pair.carried / "t2.nc").exists()
    assert not list(disk.iterdir())


def test_a_run_that_is_killed_is_completed_by_recover(replay: Path, made: Path, pair: Pair):
    outputs = ["{path: t2.nc, variables: [T2], max: all}", '{path: "part/{name}", variables: [T2, U10], mean: 1h}']
    run_dir = pair.advectio.new_run_dir()
    running = pair.advectio.start(
        [replay, made, *FOREVER], pair.carried, config(outputs, more="server: {restarts_max: 0}\n"), run_dir
    )
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    kill_all(running, run_dir)
    recovered = pair.advectio.call("recover", run_dir, directory=pair.plain)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    files = files_of(pair)
    assert files
    assert_made(pair, outputs, files, ["t2.nc", f"part/{files[0].name}"])


def test_of_files_that_a_full_disk_holds_up_they_are_made_by_recover(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path]
):
    disk = small_disk("1m")
    outputs = ["{path: t2.nc, variables: [T2], max: all}"]
    command = [replay, "--tile", "2x2", "--frames", "6", "--frames-per-file", "3", made]
    result = pair.advectio.start(command, disk, config(outputs)).finish()
    assert result.code == 1 and "No space left on device" in result.stderr, result.said
    assert [m["state"] for m in result.summary["processed"]] == ["waiting"], result.said
    assert not (disk / "t2.nc").exists(), "its file is not complete"
    small_disk("1g")
    run_dir = pair.advectio.run_dirs[-1]
    recovered = pair.advectio.call("recover", run_dir, directory=pair.plain)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    pair.carried = disk
    assert len(files_of(pair)) == 1
    assert_made(pair, outputs, files_of(pair), ["t2.nc"])


def test_an_older_output_is_replaced_and_one_of_another_run_is_no_input(pair: Pair):
    (pair.carried / "all.nc").write_text("old")
    shutil.copy(GIVE_WAY if GIVE_WAY.exists() else SERIES, pair.carried / "wrfout_old.nc")
    os.utime(pair.carried / "wrfout_old.nc", (0, 0))
    result = end(pair, series(pair, MINUTES))
    assert result.code == 0, result.said
    (pair.carried / "wrfout_old.nc").unlink()
    assert_made(pair, MINUTES, files_of(pair), names_made(pair))


def test_two_rules_each_have_their_series(pair: Pair):
    running = pair.advectio.start(
        [sys.executable, SERIES, "./wrfout_{}.nc", "2", "4", "2"],
        pair.carried,
        config(["{path: all.nc, variables: [T2], max: all}"])
        + '  - match: "wrfout_1*"\n    outputs: [{path: one.nc, variables: [T2], mean: all}]\n',
    )
    (pair.carried / "go").touch()
    result = end(pair, running)
    assert result.code == 0, result.said
    assert [[Path(f).name for f in m["files"]] for m in result.summary["processed"]] == [["wrfout_0.nc"], ["wrfout_1.nc"]]
    assert (pair.carried / "all.nc").exists() and (pair.carried / "one.nc").exists()


def test_each_directory_has_its_series_and_its_outputs(pair: Pair):
    """As members of an ensemble have."""
    names = [pair.carried / member / "wrfout_{}.nc" for member in ("a", "b")]
    for name in names:
        name.parent.mkdir()
    both = f"import subprocess, sys\nfor n in {[os.fspath(n) for n in names]!r}: subprocess.run([sys.executable, {os.fspath(SERIES)!r}, n, '2', '4', '2'], check=True)"
    running = pair.advectio.start([sys.executable, "-c", both], pair.carried, config(MINUTES))
    (pair.carried / "go").touch()
    result = end(pair, running)
    assert result.code == 0, result.said
    assert len(result.summary["processed"]) == 4
    top = pair.carried
    for member in ("a", "b"):
        pair.carried = top / member
        made = names_made(pair)
        assert "all.nc" in made and len(made) >= 3, made
        shutil.rmtree(pair.plain / "wanted", ignore_errors=True)
        assert_made(pair, MINUTES, files_of(pair), made)


def test_two_rules_with_one_path_are_told(pair: Pair):
    running = pair.advectio.start(
        [sys.executable, SERIES, "./wrfout_{}.nc", "2", "4", "2"],
        pair.carried,
        config(["{path: all.nc, variables: [T2], max: all}"])
        + '  - match: "wrfout_1*"\n    outputs: [{path: all.nc, variables: [T2], mean: all}]\n',
    )
    (pair.carried / "go").touch()
    result = end(pair, running)
    assert result.code == 3 and "all.nc is an output of " in result.stderr, result.said


def test_files_of_two_grids_under_one_rule_are_told(pair: Pair):
    """As WRF's nests would be."""
    both = f"import subprocess, sys\nfor d in 1, 2: subprocess.run([sys.executable, {os.fspath(SERIES)!r}, f'wrfout_d0{{d}}_{{{{}}}}.nc', '2', '4', '2'], check=True)"
    running = pair.advectio.start([sys.executable, "-c", both], pair.carried, config(MINUTES[1:]))
    (pair.carried / "go").touch()
    result = end(pair, running)
    assert result.code == 3 and "WRF's nests have a rule each" in result.stderr, result.said
    assert all(d["state"] == "finished" for d in result.summary["datasets"]), result.said


AGAIN = """
import os, sys, time, netCDF4
for value in (1.0, 2.0):
    with netCDF4.Dataset("wrfout_0.nc", "w") as file:
        file.createDimension("time", None)
        time_ = file.createVariable("time", "f8", ("time",))
        time_.units = "hours since 2001-01-01"
        t = file.createVariable("t", "f4", ("time",))
        for k in range(30):
            time_[k] = k
            t[k] = value
    if value == 1.0:
        print("holds", flush=True)
        while not os.path.exists("more"):
            time.sleep(0.01)
"""


def test_of_a_file_that_is_written_again_they_are_made_again(pair: Pair):
    outputs = ['{path: "days/{time}.nc", mean: 1d, split: 1d}']
    running = pair.advectio.start([sys.executable, "-c", AGAIN], pair.carried, config(outputs))
    running.wait_for(lambda: list(pair.carried.glob("days/*.nc")), "an output came")
    result = end(pair, running)
    assert result.code == 0, result.said
    made = [name for name in output_files(pair.carried) if name.startswith("days/")]
    assert_made(pair, outputs, files_of(pair), made)


NODES = "2,1"  # ranks of each
OF_NODES = ['{path: "days/{time}.nc", variables: [T2], mean: 1d, split: 1d}', "{path: t2.nc, variables: [T2], max: all}"]


@pytest.fixture
def several_servers(replay: Path) -> None:
    if not (replay.parents[2] / "src" / "apps" / "advectiod" / "advectiod_mpi").exists():
        pytest.skip("advectiod_mpi is not built: no MPI here")


def assert_made_of_nodes(pair: Pair) -> None:
    days = [name for name in output_files(pair.carried) if name.startswith("days/")]
    assert days
    assert_made(pair, OF_NODES, files_of(pair), [*days, "t2.nc"])


@pytest.mark.parametrize("kills", [0, 1], ids=["undisturbed", "server killed"])
def test_of_files_of_several_nodes_they_are_those_of_process(
    several_servers: None, made: Path, replay: Path, pair: Pair, kills: int
):
    command: list[str | Path] = [*ranks_of(3), replay, "--io", "pnetcdf", "--frames", "6", "--frames-per-file", "2"]
    running = pair.advectio.start(
        [*command, "--compute", "0.4" if kills else "0", made], pair.carried, config(OF_NODES), nodes=NODES
    )
    for _ in range(kills):
        running.wait_for(lambda: running.frames() >= 3, "3 frames were written")
        kill_a_server(running, 1)
    result = running.finish()
    assert result.code == 0 and result.summary["server"]["restarts"] == kills, result.said
    assert len({d["node"] for d in result.summary["datasets"]}) == 2, "files of both nodes"
    assert [(m["state"], len(m["files"])) for m in result.summary["processed"]] == [("complete", 3)] * 2, result.said
    assert_made_of_nodes(pair)
    assert not pair.advectio.run_dirs[-1].exists()


def test_of_files_of_several_nodes_they_are_completed_by_recover(several_servers: None, made: Path, replay: Path, pair: Pair):
    command: list[str | Path] = [*ranks_of(3), replay, "--io", "pnetcdf", made, *FOREVER]
    running = pair.advectio.start(command, pair.carried, config(OF_NODES, more="server: {restarts_max: 0}\n"), nodes=NODES)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    kill_a_server(running, 1)
    running.wait_for(lambda: any("not started again" in line for line in running.errors), "the servers were given up")
    running.kill("replay")
    assert running.finish().code != 0
    run_dir = pair.advectio.run_dirs[-1]
    recovered = pair.advectio.call("recover", run_dir, directory=pair.plain)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    assert_made_of_nodes(pair)


def beside(run_dir: Path) -> list[int]:
    """The process that makes the outputs of this run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"advectio.processed" in words and os.fsencode(run_dir) in words:
                found.append(int(entry.name))
    return found


def test_where_the_process_beside_the_run_dies_that_is_told(pair: Pair):
    running = series(pair, MINUTES)
    (pid,) = running.wait_for(lambda: beside(pair.advectio.run_dirs[-1]), "it was there")
    os.kill(pid, signal.SIGKILL)
    result = end(pair, running)
    assert result.code == 3 and "all.nc was not made; once the cause is gone" in result.stderr, result.said
    assert all(d["state"] == "finished" for d in result.summary["datasets"]), result.said
    assert [m["state"] for m in result.summary["processed"]] == ["failed", "failed"]
    done = pair.advectio.call("process", *files_of(pair), "-c", config_file(running), "--keep", directory=pair.carried)
    assert done.code == 0, done.said
    assert_made(pair, MINUTES, files_of(pair), names_made(pair))


def test_where_advectio_run_is_killed_recover_makes_them(pair: Pair):
    running = series(pair, MINUTES)
    run_dir = pair.advectio.run_dirs[-1]
    running.wait_for(lambda: (pair.carried / "minutes" / FIRST).exists(), "an output came")
    running.process.kill()
    (pair.carried / "more").touch()
    until = time.monotonic() + TIMEOUT_S
    while server_of(running, run_dir) or beside(run_dir):  # the server completes the files, and ends
        assert time.monotonic() < until
        time.sleep(0.05)
    looked = pair.advectio.call("recover", "--dry-run", run_dir)
    assert (
        looked.code == 0
        and "still to make of them: minutes/{time}.nc, all.nc" in looked.stderr
        and not (pair.carried / "all.nc").exists()
    ), looked.said
    recovered = pair.advectio.call("recover", run_dir, directory=pair.plain)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    assert len(files_of(pair)) == 4
    assert_made(pair, MINUTES, files_of(pair), names_made(pair))


def test_what_a_run_leaves_for_later_is_made_by_drain(made: Path, replay: Path, on_disk: Pair):  # noqa: F811
    pair = on_disk
    outputs = ["{path: t2.nc, variables: [T2], max: all}"]
    command = [replay, "--tile", "2x2", "--frames", "6", "--frames-per-file", "3", made]
    running = pair.advectio.start(command, pair.carried, config(outputs, more=SLOW), options=["--drain-later"])
    run_dir = pair.advectio.run_dirs[-1]
    result = running.finish()
    assert result.code == 0 and result.summary["left"] is True, result.said
    assert not (pair.carried / "t2.nc").exists()
    (run_dir / "advectio.yaml").write_text("server: {threads: 1}\n")
    drained = pair.advectio.call("drain", pair.advectio.stage)
    assert drained.code == 0 and not run_dir.exists(), drained.said
    assert_made(pair, outputs, files_of(pair), ["t2.nc"])
