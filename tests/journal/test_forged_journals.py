"""Journals that are written from src/journal/SPEC.md, by nothing but this file: `advectiod recover` makes of them the file that the
second reader says. So the page is enough for a writer, and both readers order the records of several processes alike."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from advectio import installation
from advectio.errors import UserError
from compared import assert_file_is
from journal_contents import SEALED, Dataset, read_stage
from journal_reader import CONTROL, DATASET, OF_RECORD, RECORD, RECORD_TYPES, SEGMENT, SLOT, WRITER, Layout, crc32c, padded

SEGMENT_BYTES = 1 << 20
VERSION = 5
NUMBERS = {name: number for number, name in RECORD_TYPES.items()}
X, Y = 12, 5


def packed(layout: Layout, size: int, **values: Any) -> bytearray:
    data = bytearray(size)
    for name, value in values.items():
        offset, form = layout[name]
        struct.pack_into("<" + form, data, offset, value.encode() if isinstance(value, str) else value)
    return data


def text(s: str) -> bytes:
    return text_of(s.encode())


def numbers(values: Iterable[int], form: str = "Q") -> bytes:
    values = list(values)
    return struct.pack(f"<I{len(values)}{form}", len(values), *values)


def text_of(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def packed_boxes(starts: list[tuple[int, ...]], rank: int) -> bytes:
    """Boxes of one element. Each number is a pair of its own, which the page allows."""
    lists = [[start[d] for start in starts] for d in range(rank)] + [[1] * len(starts)] * rank
    steps = [[b - a for a, b in zip([0, *numbers], numbers, strict=False)] for numbers in lists]
    return b"".join(varint(1) + varint(2 * s if s >= 0 else -2 * s - 1) for found in steps for s in found)


def schema_of(variables: list[tuple[str, list[int]]]) -> bytes:
    """netCDF-4; t is unlimited; integers, contiguous or in chunks, without attributes."""
    out = struct.pack("<Ii4Q", 1, 3, 0, 0, 0, 0) + struct.pack("<I", 3)
    for name, length, unlimited in (("t", 0, 1), ("x", X, 0), ("y", Y, 0)):
        out += text(name) + struct.pack("<QB", length, unlimited)
    out += numbers([]) + struct.pack("<I", len(variables))
    for name, over in variables:
        chunks = [(1, X, Y)[d] for d in over] if 0 in over else []
        out += text(name) + struct.pack("<i", 4) + numbers(over, "I") + numbers([])
        out += struct.pack("<BB", not chunks, 0) + numbers(chunks) + numbers([])
        out += struct.pack("<BBB", 0, 0, 0) + numbers([]) + text("") + struct.pack("<I", 0)
    return out


class Journal:
    """One journal, of one segment."""

    def __init__(self, stage: Path, rank: int):
        self.uid = 0x1111_0000_0000_0000 * (rank + 1) + 7
        self.directory = stage / "journals" / f"{rank}-{4000 + rank}-{self.uid & 0xFFFFFFFF:08x}"
        self.directory.mkdir()
        page = packed(WRITER, 4096, magic=b"ADVWRT1", version=VERSION, pid=4000 + rank, rank=rank, journal=self.uid)
        (self.directory / "writer").write_bytes(page)
        self.records = bytearray()
        self.sequence = 0

    def say(self, kind: str, meta: bytes = b"", payload: bytes = b"", collective_index: int = 0, flags: int = 0) -> int:
        self.sequence += 1
        header = packed(
            RECORD, 64, magic=b"ADVR", type=NUMBERS[kind], flags=flags, journal=self.uid, sequence=self.sequence, dataset=1,
            meta_bytes=len(meta), payload_bytes=len(payload), meta_crc=crc32c(meta), payload_crc=crc32c(payload), collective_index=collective_index,
        )  # fmt: skip
        struct.pack_into("<I", header, 60, crc32c(header[:60]))
        self.records += header + meta.ljust(padded(len(meta)), b"\0") + payload.ljust(padded(len(payload)), b"\0")
        return self.sequence

    def write(self) -> None:
        header = packed(
            SEGMENT, 4096, magic=b"ADVJRNL1", version=VERSION, segment_bytes=SEGMENT_BYTES, journal=self.uid,
            first_sequence=1, committed=4096 + len(self.records),
        )  # fmt: skip
        struct.pack_into("<I", header, 48, crc32c(header[:48]))
        data = header + self.records
        assert len(data) <= SEGMENT_BYTES
        (self.directory / "00000000-s000000").write_bytes(data.ljust(SEGMENT_BYTES, b"\0"))


class Forged:
    """A stage of one dataset, `out.nc`, by `writers` processes; 0: by one alone."""

    def __init__(self, directory: Path, writers: int):
        self.path, self.stage, self.writers = directory / "out.nc", directory / "stage", writers
        self.path.touch()
        for name in ("", "pool", "journals", "datasets"):
            (self.stage / name).mkdir(mode=0o700)
        self.journals = [Journal(self.stage, rank) for rank in range(max(1, writers))]
        first = self.journals[0]
        self.link = directory / f".out.nc.advectio-{first.uid & 0xFFFFFFFF:08x}-1"
        os.link(self.path, self.link)
        self.page = f"{self.path.stat().st_dev}-{self.path.stat().st_ino}"
        first.say("create", struct.pack("<i", 3) + text(f"{self.path}") + text(f"{self.link}") + text(self.page)
                  + struct.pack("<I", writers))  # fmt: skip
        for writer, journal in enumerate(self.journals[1:], 1):
            journal.say("enter", text(self.page) + struct.pack("<I", writer))
        self.frames = [0] * len(self.journals)
        self.put_any = [False] * len(self.journals)
        self.synced, self.rounds, self.last_index = 0, 0, 0

    def put(
        self,
        w: int,
        variable: int,
        box: list[tuple[int, int, int]],
        random: Random,
        collective_index: int = 0,
        flags: int = 0,
        boxes: bool = True,
    ) -> int:
        """`box`: start, count and stride along each dimension. `boxes`: may be put as many of them."""
        start, count, stride = zip(*box, strict=True)
        values = np.array([random.randrange(1000) for _ in range(int(np.prod(count)))], "<i4")
        strides = [] if random.random() < 0.5 and set(stride) == {1} else stride
        meta = struct.pack("<I", variable) + numbers(start) + numbers(count) + numbers(strides)
        if boxes and not strides and random.random() < 0.5:
            # The same elements as many boxes, in no order; some come twice, and the later value counts.
            elements = list(np.ndindex(*count))
            elements = random.choices(elements, k=len(elements) // 2) + random.sample(elements, len(elements))
            values = np.array([random.randrange(1000) for _ in elements], "<i4")
            meta += struct.pack("<I", len(elements)) + text_of(packed_boxes(elements, len(count)))
        self.put_any[w] = True
        return self.journals[w].say("put", meta, values.tobytes(), collective_index, flags)

    def sync(self, w: int, kind: str = "sync", number: int = 0, collective_index: int = 0, implicit: bool = False) -> None:
        frame = 0
        if self.put_any[w] and not (implicit and self.writers):
            self.put_any[w], frame = False, self.frames[w] + 1
            self.frames[w] = frame
        sequence = self.journals[w].say(
            kind, struct.pack("<4Q", frame, 5, 0, number), collective_index=collective_index, flags=int(implicit)
        )
        if not self.writers:
            self.synced = sequence
        self.rounds, self.last_index = max(self.rounds, number), max(self.last_index, collective_index)

    def end_record(self, collective_index: int) -> None:
        """Writer 0 goes on to its next record."""
        self.put_any[0] = False
        self.frames[0] += 1
        self.journals[0].say(
            "sync", struct.pack("<4Q", self.frames[0], 5, 0, 0), collective_index=collective_index, flags=OF_RECORD
        )

    def write(self) -> None:
        for journal in self.journals:
            journal.write()
        control = packed(
            CONTROL, 4096, magic=b"ADVCTL1", version=VERSION, segment_bytes=SEGMENT_BYTES, segments_max=16, segments_limit=16,
            segments_total=len(self.journals), wait_max_ns=10**10,
        )  # fmt: skip
        (self.stage / "control").write_bytes(control)
        page = packed(
            DATASET, 16384, magic=b"ADVDST1", version=VERSION, format=3, journal=self.journals[0].uid, number=1, writer_pid=4000,
            path=f"{self.path}", link=f"{self.link}", synced=self.rounds or self.synced, writers=self.writers, created_ns=1,
        )  # fmt: skip
        ranges = [(12, 8256), *((o, o + struct.calcsize("<" + form)) for o, form in map(DATASET.__getitem__, SEALED))]
        struct.pack_into("<I", page, DATASET["seal"][0], crc32c(b"".join(page[begin:end] for begin, end in ranges)))
        (self.stage / "datasets" / self.page).write_bytes(page)
        if self.writers:
            slots = (
                packed(SLOT, 320, journal=j.uid, number=1, pid=4000 + w, collective_index=self.last_index)
                for w, j in enumerate(self.journals)
            )
            (self.stage / "datasets" / f"{self.page}.writers").write_bytes(b"".join(slots))


def box_within(random: Random, begin: int, end: int) -> tuple[int, int, int]:
    """Start, count and stride of something along a dimension from `begin` to before `end`."""
    stride = random.choice([1, 1, 2])
    start = random.randrange(begin, end)
    return start, random.randint(1, (end - start - 1) // stride + 1), stride


SMALL = [("a", [0, 1]), ("b", [2])]
LARGE = [*SMALL, ("c", [2, 1])]


def forge_alone(directory: Path, random: Random, ending: str) -> Forged:
    forged = Forged(directory, 0)
    forged.journals[0].say("schema", payload=schema_of(SMALL))
    variables = 2
    for _ in range(random.randint(1, 4)):
        for _ in range(random.randrange(4)):
            if variables == 2 and random.random() < 0.2:
                forged.journals[0].say("schema", payload=schema_of(LARGE))
                variables = 3
            variable = random.randrange(variables)
            x, y, t = box_within(random, 0, X), box_within(random, 0, Y), box_within(random, 0, 4)
            forged.put(0, variable, [[t, x], [y], [y, x]][variable], random)
        forged.sync(0, implicit=random.random() < 0.2)
    forged.put(0, 1, [box_within(random, 0, Y)], random)
    if ending == "close":
        forged.sync(0, "close")
    elif ending == "abort":
        forged.synced = forged.journals[0].say("abort")
    return forged


def forge_together(directory: Path, random: Random, writers: int, ending: str) -> Forged:
    """In each collective_index the writers put into parts of the dimensions that are each one's own, in the next collective_index into others."""
    forged = Forged(directory, writers)
    forged.journals[0].say("schema", payload=schema_of(SMALL), collective_index=1)
    pending: list[list[int]] = [[] for _ in range(writers)]
    collective_index, variables, schema_pending = 1, 2, 0

    def tell() -> None:
        nonlocal schema_pending
        if schema_pending:
            forged.journals[0].say("schema", payload=schema_of(LARGE), collective_index=schema_pending)
        schema_pending = 0

    rounds = random.randint(2, 4)
    for number in range(1, rounds + 1):
        for _ in range(random.randint(1, 4)):
            if variables == 2 and random.random() < 0.3:
                variables, schema_pending = 3, collective_index
                collective_index += 1
            if forged.put_any[0] and not any(pending) and random.random() < 0.3:
                tell()
                forged.end_record(collective_index)
            for w in range(writers):
                if random.random() < 0.4:
                    continue
                if w == 0:
                    tell()
                part = (w + collective_index) % writers
                x = box_within(random, part * X // writers, (part + 1) * X // writers)
                y, t = box_within(random, 0, Y), box_within(random, 0, 3)
                variable = random.choice([v for v in range(variables) if v != 1 or part == 0])
                flags = 2 * (random.random() < 0.4)
                sequence = forged.put(w, variable, [[t, x], [y], [y, x]][variable], random, collective_index, flags)
                if flags:
                    pending[w].append(sequence)
            collective_index += 1
        for w in random.sample(range(writers), random.randint(0, writers)):
            random.shuffle(pending[w])
            n = random.randint(0, len(pending[w]))
            dropped = [pending[w].pop() for _ in range(random.randint(0, n))]
            written = [pending[w].pop() for _ in range(n - len(dropped))]
            if w == 0:
                tell()
            forged.journals[w].say("settle", numbers(written) + numbers(dropped), collective_index=collective_index)
            collective_index += 1
        for w in range(writers):
            if w == 0:
                tell()
            last = number == rounds
            # One in a round that is never complete has brought something of it to the file.
            if random.random() < 0.2 and not (last and ending == "die"):
                forged.sync(w, collective_index=collective_index, implicit=True)
            if not (last and ending == "die" and random.random() < 0.5):
                forged.sync(w, "close" if last and ending == "close" else "sync", number, collective_index)
        collective_index += 1
    forged.last_index = collective_index
    return forged


@pytest.fixture(scope="session")
def server() -> str:
    try:
        return installation.find().server
    except UserError as error:
        pytest.skip(f"{error}; `make build` builds it")


def assert_recovered_as_read(server: str, forged: Forged) -> Dataset:
    forged.write()
    (dataset,) = read_stage(forged.stage)[1].values()
    done = subprocess.run([server, "recover", forged.stage], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not forged.stage.exists() and not forged.link.exists()
    assert_file_is(forged.path, dataset)
    return dataset


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("ending", ["close", "die", "abort"])
def test_what_one_process_has_said_is_recovered_as_the_page_says(server: str, tmp_path: Path, ending: str, seed: int):
    dataset = assert_recovered_as_read(server, forge_alone(tmp_path, Random(seed), ending))
    assert dataset.ended == {"close": "close", "die": "", "abort": "abort"}[ending]
    assert dataset.under_way == (ending != "close")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ending", ["close", "die"])
@pytest.mark.parametrize("writers", [1, 2, 3])
def test_what_several_processes_have_said_is_recovered_as_the_page_says(
    server: str, tmp_path: Path, writers: int, ending: str, seed: int
):
    dataset = assert_recovered_as_read(server, forge_together(tmp_path, Random(100 * writers + seed), writers, ending))
    assert dataset.ended == ("close" if ending == "close" else "")


def test_a_settled_block_counts_where_it_is_settled_and_in_the_order_of_the_list(server: str, tmp_path: Path):
    forged, random = Forged(tmp_path, 2), Random(1)
    forged.journals[0].say("schema", payload=schema_of(SMALL), collective_index=1)
    first, second = (forged.put(0, 0, [(0, 1, 1), (0, 6, 1)], random, 1, flags=2, boxes=False) for _ in range(2))
    forged.put(1, 0, [(0, 1, 1), (3, 9, 1)], random, 2)
    forged.journals[0].say("settle", numbers([second, first]) + numbers([]), collective_index=3)
    for w in (0, 1):
        forged.sync(w, "close", 1, 4)
    dataset = assert_recovered_as_read(server, forged)
    settled = next(r.payload for r in dataset.queues[0] if r.sequence == first)
    assert dataset.arrays()["a"][0, :6].tobytes() == settled


# The server ended the dataset at the first abort that it read: the file was gone, and nothing was said.
def test_rounds_that_all_have_synced_outlive_an_abort(server: str, tmp_path: Path):
    forged, random = Forged(tmp_path, 2), Random(1)
    forged.journals[0].say("schema", payload=schema_of(SMALL), collective_index=1)
    for number in (1, 2, 3):
        for w in (0, 1):
            forged.put(w, 0, [(number, 1, 1), (w * 6, 6, 1)], random, number)
            if number < 3:
                forged.sync(w, "sync", number, number)
    for journal in forged.journals:
        journal.say("abort", collective_index=3)
    forged.last_index = 4
    dataset = assert_recovered_as_read(server, forged)
    assert dataset.frames == 2
