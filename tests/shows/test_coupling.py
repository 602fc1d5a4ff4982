"""A file of one program is the input of another, and never on the disk."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from advectio.workflow import WorkflowStatus
from conftest import built
from running import PYTHON, Advectio, Result, Running, output_files, run_plainly
from same import assert_same
from shapes import must_fit

COUPLED = Path(__file__).parent / "coupled"
WRITER, READER = [PYTHON, COUPLED / "writer.py"], [PYTHON, COUPLED / "reader.py"]
FORECAST, ANALYSIS = [PYTHON, COUPLED / "forecast.py"], [PYTHON, COUPLED / "analysis.py"]
Words = Sequence[str | Path]


def rule(match: str = "*.nc", writer: str = "a", reader: str = "b", more: str = "") -> str:
    return f'  - {{match: "{match}", from: "{writer}", to: "{reader}"{more}}}\n'


def couple(*rules: str, wait_max: str = "3min", restart_max: str = "1s") -> str:
    return f"workflow: {{wait_max: {wait_max}, restart_max: {restart_max}}}\ncouple:\n{''.join(rules)}"


MEMORY = couple(rule())


@pytest.fixture(scope="session")
def coupled_program(replay: Path) -> Path:
    return replay.parents[2] / "tests" / "faults" / "coupled_program"


class Workflow:
    """Programs that meet in one directory, and what is left of them."""

    def __init__(self, advectio: Advectio, at: Path):
        self.advectio = advectio
        self.directory = at / "workflow"
        self.here = at / "here"
        self.here.mkdir()
        self.memory: Path | None = None

    def start(self, name: str, command: Words, config: str = MEMORY) -> Running:
        options = ["--workflow", self.directory, "--as", name]
        running = self.advectio.start(command, self.here, config, options=options)
        running.wait_for(self.find_memory, "the program came to the workflow")
        return running

    def find_memory(self) -> Path | None:
        """Where its files are."""
        if self.memory is None:
            try:
                identity = json.loads((self.directory / "advectio.workflow").read_text())["id"]
            except (OSError, ValueError):
                return None
            self.memory = Path(f"/dev/shm/advectio-{os.getuid()}/.workflow-{identity}")
        return self.memory

    def status(self) -> dict[str, object]:
        done = self.advectio.call("status", "--workflow", self.directory, "--json")
        assert done.code == 0, done.said
        told: dict[str, object] = json.loads(done.stdout)
        must_fit(told, WorkflowStatus)
        return told

    def assert_gone(self) -> None:
        assert self.memory is not None and not self.memory.exists(), sorted(self.memory.rglob("*"))
        assert not list(self.directory.iterdir())


@pytest.fixture
def workflow(advectio: Advectio, tmp_path: Path) -> Iterator[Workflow]:
    made = Workflow(advectio, tmp_path)
    yield made
    advectio.clean()
    for _ in range(200):  # servers of runs that were killed live on until all is written
        if made.memory is None or not made.memory.exists():
            break
        advectio.call("status", "--workflow", made.directory, "--end")
        time.sleep(0.1)


def good(running: Running) -> Result:
    result = running.finish()
    assert result.code == 0, result.said
    return result


def waits_for(workflow: Workflow, name: str) -> Callable[[], bool]:
    return lambda: any(w["name"] == name for w in workflow.status()["waits"])  # type: ignore[attr-defined]


def complete(workflow: Workflow) -> Callable[[], bool]:
    return lambda: any(f["version"] for f in workflow.status()["files"])  # type: ignore[attr-defined]


FORMATS = ["NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("first", ["writer", "reader"])
def test_what_one_program_writes_another_reads_from_memory(workflow: Workflow, tmp_path: Path, first: str, format: str):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = [*WRITER, "out.nc", "3", "0", format]
    assert run_plainly(write, plain).code == 0
    wanted = run_plainly([*READER, "out.nc"], plain)
    assert wanted.code == 0
    if first == "writer":
        good(workflow.start("a", write))
        got = good(workflow.start("b", [*READER, "out.nc"]))
    else:
        reading = workflow.start("b", [*READER, "out.nc"])
        reading.wait_for(waits_for(workflow, "b"), "the reader waited")
        writing = workflow.start("a", write)
        got = good(reading)
        good(writing)
    assert got.stdout == wanted.stdout
    assert output_files(workflow.here) == []
    workflow.assert_gone()


@pytest.mark.parametrize("mode", ["memory+file", "file"])
@pytest.mark.parametrize("first", ["writer", "reader"])
def test_a_file_on_the_disk_is_read_when_it_is_complete(workflow: Workflow, tmp_path: Path, mode: str, first: str):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = [*WRITER, "out.nc", "3", "0.1"]
    assert run_plainly(write, plain).code == 0
    wanted = run_plainly([*READER, "out.nc"], plain)
    config = couple(rule(more=f", mode: {mode}"))
    order = [("a", write), ("b", [*READER, "out.nc"])]
    if first == "reader":
        order.reverse()
    running = {name: workflow.start(name, command, config) for name, command in order}
    got = good(running["b"])
    good(running["a"])
    assert got.stdout == wanted.stdout
    assert output_files(workflow.here) == ["out.nc"]
    assert_same(plain / "out.nc", workflow.here / "out.nc")
    workflow.assert_gone()


def test_the_files_of_a_model_are_read_by_tools(
    workflow: Workflow, made: Path, replay: Path, tmp_path: Path, tool: Callable[[str], str]
):
    """NCO, CDO, ncdump and a copy, of files that are nowhere."""
    plain = tmp_path / "plain"
    plain.mkdir()
    write = [replay, "--frames", "4", "--frames-per-file", "2", made]
    assert run_plainly(write, plain).code == 0
    names = output_files(plain)
    assert len(names) == 2
    tools = [
        [tool("ncks"), "-O", "-h", "-v", "T2", names[0], "taken.nc"],
        [tool("ncdump"), "-h", names[1]],
        [tool("cdo"), "-s", "--no_history", "info", "-selname,T2", names[1]],
        ["cp", names[0], "copy"],
        ["ls", "-d", names[0]],
        ["test", "-e", names[1]],
    ]
    config = couple(rule("wrfout*"))
    good(workflow.start("a", write, config))
    # As long as a program lives, the files are kept, though all have been read.
    staying = stay(workflow, config)
    for words in tools:
        wanted = run_plainly(words, plain)
        assert wanted.code == 0, wanted.said
        got = good(workflow.start("b", words, config))
        assert got.stdout == wanted.stdout, got.said
    assert output_files(workflow.here) == ["copy", "taken.nc"]
    (workflow.here / "over").touch()
    good(staying)
    workflow.assert_gone()
    assert_same(plain / names[0], workflow.here / "copy", storage=False)
    assert_same(plain / "taken.nc", workflow.here / "taken.nc", storage=False)


def test_fortran_asks_first_whether_the_file_is_there(workflow: Workflow, tmp_path: Path, tool: Callable[[str], str]):
    program = tmp_path / "inquire"
    flags = run_plainly([tool("nf-config"), "--fflags", "--flibs"], tmp_path).stdout.split()
    built = run_plainly([tool("gfortran"), COUPLED / "inquire.f90", "-o", program, *flags], tmp_path)
    assert built.code == 0, built.said
    assert run_plainly([*WRITER, "out.nc", "3"], tmp_path).code == 0
    wanted = run_plainly([program, "out.nc", "T"], tmp_path)
    assert wanted.code == 0, wanted.said
    reading = workflow.start("b", [program, "out.nc", "T"])
    reading.wait_for(waits_for(workflow, "b"), "it waited")
    good(workflow.start("a", [*WRITER, "out.nc", "3"]))
    assert good(reading).stdout == wanted.stdout
    workflow.assert_gone()


@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_ranks_write_by_pnetcdf_and_others_read(
    workflow: Workflow, families: Path, replay: Path, made: Path, tmp_path: Path, writers: int, readers: int
):
    """The tests' program of all put families writes; another, of any number of ranks, reads it back."""
    plain = tmp_path / "plain"
    plain.mkdir()
    write = ["mpirun", "-n", str(writers), replay, "--io", "pnetcdf", "--frames", "2", "--frames-per-file", "2", made]
    assert run_plainly(write, plain).code == 0
    names = output_files(plain)
    config = couple(rule("wrfout*"))
    read: Words = ["mpirun", "-n", str(readers), built(replay, "pnetcdf_read_all"), *names]
    wanted = run_plainly(read, plain)
    assert wanted.code == 0, wanted.said
    reading = workflow.start("b", read, config)
    writing = workflow.start("a", write, config)
    got = good(reading)
    good(writing)
    assert sorted(got.stdout.splitlines()) == sorted(wanted.stdout.splitlines())
    assert output_files(workflow.here) == []
    workflow.assert_gone()


@pytest.mark.parametrize("how", ["group", "group-after-enddef"])
def test_a_file_of_ranks_that_the_library_takes_over_is_read_when_all_have_closed_it(
    workflow: Workflow, calls: Path, tmp_path: Path, how: str
):
    plain = tmp_path / "plain"
    plain.mkdir()
    write: Words = ["mpirun", "-n", "2", calls, how, "out.nc"]
    assert run_plainly(write, plain).code == 0
    code = "f = netCDF4.Dataset('out.nc'); print(list(f.groups), {n: v[:].tolist() for n, v in f.variables.items()})"
    read: Words = [PYTHON, "-c", f"import netCDF4; {code}"]
    wanted = run_plainly(read, plain)
    assert wanted.code == 0, wanted.said
    config = couple(rule("out.nc"))
    reading = workflow.start("b", read, config)
    written = good(workflow.start("a", write, config))
    assert "out.nc: a group cannot be carried" in written.stderr
    assert good(reading).stdout == wanted.stdout
    for rank in range(2):
        assert (workflow.here / f"out.nc.{rank}").read_text() == (plain / f"out.nc.{rank}").read_text()
    workflow.assert_gone()


REAL_TILES = {"scale": ("scale/history.pe00000{}.nc", 2), "nemo": ("nemo/mesh_mask_000{}.nc", 4)}


@pytest.mark.parametrize(("model", "reader"), [("scale", "ranks"), ("nemo", "ranks"), ("scale", "python"), ("nemo", "whole")])
def test_real_tiles_are_read_with_another_decomposition(
    workflow: Workflow,
    replay: Path,
    shared: Callable[[str], Path],
    tool: Callable[[str], str],
    tmp_path: Path,
    model: str,
    reader: str,
):
    """Each process of A writes its tile; B reads all of them in one process, each with three ranks, or their whole."""
    name, ranks = REAL_TILES[model]
    tiles = [shared(name.format(n)) for n in range(ranks)]
    plain = tmp_path / "plain"
    plain.mkdir()
    write: Words = ["mpirun", "-n", str(ranks), replay, "--order", "scale", "--output", "<input>", *tiles]
    if reader != "python":
        kind = "cdf5" if reader == "ranks" else "nc4"
        write = ["sh", "-c", "".join(f"{tool('nccopy')} -k {kind} {t} {t.name} & " for t in tiles) + "wait"]
    config = couple(rule("*.nc"), wait_max="20s")
    read: list[str | Path] = ["mpirun", "-n", "3", built(replay, "pnetcdf_read_all")] if reader == "ranks" else list(READER)
    if reader == "whole":
        read.append("mesh_mask.nc")
        alone = workflow.advectio.run(write, plain, "datasets: [{match: '*.nc', join: true}]\n")
        assert alone.code == 0, alone.said
        config += "datasets: [{match: '*.nc', join: true}]\n"
    else:
        read += [tile.name for tile in tiles]
        assert run_plainly(write, plain).code == 0
    wanted = run_plainly(read, plain)
    assert wanted.code == 0, wanted.said
    reading = workflow.start("b", read, config)
    reading.wait_for(waits_for(workflow, "b"), "the reader waited")
    good(workflow.start("a", write, config))
    assert good(reading).stdout.replace(f"{workflow.here}/", "") == wanted.stdout.replace(f"{plain}/", "")
    assert output_files(workflow.here) == []
    workflow.assert_gone()


JOINED = "datasets: [{match: '*', join: true}]\n"


@pytest.mark.parametrize(("mode", "kill"), [("memory", False), ("memory", True), ("file", False)])
def test_tiles_are_read_as_their_whole(workflow: Workflow, replay: Path, made: Path, tmp_path: Path, mode: str, kill: bool):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = ["mpirun", "-n", "3", replay, "--io", "split", "--frames", "4", "--frames-per-file", "2", "--compute", "0.2", made]
    workflow.advectio.run(write, plain, JOINED)
    names = output_files(plain)
    assert len(names) == 2
    read = [*READER, *names]
    wanted = run_plainly(read, plain)
    config = couple(rule("wrfout*", more=f", mode: {mode}")) + JOINED
    reading = workflow.start("b", read, config)
    writing = workflow.start("a", write, config)
    if kill:
        writing.wait_for(lambda: "Timing" in "".join(writing.lines), "a frame was synced")
        writing.kill("advectiod")
    result = good(writing)
    assert good(reading).stdout.replace(f"{workflow.here}/", "") == wanted.stdout.replace(f"{plain}/", "")
    assert "without closing" not in result.said
    assert output_files(workflow.here) == (names if mode == "file" else [])
    workflow.assert_gone()


def test_tiles_in_memory_and_in_files_do_not_become_one_file(workflow: Workflow, replay: Path, made: Path):
    write = ["mpirun", "-n", "2", replay, "--io", "split", made]
    result = good(workflow.start("a", write, couple(rule("wrfout*", more=", mode: memory+file, keep: read")) + JOINED))
    assert "its tiles do not become one file (join: true), as couple has mode: memory+file" in result.stderr, result.said
    assert [name[-5:] for name in output_files(workflow.here)] == ["_0000", "_0001"]


def expected(members: int, cycles: int) -> list[np.ndarray]:
    """As forecast.py and analysis.py."""
    states = [np.arange(50.0) + m for m in range(members)]
    for _ in range(cycles):
        mean = sum(states) / len(states)
        states = [1.5 * ((s + mean) / 2) + m for m, s in enumerate(states)]
    return states


@pytest.mark.parametrize("mode", ["memory", "memory+file", "file"])
@pytest.mark.parametrize(("members", "cycles"), [(1, 2), (3, 4)])
def test_an_ensemble_and_its_analysis_cycle_in_place(workflow: Workflow, mode: str, members: int, cycles: int):
    config = couple(
        rule("hist.{member}.nc", "fc-{member}", "letkf", f", mode: {mode}"),
        rule("hist.{member}.nc", "letkf", "fc-{member}", f", mode: {mode}"),
    )
    names = [f"hist.{m}.nc" for m in range(members)]
    running = [workflow.start("letkf", [*ANALYSIS, str(cycles), *names], config)]
    for m, name in enumerate(names):
        running.append(workflow.start(f"fc-{m}", [*FORECAST, name, str(m), str(cycles)], config))
    results = [good(r) for r in running]
    for got, wanted in zip(results[1:], expected(members, cycles), strict=True):
        assert np.array_equal(np.array(got.stdout.split(), dtype="f8"), wanted), got.said
    if mode == "memory":
        assert output_files(workflow.here) == []
    else:
        assert output_files(workflow.here) == names
        for m, name in enumerate(names):
            with netCDF4.Dataset(workflow.here / name) as file:
                # The last analysis is what the file holds.
                assert file.cycle == cycles - 1
                last = 1.5 * file["T"][:] + m
                assert np.array_equal(last, expected(members, cycles)[m])
    workflow.assert_gone()


@pytest.mark.parametrize("mode", ["memory", "memory+file", "file"])
def test_a_program_that_writes_a_name_again_and_again_loses_no_version(workflow: Workflow, coupled_program: Path, mode: str):
    """The server is still busy with one version when the next is created."""
    config = couple(rule(more=f", mode: {mode}"))
    versions = [word for v in range(1, 25) for word in ("create", "out.nc", str(v), "0")]
    good(workflow.start("a", [coupled_program, *versions], config))
    got = good(workflow.start("b", [coupled_program, "read", "out.nc", "24"], config))
    assert got.stdout == "read out.nc 24 3\n"
    workflow.assert_gone()


WRITES_IT_AGAIN = """
import os, subprocess, sys
import netCDF4
def write(value, clobber):
    with netCDF4.Dataset("out.nc", "w", clobber=clobber) as file:
        file.createDimension("x", 3)
        file.createVariable("T", "f8", ("x",))[:] = value
write(1, True)
assert os.path.exists("out.nc")
outside = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ADVECTIO_RUN")}
subprocess.run(["rm", "out.nc"], env=outside, check=True)
write(2, False)
"""


def test_to_create_a_file_on_the_disk_its_version_in_memory_does_not_count(workflow: Workflow):
    config = couple(rule(more=", mode: memory+file"))
    good(workflow.start("a", [PYTHON, "-c", WRITES_IT_AGAIN], config))
    with netCDF4.Dataset(workflow.here / "out.nc") as file:
        assert file["T"][:].tolist() == [2, 2, 2]


def test_a_frame_is_read_as_soon_as_it_is_synced(workflow: Workflow):
    config = couple(rule(more=", when: sync"))
    writing = workflow.start("a", [*WRITER, "out.nc", "3", "3600"], config)
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    got = good(workflow.start("b", [*READER, "out.nc"], config))
    assert "'time': 1" in got.stdout, got.said
    assert writing.process.poll() is None
    os.kill(child_of(writing), signal.SIGKILL)
    bad(writing)


def test_with_when_close_a_reader_waits_for_the_end(workflow: Workflow):
    writing = workflow.start("a", [*WRITER, "out.nc", "3", "0.5"])
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    got = good(workflow.start("b", [*READER, "out.nc"]))
    assert "'time': 3" in got.stdout, got.said
    good(writing)
    workflow.assert_gone()


def test_variables_say_what_is_in_memory(workflow: Workflow):
    config = couple(rule(more=", mode: memory+file, variables: [T]"))
    good(workflow.start("a", [*WRITER, "out.nc", "3"], config))
    got = good(workflow.start("b", [*READER, "out.nc"], config))
    lines = got.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["T"]
    whole = run_plainly([*READER, "out.nc"], workflow.here).stdout.splitlines()
    assert [line.split()[0] for line in whole[3:]] == ["T", "Q"]
    assert lines[3] == whole[3]


# --- how it ends when something is wrong ------------------------------------------------------------------------------------


def bad(running: Running, *said: str) -> Result:
    result = running.finish()
    assert result.code != 0, result.said
    for text in said:
        assert text in result.stderr, f"{text!r}\n{result.said}"
    return result


def test_a_partner_that_never_comes_is_named(workflow: Workflow):
    reading = workflow.start("b", [*READER, "out.nc"], couple(rule(), wait_max="1s"))
    bad(reading, f"b: wait for {workflow.here}/out.nc from a: not there after 1 s: a has not come", "Connection timed out")
    workflow.assert_gone()


def test_a_partner_that_has_failed_is_named(workflow: Workflow):
    staying = stay(workflow)
    bad(workflow.start("a", ["sh", "-c", "exit 7"]))
    reading = workflow.start("b", [*READER, "out.nc"])
    bad(reading, "a has ended (exit code 7) without having completed it", "Owner died")
    leave(workflow, staying)
    workflow.assert_gone()


@pytest.mark.parametrize("first", ["writer", "reader"])
def test_a_partner_whose_program_is_killed_is_named(workflow: Workflow, first: str):
    staying = stay(workflow)
    writing = workflow.start("a", [*WRITER, "out.nc", "3", "3600"])
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    if first == "reader":
        reading = workflow.start("b", [*READER, "out.nc"])
        reading.wait_for(waits_for(workflow, "b"), "the reader waited")
    os.kill(child_of(writing), signal.SIGKILL)
    if first == "writer":
        writing.finish()
        reading = workflow.start("b", [*READER, "out.nc"])
    bad(reading, "a has ended (exit code 137) without having completed it")
    bad(writing)
    leave(workflow, staying)
    workflow.assert_gone()


def stay(workflow: Workflow, config: str = MEMORY) -> Running:
    """A program that lives until ``leave``: a workflow that all have left is forgotten, and who has failed with it."""
    return workflow.start("c", ["sh", "-c", "while [ ! -e over ]; do sleep 0.05; done"], config)


def leave(workflow: Workflow, staying: Running) -> None:
    (workflow.here / "over").touch()
    good(staying)


def child_of(running: Running) -> int:
    """The command itself."""
    found = running.wait_for(lambda: python_below(running), "the command ran")
    return int(found[0])


def python_below(running: Running) -> list[int]:
    from running import descendants

    return [p for p in descendants(running.process.pid, "python") if p != running.process.pid]


def test_a_partner_that_is_killed_as_a_whole_is_named(workflow: Workflow):
    """The command, `advectio run`, and then the server: nobody is left to say anything."""
    writing = workflow.start("a", [*WRITER, "out.nc", "3", "3600"])
    writing.wait_for(lambda: "frame 0\n" in writing.lines, "a frame was synced")
    reading = workflow.start("b", [*READER, "out.nc"])
    reading.wait_for(waits_for(workflow, "b"), "the reader waited")
    servers, command = writing.pids("advectiod"), child_of(writing)
    for pid in (writing.process.pid, command, *servers):
        os.kill(pid, signal.SIGKILL)
    bad(reading, "a has died without having completed it")
    writing.process.wait()
    workflow.assert_gone()
    workflow.advectio.recover_all()


def test_a_process_whose_run_has_gone_reads_and_writes_nothing(workflow: Workflow):
    """Ranks that start after `advectio run` was killed: an ordinary open would read what must not be read yet."""
    good(workflow.start("a", [*WRITER, "old.nc", "1"], couple(rule("out.nc"))))
    late = "export ADVECTIO_RUN=$ADVECTIO_RUN-gone;"
    for command in (f"{' '.join(map(str, READER))} old.nc", f"{' '.join(map(str, WRITER))} new.nc 1"):
        done = workflow.start("b", ["sh", "-c", f"{late} exec {command}"], couple(rule("out.nc"))).finish()
        assert done.code == 1 and "has ended" in done.stderr and "is neither read nor written" in done.stderr, done.said
    assert not (workflow.here / "new.nc").exists()


def test_two_that_wait_for_each_other_are_both_named(workflow: Workflow):
    config = couple(rule("x.nc"), rule("y.nc", "b", "a"), wait_max="4s")
    one = workflow.start("a", [*READER, "y.nc"], config)
    two = workflow.start("b", [*READER, "x.nc"], config)
    first, second = bad(one), bad(two)
    said = first.stderr + second.stderr
    assert "runs, and itself waits for" in said, said
    workflow.assert_gone()


def test_a_variable_that_is_missing_is_the_librarys_error(workflow: Workflow):
    good(workflow.start("a", [*WRITER, "out.nc", "1"]))
    code = 'import netCDF4; netCDF4.Dataset("out.nc")["nothing"]'
    bad(workflow.start("b", [PYTHON, "-c", code]), "nothing not found in /")


def test_what_nobody_has_read_is_kept_and_can_be_removed(workflow: Workflow):
    result = good(workflow.start("a", [*WRITER, "out.nc", "1"]))
    assert "keeps 1 file" in result.stderr and "--end` removes" in result.stderr, result.said
    shown = workflow.advectio.call("status", "--workflow", workflow.directory)
    assert "not read by b yet" in shown.stdout, shown.said
    ended = workflow.advectio.call("status", "--workflow", workflow.directory, "--end")
    assert ended.code == 0, ended.said
    workflow.assert_gone()


@pytest.mark.parametrize("kills", [1, 3])
def test_a_server_that_is_killed_loses_nothing(workflow: Workflow, tmp_path: Path, kills: int):
    plain = tmp_path / "plain"
    plain.mkdir()
    write = [*WRITER, "out.nc", "12", "0.2"]
    assert run_plainly([*WRITER, "out.nc", "12"], plain).code == 0
    wanted = run_plainly([*READER, "out.nc"], plain)
    writing = workflow.start("a", write)
    reading = workflow.start("b", [*READER, "out.nc"])
    for kill in range(kills):
        wanted_line = f"frame {3 * kill + 1}\n"
        writing.wait_for(lambda line=wanted_line: line in writing.lines, "a frame was synced")
        writing.kill("advectiod")
    assert good(reading).stdout == wanted.stdout
    good(writing)
    workflow.assert_gone()


MISTAKES = {
    "no workflow": ([], "couple has rules, but there is no workflow"),
    "no name": (["--workflow", "w"], "--workflow w: which of its programs is this? Add --as NAME"),
    "a bad name": (["--workflow", "w", "--as", "a b"], "--as a b: a name has letters, digits, _ - . only"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_is_missing_is_refused_before_the_program_starts(advectio: Advectio, tmp_path: Path, mistake: str):
    (tmp_path / "advectio.yaml").write_text(MEMORY)
    options, said = MISTAKES[mistake]
    result = advectio.call("run", *options, "--", "touch", "started", directory=tmp_path)
    assert result.code == 2 and said in result.stderr, result.said
    assert not (tmp_path / "started").exists()


def test_check_doubts_names_that_look_misspelt_and_cycles(advectio: Advectio, tmp_path: Path):
    (tmp_path / "advectio.yaml").write_text(
        couple(rule("x", "scale", "letkf"), rule("y", "leftkf", "scale"), rule("z", "letkf", "scale"))
    )
    result = advectio.call("check", directory=tmp_path)
    assert "leftkf and letkf are two programs" in result.stdout.replace("\n", " "), result.said
    assert "letkf → scale → letkf" in result.stdout, result.said
