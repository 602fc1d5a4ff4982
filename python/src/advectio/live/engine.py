"""``xarray.open_dataset(path, engine="advectio")``: all frames that there are now, in the file or still in the stage.

It is a snapshot: later frames are not in it (for those there is ``advectio.frames``). A file that no run writes is read as
it is.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends.common import AbstractDataStore, BackendArray, BackendEntrypoint
from xarray.core import indexing

from advectio import open_files
from advectio.errors import UserError
from advectio.live import datasets, find
from advectio.live.client import Client, Gone
from advectio.live.stream import Frame, commit_of


class JoinedArray(BackendArray):
    """Parts along one axis, one behind the other."""

    def __init__(self, parts: Sequence[Any], axis: int) -> None:
        self.parts, self.axis = parts, axis
        self.dtype = parts[0].dtype
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        self.shape = tuple(shape)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.BASIC, self._read)

    def _read(self, key: tuple[int | slice, ...]) -> np.ndarray[Any, Any]:
        index = key[self.axis]
        chosen = range(self.shape[self.axis])[index]
        wanted = chosen if isinstance(chosen, range) else [chosen]
        found, begin = [], 0
        for part in self.parts:
            mine = [i - begin for i in wanted if begin <= i < begin + part.shape[self.axis]]
            begin += part.shape[self.axis]
            if not mine:
                continue
            # As a slice: the indices are those of a range, cut.
            step = mine[1] - mine[0] if len(mine) > 1 else 1
            stop: int | None = mine[-1] + (1 if step > 0 else -1)
            its = list(key)
            its[self.axis] = slice(mine[0], None if stop is not None and stop < 0 else stop, step)
            found.append(part[indexing.BasicIndexer(tuple(its))])
        if not found:
            found.append(np.empty([0 if i == self.axis else n for i, n in enumerate(self.shape)], self.dtype))
        joined = np.concatenate(found, axis=self._axis_after(key)) if len(found) > 1 else np.asarray(found[0])
        return joined if isinstance(chosen, range) else np.take(joined, 0, axis=self._axis_after(key))

    def _axis_after(self, key: tuple[int | slice, ...]) -> int:
        """Where the axis is once single indices have gone."""
        return sum(isinstance(k, slice) for k in key[: self.axis])


def _client_of(path: str, run: str | None, contact: str | None) -> tuple[Client, list[dict[str, Any]]] | None:
    """The server that is writing this file now, and what it says of it."""
    for client in find.servers(run, contact):
        with contextlib.suppress(Gone):
            listed = client.ask("list", match=[glob.escape(os.path.basename(path))])["datasets"]
            # The program may have called it by another way.
            mine = [d for d in listed if not d["over"] and os.path.realpath(d["path"]) == path]
            if mine:
                return client, mine
        client.close()
    return None


def snapshot(path: str, run: str | None = None, contact: str | None = None) -> xr.Dataset | None:
    """The file as far as it has been synced, not decoded; None: no run writes it (no run of this node, where none is named)."""
    path = os.path.realpath(path)
    found = _client_of(path, run, contact)
    if found is None:
        return None
    client, listed = found
    path, visible = str(listed[-1]["path"]), int(listed[-1]["visible"])

    def commit(name: str) -> int | None:
        try:
            return commit_of(client, name)
        except Gone:
            return None

    subscription = client.ask("subscribe", match=[glob.escape(path)], policy="wait", after=0)["subscription"]
    frames = []
    schema: dict[str, Any] | None = None
    while "frame" in (reply := client.ask("next", subscription=subscription, wait_ms=0)):
        about = reply["frame"]
        if about["dataset"] != listed[-1]["dataset"]:
            continue  # an earlier file of that name
        if about["in_memory"]:
            schema = client.ask("schema", schema=about["schema"])["schema"]
        frames.append(Frame.of(client, about, schema, commit))
    # What comes later is not in it, and must not wait in the stage for it.
    client.ask("unsubscribe", subscription=subscription)
    live = [f for f in frames if f.client is not None and f.number >= visible]
    base = None
    if visible > 0:
        inode = frames[-1].about.get("inode") if frames else None
        about = {"path": path, "number": 0, "records": [0, _records(frames[:visible])], "inode": inode}
        last = Frame(about, None, None, commit)
        base = datasets.from_file(last, None)
    parts = ([base] if base is not None else []) + [datasets.in_memory(f, None) for f in live]
    if not parts:
        raise UserError(f"{path}: nothing of it has been synced yet")
    return _joined(parts)


def _records(frames: Sequence[Frame]) -> int:
    return max((datasets.records_of(f)[1] for f in frames), default=0)


def _joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    newest = parts[-1]
    if len(parts) == 1:
        return newest
    out = {}
    for name in newest.variables:
        those = [p.variables[name] for p in parts if name in p.variables]
        v = newest.variables[name]
        axis = next((i for i in range(v.ndim) if len({p.shape[i] for p in those}) > 1 or _is_record(parts, v.dims[i])), None)
        if axis is None:
            # Put once: what has it first has it in its file or its first frame.
            out[name] = those[0]
        else:
            arrays = [p._data.array if isinstance(p._data, indexing.LazilyIndexedArray) else p._data for p in those]
            out[name] = xr.Variable(v.dims, indexing.LazilyIndexedArray(JoinedArray(arrays, axis)), v.attrs, v.encoding)
    joined = xr.Dataset(out, attrs=newest.attrs)
    joined.encoding.update(newest.encoding)
    return joined


def _is_record(parts: Sequence[xr.Dataset], dim: Any) -> bool:
    return any(dim in p.encoding.get("unlimited_dims", ()) for p in parts)


class AdvectioBackend(BackendEntrypoint):
    """The engine ``advectio`` of xarray."""

    description = "Files of a running model, up to the last sync"
    open_dataset_parameters = (
        "filename_or_obj", "drop_variables", "mask_and_scale", "decode_times", "concat_characters", "decode_coords",
        "use_cftime", "decode_timedelta", "run", "contact",
    )  # fmt: skip

    def open_dataset(
        self,
        filename_or_obj: str | os.PathLike[Any] | Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        mask_and_scale: bool = True,
        decode_times: bool = True,
        concat_characters: bool = True,
        decode_coords: bool = True,
        use_cftime: bool | None = None,
        decode_timedelta: bool | None = None,
        run: str | None = None,
        contact: str | None = None,
    ) -> xr.Dataset:
        """``run``, ``contact``: as in `advectio.frames`; without them the runs of this user on this node are looked at."""
        if isinstance(filename_or_obj, AbstractDataStore) or not isinstance(filename_or_obj, (str, os.PathLike)):
            raise ValueError("the engine advectio opens files by their names")
        path = os.path.realpath(os.fspath(filename_or_obj))
        ds = snapshot(path, run, contact)
        if ds is None:
            path = datasets.on_disk(path)
            with open_files.alone():
                ds = xr.open_dataset(path, engine=datasets._engine(path), decode_cf=False)
        close = ds._close
        ds = xr.decode_cf(
            ds,
            concat_characters=concat_characters,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            decode_coords=decode_coords,
            drop_variables=drop_variables,
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        ds.encoding["source"] = path
        ds.set_close(close)
        return ds

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        return False  # it is asked for by name
