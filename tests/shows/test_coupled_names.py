"""The name of a coupled file behaves like a file also for calls that are not netCDF's, or an error says at once why not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from running import PYTHON, output_files, run_plainly
from test_coupling import COUPLED, WRITER, Workflow, bad, couple, good, rule, workflow

__all__ = ["workflow"]

NAMES = [PYTHON, COUPLED / "names.py"]
MODES = ["memory", "memory+file", "file"]
# What a program does, and which names another reads afterwards.
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
