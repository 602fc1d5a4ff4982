#!/usr/bin/env python3
"""What the journals of a stage hold: frames, and the values of each dataset. By src/journal/SPEC.md, "Reading", steps 11 to 14.

journal_contents.py STAGE               the records of every journal of a stage, a line each
journal_contents.py --expected STAGE    writes what the journals hold to STAGE/expected.json
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from journal_reader import (
    DATASET,
    IMPLICIT,
    OF_RECORD,
    PENDING,
    SLOT,
    TYPES,
    WRITER,
    Array,
    Damage,
    Journal,
    Record,
    Schema,
    crc32c,
    decode_schema,
    fields,
    page,
    values_of,
)

SLOT_BYTES = 320
# Behind the bytes 12 to 8255 of a page, the seal covers these.
SEALED = ("writers", "owner", "created_ns", "tiles")
SEALED_OF_CONTINUED = ("bytes_before", "changed_before_ns", "frames_before")
SEALED_OF_OUTPUTS = ("output", "source")
REOPENED = (1 << 63) - 1  # of the page's `reopened`: without the bit that says that it ends


@dataclass
class Dataset:
    """What journals hold of one dataset, as steps 11 to 14 put it together."""

    path: str
    writers: int
    stage: dict[str, Any] = field(default_factory=dict)  # its page, where there is one
    schema: Schema | None = None
    frames: int = 0
    under_way: int = 0  # blocks that are in no complete frame
    ended: str = ""
    queues: dict[int, list[Record]] = field(default_factory=dict)  # by writer
    blocks: list[tuple[int, list[int], list[int], list[int], bytes]] = field(default_factory=list)

    def put_together(self) -> None:
        queues = {w: settled(records) for w, records in self.queues.items()}
        if self.writers == 0:
            self.apply_syncs([cut(queues.get(0, []), implicit=True)])
        else:
            self.apply_syncs([cut(queues.get(w, []), implicit=False) for w in range(self.writers)])

    def apply_syncs(self, cuts: list[list[list[Record]]]) -> None:
        complete = min(len(parts) - 1 for parts in cuts)
        for parts in zip(*(c[:complete] for c in cuts), strict=True):
            ends = [part[-1] for part in parts]
            records = [r for part in parts for r in part[:-1]]
            for r in sorted(records, key=in_order) if self.writers else records:
                self.apply(r)
            self.frames += any(end.said["frame"] > 0 for end in ends)
            reopened = self.stage.get("reopened", 0) & REOPENED
            self.ended = "close" if all(end.type == "close" and end.sequence > reopened for end in ends) else self.ended
        rests = [[r for part in c[complete:] for r in part] for c in cuts]
        rest = self.apply_records(rests) if self.writers else rests[0]
        self.under_way = sum(r.type == "put" for r in rest)
        if any(r.type == "abort" for r in rest):
            self.ended = "abort"
        if not self.schema:
            self.schema = next((decode_schema(r.payload) for r in rest if r.type == "schema"), None)

    def apply_records(self, rests: list[list[Record]]) -> list[Record]:
        """Applies all before the last sync of a record that all writers have come to; returns the rest."""
        slots = self.stage.get("slots", [])
        passed = [
            max([r.collective_index for r in rest] + [slot["collective_index"] for slot in slots[w : w + 1]], default=0)
            for w, rest in enumerate(rests)
        ]
        ends = [r.collective_index for r in rests[0] if r.flags & OF_RECORD and r.type == "sync"]
        upto = max((end for end in ends if end <= min(passed)), default=0)
        everything = [r for rest in rests for r in rest]
        for r in sorted((r for r in everything if r.collective_index < upto), key=in_order):
            self.apply(r)
        self.frames += sum(end == upto for end in ends)
        return [r for r in everything if r.collective_index >= upto]

    def apply(self, r: Record) -> None:
        if r.type == "sync" and r.flags & OF_RECORD:
            self.frames += 1
        if r.type == "schema":
            try:
                self.schema = decode_schema(r.payload)
            except ValueError as error:
                raise Damage(r.file, r.byte, f"the payload is no schema: {error}") from error
        if r.type == "put":
            self.apply_put(r)

    def apply_put(self, r: Record) -> None:
        said = r.said
        if "boxes" not in said:
            self.blocks.append((said["variable"], said["start"], said["count"], said["stride"], r.payload))
            return
        volumes = [int(np.prod(count, dtype=np.int64)) for _, count in said["boxes"]]
        element = len(r.payload) // sum(volumes)
        at = 0
        for (start, count), volume in zip(said["boxes"], volumes, strict=True):
            self.blocks.append((said["variable"], start, count, [], r.payload[at : at + volume * element]))
            at += volume * element

    def arrays(self) -> dict[str, Array]:
        """Every variable as it is after the complete frames, with fill values where nothing was put."""
        schema = self.schema
        if schema is None:
            return {}
        lengths = [d.length for d in schema.dimensions]
        for variable, start, count, stride, _ in self.blocks:
            over = schema.variables[variable].dimensions
            for d, s, n, step in zip(over, start, count, stride or [1] * len(over), strict=True):
                if schema.dimensions[d].unlimited and n:
                    lengths[d] = max(lengths[d], s + (n - 1) * step + 1)
        found = {v.name: np.full([lengths[d] for d in v.dimensions], v.fill, TYPES[v.type][1]) for v in schema.variables}
        for variable, start, count, stride, payload in self.blocks:
            v = schema.variables[variable]
            steps = stride or [1] * len(start)
            box = tuple(slice(s, s + (n - 1) * step + 1, step) for s, n, step in zip(start, count, steps, strict=True))
            found[v.name][box] = values_of(v.type, int(np.prod(count, dtype=np.int64)), payload).reshape(count)
        return found


def in_order(r: Record) -> tuple[int, bool, bool]:
    """Of several writers. A sync of a record comes before all else with its collective index, but for the schema."""
    return (r.collective_index, r.type != "schema", r.type != "sync")


def settled(records: Iterable[Record]) -> list[Record]:
    """Pending puts stand where a settle has written them, with its collective_index; others are gone."""
    pending: dict[int, Record] = {}
    found = []
    for r in records:
        if r.type == "put" and r.flags & PENDING:
            pending[r.sequence] = r
        elif r.type == "settle":
            found += [
                dataclasses.replace(pending[s], collective_index=r.collective_index) for s in r.said["written"] if s in pending
            ]
        else:
            found.append(r)
    return found


def cut(records: list[Record], implicit: bool) -> list[list[Record]]:
    """Behind each record that ends a frame or a round; the last part is what is left over."""
    parts: list[list[Record]] = [[]]
    for r in records:
        parts[-1].append(r)
        if r.ends_frame and not r.flags & OF_RECORD and (implicit or not r.flags & IMPLICIT):
            parts.append([])
    return parts


def pages_of(stage: Path) -> dict[str, dict[str, Any]]:
    """The pages of the datasets in flight; `slots` among their fields."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((stage / "datasets").glob("*")):
        if "." in path.name:
            continue
        data = path.read_bytes()
        p = page(path, DATASET, b"ADVDST1\0")
        sealed = (*SEALED, *(SEALED_OF_CONTINUED if p["continues"] else ()), *(SEALED_OF_OUTPUTS if p["output"] else ()))
        ranges = [(12, 8256), *((o, o + struct.calcsize("<" + f)) for o, f in map(DATASET.__getitem__, sealed))]
        if p["seal"] != crc32c(b"".join(data[begin:end] for begin, end in ranges)):
            raise Damage(path.name, 0, "the seal of the page is wrong")
        slots = path.with_name(path.name + ".writers").read_bytes() if p["writers"] else b""
        p["slots"] = [fields(slots, SLOT, w * SLOT_BYTES) for w in range(p["writers"])]
        found[path.name] = p
    return found


def read_stage(stage: Path, mode: str | None = None) -> tuple[dict[str, list[Record]], dict[str, Dataset]]:
    """The records of every journal, and what they hold, by the names of the datasets' pages."""
    pages = pages_of(stage)
    places: dict[tuple[int, int], tuple[str, int]] = {}  # uid and number: page and writer
    datasets: dict[str, Dataset] = {}
    for name, p in pages.items():
        datasets[name] = Dataset(p["path"], p["writers"], p)
        if (stored := stage / "datasets" / f"{name}.schema").exists():
            datasets[name].schema = decode_schema(stored.read_bytes())
        places[p["journal"], p["number"]] = name, 0
        places |= {(slot["journal"], slot["number"]): (name, w) for w, slot in enumerate(p["slots"]) if slot["journal"]}
    journals: dict[str, list[Record]] = {}
    for directory in sorted((stage / "journals").iterdir()):
        if directory.name.startswith("."):
            continue
        journal = Journal(directory, mode)
        journals[directory.name] = []
        for r in journal.records():
            journals[directory.name].append(r)
            if r.type == "create":
                places[journal.uid, r.dataset] = r.said["page"], 0
                datasets.setdefault(r.said["page"], Dataset(r.said["path"], r.said["writers"]))
            if r.type == "enter":
                places[journal.uid, r.dataset] = r.said["page"], r.said["writer"]
            name, writer = places.get((journal.uid, r.dataset), ("", 0))
            if name in datasets:
                datasets[name].queues.setdefault(writer, []).append(r)
        for p in pages.values():
            missing = p["journal"] == journal.uid and not p["writers"] and not p["tiles"] and p["synced"] > journal.last
            if journal.mode == "gone" and missing:
                raise Damage(directory.name, 0, f"{p['path']} is synced up to {p['synced']}, the end is at {journal.last}")
    for d in datasets.values():
        d.put_together()
    return journals, datasets


# ---- for people, and for the expected contents of the golden journals ----


def shown_values(values: Array) -> dict[str, Any]:
    """Few values as they are, many by their ends and their SHA-256."""
    flat = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values.ravel().tolist()]
    if len(flat) <= 12 or values.dtype == object:
        return {"values": flat}
    return {"first": flat[:3], "last": flat[-3:], "sha256": hashlib.sha256(values.tobytes()).hexdigest()}


def shown_record(r: Record, schema: Schema | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "sequence": r.sequence,
        "type": r.type,
        "dataset": r.dataset,
        "collective_index": r.collective_index,
        "flags": r.flags,
    }
    found |= {"at": f"{r.file} {r.byte}", "time_ns": r.time_ns} | r.said
    if r.type == "put" and schema:
        v = schema.variables[r.said["variable"]]
        found["variable"] = v.name
        counts = [count for _, count in r.said["boxes"]] if "boxes" in r.said else [r.said["count"]]
        found |= shown_values(values_of(v.type, sum(int(np.prod(count, dtype=np.int64)) for count in counts), r.payload))
    return found


def plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.item() if isinstance(value, np.generic) else value


def contents(stage: Path, mode: str | None = None) -> dict[str, Any]:
    """What a stage holds, in words and numbers that JSON knows."""
    journals, datasets = read_stage(stage, mode)
    found: dict[str, Any] = {"journals": {}, "datasets": {}}
    for name, records in journals.items():
        w = page(stage / "journals" / name / "writer", WRITER, b"ADVWRT1\0")
        schemas: dict[int, Schema] = {}
        lines = []
        for r in records:
            if r.type == "schema":
                schemas[r.dataset] = decode_schema(r.payload)
            lines.append(shown_record(r, schemas.get(r.dataset)))
        writer = {key: value for key, value in w.items() if key != "magic"} | {"journal": f"{w['journal']:016x}"}
        found["journals"][name] = {"writer": writer, "records": lines}
    for d in datasets.values():
        arrays = {n: {"shape": list(a.shape), "type": a.dtype.str, **shown_values(a)} for n, a in d.arrays().items()}
        about = {"writers": d.writers, "frames": d.frames, "blocks under way": d.under_way, "ended": d.ended}
        found["datasets"][d.path] = about | {"schema": plain(d.schema), "variables": arrays}
    return found


def as_text(value: Any, indent: str = "") -> str:
    """JSON for people: what fits a line stands on one, and so does a record."""
    line = json.dumps(value, ensure_ascii=False)
    inner = indent + "  "
    if (
        len(line) + len(indent) <= 100
        or not isinstance(value, list | dict)
        or (isinstance(value, dict) and "sequence" in value)
    ):
        return line
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + as_text(v, inner) for v in value) + f"\n{indent}]"
    lines = (f"{inner}{json.dumps(k, ensure_ascii=False)}: {as_text(v, inner)}" for k, v in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Reads the journals of a stage by src/journal/SPEC.md, and changes nothing.")
    parser.add_argument("stage", type=Path)
    parser.add_argument("--expected", action="store_true", help="write what they hold to STAGE/expected.json")
    arguments = parser.parse_args()
    found = contents(arguments.stage)
    if arguments.expected:
        (arguments.stage / "expected.json").write_text(as_text(found) + "\n")
        return
    for name, journal in found["journals"].items():
        for record in journal["records"]:
            print(name, json.dumps(record, ensure_ascii=False))


if __name__ == "__main__":
    main()
