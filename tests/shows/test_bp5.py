"""BP5 files and streams of ADIOS2 in place of netCDF files: what ADIOS2's own readers find is what the program writes by
itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import netCDF4
import numpy as np
import pytest
from conftest import Pair
from running import environment, run_plainly
from same import assert_same
from test_crashes import FOREVER, kill_server, synced_frames

adios2 = pytest.importorskip("adios2", reason="the wheel adios2 is not installed")

BP5 = 'datasets: [{match: "*", format: bp5}]\n'
# Where a process is killed, the disk does not matter. The model does not run ahead of what readers see.
VISIBLE = 'datasets: [{match: "*", format: bp5, durable: false, promise: visible}]\n'
Source = Callable[[str], Path]


def plain(value: object) -> object:
    """An attribute, whether it is ADIOS2's or netCDF's."""
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def attributes(file: adios2.FileReader, prefix: str) -> dict[str, object]:
    found = {}
    for full in file.available_attributes():
        variable, slash, name = full.rpartition("/")
        if (variable + slash) == prefix:
            found[name] = plain(file.read_attribute(full))
    return found


def assert_file_as_file(bp: Path, file: Path, records: int | None = None) -> None:
    """`records`: how many the BP file has, where it has fewer than the other."""
    with adios2.FileReader(str(bp)) as ours, netCDF4.Dataset(file) as theirs:
        theirs.set_auto_maskandscale(False)
        theirs.set_auto_chartostring(False)
        assert sorted(ours.available_variables()) == sorted(theirs.variables)
        expected = {name: plain(theirs.getncattr(name)) for name in theirs.ncattrs()}
        found = attributes(ours, "")
        of_steps = found.pop("step_dimension", None)
        assert found == expected
        for name, variable in theirs.variables.items():
            of = attributes(ours, name + "/")
            dimensions = variable.dimensions
            has_records = bool(dimensions) and theirs.dimensions[dimensions[0]].isunlimited()
            assert of.pop("step_dimension", None) == (dimensions[0] if has_records else None), name
            assert not has_records or of_steps == dimensions[0]
            assert tuple(of.pop("dimensions", "").split()) == dimensions[has_records:], name
            values = np.asarray(variable[...])
            if values.dtype.kind == "S":
                assert of.pop("dtype") == "|S1", name
                values = values.view("u1")
            assert of == {k: plain(variable.getncattr(k)) for k in variable.ncattrs()}, name
            handle = ours.inquire_variable(name)
            steps = handle.steps()
            got = [np.asarray(ours.read(name, step_selection=[step, 1])) for step in range(steps)]
            if not has_records:
                got, values = got[-1:], values[None]
            if records is not None and has_records:
                values = values[:records]
            assert len(got) == len(values), name
            for step, expected_values in zip(got, values, strict=True):
                assert step.dtype == expected_values.dtype, name
                assert step.tobytes() == expected_values.tobytes(), name


def length_of(bp: Path) -> int:
    """Steps, for a reader of now; 0: there is no file yet."""
    if not (bp / "md.idx").exists() or (bp / "md.idx").stat().st_size <= 64:
        return 0
    with adios2.FileReader(str(bp)) as file:
        steps = file.num_steps()
        for name in file.available_variables() if steps else ():
            file.read(name, step_selection=[file.inquire_variable(name).steps() - 1, 1])
        return steps


def name_of(file: Path | str) -> str:
    return Path(file).name.removesuffix(".nc") + ".bp"


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("made", 5),
        ("wrf471/serial/wrfout_d01_4frames.nc", 2),
        ("scale/history.pe000000.nc", 2),
        ("nemo/mesh_mask.nc", 2),
    ],
)
def test_a_bp_file_has_for_adios2_what_the_file_has(source: Source, replay: Path, pair: Pair, name: str, frames: int):
    command = [replay, "--frames", str(frames + 1), "--frames-per-file", str(frames), source(name)]
    result = pair.run(command, BP5, datasets=2)
    names = sorted(p.name for p in pair.plain.iterdir())
    # The program's own files were placeholders.
    assert sorted(p.name for p in pair.carried.iterdir()) == [name_of(n) for n in names]
    for n in names:
        assert_file_as_file(pair.carried / name_of(n), pair.plain / n)
        row = result.dataset(name_of(n))
        assert row["format"] == "BP5" and row["frames_durable"] == row["frames_synced"]
    # One frame is one step.
    assert length_of(pair.carried / name_of(names[0])) == frames


def test_a_bp_file_beside_the_file(made: Path, replay: Path, pair: Pair):
    config = 'datasets: [{match: "*", outputs: [{path: "bp/{name}", format: bp5}]}]\n'
    pair.run([replay, "--frames", "3", "--frames-per-file", "3", made], config)
    (file,) = pair.plain.iterdir()
    bp = pair.carried / "bp" / name_of(file)
    assert [p.name for p in bp.parent.iterdir()] == [bp.name]
    assert_file_as_file(bp, file)
    assert_file_as_file(bp, pair.carried / file.name)


@pytest.mark.parametrize("io", ["split", "pnetcdf"])
def test_ranks_write_one_bp_file(made: Path, replay: Path, pair: Pair, io: str):
    frames = ["--frames", "3", "--frames-per-file", "3", made]
    config = BP5 if io == "pnetcdf" else 'datasets: [{match: "*", join: true, format: bp5}]\n'
    assert run_plainly([replay, *frames], pair.plain).code == 0
    pair.advectio.run(["mpirun", "-n", "3", replay, "--io", io, *frames], pair.carried, config)
    (file,) = pair.plain.iterdir()
    (bp,) = pair.carried.iterdir()
    with adios2.FileReader(str(bp)) as ours, netCDF4.Dataset(file) as theirs:
        theirs.set_auto_maskandscale(False)
        for name in ("T", "T2", "Times"):
            values = np.ma.getdata(theirs[name][...])
            for step in range(3):
                assert np.asarray(ours.read(name, step_selection=[step, 1])).tobytes() == values[step].tobytes(), name


FOLLOWER = """
import sys
from adios2 import bindings
adios = bindings.ADIOS()
io = adios.DeclareIO("follower")
io.SetEngine("BP5")
engine = io.Open(sys.argv[1], bindings.Mode.Read)
steps = 0
while (status := engine.BeginStep(bindings.StepMode.Read, 60.0)) == bindings.StepStatus.OK:
    engine.EndStep()
    steps += 1
    print(steps, flush=True)
print(status, flush=True)
"""


def test_killed_servers_leave_a_bp_file_at_a_commit_and_the_next_goes_on(made: Path, replay: Path, pair: Pair):
    running = pair.advectio.start([replay, *FOREVER, "--frames-per-file", "100000", made], pair.carried, VISIBLE)
    bp = running.wait_for(lambda: next(pair.carried.glob("*.bp"), None), "there was a BP file")
    for at_least in (2, 6):
        running.wait_for(lambda n=at_least: length_of(bp) >= n, f"{at_least} frames are in the file")
        kill_server(running, pair.advectio.run_dirs[-1])
        assert length_of(bp) >= at_least
    running.wait_for(lambda: length_of(bp) >= 8, "the next server had gone on")
    # A reader that follows the file gets to its end, and is not left waiting.
    follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, bp], stdout=subprocess.PIPE, text=True, env=environment())
    running.kill("replay")
    running.finish()
    holds = length_of(bp)
    assert sum(synced_frames(running.lines).values()) <= holds
    followed = follower.communicate(timeout=120)[0].split()
    assert followed[-1] == "StepStatus.EndOfStream" and followed[-2] == str(holds), followed
    frames = [replay, "--frames", str(holds), "--frames-per-file", "100000", made]
    assert run_plainly(frames, pair.plain).code == 0
    (file,) = pair.plain.iterdir()
    assert_file_as_file(bp, file)
    assert [p.name for p in pair.carried.iterdir()] == [bp.name]


def test_a_killed_model_leaves_every_synced_frame(made: Path, replay: Path, pair: Pair):
    running = pair.advectio.start([replay, made, *FOREVER], pair.carried, VISIBLE)
    running.wait_for(lambda: running.frames() >= 6, "6 frames were written")
    running.kill("replay")
    running.finish()
    synced = synced_frames(running.lines)
    assert run_plainly([replay, "--frames", "40", "--frames-per-file", "4", made], pair.plain).code == 0
    for name, count in synced.items():
        bp = pair.carried / name_of(name)
        holds = length_of(bp)
        assert count <= holds <= count + 1
        assert_file_as_file(bp, pair.plain / name, holds)
    assert not [p.name for p in pair.carried.iterdir() if p.suffix != ".bp"]


def test_a_full_disk_is_said_and_the_file_goes_on_when_there_is_room(
    made: Path, replay: Path, pair: Pair, small_disk: Callable[[str], Path]
):
    disk = small_disk("6m")
    base: list[str | Path] = [replay, "--deflate", "none", "--frames-per-file", "100", made]
    result = pair.advectio.start([*base, "--frames", "100", "--compute", "0.05"], disk, BP5).finish()
    run_dir = pair.advectio.run_dirs[-1]
    assert result.code == 1, result.said
    said = [line for line in result.stderr.splitlines() if line.startswith("advectio") and "No space left on device" in line]
    assert any("wrfout_d01" in line for line in said), result.said
    (bp,) = disk.glob("*.bp")
    before = length_of(bp)
    assert before > 0

    small_disk("1g")
    recovered = pair.advectio.call("recover", run_dir, directory=disk)
    assert recovered.code == 0, recovered.said
    holds = length_of(bp)
    assert holds >= before
    assert run_plainly([*base, "--frames", str(holds)], pair.plain).code == 0
    (file,) = pair.plain.iterdir()
    assert_file_as_file(bp, file)


REWRITES = """
import netCDF4
with netCDF4.Dataset("out.nc", "w") as file:
    file.createDimension("t", None)
    v = file.createVariable("v", "f4", ("t",))
    for value in (1, 2):
        v[0] = value
        file.sync()
"""


def test_a_program_that_changes_what_it_has_written_is_told_so(pair: Pair):
    result = pair.advectio.start([sys.executable, "-c", REWRITES], pair.carried, BP5).finish()
    assert result.code != 0, result.said
    assert "record 0 of variable v is put again in frame 2, and this format only appends" in result.stderr, result.said
    # What was put stays in the stage.
    assert pair.advectio.run_dirs[-1].exists()


def test_without_adios2_the_run_is_refused_before_it_starts(made: Path, replay: Path, pair: Pair):
    for extra, config, said in (
        ({"ADVECTIO_ADIOS2": "/nowhere"}, BP5, "ADIOS2 is not found"),
        ({}, 'datasets: [{match: "*", format: bp5, codec: blosc-zstd}]\n', "this ADIOS2 has no operator blosc"),
    ):
        result = pair.advectio.start([replay, "--frames", "1", made], pair.carried, config, extra=extra).finish()
        assert result.code != 0 and said in result.stderr, result.said
        assert "format: bp5" in result.stderr, result.said
        assert not list(pair.carried.iterdir())


CONSUMER = """
import os, signal, sys
import numpy as np
from adios2 import bindings
name, what = sys.argv[1:3]
adios = bindings.ADIOS()
io = adios.DeclareIO("consumer")
io.SetEngine("SST")
io.SetParameters({"OpenTimeoutSecs": "60"})
engine = io.Open(name, bindings.Mode.Read)
steps = 0
while (status := engine.BeginStep(bindings.StepMode.Read, 60.0)) == bindings.StepStatus.OK:
    T = io.InquireVariable("T")
    values = np.zeros(T.Shape(), np.float32)
    engine.Get(T, values, bindings.Mode.Sync)
    Times = io.InquireVariable("Times")
    time = np.zeros(Times.Shape(), np.uint8)
    engine.Get(Times, time, bindings.Mode.Sync)
    title = io.InquireAttribute("TITLE").DataString()[0]
    engine.EndStep()
    steps += 1
    print(time.tobytes().decode(), float(np.sum(values, dtype=np.float64)), len(title), flush=True)
    if steps == 2 and what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if steps == 2 and what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
print(status, flush=True)
engine.Close()
"""


class Consumer:
    """A program of ADIOS2 that reads a stream, whose lines are in a file."""

    def __init__(self, address: Path, what: str, directory: Path):
        self.lines_in = directory / f"{what}.txt"
        with self.lines_in.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", CONSUMER, str(address).removesuffix(".sst"), what], stdout=out, env=environment()
            )

    def lines(self) -> list[str]:
        lines = self.lines_in.read_text().splitlines()
        assert self.process.poll() in (None, 0), lines
        return lines

    def stands_still(self) -> bool:
        assert self.process.poll() is None, self.lines_in.read_text()
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_consumer_of_adios2_follows_a_stream_and_a_killed_one_harms_nobody(
    made: Path, replay: Path, pair: Pair, tmp_path: Path
):
    config = 'datasets: [{match: "*", promise: visible, durable: false, outputs: [{path: "{name}.sst", format: sst}]}]\n'
    running = pair.advectio.start([replay, *FOREVER, "--frames-per-file", "100000", made], pair.carried, config)
    address = running.wait_for(lambda: next(pair.carried.glob("*.sst"), None), "there was a stream")
    # One after the other: a reader of SST that joins while another does may be left without steps.
    reads = Consumer(address, "reads", tmp_path)
    running.wait_for(lambda: len(reads.lines()) >= 2, "a consumer read")
    killed = Consumer(address, "killed", tmp_path)
    running.wait_for(lambda: killed.process.poll() is not None, "one consumer was killed")
    seen = len(reads.lines())
    running.wait_for(lambda: len(reads.lines()) >= seen + 3, "the other one went on")
    assert reads.process.poll() is None, reads.lines()
    running.kill("replay")
    running.finish()
    assert reads.process.wait(120) == 0 and killed.process.returncode == -signal.SIGKILL
    *read, last = reads.lines()
    assert last == "StepStatus.EndOfStream"
    # The file beside it is whole, and what the stream gave is in it.
    (carried,) = (p for p in pair.carried.iterdir() if p.suffix != ".sst")
    with netCDF4.Dataset(carried) as file:
        times = ["".join(t.astype(str)) for t in np.ma.getdata(file["Times"][...])]
        steps = [line.split() for line in read]
        positions = [times.index(time) for time, *_ in steps]
        assert positions == sorted(set(positions))
        for position, (_, total, title) in zip(positions, steps, strict=True):
            assert float(total) == float(np.sum(np.ma.getdata(file["T"][position]), dtype=np.float64))
            assert int(title) == len(file.TITLE)
    frames = [replay, "--frames", str(len(times)), "--frames-per-file", "100000", made]
    assert run_plainly(frames, pair.plain).code == 0
    assert_same(pair.plain / carried.name, carried)
    assert [p.name for p in pair.carried.iterdir()] == [carried.name]


def test_two_late_consumers_get_the_first_step_where_the_stream_keeps_it(made: Path, replay: Path, pair: Pair, tmp_path: Path):
    """Parameters of the config reach ADIOS2: by itself the stream keeps the last step alone."""
    stream = "{FirstTimestepPrecious: true, QueueLimit: 4, DataTransport: WAN, MarshalMethod: BP5}"
    config = f'datasets: [{{match: "*", outputs: [{{path: "{{name}}.sst", format: sst, stream: {stream}}}]}}]\n'
    running = pair.advectio.start([replay, *FOREVER, "--frames-per-file", "100000", made], pair.carried, config)
    address = running.wait_for(lambda: next(pair.carried.glob("*.sst"), None), "there was a stream")
    running.wait_for(lambda: running.frames() >= 5, "the model went on")
    consumers = []
    for what in ("one", "other"):
        consumers.append(Consumer(address, what, tmp_path))
        running.wait_for(lambda: len(consumers[-1].lines()) >= 3, f"consumer {what} read")
    running.kill("replay")
    running.finish()
    (carried,) = (p for p in pair.carried.iterdir() if p.suffix != ".sst")
    with netCDF4.Dataset(carried) as file:
        times = ["".join(t.astype(str)) for t in np.ma.getdata(file["Times"][...])]
    for consumer in consumers:
        assert consumer.process.wait(120) == 0
        read = [times.index(line.split()[0]) for line in consumer.lines()[:-1]]
        assert read[0] == 0 and read[1] > 1 and read == sorted(set(read)), read


def test_a_consumer_that_stands_still_holds_up_nobody(made: Path, replay: Path, pair: Pair, tmp_path: Path):
    """The end of its stream waits for it for some seconds, and then the server leaves."""
    config = 'datasets: [{match: "*", format: sst}]\n'
    running = pair.advectio.start([replay, *FOREVER, "--frames-per-file", "100000", made], pair.carried, config)
    address = running.wait_for(lambda: next(pair.carried.glob("*.sst"), None), "there was a stream")
    consumer = Consumer(address, "stopped", tmp_path)
    try:
        running.wait_for(consumer.stands_still, "the consumer stood still")
        frames = running.frames()
        running.wait_for(lambda: running.frames() >= frames + 5, "the model went on")
        running.kill("replay")
        result = running.finish()
    finally:
        consumer.process.kill()
        consumer.process.wait()
    assert "a reader of a stream (format: sst) does not let it end" in result.stderr, result.said
    (row,) = result.summary["datasets"]
    assert row["format"] == "SST" and row["state"] == "finished" and not row["error"], result.said
    assert not pair.advectio.run_dirs[-1].exists()


def test_no_process_but_servers_loads_adios2(made: Path, replay: Path, pair: Pair):
    """ADIOS2 runs in the server, and only where somebody asks for it."""
    for config, loads in ((BP5, True), (None, False)):
        running = pair.advectio.start([replay, made, *FOREVER], pair.carried, config)
        running.wait_for(lambda r=running: r.frames() >= 2, "2 frames were written")
        mapped = {
            name: [Path(f"/proc/{pid}/maps").read_text() for pid in running.pids(name)] for name in ("replay", "advectiod")
        }
        assert mapped["replay"] and not any("adios2" in m for m in mapped["replay"])
        assert mapped["advectiod"] and any("libadios2" in m for m in mapped["advectiod"]) == loads
        running.kill("replay")
        running.finish()
        assert os.listdir(pair.carried)
