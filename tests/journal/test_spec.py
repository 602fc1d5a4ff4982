"""src/journal/SPEC.md is true: the reader that is written from it reads what every version has written, and what a real run has
in its stage; and it tells damage from the end."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import journal_reader
import numpy as np
import pytest
from advectio import installation
from advectio.errors import UserError
from compared import assert_file_is
from journal_contents import contents, pages_of, plain, read_stage
from journal_reader import CONTROL, DATASET, FORMATS, RECORD, RECORD_TYPES, SEGMENT, SLOT, STRING, TYPES, WRITER, Damage

sys.path.append(str(Path(__file__).resolve().parents[1] / "shows"))
from running import ROOT, Advectio, Running, run_plainly

HERE = Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
SPEC = (ROOT / "src" / "journal" / "SPEC.md").read_text()
RECORDS_OF_GOLDEN = 35


# ---- the golden journals ----


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("v*")), ids=lambda path: path.name)
def test_a_golden_journal_holds_what_its_expected_file_says(golden: Path):
    expected = golden / "expected.json"
    if not expected.exists():
        pytest.fail(
            f"{golden} has no expected.json. `.venv/bin/python tests/journal/journal_contents.py --expected {golden}` writes one; "
            "read it before you commit it"
        )
    assert contents(golden) == json.loads(expected.read_text())


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_the_values_of_golden_journals_are_those_that_were_put(version: str):
    # The formula of golden_test.cpp: that the expected file is right is not known from the reader that has written it.
    (dataset,) = read_stage(GOLDEN / version)[1].values()
    index = np.arange(300, dtype="f4")
    assert dataset.frames == 16 and dataset.ended == "close"
    assert np.array_equal(dataset.arrays()["T"], [(frame * 1000 + index) * np.float32(0.5) for frame in range(1, 17)])


# ---- the page itself ----


def section(title: str) -> str:
    return re.split(r"\n#+ ", SPEC.split(f"# {title}\n", 1)[1], maxsplit=1)[0]


@pytest.mark.parametrize(
    ("title", "layout"),
    [
        ("Its header", SEGMENT),
        ("Records", RECORD),
        ("`control`", CONTROL),
        ("`writer`", WRITER),
        ("`datasets/<name>`", DATASET),
        ("`datasets/<name>.writers`", SLOT),
    ],
)
def test_the_tables_are_those_by_which_the_second_reader_reads(title: str, layout: dict[str, tuple[int, str]]):
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\w+) \|", section(title), re.MULTILINE)
    table = {name: (int(offset), int(size)) for offset, size, name in rows}
    assert table == {name: (offset, struct.calcsize("<" + form)) for name, (offset, form) in layout.items()}
    ends = [offset + size for offset, size in table.values()]
    begins = [offset for offset, _ in table.values()]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False)), "fields overlap"


def test_the_codes_are_those_by_which_the_second_reader_reads():
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d*) ?\| (.+) \|$", section("The schema"), re.MULTILINE)
    assert [(name, int(number)) for name, number, _, _ in rows] == [(name, number) for number, (name, _, _) in TYPES.items()]
    for name, number, size, fill in rows:
        _, kind, default = TYPES[int(number)]
        if int(number) != STRING:
            assert int(size) == np.dtype(kind).itemsize and name
            assert default == b"\0" if kind == "S1" else float(fill) == default or int(fill) == default
    formats = re.findall(r"^\| ([^|]+?)(?: \(CDF-\d\))? \| (\d+) \|$", section("The schema"), re.MULTILINE)
    assert {int(number): name for name, number in formats} == FORMATS
    kinds = re.findall(r"^\| (\w+) \| (\d) \| [^|]+ \| [^|]+ \|$", section("Records"), re.MULTILINE)
    assert {int(number): name for name, number in kinds} == RECORD_TYPES


def test_the_example_is_the_golden_journal():
    (segment,) = (GOLDEN / "v3" / "journals").glob("*/00000000-*")
    assert segment.parent.name in SPEC
    data = segment.read_bytes()
    lines = re.findall(r"^([0-9a-f]{8})  ((?:[0-9a-f]{2} ?)+)  ", section("An example"), re.MULTILINE)
    assert len(lines) > 30
    for offset, text in lines:
        at = int(offset, 16)
        assert data[at : at + 16] == bytes.fromhex(text), f"the line {offset}"


def test_the_crc_is_that_of_the_standard():
    assert journal_reader.crc32c(b"123456789") == 0xE3069283
    assert journal_reader.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert journal_reader.crc32c(b"") == 0


# ---- the end, and damage ----


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the golden journal of version 3."""
    return shutil.copytree(GOLDEN / "v3", tmp_path / "stage")


def segment_of(stage: Path, index: int) -> Path:
    (path,) = stage.glob(f"journals/*/{index:08d}-*")
    return path


def flip(path: Path, byte: int, bits: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[byte] ^= bits
    path.write_bytes(data)


def sequences(stage: Path, mode: str) -> list[int]:
    (records,) = read_stage(stage, mode)[0].values()
    return [r.sequence for r in records]


ALL = list(range(1, RECORDS_OF_GOLDEN + 1))
THIRD, META, PAYLOAD = 0x1180, 0x11C0, 0x1200  # of the third record, a put


@pytest.mark.parametrize("mode", ["alive", "gone", "scan"])
def test_a_journal_without_damage_is_read_in_every_mode(copy: Path, mode: str):
    assert sequences(copy, mode) == ALL


@pytest.mark.parametrize("mode", ["alive", "gone"])
@pytest.mark.parametrize(
    ("byte", "reason"),
    [*((THIRD + n, "the header of the record is damaged") for n in (0, 4, 8, 16, 24, 28, 32, 40, 44, 48, 56, 60)),
     (META, "meta is damaged"), (META + 47, "meta is damaged"),
     (PAYLOAD, "the payload is damaged"), (PAYLOAD + 1199, "the payload is damaged")],
)  # fmt: skip
def test_a_changed_byte_is_damage_at_its_record(copy: Path, byte: int, reason: str, mode: str):
    path = segment_of(copy, 0)
    flip(path, byte)
    found: list[int] = []
    with pytest.raises(Damage) as damage:
        for record in journal_reader.Journal(path.parent, mode).records():
            found.append(record.sequence)
    assert found == [1, 2], "what came before holds"
    assert (damage.value.file, damage.value.byte, damage.value.reason) == (path.name, THIRD, reason)


def test_padding_may_be_anything(copy: Path):
    flip(segment_of(copy, 0), META + 48)
    flip(segment_of(copy, 0), PAYLOAD + 1200)
    assert sequences(copy, "gone") == ALL


def test_no_changed_byte_goes_unnoticed_or_loses_a_record_in_silence(copy: Path):
    whole = contents(copy, "gone")
    for index in (0, 1):
        path = segment_of(copy, index)
        for byte in [*range(80), *range(80, 0x4000, 257)]:
            flip(path, byte)
            try:
                found = contents(copy, "gone")
            except Damage as damage:
                assert damage.file.startswith("0000000")
            else:
                assert found == whole, f"byte {byte} of {path.name}"
            flip(path, byte)


def test_what_the_header_of_a_segment_says_matters_to_living_writers_only(copy: Path):
    path = segment_of(copy, 1)
    for byte in (0, 8, 16, 40, 48):
        flip(path, byte)
        assert sequences(copy, "gone") == ALL
        with pytest.raises(Damage, match="header is damaged"):
            sequences(copy, "alive")
        flip(path, byte)
    for byte in (24, 32):  # as before a writer has begun it
        flip(path, byte)
        assert sequences(copy, "gone") == ALL
        assert sequences(copy, "alive") == ALL[:18]
        flip(path, byte)


def test_a_journal_that_is_cut_short_ends_there_unless_its_writer_lives(copy: Path):
    path = segment_of(copy, 1)
    data = path.read_bytes()
    path.write_bytes(data[:0x1300])  # within the first record of the segment
    with pytest.raises(Damage, match="do not follow"):
        sequences(copy, "gone")
    for length in range(0x1540, 0x3E80, 320):
        path.write_bytes(data[:length])
        found = sequences(copy, "gone")
        assert found == ALL[: len(found)] and 19 <= len(found) < RECORDS_OF_GOLDEN
        assert sequences(copy, "scan") == found
        with pytest.raises(Damage):
            sequences(copy, "alive")


def published_up_to(path: Path, byte: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<QQ", data, 64, byte, 0)
    path.write_bytes(data)


def test_what_was_written_and_not_published_counts_once_the_writer_has_gone(copy: Path):
    path = segment_of(copy, 1)
    published_up_to(path, 0x1540)  # behind the first put
    assert sequences(copy, "alive") == ALL[:19]
    assert sequences(copy, "gone") == ALL
    for byte in (0x1540 + 64, 0x15C0, 0x1640):  # meta of the sync, header and meta of the next put: torn
        flip(path, byte)
        assert sequences(copy, "gone") == sequences(copy, "scan") == ALL[: 19 + (byte > 0x1580)]
        flip(path, byte)


def test_a_segment_that_has_been_given_back_is_not_missed(copy: Path):
    segment_of(copy, 0).unlink()
    for mode in ("alive", "gone", "scan"):
        assert sequences(copy, mode) == ALL[18:]


def test_a_gap_in_the_chain_is_damage(copy: Path):
    path = segment_of(copy, 1)
    path.rename(path.with_name("00000002-s000001"))
    assert sequences(copy, "alive") == ALL[:18]
    with pytest.raises(Damage, match="do not follow"):
        sequences(copy, "gone")


def break_somehow(stage: Path, random: Random) -> str:
    """What a disk, a crash or a person may do to a segment. Returns what was done."""
    path = random.choice(sorted(stage.glob("journals/*/0*-*")))
    data = bytearray(path.read_bytes())
    records = [m.start() for m in re.finditer(b"ADVR", data)] or [4096]
    at = random.choice([random.randrange(80), random.randrange(len(data)), random.choice(records) + random.randrange(130)])
    how = random.choice(["flip", "flip", "zeros", "cut", "publish less", "unseal", "rename", "lose", "double"])
    if how == "flip":
        data[at] ^= 1 << random.randrange(8)
    elif how == "zeros":
        data[at : at + 64] = bytes(len(data[at : at + 64]))
    elif how == "cut":
        del data[max(at, random.choice(records)) :]
    elif how == "publish less":
        struct.pack_into("<QQ", data, 64, random.choice([*records, at]), 0)
    elif how == "unseal":
        data[72] ^= 1
    elif how == "double":  # a record in the place of another one of its length
        one, other = random.choice(records), random.choice(records)
        data[one : one + 128] = data[other : other + 128]
    path.write_bytes(data)
    if how == "rename":
        path.rename(path.with_name(f"{int(path.name[:8]) + 2:08d}-{path.name[9:]}"))
    if how == "lose" and path.name.startswith("00000000"):
        path.unlink()
    return f"{how} at {at} of {path.name}"


@contextmanager
def in_mode(stage: Path, mode: str) -> Iterator[None]:
    """The stage as it is while its writer lives, after it has gone, or after a loss of power."""
    control = bytearray((stage / "control").read_bytes())
    if mode == "scan":
        control[288:292] = b"else"  # boot
        control[328] = 1  # survives_power
    (stage / "control").write_bytes(control)
    (writer,) = stage.glob("journals/*/writer")
    with writer.open("r+b") as file:
        if mode == "alive":
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
        yield


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["alive", "gone", "scan"])
def test_the_other_reader_finds_the_same_end_or_the_same_damage(tmp_path: Path, mode: str, seed: int):
    try:
        server = installation.find().server
    except UserError as error:
        pytest.skip(f"{error}; `make build` builds it")
    random = Random(seed)
    for n in range(12):
        stage = shutil.copytree(GOLDEN / "v3", tmp_path / str(n))
        stage.chmod(0o700)
        (stage / "datasets").mkdir()
        done = "; ".join(break_somehow(stage, random) for _ in range(random.choice([1, 1, 2])))
        (directory,) = (stage / "journals").iterdir()
        ours: list[int] = []
        found = None
        try:
            for record in journal_reader.Journal(directory, mode).records():
                ours.append(record.sequence)
        except Damage as damage:
            found = damage
        with in_mode(stage, mode):
            told = run_plainly([server, "inspect", stage, "--records", "--verify"], tmp_path)
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        (journal,) = lines[-1]["result"]["journals"]
        records = [line["record"] for line in lines[:-1]]
        whole = list(itertools.takewhile(lambda r: r["crc_ok"], records))
        assert journal["alive"] == (mode == "alive") and lines[-1]["result"]["power_lost"] == (mode == "scan")
        assert ours == [r["sequence"] for r in whole], done
        if len(whole) == len(records):
            theirs = journal["damage"]
            where = theirs and (theirs["segment"] or theirs["reason"].split(": ")[0].rpartition("/")[2], theirs["byte"])
            assert where == (found and (found.file, found.byte)), f"{done}: {theirs} / {found}"
        else:
            assert found and found.reason == "the payload is damaged", done
        shutil.rmtree(stage)


# ---- the stage of a real run ----


@pytest.fixture
def advectio(tmp_path: Path) -> Iterator[Advectio]:
    command = Path(os.environ.get("ADVECTIO_COMMAND", ROOT / ".venv" / "bin" / "advectio"))
    if not command.exists():
        pytest.skip(f"{command} is not there; `make build` makes it")
    found = Advectio(command, tmp_path, Path("/dev/shm"))
    yield found
    found.clean()


class Held:
    """A run whose server is stopped while the program writes, so that everything stays in the stage."""

    def __init__(self, advectio: Advectio, command: list[str | Path], directory: Path):
        self.directory = directory
        directory.mkdir()
        config = "stage: {segment_bytes: 1MiB, bytes_max: 256MiB, warm_bytes: 64MiB}\n"
        config += "datasets: [{match: '*', appear: create}]\n"  # the tests look at the files by their names
        self.running: Running = advectio.start(command, directory, config)
        self.stage = advectio.run_dirs[-1]
        self.wait_for(lambda: "started\n" in self.running.lines, "the program had started")
        # Segments are there before the server stops: an older one makes them all.
        self.wait_for(lambda: len(list(self.stage.glob("pool/s*"))) >= 32, "segments were made")
        self.signal(signal.SIGSTOP)
        (directory / "next").write_text(str(self.version))
        (directory / "next").rename(directory / "go")

    @property
    def version(self) -> int:
        return int(journal_reader.page(self.stage / "control", CONTROL, b"ADVCTL1\0")["version"])

    def wait_for(self, what: Callable[[], Any], described: str) -> None:
        self.running.wait_for(what, described)

    def signal(self, number: int) -> None:
        pids = [pid for name in ("advectiod", "advectiod_mpi") for pid in self.running.pids(name)]
        assert pids, self.running.said
        for pid in pids:
            os.kill(pid, number)

    def closed(self) -> bool:
        """Have all writers closed all datasets? The page says so as soon as one of them has."""
        pages = pages_of(self.stage)
        if not pages or not all(p["closed"] for p in pages.values()):
            return False
        return all(d.ended == "close" for d in read_stage(self.stage)[1].values())

    def finish(self) -> None:
        self.signal(signal.SIGCONT)
        done = self.running.finish()
        assert done.code == 0, done.said
        assert not self.stage.exists()


def by_name(datasets: dict[str, Any]) -> dict[str, Any]:
    return {Path(d.path).name: d for d in datasets.values()}


def assert_pages_are_right(stage: Path, writers: int, records: int) -> None:
    """What `control` and the pages say of the records that are there."""
    control = journal_reader.page(stage / "control", CONTROL, b"ADVCTL1\0")
    files = [*stage.glob("pool/*"), *stage.glob("journals/*/*-*"), *stage.glob("journals/*/.*")]
    segments = [m for path in files if (m := re.search(r"([sl])(\d{6,})(?:\+(\d+))?$", path.name))]
    assert len(segments) == len(files) >= writers
    for path, m in zip(files, segments, strict=True):
        assert path.name.startswith(".") or path.stat().st_size == int(m[3] or 1) << 20
    assert control["segments_limit"] <= control["segments_max"] == 256
    assert control["segment_bytes"] == 1 << 20 and control["nodes"] <= 1 and control["left"] == 0
    assert re.fullmatch(r"[0-9a-f-]{36}", control["boot"])
    if control["version"] >= 4:
        # The two threads of the server that make segments may have been stopped where they had counted and not yet made one.
        count, largest = sum(int(m[3] or 1) for m in segments), max(int(m[2]) for m in segments)
        assert count <= control["segments_total"] <= control["segments_peak"] <= count + 2
        assert largest < control["next_segment"] <= largest + 3
        assert all((m[3] is None) == (m[1] == "s") for m in segments)
    assert control["work"] > 0 and records > 0
    pages = [journal_reader.page(p, WRITER, b"ADVWRT1\0") for p in stage.glob("journals/*/writer")]
    assert len(pages) == writers and len({p["journal"] for p in pages}) == writers
    for p in pages:
        assert p["host"] == os.uname().nodename[:63] and abs(p["started_ns"] / 1e9 - time.time()) < 600 and p["mirror"] == 0


def test_a_stage_of_one_process_holds_what_comes_to_be_in_its_files(advectio: Advectio, tmp_path: Path):
    run = Held(advectio, [sys.executable, HERE / "programs" / "session.py"], tmp_path / "out")
    run.wait_for(lambda: "written\n" in run.running.lines, "the program had written")

    journals, datasets = read_stage(run.stage)  # its writer lives
    (records,) = journals.values()
    assert [r.sequence for r in records] == list(range(1, len(records) + 1))
    assert_pages_are_right(run.stage, 1, len(records))
    assert bool(list(run.stage.glob("journals/*/0*-l*+2"))) == (run.version >= 4), "a string is longer than a segment"
    found = by_name(datasets)
    assert (found["kinds.nc"].frames, found["kinds.nc"].under_way, found["kinds.nc"].ended) == (2, 0, "")
    assert (found["classic.nc"].frames, found["classic.nc"].under_way) == (1, 1)
    assert sum(len(blocks) == 5 for blocks in found["classic.nc"].blocks) >= 3, "no block was cut: this test means less"
    for d in found.values():
        said = d.stage
        assert said["state"] == said["visible"] == said["errors"] == said["closed"] == 0 and said["writer_pid"]
        assert said["frames_synced"] == d.frames and Path(said["path"]) == run.directory / Path(d.path).name
        assert said["bytes_put"] == sum(len(r.payload) for r in d.queues[0] if r.type == "put")
        assert said["synced"] == max(r.sequence for r in d.queues[0] if r.ends_frame)
        assert os.path.samefile(said["link"], said["path"])
    assert len(found["classic.nc"].arrays()["n"]) == 1, "what is under way does not count"

    (run.directory / "end").touch()
    run.wait_for(run.closed, "the program had closed its files")
    whole = plain(read_stage(run.stage))
    _, datasets = read_stage(run.stage)
    assert {name: (d.frames, d.under_way, d.ended) for name, d in by_name(datasets).items()} == {
        "kinds.nc": (2, 0, "close"),
        "classic.nc": (2, 0, "close"),
    }

    kept = tmp_path / "kept"
    shutil.copytree(run.stage, kept, ignore=shutil.ignore_patterns("socket*", "readers", "pool"))  # nobody holds a lock there
    assert plain(read_stage(kept)) == whole == plain(read_stage(kept, "scan"))
    last = max(kept.glob("journals/*/0*-*"), key=lambda p: int(p.name.split("-")[0]))
    last.unlink()
    with pytest.raises(Damage, match="is synced up to"):
        read_stage(kept)

    run.finish()
    for name, d in by_name(datasets).items():
        assert_file_is(run.directory / name, d)


@pytest.mark.parametrize("io", ["pnetcdf", "pnetcdf-nonblocking"])
def test_a_stage_of_several_ranks_holds_what_comes_to_be_in_their_file(advectio: Advectio, tmp_path: Path, io: str):
    replay = Path(os.environ.get("ADVECTIO_REPLAY", ROOT / "build" / "release" / "examples" / "replay" / "replay"))
    if not replay.exists():
        pytest.skip(f"{replay} is not built; `make build` builds it")
    if not (replay.parents[2] / "src" / "capture" / "pnetcdf" / "libadvectio_pnetcdf.so").exists():
        pytest.skip("libadvectio_pnetcdf.so is not built: no PnetCDF here")
    if not shutil.which("mpirun"):
        pytest.skip("mpirun is not installed")
    source = tmp_path / "wrfout_d01_small"
    script = ROOT / "examples" / "replay" / "make_input.py"
    made = run_plainly([sys.executable, script, source, "--size", "24x20x4", "--frames", "3"], tmp_path)
    assert made.code == 0, made.said
    ranks = 3
    wait = 'echo started; for i in $(seq 5000); do [ -e go ] && break; sleep 0.02; done; exec "$@"'
    program: list[str | Path] = ["mpirun", "-n", str(ranks), replay, "--io", io, "--frames", "3", source]
    run = Held(advectio, ["sh", "-c", wait, "sh", *program], tmp_path / "out")
    run.wait_for(run.closed, "the ranks had closed their file")

    journals, datasets = read_stage(run.stage)
    assert_pages_are_right(run.stage, ranks, sum(map(len, journals.values())))
    (d,) = datasets.values()
    assert (d.writers, d.frames, d.under_way, d.ended) == (ranks, 3, 0, "close")
    everything = [r for records in journals.values() for r in records]
    assert sum(r.type == "create" for r in everything) == 1 and sum(r.type == "enter" for r in everything) == ranks - 1
    assert len({r.collective_index for r in everything if r.type == "put"}) > 3 or io == "pnetcdf-nonblocking"
    settles = [r for r in everything if r.type == "settle"]
    assert bool(settles) == (io == "pnetcdf-nonblocking")
    assert d.stage["synced"] == max(r.said["sync_index"] for r in everything if r.ends_frame) and d.stage["visible"] == 0
    for w, slot in enumerate(d.stage["slots"]):
        assert slot["pid"] and slot["schema_pending"] == 0 and slot["sync_index"] == 0
        assert slot["collective_index"] >= max(r.collective_index for r in d.queues[w])
    run.finish()
    assert_file_is(run.directory / Path(d.path).name, d)
