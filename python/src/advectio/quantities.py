"""Sizes, rates and times, read and written for people."""

import re

_UNITS = {
    "B": 1,
    "KB": 10**3,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_TIMES = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}


def _quantity(text: str, units: dict[str, int] | dict[str, float], example: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-z]+)\s*", text)
    if not match or match[2] not in units:
        raise ValueError(f"'{text}' is not understood; write e.g. {example} (units: {', '.join(units)})")
    return float(match[1]) * units[match[2]]


def parse_size(text: str) -> int:
    return round(_quantity(text, _UNITS, "1.2GiB"))


def parse_duration(text: str) -> float:
    """Seconds."""
    return _quantity(text, _TIMES, "60s")


def size_text(count: float) -> str:
    """Three digits, in powers of 1000, as disks and netCDF tools count."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= 0.9995 * factor:
            return f"{_three(count / factor)} {unit}"
    return f"{count:.0f} B"


def config_size_text(count: float) -> str:
    """Of a size that stands in a config: 2 MiB where it is a whole number of such units, as it was most likely written."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        halves, rest = divmod(count, factor // 2)
        if rest == 0 and 2 <= halves < 2000 and count % 10**6:
            return f"{halves / 2:g} {unit}"
    return size_text(count)


def rate_text(per_second: float) -> str:
    return size_text(per_second) + "/s"


def time_text(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 0.9995e-3:
        return f"{_three(seconds * 1e6)} µs"
    if seconds < 0.9995:
        return f"{_three(seconds * 1e3)} ms"
    if seconds < 99.95:
        return f"{_three(seconds)} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _three(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
