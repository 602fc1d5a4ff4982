"""The notebook of examples/insitu, executed beside a run as a user does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import Pair
from running import ROOT

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

NOTEBOOK = ROOT / "examples" / "insitu" / "live.ipynb"
SQUALL = ROOT / "build" / "release" / "examples" / "squall" / "squall"


def test_the_notebook_draws_a_run_while_it_goes_on(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    if not SQUALL.exists():
        pytest.fail(f"{SQUALL} is not built; `make build` builds it")
    options = ("--wait-for-readers", "1", "--readers-within", "120")
    command = ["mpirun", "-n", "1", SQUALL, "--nx", "24", "--ny", "24", "--minutes", "5", "--history-minutes", "1"]
    running = pair.advectio.start(command, pair.carried, options=options)
    running.wait_for(lambda: any("waiting up to" in e for e in running.errors), "it waited for the notebook")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": os.fspath(pair.carried)}})
    client.execute()
    result = running.finish()
    assert result.code == 0, result.said
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    assert not [o for o in outputs if o.output_type == "error"]
    assert any("image/png" in o.get("data", {}) for o in outputs), "no picture"
    text = "".join(o.get("text", "") for o in outputs)
    assert "6 frames" in text and "the last one is equal to its file: True" in text
    assert len(list(Path(pair.carried).glob("squall_d01_*"))) == 6
