"""The name of a coupled file behaves like a file also for calls that are not netCDF's, or an error says at once why not."""

from __future__ import annotations

from pathlib import Path

import netCDF4
import pytest
from running import COMMAND, PYTHON, output_files, run_plainly
from test_coupling import COUPLED, Workflow, couple, good, rule, waits_for, workflow

__all__ = ["workflow"]

NAMES = [PYTHON, COUPLED / "names.py"]
MODES = ["memory", "memory+file", "file"]
# A program's actions, and the names that another reads afterwards.
CASES = {
    "overwrite": ["a.nc"],
    "copy_over": ["a.nc", "b.nc"],
    "text": ["a.nc", "b.nc"],
    "half_written": ["a.nc", "b.nc"],
    "renamed": ["a.nc", "b.nc"],
    "moved": ["a.nc", "b.nc"],
    "moved_while_open": ["a.nc"],
    "archived": ["a.nc"],
    "linked": ["a.nc"],
    "hard_linked": ["a.nc"],
    "looked_at": ["a.nc"],
    "by_nco": ["a.nc", "b.nc"],
    "in_memory_alone": ["a.nc"],
}
# The rule matches the final name only, or temporary ones too.
MATCH = {"final": "?.nc", "all": "?.nc*"}


MOVES = {"archived", "moved", "moved_while_open", "renamed"}


@pytest.mark.parametrize(
    ("case", "mode", "match"), [(c, mode, m) for c in CASES for mode in MODES for m in MATCH if m == "final" or c in MOVES]
)
def test_a_coupled_name_is_a_file(workflow: Workflow, tmp_path: Path, case: str, mode: str, match: str):
    plain = tmp_path / "plain"
    plain.mkdir()
    wanted = run_plainly([*NAMES, case], plain)
    assert wanted.code == 0, wanted.said
    read = [*NAMES, "show", *CASES[case]]
    wanted_of_reader = run_plainly(read, plain)
    assert wanted_of_reader.code == 0, wanted_of_reader.said
    config = couple(rule(MATCH[match], more=f", mode: {mode}"))
    got = good(workflow.start("a", [*NAMES, case], config))
    assert got.stdout == wanted.stdout, got.said
    got = good(workflow.start("b", read, config))
    assert got.stdout == wanted_of_reader.stdout, got.said
    on_disk = [n for n in output_files(plain) if mode != "memory" or not n.endswith(".nc")]
    assert output_files(workflow.here) == on_disk
    for name in on_disk:
        shown = [run_plainly([*NAMES, "show", name], where).stdout for where in (workflow.here, plain)]
        assert shown[0] == shown[1]
    workflow.assert_gone()


REFUSED = """
import os, subprocess, netCDF4
from names import put_bytes, run, show, why, write
show("a.nc")
why(lambda: netCDF4.Dataset("a.nc", "r+"))
why(lambda: put_bytes("a.nc", "r+b", b"x"))
why(lambda: put_bytes("a.nc", "wb", b"x"))
write("other", 5)
why(lambda: os.replace("other", "a.nc"))
run("ncatted", "-O", "-h", "-a", "note,global,c,c,text", "a.nc")
show("a.nc")
put_bytes("c.nc", "wb", b"my own")
os.rename("a.nc", "archive")
show("archive")
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_program_that_only_reads_cannot_write_and_is_told_at_once(workflow: Workflow, mode: str):
    config = couple(rule("?.nc", more=f", mode: {mode}"))
    good(workflow.start("a", [*NAMES, "moved"], config))
    program = ["env", f"PYTHONPATH={COUPLED}", PYTHON, "-c", REFUSED]
    got = good(workflow.start("b", program, config))
    refused = "Permission denied\n"
    assert got.stdout == f"a.nc [4, 4]\n{refused * 4}ncatted 1\na.nc [4, 4]\narchive [4, 4]\n", got.said
    assert "a.nc is coupled, and b is not among those who write it (from: a)" in got.stderr
    assert "c.nc is coupled, and b is not among those who write it (from): no other program gets" in got.stderr
    assert "archive" in output_files(workflow.here)


def test_a_reader_waits_until_a_plain_file_is_complete(workflow: Workflow):
    """It is written by a shell, whose child has it open, too."""
    config = couple(rule("?.nc"))
    script = "exec 3> a.nc; echo one >&3; (while [ ! -e go ]; do sleep 0.05; done; echo two >&3) & exec 3>&-; wait"
    writing = workflow.start("a", ["sh", "-c", script], config)
    reading = workflow.start("b", ["cat", "a.nc"], config)
    reading.wait_for(waits_for(workflow, "b"), "the reader waited")
    (workflow.here / "go").touch()
    assert good(reading).stdout == "one\ntwo\n"
    good(writing)
    workflow.assert_gone()


def test_what_is_still_open_when_the_run_ends_is_told(workflow: Workflow):
    script = "(exec 3> a.nc; echo one >&3; touch begun; while [ ! -e go ]; do sleep 0.05; done) > /dev/null 2>&1 & "
    script += "while [ ! -e begun ]; do sleep 0.05; done"
    result = good(workflow.start("a", ["sh", "-c", script], couple(rule("?.nc"))))
    (workflow.here / "go").touch()
    assert "a.nc: a process still has it open for writing; no other program gets what it has written of it" in result.said


HOURLY = """
import netCDF4
with netCDF4.Dataset("a.nc", "w") as out:
    out.createDimension("time", None)
    out.createDimension("x", 10)
    time = out.createVariable("time", "f8", ("time",))
    time.units = "hours since 2000-01-01"
    field = out.createVariable("T", "f4", ("time", "x"))
    for hour in range(3):
        time[hour] = hour
        field[hour] = hour
"""
SHOWN = "import netCDF4\nfor n in 'abc': print(netCDF4.Dataset(n + '.nc')['T'][:, 0].tolist())"


@pytest.mark.parametrize("mode", MODES)
def test_our_own_commands_read_and_write_coupled_files(workflow: Workflow, mode: str):
    config = couple(rule("?.nc", more=f", mode: {mode}"))
    (workflow.here / "rules.yaml").write_text("outputs: [{path: c.nc, variables: [T], mean: all}]\n")
    script = f"{COMMAND} convert --codec zstd a.nc b.nc && {COMMAND} process -c rules.yaml -o . a.nc"
    good(workflow.start("a", [PYTHON, "-c", HOURLY], config))
    good(workflow.start("a", ["sh", "-c", script], config))
    for name in ("a", "b"):
        shown = good(workflow.start(name, [PYTHON, "-c", SHOWN], config)).stdout
        assert shown == "[0.0, 1.0, 2.0]\n[0.0, 1.0, 2.0]\n[1.0]\n"
    written = [] if mode == "memory" else ["a.nc", "b.nc", "c.nc"]
    assert output_files(workflow.here) == [*written, "rules.yaml"]


@pytest.mark.parametrize("overwrites", ["itself", "another"])
def test_a_file_that_is_overwritten_in_place_keeps_its_compression(workflow: Workflow, overwrites: str):
    config = couple(rule("?.nc", more=", mode: memory+file"), rule("?.nc", writer="b", reader="a"))
    begin = ["env", f"PYTHONPATH={COUPLED}", PYTHON, "-c"]
    write, overwrite = "import names\nnames.write('a.nc', 1)\n", "names.netCDF4.Dataset('a.nc', 'r+')['v'][0] = 5\n"
    read = "import names\nnames.show('a.nc')\n"
    good(workflow.start("a", [*begin, write + overwrite * (overwrites == "itself")], config))
    if overwrites == "another":
        good(workflow.start("b", [*begin, read + overwrite], config))
    with netCDF4.Dataset(workflow.here / "a.nc") as file:
        assert file["v"][:2].tolist() == [5, 1]
        assert file["v"].filters()["zlib"]
    assert output_files(workflow.here) == ["a.nc"]
