"""How the run goes whose frames are shown, as ``advectio status`` would say it: stall, backlog, what is on the disk."""

from collections.abc import Iterable
from typing import Any

from advectio import places
from advectio.errors import UserError
from advectio.protocol import NoServer, Status, spread_of, status_of


def of_run(paths: Iterable[str], run: str | None = None) -> dict[str, Any] | None:
    """Of the run with that run directory, else of the runs of this user on this node, the one that writes one of these files;
    None where no server says it does."""
    wanted = set(paths)
    for directory in places.runs() if run is None else [run]:
        try:
            status = status_of(directory, 1.0)
        except (NoServer, UserError):
            continue
        if wanted & {dataset["path"] for dataset in status["datasets"]}:
            return summary(status)
    return None


def summary(status: Status) -> dict[str, Any]:
    datasets = status["datasets"]
    stalls = [spread_of(d, "stall_s") for d in datasets]
    visible = [m for d in datasets if (m := spread_of(d, "to_visible_s")["median"]) is not None]
    medians = [s["median"] for s in stalls if s["median"] is not None]
    return {
        "run_dir": status["run_dir"],
        "frames_synced": sum(d["frames_synced"] for d in datasets),
        "frames_visible": sum(d["frames_visible"] for d in datasets),
        "frames_durable": sum(d["frames_durable"] for d in datasets),
        "frames_dropped": sum(d["frames_dropped"] for d in datasets),
        "stall_median_s": max(medians, default=None),
        "stall_max_s": max((s["max"] for s in stalls if s["max"] is not None), default=None),
        "to_visible_s": max(visible, default=None),
        "backlog_bytes": status["stage"]["backlog_bytes"],
        "bytes_max": status["stage"]["bytes_max"],
        "writers": sum(w["alive"] for w in status["writers"]),
        "errors": [*status["errors"], *(d["error"] for d in datasets if d["error"])],
    }
