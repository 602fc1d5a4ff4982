"""Markers: files by which a program says that its output is complete. Others see them when it is."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from running import PYTHON, ROOT, STOPPING, Advectio, Result, run_plainly, stop_server
from test_crashes import kill_run, processes_of, server_of

SEEN_BY_OTHERS = """
import subprocess
def seen_by_others(directory="."):
    return subprocess.check_output(["env", "-u", "LD_PRELOAD", "ls", "-A", directory], text=True).split()
"""
MARKING = ROOT / "tests" / "shows" / "programs" / "marking.py"

HELD = {
    "python.done": "done\n",
    "excl.flag": "",
    "log.f001": "step 1\nstep 2\n",
    "log.f002": "through a link\n",
    "behind": "through a link\n",
    "touched.ready": "",
    "renamed.complete": "renamed\n",
    "linked.trigger": "linked\n",
    "rpointer.atm": "linked\n",
    "b_done": "moved\n",
}
REPLACED = {"old.done": ("of before\nand of now\n"), "older.done": "of now\n"}


def assert_in_place(directory: Path) -> None:
    """All markers are there, with the file that they speak of, and nothing else."""
    for name, text in (HELD | REPLACED).items():
        assert (directory / name).read_text() == text, name
    assert not {"dropped.ok", "a_done", "kept_done"} & set(os.listdir(directory))
    assert not list(directory.rglob("*advectio*"))
    with netCDF4.Dataset(directory / "hist.nc") as file:
        values = np.random.default_rng(7).random((64, 256, 256))
        np.testing.assert_array_equal(file["v"][:], values)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def marked(running_or_result: object) -> dict:
    lines = running_or_result.stdout.splitlines() if isinstance(running_or_result, Result) else running_or_result.lines
    return json.loads(lines[0])


def test_markers_of_every_kind_are_there_inside_and_not_outside(advectio: Advectio, output: Path):
    result = advectio.run([PYTHON, MARKING], output)
    said = marked(result)
    for name, text in HELD.items():
        assert said[name] == {"inside": True, "outside": False, "text": text}, name
    for name, text in REPLACED.items():
        assert said[name] == {"inside": True, "outside": True, "text": text}, name
    for name in ("dropped.ok", "a_done", "kept_done"):
        assert said[name] == {"inside": False, "outside": False, "text": None}, name
    for name in ("kept", "there.ok", "plain.txt"):
        assert said[name]["outside"], f"{name} is no marker, or was there before"
    assert said["refused"] == [True, True]
    assert said["through_links"] == ["through a link\n"] * 2
    assert result.summary["markers_held"] == len(HELD | REPLACED)
    assert result.summary["markers_waiting"] == []
    assert_in_place(output)


def test_the_same_calls_give_the_same_plainly(output: Path):
    """The program sees its own markers as it does without us."""
    program = MARKING.read_text().replace("os.kill(server(),", "(lambda *_: 0)(0,")
    program = program.replace("import stopping\n", "").replace("stopping.stop_server()", "")
    result = run_plainly([PYTHON, "-c", program], output)
    assert result.code == 0, result.said
    for name, text in (HELD | REPLACED).items():
        assert marked(result)[name] == {"inside": True, "outside": True, "text": text}, name
    assert_in_place(output)


def test_markers_come_though_their_program_dies(advectio: Advectio, output: Path):
    running = advectio.start([PYTHON, MARKING, "die"], output)
    running.wait_for(lambda: running.lines, "the markers were made")
    assert not set(HELD) & set(os.listdir(output))
    (server,) = server_of(running, advectio.run_dirs[-1])
    os.kill(server, signal.SIGCONT)
    result = running.finish()
    assert result.code == 128 + signal.SIGKILL, result.said
    assert_in_place(output)


def test_markers_come_though_the_server_dies(advectio: Advectio, output: Path):
    running = advectio.start([PYTHON, MARKING, "wait"], output)
    running.wait_for(lambda: running.lines, "the markers were made")
    (server,) = server_of(running, advectio.run_dirs[-1])
    os.kill(server, signal.SIGKILL)
    running.wait_for(lambda: set(HELD) <= set(os.listdir(output)), "the next server had given them their names")
    (output / "on").touch()
    result = running.finish()
    assert result.code == 0, result.said
    (output / "on").unlink()
    assert_in_place(output)


def test_recover_gives_them_their_names_where_all_have_died(advectio: Advectio, output: Path):
    running = advectio.start([PYTHON, MARKING, "wait"], output)
    running.wait_for(lambda: running.lines, "the markers were made")
    run_dir = advectio.run_dirs[-1]
    kill_run(running, run_dir)
    assert not set(HELD) & set(os.listdir(output))
    dry = advectio.call("recover", "--dry-run", run_dir)
    assert "python.done" in dry.stdout + dry.stderr, dry.said
    recovered = advectio.call("recover", run_dir)
    assert recovered.code == 0 and not run_dir.exists(), recovered.said
    assert_in_place(output)


FORTRAN = {
    "log.f001": "T 2 step 2",
    "new.done": "T 1 new",
    "old.ok": "T 1 replaced",
    "stream.ready": "T 1 stream",
    "dropped.flag": "F 0",
    "refused": "T",
}


@pytest.fixture(scope="module")
def fortran(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Path:
    directory = tmp_path_factory.mktemp("marking")
    flags = run_plainly([tool("nf-config"), "--fflags", "--flibs"], directory).stdout.split()
    built = run_plainly([tool("gfortran"), MARKING.with_suffix(".f90"), "-o", "marking", *flags], directory)
    assert built.code == 0, built.said
    return directory / "marking"


def said_in_fortran(lines: list[str]) -> dict[str, str]:
    return dict(line.strip().split("=") for line in lines)


def test_markers_of_fortran_are_there_inside_and_not_outside(advectio: Advectio, output: Path, fortran: Path):
    for pipe in ("go", "end"):
        os.mkfifo(output / pipe)
    (output / "old.ok").write_text("of before\n")
    running = advectio.start([fortran], output)
    with (output / "go").open("w") as pipe:  # the program waits for a line, with its file open
        (server,) = server_of(running, advectio.run_dirs[-1])
        assert stop_server(advectio.run_dirs[-1]) == server
        pipe.write("\n")
    running.wait_for(lambda: len(running.lines) == len(FORTRAN), "the markers were made")
    assert said_in_fortran(running.lines) == FORTRAN
    assert not {*FORTRAN} & {*os.listdir(output)} - {"old.ok"}
    assert (output / "old.ok").read_text() == "of before\n"
    os.kill(server, signal.SIGCONT)
    running.wait_for(lambda: (output / "log.f001").exists(), "the first marker was there")
    shutil.copy(output / "hist.nc", output / "copy.nc")
    (output / "end").write_text("\n")
    result = running.finish()
    assert result.code == 0 and result.summary["markers_held"] == 4, result.said
    with netCDF4.Dataset(output / "copy.nc") as file:
        np.testing.assert_array_equal(file["v"][:], np.sqrt(np.arange(1, 200_001)))
    assert (output / "copy.nc").read_bytes() == (output / "hist.nc").read_bytes()
    for name, said in FORTRAN.items():
        if said.startswith("T "):
            lines = (output / name).read_text().splitlines()
            assert said == f"T {len(lines)} {lines[-1]}", name
    assert not (output / "dropped.flag").exists() and not list(output.rglob("*advectio*"))


def test_fortran_says_the_same_plainly(output: Path, fortran: Path):
    for pipe in ("go", "end"):
        (output / pipe).write_text("\n")
    (output / "old.ok").write_text("of before\n")
    result = run_plainly([fortran], output)
    assert result.code == 0 and said_in_fortran(result.stdout.splitlines()) == FORTRAN, result.said


RANKS = (
    STOPPING
    + SEEN_BY_OTHERS
    + """
import os, pathlib, signal, time
import netCDF4
import numpy as np
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
control = pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()
server = int.from_bytes(control[12:16], "little")
if rank == 0:
    stop_server()
    pathlib.Path("stopped").touch()
while not os.path.exists("stopped"):
    time.sleep(0.01)
with netCDF4.Dataset(f"hist.{rank}.nc", "w") as file:
    file.createDimension("x", 100_000)
    file.createVariable("v", "f8", ("x",))[:] = np.arange(100_000) + rank
pathlib.Path(f"closed.{rank}").touch()
while rank == 0 and not all(os.path.exists(f"closed.{r}") for r in range(3)):
    time.sleep(0.01)
if rank == 0:
    pathlib.Path("log.f006").write_text("all ranks\\n")
    print("outside" if "log.f006" in seen_by_others() else "held", flush=True)
    os.kill(server, signal.SIGCONT)
"""
)


def test_a_marker_of_one_rank_speaks_of_the_files_of_all(advectio: Advectio, output: Path):
    running = advectio.start(["mpirun", "-n", "3", PYTHON, "-c", RANKS], output)
    running.wait_for(lambda: "log.f006" in os.listdir(output), "the marker was there")
    for rank in range(3):  # as a program outside the run reads them, at once
        with netCDF4.Dataset(output / f"hist.{rank}.nc") as file:
            np.testing.assert_array_equal(file["v"][:], np.arange(100_000) + rank)
    result = running.finish()
    assert result.code == 0 and result.stdout == "held\n", result.said
    assert (output / "log.f006").read_text() == "all ranks\n"


NODES = (
    STOPPING
    + SEEN_BY_OTHERS
    + """
import os, pathlib, signal, time
import netCDF4
import numpy as np
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
stages = [p.parent for p in pathlib.Path(os.environ["ADVECTIO_RUN"]).rglob("control")]
servers = {p.name: int.from_bytes((p / "control").read_bytes()[12:16], "little") for p in stages}
assert len(servers) == 2, servers
while rank == 0 and not os.path.exists("closed"):
    time.sleep(0.01)
if rank == 1:
    file = netCDF4.Dataset("hist.nc", "w")
    file.createDimension("x", 100_000)
    file.createVariable("v", "f8", ("x",))[:] = np.arange(100_000)
    stop_server(next(stage for stage in stages if stage.name == "n1"))
    file.close()
    pathlib.Path("closed").touch()
else:
    pathlib.Path("log.f006").write_text("all nodes\\n")
    print("outside" if "log.f006" in seen_by_others() else "held", flush=True)
    os.kill(servers["n1"], signal.SIGCONT)
"""
)


def test_a_marker_waits_for_files_that_another_node_has_closed(advectio: Advectio, output: Path):
    running = advectio.start(["mpirun", "-n", "2", PYTHON, "-c", NODES], output, nodes="1,1")
    running.wait_for(lambda: "log.f006" in os.listdir(output), "the marker was there")
    with netCDF4.Dataset(output / "hist.nc") as file:
        np.testing.assert_array_equal(file["v"][:], np.arange(100_000))
    result = running.finish()
    assert result.code == 0 and result.stdout == "held\n", result.said
    assert result.summary["markers_held"] == 1
    assert (output / "log.f006").read_text() == "all nodes\n" and not list(output.rglob("*advectio*"))


OWN_PATTERNS = (
    STOPPING
    + SEEN_BY_OTHERS
    + """
import os, pathlib, signal
import netCDF4
control = pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()
server = int.from_bytes(control[12:16], "little")
file = netCDF4.Dataset("hist.nc", "w")
file.createDimension("x", 1000)
file.createVariable("v", "f8", ("x",))[:] = 1.0
stop_server()
file.close()
os.makedirs("flags")
for name in ("a.fin", "b.done", "flags/c"):
    pathlib.Path(name).touch()
print(*[os.path.basename(n) for n in ("a.fin", "b.done", "flags/c") if os.path.basename(n) in seen_by_others(os.path.dirname(n) or ".")])
os.kill(server, signal.SIGCONT)
"""
)


@pytest.mark.parametrize(
    ("markers", "seen_at_once"),
    [
        ("none", ["a.fin", "b.done", "c"]),
        ('["*.fin"]', ["c"]),
        ('[none, "*.fin"]', ["b.done", "c"]),
        ('["*/flags/*"]', ["a.fin"]),
    ],
)
def test_the_config_says_which_names_are_markers(advectio: Advectio, output: Path, markers: str, seen_at_once: list[str]):
    result = advectio.run([PYTHON, "-c", OWN_PATTERNS], output, f"markers: {markers}\n")
    assert result.stdout.split() == seen_at_once, result.said
    assert result.summary["markers_held"] == 3 - len(seen_at_once)
    assert (output / "a.fin").exists() and (output / "b.done").exists() and (output / "flags" / "c").exists()


RENAMES = (
    STOPPING
    + SEEN_BY_OTHERS
    + """
import json, os, pathlib, signal, subprocess, sys
import netCDF4
import numpy as np
control = pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()
server = int.from_bytes(control[12:16], "little")

def write(name, value):
    file = netCDF4.Dataset(name, "w", format=sys.argv[1])
    file.createDimension("x", 1000)
    file.createVariable("v", "f8", ("x",))[:] = value
    return file

write("replaced.nc", -1.0).close()
netCDF4.Dataset("replaced.nc").close()  # complete
names = ["plain", "replaced", "twice", "gone", "moved", "linked", "kept", "opened"]
files = {name: write(f"{name}.nc.tmp", float(i)) for i, name in enumerate(names)}
stop_server()
for name in names[:-1]:
    files[name].close()
for name in ("plain", "replaced", "twice", "gone", "opened"):
    os.rename(f"{name}.nc.tmp", f"{name}.nc")
os.rename("twice.nc", "thrice.nc")
os.remove("gone.nc")
subprocess.run(["mv", "moved.nc.tmp", "moved.nc"], check=True)
os.link("linked.nc.tmp", "linked.nc")
os.remove("linked.nc.tmp")
pathlib.Path("log.f000").write_text("of all\\n")
outside = sorted(n for n in seen_by_others() if not n.startswith("."))
os.kill(server, signal.SIGCONT)
subprocess.run(["mv", "-n", "kept.nc.tmp", "replaced.nc"])  # is there: as a name of the run's programs
looked_at = "plain.nc.tmp plain.nc replaced.nc twice.nc thrice.nc gone.nc moved.nc linked.nc linked.nc.tmp kept.nc.tmp log.f000"
inside = {name: os.path.exists(name) for name in looked_at.split()}
print(json.dumps({"inside": inside, "outside": outside}), flush=True)
files["opened"].close()
read = {}
for name in ("plain.nc", "replaced.nc", "thrice.nc", "moved.nc", "linked.nc"):
    with netCDF4.Dataset(name) as file:
        read[name] = float(file["v"][5])
with open("plain.nc", "rb") as file:
    begins = file.read(3)
os.rename("plain.nc", "final.nc")
write("final.nc", 7.0).close()
write("again.nc.tmp", 8.0).close()
os.rename("again.nc.tmp", "again.nc")
write("again.nc", 9.0).close()
print(json.dumps({"read": read, "begins": begins in (b"CDF", b"\\x89HD")}), flush=True)
"""
)


@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_64BIT_OFFSET"])
def test_a_file_that_is_renamed_gets_its_final_name_when_it_is_complete(advectio: Advectio, output: Path, format: str):
    config = "datasets: [{match: '*', appear: create}]\n"
    result = advectio.start([PYTHON, "-c", RENAMES, format], output, config).finish()
    assert result.code == 0, result.said
    first, second = map(json.loads, result.stdout.splitlines())
    there = {"plain.nc", "replaced.nc", "thrice.nc", "moved.nc", "linked.nc", "kept.nc.tmp", "log.f000"}
    assert {name for name, is_there in first["inside"].items() if is_there} == there, result.said
    assert first["outside"] == ["kept.nc.tmp", "opened.nc", "replaced.nc"], "one was still open, one is the older file"
    values = {"plain": 0.0, "replaced": 1.0, "thrice": 2.0, "moved": 4.0, "linked": 5.0}
    assert second == {"read": {f"{name}.nc": value for name, value in values.items()}, "begins": True}
    values = {"again": 9.0, "final": 7.0, "opened": 7.0, "replaced": 1.0, "thrice": 2.0, "moved": 4.0, "linked": 5.0}
    names = [*(f"{name}.nc" for name in values), "kept.nc.tmp", "log.f000"]
    assert sorted(os.listdir(output)) == sorted(names)
    for name, value in values.items():
        with netCDF4.Dataset(output / f"{name}.nc") as file:
            assert (file["v"][:] == value).all(), name


LAST_NAME = (
    STOPPING
    + """
import os, pathlib, signal, sys, time
import netCDF4
import numpy as np
control = pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()
with netCDF4.Dataset("hist.nc.tmp", "w") as file:
    file.createDimension("x", 1000)
    file.createVariable("v", "f8", ("x",))[:] = 5.0
    stop_server()
os.rename("hist.nc.tmp", "hist.nc")
print("renamed", flush=True)
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(1)
"""
)


@pytest.mark.parametrize("dies", ["server", "program", "all"])
def test_the_final_name_comes_whoever_dies(advectio: Advectio, output: Path, dies: str):
    running = advectio.start([PYTHON, "-c", LAST_NAME, "die" if dies == "program" else "stay"], output)
    running.wait_for(lambda: running.lines, "it was renamed")
    run_dir = advectio.run_dirs[-1]
    assert [name for name in os.listdir(output) if not name.startswith(".")] == []
    (server,) = server_of(running, run_dir)
    if dies == "program":
        os.kill(server, signal.SIGCONT)
        running.finish()
    elif dies == "server":
        os.kill(server, signal.SIGKILL)
        running.wait_for(lambda: (output / "hist.nc").exists(), "the next server had given it its name")
        for pid in processes_of(run_dir):
            os.kill(pid, signal.SIGKILL)
        running.finish()
    else:
        os.kill(running.process.pid, signal.SIGKILL)
        for pid in [server, *processes_of(run_dir)]:
            os.kill(pid, signal.SIGKILL)
        running.process.wait()
        recovered = advectio.call("recover", run_dir)
        assert recovered.code == 0 and not run_dir.exists(), recovered.said
    assert os.listdir(output) == ["hist.nc"]
    with netCDF4.Dataset(output / "hist.nc") as file:
        assert (file["v"][:] == 5.0).all()


DIRECTORY = """
import os, subprocess, sys
import netCDF4
import numpy as np
for step in range(3):
    with netCDF4.Dataset(f"hist{step}.nc", "w") as file:
        file.createDimension("x", 2_000_000)
        file.createVariable("v", "f8", ("x",), zlib=True)[:] = np.random.default_rng(step).random(2_000_000)
    os.mkdir(f"step{step}.done")
    outside = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ADVECTIO_RUN")}
    read = "import netCDF4, sys; print(float(netCDF4.Dataset(sys.argv[1])['v'][-1]) == float(sys.argv[2]))"
    last = float(np.random.default_rng(step).random(2_000_000)[-1])
    print(subprocess.run([sys.executable, "-c", read, f"hist{step}.nc", repr(last)], env=outside, capture_output=True, text=True).stdout)
"""


def test_a_directory_that_is_a_marker_waits_for_the_files(advectio: Advectio, output: Path):
    result = advectio.run([PYTHON, "-c", DIRECTORY], output)
    assert result.stdout.split() == ["True"] * 3, result.said
