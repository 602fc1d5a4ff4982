"""A reader from src/readers/PROTOCOL.md alone: plain Python over TCP, nothing of Advectio's, no numpy.

python plain_reader.py CONTACT_FILE PATTERN        prints each frame, and min and max of its numbers
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FORMATS = {
    "byte": "b", "ubyte": "B", "short": "h", "ushort": "H", "int": "i", "uint": "I", "int64": "q", "uint64": "Q", "float": "f",
    "double": "d",
}  # fmt: skip


class Refused(Exception):
    """The server's own words."""


class Connection:
    def __init__(self, contact_file: str) -> None:
        with open(contact_file, encoding="utf-8") as file:
            (contact,) = json.load(file)["nodes"]  # of a run on one node
        _, host, port = contact["addresses"][0].rsplit(":", 2)[-3:]
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
        self.last_id = 0
        self.last_word: dict[str, Any] | None = None
        self.hello, _ = self.ask("hello", protocol=1, secret=contact["secret"], name="plain reader")
        if self.hello["run_dir"] != contact["run_dir"] or self.hello["pid"] != contact["pid"]:
            raise Refused(f"{contact_file} is stale")

    def _exactly(self, n: int) -> bytes:
        parts = []
        while n > 0:
            part = self.socket.recv(min(n, 1 << 20))
            if not part:
                raise EOFError("the server has closed the connection")
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def _message(self) -> tuple[dict[str, Any], bytes]:
        magic, head_bytes, data_bytes = struct.unpack("<4sIQ", self._exactly(16))
        assert magic == b"ADVR"
        head = json.loads(self._exactly(head_bytes))
        return head, self._exactly(data_bytes)

    def ask(self, do: str, **keys: Any) -> tuple[dict[str, Any], bytes]:
        self.last_id += 1
        head = json.dumps({"id": self.last_id, "do": do, **keys}).encode()
        self.socket.sendall(struct.pack("<4sIQ", b"ADVR", len(head), 0) + head)
        while True:
            answer, data = self._message()
            if answer["id"] == 0:
                self.last_word = answer
            elif answer["id"] == self.last_id:
                if "error" in answer:
                    raise Refused(answer["error"])
                return answer, data


@dataclass
class Field:
    """One variable of one frame: where it begins, its lengths, and its values, the last dimension fastest."""

    start: list[int]
    count: list[int]
    values: list[Any]


class Frames:
    """Frames of the files that match, one after the other, until the run ends."""

    def __init__(self, connection: Connection, pattern: str, policy: str = "wait") -> None:
        self.connection = connection
        self.schemas: dict[int, dict[str, Any]] = {}
        answer, _ = connection.ask("subscribe", match=[pattern], policy=policy)
        self.subscription = answer["subscription"]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            try:
                answer, _ = self.connection.ask("next", subscription=self.subscription, wait_ms=1000)
            except (EOFError, ConnectionError):
                if self.connection.last_word is None:
                    raise
                return
            if "end" in answer:
                return
            if "frame" in answer:
                frame = answer["frame"]
                yield frame
                self.connection.ask("done", frame=frame["frame"])

    def schema(self, frame: dict[str, Any]) -> dict[str, Any]:
        number = frame["schema"]
        if number not in self.schemas:
            self.schemas[number] = self.connection.ask("schema", schema=number)[0]["schema"]
        return self.schemas[number]

    def read(self, frame: dict[str, Any], name: str) -> Field:
        schema = self.schema(frame)
        number = next(i for i, v in enumerate(schema["variables"]) if v["name"] == name)
        box = next(f for f in frame["fields"] if f["variable"] == number)
        answer, data = self.connection.ask(
            "read", frame=frame["frame"], variable=number, start=box["start"], count=box["count"]
        )
        return Field(box["start"], box["count"], values_of(answer["type"], data))


def values_of(kind: str, data: bytes) -> list[Any]:
    if kind == "char":
        return [data[i : i + 1] for i in range(len(data))]
    if kind == "string":
        texts, at = [], 0
        while at < len(data):
            (n,) = struct.unpack_from("<I", data, at)
            at += 4
            null = n == 0xFFFFFFFF
            texts.append(None if null else data[at : at + n].decode())
            at += 0 if null else n
        return texts
    size = struct.calcsize(FORMATS[kind])
    return list(struct.unpack(f"<{len(data) // size}{FORMATS[kind]}", data))


def attribute(variable: dict[str, Any], name: str) -> bytes | None:
    return next((base64.b64decode(a["bytes"]) for a in variable["attributes"] if a["name"] == name), None)


if __name__ == "__main__":
    frames = Frames(Connection(sys.argv[1]), sys.argv[2])
    for f in frames:
        print(f"{f['path']} frame {f['number']}")
        for v in frames.schema(f)["variables"] if f["in_memory"] else []:
            if v["type"] in FORMATS and any(
                v["name"] == frames.schema(f)["variables"][x["variable"]]["name"] for x in f["fields"]
            ):
                values = frames.read(f, v["name"]).values
                print(f"  {v['name']:12} {min(values)} … {max(values)} {(attribute(v, 'units') or b'').decode()}")
