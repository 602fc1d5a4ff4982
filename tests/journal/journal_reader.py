"""A second reader of journals, written from src/journal/SPEC.md alone. It shares nothing with the C++ code.

It maps nothing and changes nothing. "Step 3" and the like are those of SPEC.md, "Reading": here are steps 1 to 10, the rest is in
journal_contents.py. A server that gives segments back meanwhile disturbs it.
"""

from __future__ import annotations

import fcntl
import re
import struct
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
VERSIONS = range(1, 6)
HEADER_BYTES = 4096
RECORD_TYPES = {1: "create", 2: "schema", 3: "put", 4: "sync", 5: "close", 6: "abort", 7: "enter", 8: "settle"}
IMPLICIT, PENDING, OF_RECORD = 1, 2, 4
FORMATS = {1: "classic", 2: "64-bit offset", 3: "netCDF-4", 4: "netCDF-4 classic model", 5: "CDF-5"}
CHAR, STRING, NULL = 2, 12, 0xFFFFFFFF
TYPES: dict[int, tuple[str, str, Any]] = {  # number: name, NumPy's type, default fill value
    1: ("byte", "<i1", -127), 2: ("char", "S1", b"\0"), 3: ("short", "<i2", -32767), 4: ("int", "<i4", -2147483647),
    5: ("float", "<f4", 9.9692099683868690e36), 6: ("double", "<f8", 9.9692099683868690e36), 7: ("ubyte", "<u1", 255),
    8: ("ushort", "<u2", 65535), 9: ("uint", "<u4", 4294967295), 10: ("int64", "<i8", -9223372036854775806),
    11: ("uint64", "<u8", 18446744073709551614), STRING: ("string", "O", b""),
}  # fmt: skip

# Field: offset and format of struct; "…s" is text, but for the magic.
Layout = dict[str, tuple[int, str]]
SEGMENT: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "segment_bytes": (16, "Q"), "journal": (24, "Q"), "index": (32, "Q"),
    "first_sequence": (40, "Q"), "crc": (48, "I"), "committed": (64, "Q"), "sealed": (72, "Q"),
}  # fmt: skip
RECORD: Layout = {
    "magic": (0, "4s"), "type": (4, "H"), "flags": (6, "H"), "journal": (8, "Q"), "sequence": (16, "Q"), "dataset": (24, "I"),
    "meta_bytes": (28, "I"), "payload_bytes": (32, "Q"), "meta_crc": (40, "I"), "payload_crc": (44, "I"),
    "time_ns": (48, "Q"), "collective_index": (56, "I"), "crc": (60, "I"),
}  # fmt: skip
CONTROL: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "server_pid": (12, "I"), "segment_bytes": (16, "Q"), "segments_max": (24, "Q"),
    "wait_max_ns": (32, "Q"), "segments_total": (40, "Q"), "work": (64, "I"), "progress": (128, "I"),
    "starved_ns": (192, "Q"), "waits": (200, "Q"), "wait_ns": (208, "Q"), "bursts": (216, "q"), "activity": (224, "Q"),
    "node": (232, "I"), "nodes": (236, "I"), "io_nodes": (240, "I"), "asked": (244, "I"), "segments_limit": (248, "Q"),
    "spill_max": (256, "Q"), "spill_total": (264, "Q"), "spilled": (272, "Q"), "spill_wanted_ns": (280, "Q"),
    "boot": (288, "40s"), "survives_power": (328, "I"), "left": (332, "I"), "next_segment": (336, "Q"),
    "segments_peak": (344, "Q"), "input_bytes": (352, "Q"), "relieved_ns": (360, "Q"),
    "closed": (368, "I"), "markers_held": (372, "I"), "files_held": (376, "I"), "ends": (380, "I"),
}  # fmt: skip
WRITER: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "pid": (12, "I"), "rank": (16, "q"), "journal": (24, "Q"),
    "started_ns": (32, "Q"), "host": (40, "64s"), "command": (104, "256s"), "mirror": (360, "I"), "ended": (364, "I"),
}  # fmt: skip
DATASET: Layout = {
    "magic": (0, "8s"), "version": (8, "I"), "format": (12, "i"), "journal": (16, "Q"), "number": (24, "I"),
    "writer_pid": (28, "I"), "path": (32, "4096s"), "link": (4128, "4096s"), "synced": (8256, "Q"), "closed": (8264, "I"),
    "frames_synced": (8272, "Q"), "bytes_put": (8280, "Q"), "forced": (8288, "Q"), "visible": (8320, "Q"), "durable": (8328, "Q"),
    "frames_visible": (8336, "Q"), "state": (8344, "I"), "errors": (8348, "I"), "error_sys": (8352, "i"),
    "error_text": (8356, "1024s"), "writers": (9380, "I"), "owner": (9384, "I"), "created_ns": (9392, "Q"),
    "tiles": (9400, "I"), "whole": (9404, "56s"), "sync_index": (9464, "Q"), "waits": (9472, "Q"), "frames_dropped": (9480, "Q"),
    "seal": (9488, "I"), "visible_next": (9496, "Q"), "kept": (9504, "Q"), "durable_forced": (9512, "Q"),
    "whole_seal": (9520, "I"), "closed_sync": (9528, "Q"), "output": (9536, "I"), "source": (9540, "4096s"),
    "outputs_made": (13636, "I"), "frames_forced": (13640, "Q"), "frames_counted": (13648, "Q"),
    "end_asked": (13656, "I"), "heir": (13660, "I"), "directory_device": (13664, "Q"), "directory_inode": (13672, "Q"),
    "waited_ns": (13680, "Q"),
    "reopened": (13688, "Q"), "continues": (13696, "I"), "changed": (13700, "I"), "bytes_before": (13704, "Q"),
    "changed_before_ns": (13712, "Q"), "frames_before": (13720, "Q"), "bytes_at_end": (13728, "Q"), "changed_at_end_ns": (13736, "Q"), "taken_up": (13744, "I"),
}  # fmt: skip
SLOT: Layout = {
    "journal": (0, "Q"), "number": (8, "I"), "pid": (12, "I"), "collective_index": (64, "Q"), "schema_pending": (72, "Q"), "steps": (80, "Q"),
    "step": (88, "128s"), "visible": (256, "Q"), "sync_index": (264, "Q"), "read": (272, "Q"),
}  # fmt: skip


def crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [(c >> 1) ^ (0x82F63B78 if c & 1 else 0) for c in table]
    return table


CRC_TABLE = crc_table()


def crc32c(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, CRC_TABLE
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Damage(Exception):
    """What no writer leaves, however it dies."""

    def __init__(self, file: str, byte: int, reason: str):
        super().__init__(f"{file} at byte {byte}: {reason}")
        self.file, self.byte, self.reason = file, byte, reason


def fields(data: bytes, layout: Layout, at: int = 0) -> dict[str, Any]:
    """The fields of a page or a header. Bytes that are not there count as 0."""
    size = max(offset + struct.calcsize("<" + form) for offset, form in layout.values())
    data = data[at : at + size].ljust(size, b"\0")
    found: dict[str, Any] = {name: struct.unpack_from("<" + form, data, offset)[0] for name, (offset, form) in layout.items()}
    for name, value in found.items():
        if isinstance(value, bytes) and name not in ("magic", "step"):
            found[name] = value.split(b"\0")[0].decode(errors="surrogateescape")
    return found


def page(path: Path, layout: Layout, magic: bytes) -> dict[str, Any]:
    found = fields(path.read_bytes(), layout)
    if found["magic"] != magic or found["version"] not in VERSIONS:
        raise Damage(path.name, 0, "not such a page, or of a version that is not read")
    return found


class Cursor:
    """Takes numbers and texts from bytes. A length that leads beyond the end is a ValueError."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        if n > len(self.data) - self.at:
            raise ValueError(f"{n} bytes at {self.at} of {len(self.data)}")
        self.at += n
        return self.data[self.at - n : self.at]

    def number(self, form: str) -> int:
        return int(struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))[0])

    def string(self) -> bytes | None:
        length = self.number("I")
        return None if length == NULL else self.take(length)

    def blob(self) -> bytes:
        return self.take(self.number("I"))

    def text(self) -> str:
        return self.blob().decode(errors="surrogateescape")

    def numbers(self, form: str = "Q") -> list[int]:
        return [self.number(form) for _ in range(self.number("I"))]

    @property
    def ended(self) -> bool:
        return self.at == len(self.data)


@dataclass
class Attribute:
    name: str
    type: int
    values: Any  # a list; bytes of type char


@dataclass
class Dimension:
    name: str
    length: int
    unlimited: bool


@dataclass
class Variable:
    name: str
    type: int
    dimensions: list[int]
    attributes: list[Attribute]
    contiguous: bool
    compact: bool
    chunks: list[int]
    filters: list[tuple[int, list[int]]]
    endian: int
    no_fill: bool
    has_fill: bool
    fill: Any  # the value in force
    round_bits: int


@dataclass
class Schema:
    format: int
    padding: list[int]
    dimensions: list[Dimension]
    attributes: list[Attribute]
    variables: list[Variable]


def values_of(type_number: int, count: int, data: bytes) -> Array:
    """`count` elements of a payload or an attribute."""
    if type_number == STRING:
        c = Cursor(data)
        strings = np.empty(count, object)
        strings[:] = [c.string() for _ in range(count)]
        if not c.ended:
            raise ValueError("bytes behind the last string")
        return strings
    values = np.frombuffer(data, TYPES[type_number][1])
    if len(values) != count:
        raise ValueError(f"{len(values)} values, not {count}")
    return values


def decode_attributes(c: Cursor) -> list[Attribute]:
    found = []
    for _ in range(c.number("I")):
        name, kind, count, values = c.text(), c.number("i"), c.number("Q"), c.blob()
        strings = [c.string() for _ in range(c.number("I"))]
        if len(strings) != (count if kind == STRING else 0):
            raise ValueError(f"attribute {name}: {len(strings)} strings")
        if kind != STRING:
            found.append(Attribute(name, kind, values if kind == CHAR else values_of(kind, count, values).tolist()))
        else:
            found.append(Attribute(name, kind, strings))
    return found


def decode_schema(data: bytes) -> Schema:
    c = Cursor(data)
    if c.number("I") != 1:
        raise ValueError("another encoding of the schema")
    form, padding = c.number("i"), [c.number("Q") for _ in range(4)]
    dimensions = [Dimension(c.text(), c.number("Q"), bool(c.number("B"))) for _ in range(c.number("I"))]
    schema = Schema(form, padding, dimensions, decode_attributes(c), [])
    for _ in range(c.number("I")):
        name, kind, over, attributes = c.text(), c.number("i"), c.numbers("I"), decode_attributes(c)
        contiguous, compact, chunks = bool(c.number("B")), bool(c.number("B")), c.numbers()
        filters = [(c.number("I"), c.numbers("I")) for _ in range(c.number("I"))]
        endian, no_fill, has_fill = c.number("B"), bool(c.number("B")), bool(c.number("B"))
        fill: Any = c.blob()
        text, round_bits = c.string(), c.number("I")
        fill = text if kind == STRING else values_of(kind, 1, fill)[0] if fill else TYPES[kind][2]
        layout = contiguous, compact, chunks, filters
        schema.variables.append(Variable(name, kind, over, attributes, *layout, endian, no_fill, has_fill, fill, round_bits))
    known = all(v.type in TYPES and all(d < len(dimensions) for d in v.dimensions) for v in schema.variables)
    if not c.ended or not known or form not in FORMATS:
        raise ValueError("a number out of its range, or bytes left")
    return schema


def unpacked(boxes: int, origin: list[int], packed: bytes) -> list[list[list[int]]]:
    """Start and count of each box of a put."""
    at = 0

    def varint() -> int:
        nonlocal at
        number = shift = 0
        while True:
            number |= (packed[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if packed[at - 1] < 0x80:
                return number

    def numbers() -> list[int]:
        found: list[int] = []
        last = 0
        while len(found) < boxes:
            times, step = varint(), varint()
            for _ in range(times):
                last = (last + (step >> 1 if step % 2 == 0 else -(step >> 1) - 1)) % 2**64
                found.append(last)
        if len(found) > boxes:
            raise ValueError("more numbers than boxes")
        return found

    starts = [[number + begin for number in numbers()] for begin in origin]
    counts = [numbers() for _ in origin]
    if at != len(packed):
        raise ValueError("bytes behind the boxes")
    return [
        [list(start), list(count)] for start, count in zip(zip(*starts, strict=True), zip(*counts, strict=True), strict=True)
    ]


def decode_meta(kind: str, meta: bytes) -> dict[str, Any]:
    c = Cursor(meta)
    if kind == "create":
        said: dict[str, Any] = {"format": c.number("i"), "path": c.text(), "link": c.text(), "page": c.text()}
        return said | {"writers": 0 if c.ended else c.number("I")}
    if kind == "put":
        said = {"variable": c.number("I"), "start": c.numbers(), "count": c.numbers(), "stride": c.numbers()}
        return said if c.ended else said | {"boxes": unpacked(c.number("I"), said["start"], c.blob())}
    if kind in ("sync", "close"):
        said = {"frame": c.number("Q"), "stall_ns": c.number("Q"), "bytes": c.number("Q")}
        return said | {"sync_index": 0 if c.ended else c.number("Q")}
    if kind == "enter":
        return {"page": c.text(), "writer": c.number("I")}
    if kind == "settle":
        return {"written": c.numbers(), "dropped": c.numbers()}
    return {}


@dataclass
class Record:
    type: str
    flags: int
    dataset: int
    collective_index: int
    sequence: int
    time_ns: int
    said: dict[str, Any]  # meta
    payload: bytes
    file: str
    byte: int

    @property
    def ends_frame(self) -> bool:
        return self.type in ("sync", "close")


def is_locked(path: Path) -> bool:
    """Does somebody hold the open-file-description lock of that file?"""
    with path.open("rb") as file:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        return bool(struct.unpack_from("h", fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)


class Journal:
    """One journal of a stage. `mode`: alive, gone or scan; None: whatever the lock says."""

    def __init__(self, directory: Path, mode: str | None = None):
        self.directory = directory
        self.page = page(directory / "writer", WRITER, b"ADVWRT1\0")
        self.uid: int = self.page["journal"]
        self.mirror: bool = self.page["mirror"] != 0
        self.mode = mode or ("alive" if self.mirror or is_locked(directory / "writer") else "gone")
        self.last = 0  # sequence of the last record

    def chain(self) -> dict[int, Path]:
        names = (re.fullmatch(r"(\d{1,18})-(.+)", path.name) for path in self.directory.iterdir())
        return {int(m[1]): self.directory / m[0] for m in names if m}

    def follows(self, sequence: int) -> bool:
        return sequence > self.last if self.mirror else sequence == self.last + 1

    def header(self, data: bytes, at: int, limit: int) -> dict[str, Any] | None:
        """The header of a record of this journal, where one is there (step 5)."""
        if limit - at < 64:
            return None
        r = fields(data, RECORD, at)
        whole = r["magic"] == b"ADVR" and r["crc"] == crc32c(data[at : at + 60]) and r["journal"] == self.uid
        return r if whole else None

    def begin(self, path: Path, data: bytes, index: int, begun: bool) -> bool:
        """Steps 3 and 4. False: the end."""
        if len(data) < HEADER_BYTES:
            if self.mode == "scan":
                return False
            raise Damage(path.name, 0, "too short for a segment")
        h = fields(data, SEGMENT)
        first = self.header(data, HEADER_BYTES, len(data))
        in_segments = self.page["mirror"] or self.uid
        sound = h["magic"] == b"ADVJRNL1" and h["version"] in VERSIONS and h["segment_bytes"] == len(data)
        sound = sound and h["crc"] == crc32c(data[:48])
        ours = h["journal"] == in_segments and h["index"] == index
        has_next = first is not None and (not begun or self.follows(first["sequence"]))
        if self.mode == "alive" or (self.mode == "gone" and not has_next):
            if h["committed"] < HEADER_BYTES or not ours:
                return False
            if not sound:
                raise Damage(path.name, 0, "the segment's header is damaged")
        if not begun:
            if sound and ours:
                self.last = h["first_sequence"] - 1
            elif first is None or (self.mode == "scan" and sound):
                return False
            else:
                self.last = first["sequence"] - 1
            has_next = first is not None and self.follows(first["sequence"])
        if self.mode == "scan" or (self.mode == "gone" and has_next) or self.follows(h["first_sequence"]):
            return True
        raise Damage(path.name, HEADER_BYTES, "records are missing before it")

    def records(self) -> Iterator[Record]:
        """Every record to the end. Raises Damage."""
        index = min(self.chain(), default=0)
        begun = False
        while path := self.chain().get(index):
            with path.open("rb") as file:
                sealed = fields(file.read(HEADER_BYTES), SEGMENT)["sealed"]
            data = path.read_bytes()
            if not self.begin(path, data, index, begun) or not (yield from self.in_segment(path, data, bool(sealed))):
                break
            begun = True
            index += 1
        if self.mode == "gone":
            self.look_behind()

    def in_segment(self, path: Path, data: bytes, sealed: bool) -> Generator[Record, None, bool]:
        """Steps 5 to 10. False: the end."""
        at, committed = HEADER_BYTES, fields(data, SEGMENT)["committed"]
        while True:
            if self.mode == "alive" and not at <= committed <= len(data):
                raise Damage(path.name, at, f"published up to byte {committed}, which cannot be")
            limit = len(data) if self.mode == "scan" else committed if committed <= len(data) else 0
            behind = self.mode == "scan" or (self.mode == "gone" and at >= limit)
            if behind:
                limit = len(data)
            r = self.header(data, at, limit)
            if r is None or not self.follows(r["sequence"]):
                if not behind and at < limit:
                    raise Damage(path.name, at, "the header of the record is damaged")
                return self.mode != "alive" or sealed
            meta_at, payload_at = at + 64, at + 64 + padded(r["meta_bytes"])
            end = payload_at + padded(r["payload_bytes"])
            meta = data[meta_at : meta_at + r["meta_bytes"]]
            payload = data[payload_at : payload_at + r["payload_bytes"]]
            wrong = (
                "the record is longer than what is published" if end > limit
                else "meta is damaged" if crc32c(meta) != r["meta_crc"]
                else "the payload is damaged" if crc32c(payload) != r["payload_crc"]
                else None
            )  # fmt: skip
            if wrong and behind:
                return False
            if wrong:
                raise Damage(path.name, at, wrong)
            yield self.record(r, meta, payload, path.name, at)
            self.last, at = r["sequence"], end

    def record(self, r: dict[str, Any], meta: bytes, payload: bytes, file: str, at: int) -> Record:
        kind = RECORD_TYPES.get(r["type"])
        if kind is None:
            raise Damage(file, at, f"a record of the unknown type {r['type']}")
        try:
            said = decode_meta(kind, meta)
        except ValueError as error:
            raise Damage(file, at, f"meta says nothing: {error}") from error
        return Record(
            kind, r["flags"], r["dataset"], r["collective_index"], r["sequence"], r["time_ns"], said, payload, file, at
        )

    def look_behind(self) -> None:
        """Segments behind a gap in the chain look like the end."""
        for path in self.chain().values():
            data = path.read_bytes()
            first = self.header(data, HEADER_BYTES, len(data))
            if first and first["sequence"] > self.last:
                raise Damage(path.name, 0, "its records do not follow those before it")


def padded(n: int) -> int:
    return -(-n // 64) * 64
