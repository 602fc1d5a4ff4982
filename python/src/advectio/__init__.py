"""Advectio carries the output of weather, climate and ocean models out of the model.

Importing this package starts nothing. The command line is ``advectio``; see ``advectio --help``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterator, Sequence
    from typing import Any, Literal

    import xarray as xr

    from advectio.protocol import Status as Summary

__all__ = ["Summary", "__version__", "aframes", "frames", "load_summary"]


def frames(
    match: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]",
    *,
    variables: "Sequence[str] | None" = None,
    policy: "Literal['wait', 'drop-oldest', 'latest']" = "wait",
    depth: int = 2,
    history: int = 0,
    group: str | None = None,
    run: str | None = None,
    contact: str | None = None,
    transport: "Literal['tcp', 'ucx']" = "tcp",
    decode: bool = True,
    chunks: "Any | None" = None,
    wait: float = 60.0,
    idle: float | None = None,
) -> "Iterator[xr.Dataset]":
    """Frames of a running model as they are synced, each an ``xarray.Dataset``. Ends when the run does.

    match      pattern of file names, as a shell's; with a slash it is a path. Or a list of patterns.
    variables  only these, and the coordinates that belong to them. None: all.
    policy     "wait": every frame. "drop-oldest": the newest ``depth`` that wait; older ones are left out.
               "latest": the newest one. No policy ever makes the model wait.
    history    so many frames of before come first.
    group      readers of one group share the frames: each goes to one of them.
    run        run directory; None: the run of this user on this node, of several the one that was started in the directory of
               ``match`` (where it has none: in this one).
    contact    contact file of a run on another node (the config's readers.listen), in place of ``run``.
    transport  how values come from another node: "tcp", or "ucx" (RDMA, shared memory or TCP, as UCX finds).
    decode     CF conventions, WRF's times and places: `advectio.decoding.decode`.
    chunks     for dask, as in ``xarray.open_dataset``; None: no dask. Values go to dask's processes as a copy.
    wait       seconds to wait for the run to begin; also for another one, after the end of a run of which no file matches.
    idle       ends after so many seconds without a frame; None: only when the run ends.

    Each dataset has one frame: the records that were put since the sync before. Values are read when they are used, from the
    memory of the run where they are there, else from the file. What lies in memory in one piece is not copied: the array is
    read-only, and the memory is kept as long as the array lives (at most 8 frames of a reader; further ones come from the
    file). ``ds.encoding`` has "source", the file, and "advectio_frame", its number there from 0.

    Blocks until there is a frame. Raises advectio.errors.UserError, with a text for people: no run, several runs, a wrong name of
    a variable, a server that was stopped, no xarray.
    """
    from advectio import needs

    needs.for_frames("xarray")
    from advectio.live.datasets import dataset
    from advectio.live.stream import stream

    if transport not in ("tcp", "ucx"):
        from advectio.errors import UserError

        raise UserError(f"transport={transport!r}: there are 'tcp' and 'ucx'")
    if isinstance(variables, str):
        variables = [variables]
    for frame in stream(
        match,
        policy=policy,
        depth=depth,
        history=history,
        group=group,
        run=run,
        contact=contact,
        by_ucx=transport == "ucx",
        wait_s=wait,
        idle_s=idle,
    ):
        ds = dataset(frame, variables, decode)
        del frame
        yield ds if chunks is None else ds.chunk(chunks or {})
        del ds


async def aframes(
    match: "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]", **options: "Any"
) -> "AsyncIterator[xr.Dataset]":
    """``frames`` for ``async for``: waits in a thread of its own. The same options."""
    import asyncio

    each = frames(match, **options)
    end = object()
    try:
        while (ds := await asyncio.to_thread(next, each, end)) is not end:
            yield ds  # type: ignore[misc]
    finally:
        await asyncio.to_thread(each.close)  # type: ignore[attr-defined]


def load_summary(path: "str | os.PathLike[str]") -> "Summary":
    """What ``advectio run --json FILE`` has written, or a job of ``advectio exec`` (advectio-summary.json).

    It is a dict; docs/json.md has its keys, sizes are bytes, times seconds. Raises OSError where the file cannot be read,
    and ValueError where it is no summary.
    """
    import json

    with open(path, encoding="utf-8") as file:
        found: Summary = json.load(file)
    if not isinstance(found, dict) or not found.keys() >= {"datasets", "stage", "server", "final"}:
        raise ValueError(f"{path} is no summary of a run")
    return found


def __getattr__(name: str) -> object:
    # Looked up only when it is asked for: finding it takes longer than all else that `advectio run` imports.
    if name == "Summary":
        from advectio.protocol import Status

        return Status
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("advectio")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"
