"""The examples of docs/operations.md: their lines, as they are on the page, beside a run whose server has been stopped."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import COMMAND, PYTHON, ROOT, STOPPING, Advectio, Running, environment

PAGE = (ROOT / "docs" / "operations.md").read_text()
RUN = "advectio run -- mpirun -n 64 ./model.exe"
OUTSIDE = {k: v for k, v in environment().items() if k != "LD_PRELOAD"}

# Writes its files, stops the server before they can be complete, and makes markers: NAME, or NAME=TEXT. Then it goes on when
# `on` is there.
MODEL = (
    STOPPING
    + """
import os, pathlib, signal, sys, time
import netCDF4
import numpy as np
server = int.from_bytes(pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()[12:16], "little")
names, markers = (words.split() for words in sys.argv[1:])
stop_server()
for name in names:
    with netCDF4.Dataset(name, "w") as file:
        file.createDimension("x", 100_000)
        file.createVariable("v", "f8", ("x",))[:] = np.random.default_rng(len(os.path.basename(name))).random(100_000)
for marker in markers:
    name, _, text = marker.partition("=")
    pathlib.Path(name).write_text((text or "done") + "\\n")
print("made", flush=True)
while not os.path.exists("on"):
    time.sleep(0.01)
os.kill(server, signal.SIGCONT)
"""
)


def blocks(heading: str, language: str) -> list[str]:
    """The lines of that kind under that heading of the page."""
    section = re.search(rf"^### {heading}\n(.*?)(?=^##)", PAGE, re.M | re.S)
    assert section, f"the page has no {heading}"
    return re.findall(rf"^```{language}\n(.*?)^```$", section[1], re.M | re.S)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    for name in ("output", "output/out", "output/archive", "tools"):
        (tmp_path / name).mkdir()
    return tmp_path / "output"


def stand_in(output: Path, name: str, script: str) -> dict[str, str]:
    """A command of that name for what is not installed here; the environment in which it is found."""
    path = output.parent / "tools" / name
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}"}


def start(advectio: Advectio, output: Path, files: str, markers: str, config: str = "", **more: object) -> Running:
    running = advectio.start([PYTHON, "-c", MODEL, files, markers], output, config, **more)
    running.wait_for(lambda: running.lines, "the files were closed and the markers made")
    for marker in markers.split():
        path = output / marker.partition("=")[0]
        assert not path.exists() or path.read_text() == "of before.nc\n", "others do not see the new one"
    return running


def go_on(running: Running, output: Path) -> None:
    (output / "on").touch()
    result = running.finish()
    assert result.code == 0, result.said


def assert_whole(path: Path) -> None:
    with netCDF4.Dataset(path) as file:
        np.testing.assert_array_equal(file["v"][:], np.random.default_rng(len(path.name)).random(100_000))


def shell(output: Path, lines: str, tools: dict[str, str] | None = None) -> subprocess.Popen:
    lines = lines.replace("archive:/data/", "archive/").replace("sleep 1;", "sleep 0.01;")
    return subprocess.Popen(["bash", "-c", lines], cwd=output, env=OUTSIDE | (tools or {}), stdout=subprocess.PIPE, text=True)


def archive(output: Path, *names: str) -> None:
    assert sorted(os.listdir(output / "archive")) == sorted(names)
    for name in names:
        if name.endswith(".nc"):
            assert_whole(output / "archive" / name)


WAITING = {
    "UFS, GFS": ("atmf006.nc sfcf006.nc", "log.atm.f006"),
    "LETKF": ("anal.nc", "anal.done"),
}


@pytest.mark.parametrize("heading", WAITING)
def test_a_script_that_waits_for_a_marker(advectio: Advectio, output: Path, heading: str):
    files, marker = WAITING[heading]
    (lines,) = blocks(heading, "sh")
    config = blocks(heading, "yaml")
    waiting = shell(output, lines)
    running = start(advectio, output, files, marker, config[0] if config else "")
    assert waiting.poll() is None
    archive(output)
    go_on(running, output)
    assert waiting.wait() == 0
    archive(output, *files.split())


RSYNC = (
    'while [ $# -gt 1 ]; do case $1 in --exclude) shift;; -*) ;; */) s="$s $1*";; *) s="$s $1";; esac; shift; done; cp $s $1'
)


def rsync(output: Path) -> dict[str, str]:
    return {} if shutil.which("rsync") else stand_in(output, "rsync", RSYNC)


LOOKING = {
    "cron and rsync": ("out/hist.nc", "out/hist.done", ["hist.nc"]),
    "UM": ("umnsa_pa000.nc", "umnsa_pa000.nc.done", ["umnsa_pa000.nc"]),
    "CESM": ("case.r.1.nc", "rpointer.atm=case.r.1.nc", ["case.r.1.nc", "rpointer.atm"]),
}


@pytest.mark.parametrize("heading", LOOKING)
def test_a_script_that_looks_now_and_then(advectio: Advectio, output: Path, heading: str):
    files, markers, copied = LOOKING[heading]
    lines = blocks(heading, "sh")[0]
    if heading == "CESM":
        (output / "rpointer.atm").write_text("of before.nc\n")
        with netCDF4.Dataset(output / "of before.nc", "w") as file:
            file.createDimension("x", 100_000)
            file.createVariable("v", "f8", ("x",))[:] = np.random.default_rng(len("of before.nc")).random(100_000)
    running = start(advectio, output, files, markers)
    shell(output, lines, rsync(output)).wait()
    archive(output, *(["of before.nc", "rpointer.atm"] if heading == "CESM" else []))
    for path in (output / "archive").iterdir():
        path.unlink()
    go_on(running, output)
    shell(output, lines, rsync(output)).wait()
    archive(output, *copied)
    if heading == "CESM":
        assert (output / "archive" / "rpointer.atm").read_text() == "case.r.1.nc\n"


def test_rsync_of_all_that_has_a_name(advectio: Advectio, output: Path):
    (config,) = blocks("cron and rsync", "yaml")
    lines = blocks("cron and rsync", "sh")[1]
    running = start(advectio, output, "out/hist.nc", "", config)
    shell(output, f"shopt -s nullglob\n{lines}", rsync(output)).wait()
    archive(output)
    go_on(running, output)
    assert shell(output, lines, rsync(output)).wait() == 0
    archive(output, "hist.nc")


def words_to(advectio: Advectio, output: Path, heading: str, tool: str) -> list[str]:
    """The arguments with which the page's config calls `tool` when the file is complete; it is not called before."""
    (config,) = blocks(heading, "yaml")
    tools = stand_in(output, tool, 'cp *.nc archive/ && printf "%s|" "$@" > archive/words')
    running = start(advectio, output, "atmf006.nc", "", config, extra=tools)
    archive(output)
    go_on(running, output)
    archive(output, "atmf006.nc", "words")
    return (output / "archive" / "words").read_text().removesuffix("|").split("|")


def test_ecflow_is_told_of_a_file_that_is_complete(advectio: Advectio, output: Path):
    assert words_to(advectio, output, "ecFlow", "ecflow_client") == ["--event", "atmf006.nc"]
    assert RUN in blocks("ecFlow", "sh")[0]


def test_cylc_is_told_of_a_file_that_is_complete(advectio: Advectio, output: Path):
    words = words_to(advectio, output, "cylc", "cylc")
    assert words == ["message", "--", "INFO:atmf006.nc is complete"]
    (flow,) = blocks("cylc", "ini")
    assert words[2].removeprefix("INFO:") in flow and RUN in flow


def test_slurm_starts_the_next_job_when_all_is_complete(advectio: Advectio, output: Path):
    """A stand-in for sbatch runs the jobs one after the other, as `afterok` has it."""
    lines, early = blocks("Slurm", "sh")
    assert RUN in lines and "advectio wait atmf000.nc" in early
    tools = stand_in(
        output, "sbatch", '[ "$1" = --parsable ] && sh "$2" >&2 && echo 7; [ "$1" = --dependency=afterok:7 ] && sh "$2"'
    )
    words = " ".join(f"'{word}'" for word in (PYTHON, "-c", MODEL.replace("'", '"'), "atmf006.nc", ""))
    run_dir = advectio.new_run_dir()
    advectio.run_dirs.append(run_dir)
    (output / "model.sh").write_text(f"{COMMAND} run -q --run-dir {run_dir} -- {words}\n")
    (output / "products.sh").write_text("cp atmf006.nc archive/\n")
    (output / "on").touch()
    assert shell(output, lines, tools).wait() == 0
    archive(output, "atmf006.nc")
