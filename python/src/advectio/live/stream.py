"""Frames of a run, one after the other, also over a server that is replaced."""

from __future__ import annotations

import contextlib
import glob
import os
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from advectio.errors import UserError
from advectio.live import find
from advectio.live.client import Client, Ended, Gone, LetGo

Policy = Literal["wait", "drop-oldest", "latest"]
RECONNECT_S = 60.0
STALE_S = 5.0  # a contact file whose server does not answer: it may have been killed, and another takes its place


@dataclass
class Frame:
    """One frame, as the server has described it (PROTOCOL.md, ``next``)."""

    about: dict[str, Any]
    client: Client | None  # None: it is in the file
    schema: dict[str, Any] | None = None
    commit: Callable[[str], int | None] = lambda path: None  # of its file: Node.commit
    _done: Callable[[], object] = field(default=lambda: None, repr=False)
    _open: bool = True

    @classmethod
    def of(
        cls, client: Client, about: dict[str, Any], schema: dict[str, Any] | None, commit: Callable[[str], int | None]
    ) -> Frame:
        frame = cls(about, client if about["in_memory"] else None, schema, commit)
        frame._done = weakref.finalize(frame, client.done, about["frame"])
        return frame

    @property
    def path(self) -> str:
        return str(self.about["path"])

    @property
    def number(self) -> int:
        """From 0, in its file."""
        return int(self.about["number"])

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process: what it is called. Its memory stays with this one."""
        return Frame, ({**self.about, "in_memory": False}, None)

    def must_be_open(self) -> None:
        if not self._open:
            raise LetGo(f"frame {self.number} of {self.path} was closed")

    def close(self) -> None:
        """Its memory may be used again, as soon as no array views it."""
        self._open = False


class Node:
    """One server: its connection, and the subscription there."""

    def __init__(
        self,
        connect: Callable[[], Client],
        subscription: dict[str, Any],
        is_over: Callable[[], bool],
        wait_s: float = RECONNECT_S,
    ) -> None:
        self._connect = connect
        self._is_over = is_over
        self._wanted = subscription
        self._client: Client | None = None
        self._last: int | None = None  # order of the last frame that was taken, or of the one before the first that comes
        self._schemas: dict[int, dict[str, Any]] = {}
        self.ended = False
        self._rest: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        try:
            self._begin(connect())
        except Ended:
            raise
        except Gone:  # a server that is killed just now
            self._reconnect(wait_s)

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    def has_files(self) -> bool:
        """Are there files that match already?"""
        with contextlib.suppress(Gone):
            return bool(self.client.ask("list", match=self._wanted["match"])["datasets"])
        return False

    def close(self) -> None:
        """Nothing more is wanted of it."""
        self.ended = True
        self.client.close()

    def commit(self, path: str) -> int | None:
        """How often the server has begun and ended to change that file: odd while it does, and while no server is there. None:
        the file is complete. Any thread may ask."""
        try:
            return commit_of(self.client, path)
        except Gone:
            pass
        if self.ended or self.client.end(wait=False) is not None or self._is_over():
            return None
        with self._lock, contextlib.suppress(UserError):
            if not self.client.alive:
                self._begin(self._connect())
        return 1

    def _begin(self, client: Client) -> None:
        wanted = dict(self._wanted)
        if self._last is not None:
            wanted["after"] = self._last
        try:
            reply = client.ask("subscribe", **wanted)
        except Gone as error:
            if client.end(wait=False) is None:
                raise
            raise Ended("the run has ended, before this reader had subscribed; what was written is in its files") from error
        if self._last is None:
            self._last = int(reply["after"])
        self._client, self.subscription, self._schemas = client, reply["subscription"], {}

    def _reconnect(self, wait_s: float = RECONNECT_S) -> None:
        """The server has gone without a last word. Another takes its place, or the run is over."""
        until = time.monotonic() + wait_s
        while True:
            if self._is_over():
                raise Gone("the run has ended without a word to its readers: its server was stopped")
            try:
                with self._lock:
                    return None if self._client and self._client.alive else self._begin(self._connect())
            except Ended:
                raise
            except Gone:
                if time.monotonic() > until:
                    raise
            time.sleep(0.1)

    def next(self, wait_s: float) -> Frame | None:
        """None: there was none in that time, or all have been taken (``ended``)."""
        if self._rest:
            return Frame(self._rest.pop(0), None, None, self.commit)
        if self.ended:
            return None
        with self._lock:
            client, subscription = self.client, self.subscription
        try:
            reply = client.ask("next", subscription=subscription, wait_ms=int(wait_s * 1000))
            if reply.get("all_taken"):  # the last word waits until the frames of a reader elsewhere are let go
                self.ended = True
                return None
            if "end" in reply:
                return self._take_rest(client.end(wait=True))
        except Gone:
            said = client.end(wait=False)
            if said is not None:
                return self._take_rest(said)
            self._reconnect()
            return None
        about = reply.get("frame")
        if about is None:
            return None
        self._last = int(about["frame"])
        schema = None
        if about["in_memory"]:
            known = self._schemas.get(about["schema"])
            if known is None:
                try:
                    known = client.ask("schema", schema=about["schema"])["schema"]
                except Gone:  # between two words
                    about = {**about, "in_memory": False}
                    return Frame(about, None, None, self.commit)
                self._schemas[about["schema"]] = known
            schema = known
        return Frame.of(client, about, schema, self.commit)

    def _take_rest(self, said: dict[str, Any] | None) -> Frame | None:
        self.ended = True
        frames = (said or {}).get("frames", [])
        self._rest = [{**f, "in_memory": False} for f in frames if f.get("subscription") == self.subscription]
        if self._wanted["policy"] == "latest":
            self._rest = self._rest[-1:]
        return self.next(0)


def commit_of(client: Client, path: str) -> int | None:
    """What the server says of a file: see `Node.commit`. Raises Gone."""
    listed = client.ask("list", match=[glob.escape(path)])["datasets"]
    return next((int(d["commit"]) for d in listed if not d["over"]), None)


def stream(
    match: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    policy: Policy = "wait",
    depth: int = 2,
    history: int = 0,
    group: str | None = None,
    run: str | None = None,
    contact: str | None = None,
    by_ucx: bool = False,
    wait_s: float = 60.0,
    idle_s: float | None = None,
    first_run: bool = False,
) -> Iterator[Frame]:
    """Frames of files that match, as they are synced. Ends when the run does. See `advectio.frames`.

    A run that nobody has named is left for another as long as no file of it matches: when one begins in the directory of the
    pattern, and when it ends. ``first_run``: it is not.
    """
    if policy not in ("wait", "drop-oldest", "latest"):
        raise UserError(f"policy={policy!r}: there are 'wait', 'drop-oldest' and 'latest'")
    if run is not None and contact is not None:
        raise UserError("either run=, of this node, or contact=, of another one; not both")
    many = [match] if isinstance(match, (str, os.PathLike)) else list(match)
    patterns = [p for m in many for p in find.patterns(m)]
    subscription: dict[str, Any] = {"match": patterns, "policy": policy, "depth": depth, "history": history}
    if group:
        subscription["group"] = group
    passed: str | None = None  # where a run was started of which nothing was wanted
    while True:
        try:
            directory, nodes = _nodes(patterns, subscription, run, contact, by_ucx, time.monotonic() + wait_s)
        except UserError as error:
            if passed is None:
                raise
            raise UserError(
                f"the run that was started in {passed} has ended, and none of its files was called {' or '.join(str(m) for m in many)}. "
                f"After it: {error}"
            ) from error
        meant = first_run or run is not None or contact is not None or any(node.has_files() for node in nodes)
        heard = looked = time.monotonic()
        # Of several each is asked in turn.
        slice_s = 1.0 if len(nodes) == 1 else max(0.002, 0.05 / len(nodes))
        while not all(node.ended for node in nodes):
            for node in nodes:
                while (frame := node.next(0 if node.ended else slice_s)) is not None:
                    meant = True
                    yield frame
                    frame = None
                    heard = time.monotonic()
                    if len(nodes) > 1:
                        break
            if idle_s is not None and time.monotonic() - heard > idle_s:
                return
            if not meant and time.monotonic() - looked >= 1.0:
                looked = time.monotonic()
                if find.nearer_than(directory, patterns):
                    break
        else:
            for node in nodes:
                while (frame := node.next(0)) is not None:
                    meant = True
                    yield frame
            if meant:
                return
        passed = str(nodes[0].client.server.get("directory", directory))
        for node in nodes:
            node.close()
        time.sleep(0.1)  # its server may still answer


def _nodes(
    patterns: list[str], subscription: dict[str, Any], run: str | None, contact: str | None, by_ucx: bool, until: float
) -> tuple[str, list[Node]]:
    """The run directory ("": a contact file's), and connections to all servers of the run that can be reached from here."""
    if contact is not None:
        while not os.path.exists(contact) and time.monotonic() < until:
            time.sleep(0.1)
        stale_s = min(max(0.0, until - time.monotonic()), STALE_S)
        wanted = _as_one(subscription, len(find.read_contact(contact)))
        return "", [_node_of_contact(contact, node, by_ucx, wanted, stale_s) for node in range(wanted["servers"])]
    while True:
        left = max(0.0, until - time.monotonic())
        directory = find.begun(os.path.abspath(run), left) if run else find.run_of(patterns, left)
        try:
            nodes = find.nodes_of(directory)
            wanted = _as_one(subscription, len(nodes))
            return directory, [_node(node, wanted) for node in nodes]
        except Gone:
            # It has ended meanwhile. Another one may begin.
            if run or time.monotonic() > until:
                raise
        time.sleep(0.1)


def _as_one(subscription: dict[str, Any], servers: int) -> dict[str, Any]:
    """Connections to several servers are those of one reader."""
    return subscription | {"reader": uuid.uuid4().hex, "servers": servers}


def _node_of_contact(contact: str, node: int, by_ucx: bool, subscription: dict[str, Any], stale_s: float) -> Node:
    return Node(
        lambda: find.connect_contact(contact, by_ucx, node=node), subscription, lambda: not os.path.exists(contact), stale_s
    )


def _node(directory: str, subscription: dict[str, Any]) -> Node:
    return Node(lambda: find.connect_node(directory), subscription, lambda: not os.path.exists(directory))
