"""Limits of the shell (ulimit) that are in the way of a run."""

import resource

from advectio.quantities import size_text


def limits_in_the_way(frame_bytes: int | None = None) -> list[tuple[str, str]]:
    """Limits of this shell that a run meets sooner or later, each with what to do."""
    found = []
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest != resource.RLIM_INFINITY and largest < max(frame_bytes or 0, 1 << 40):
        found.append((f"no file may grow beyond {size_text(largest)}", "ulimit -f unlimited"))
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        found.append(
            (
                f"a process may have only {size_text(space)} of address space; what it maps of the stage is part of it",
                "ulimit -v unlimited",
            )
        )
    return found


def too_small_files(segment_bytes: int) -> str | None:
    """The system ends whatever makes a segment of the stage then, the model too."""
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest == resource.RLIM_INFINITY or largest >= segment_bytes:
        return None
    return (
        f"no file may grow beyond {size_text(largest)} (ulimit -f), and a file of the stage has {size_text(segment_bytes)}; "
        "ulimit -f unlimited permits it"
    )


def few_files() -> tuple[str, str] | None:
    """A server, or a rank, that cannot open more files than this cannot do anything."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (f"only {soft} open files are allowed", "ulimit -n 1024") if 0 <= soft < 128 else None
