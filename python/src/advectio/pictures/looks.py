"""How a forecaster expects a field to look: units, colours, steps. What is not known here is drawn from its values.

Palettes stay readable for the colour-blind: lightness goes one way, or both ways from the middle. `radar` alone does not:
everybody who reads reflectivity knows its colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# The order of colours that radar displays have had for long: 5 to 75 dBZ, one for each 5 dBZ.
_RADAR = ["#9be3f0", "#4ab4e6", "#1f6fd0", "#1fa84a", "#0f7d33", "#0a5a24", "#f6e34a", "#e8b32a", "#f08a1c", "#e53b23", "#b81c1c", "#8a1010", "#d14fd1", "#7a3fb0"]  # fmt: skip
OWN_PALETTES = {"radar": _RADAR}


@dataclass(frozen=True)
class Look:
    units: str | None = None  # to be shown in, where they can be converted
    colour_map: str = "viridis"
    levels: Sequence[float] | None = None
    symmetric: bool = False  # about zero
    positive: bool = False  # from zero, where the lowest value is near it
    hide_below: bool = False  # what lies below the first level is nothing: no rain, no echo
    spans: tuple[float, float] | None = None  # values that the palette's ends stand for, whatever the steps are


_RAIN = (0.1, 0.5, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150)
_TEMPERATURE = Look("°C", "RdYlBu_r")
_WIND = Look("m/s", "RdBu_r", symmetric=True)
_MOISTURE = Look("g/kg", "YlGnBu", positive=True)
_CLOUD = Look("g/kg", "GnBu", positive=True, hide_below=True)
_ECHO = Look("dBZ", "radar", tuple(range(5, 80, 5)), hide_below=True, spans=(5, 75))

# The first that matches the whole name.
_KNOWN: Sequence[tuple[str, Look]] = (
    (r"REFL_10CM|REFD\w*|DBZ\w*|[Rr]eflectivity\w*|mdbz|dbz|refc|MAXDBZ|column_\w+_(REFL_10CM|DBZ)", _ECHO),
    (r"T2|T2_\w+|TSK|SST|SSTSK|TSLB|TMN|TH2|TD2|t2m|tas|T_PHY|TT|SKINTEMP", _TEMPERATURE),
    (r"RAIN(C|NC|SH|)|RAINNCV|SNOWNC|PREC|tp|rain\w*", Look("mm", "YlGnBu", _RAIN, hide_below=True)),
    (r"Q2|QVAPOR|QV", _MOISTURE),
    (r"Q(CLOUD|RAIN|ICE|SNOW|GRAUP|HAIL|C|R|I|S|G|HYD)|column_\w+_Q(CLOUD|RAIN|ICE|SNOW|GRAUP|HAIL)", _CLOUD),
    (r"U|V|W|U10|V10|u|v|w|WW|UU|VV|U_PHY|V_PHY", _WIND),
    (r"(wind|wspd|speed|WSPD)\w*|W_UP_MAX", Look("m/s", "viridis", positive=True)),
    (r"UP_HELI_MAX|UH", Look(None, "magma_r", positive=True, hide_below=True)),
    (r"PSFC|PMSL|slp|SLP|P_HYD|PRES|pressure", Look("hPa", "viridis")),
    (r"HGT|HGT_M|topo|TOPO", Look("m", "cividis")),
    (r"T|THM", Look(None, "RdYlBu_r")),
    (r"RH|RHI|RH2|rh\w*", Look("%", "YlGnBu", tuple(range(0, 101, 10)))),
    (r"CLDFRA|SEAICE|LANDMASK|SNOWC|VEGFRA", Look(None, "cividis")),
    (r"GHT|geopotential_height|PBLH", Look("m", "viridis")),
)

# Of names that nobody knows: CF's standard names.
_BY_STANDARD_NAME: Sequence[tuple[str, Look]] = (
    (r"equivalent_reflectivity_factor", _ECHO),
    (r"(air|surface|sea_surface|soil|dew_point|brightness|sea_water\w*)_temperature", _TEMPERATURE),
    (r"(specific_humidity|humidity_mixing_ratio)", _MOISTURE),
    (r"(eastward|northward|upward|x|y)_(wind|air_velocity)", _WIND),
    (r"wind_speed\w*", Look("m/s", "viridis", positive=True)),
    (r"relative_humidity", Look("%", "YlGnBu", tuple(range(0, 101, 10)))),
    (r"(air_pressure|surface_air_pressure|air_pressure_at_\w+)", Look("hPa", "viridis")),
    (r"surface_altitude", Look("m", "cividis")),
)

# How units are written, by what they are.
_SPELLINGS = {
    "K": "K", "kelvin": "K", "Kelvin": "K",
    "degC": "°C", "C": "°C", "celsius": "°C", "Celsius": "°C", "degree_C": "°C", "degrees_C": "°C", "degree_Celsius": "°C",
    "°C": "°C", "deg C": "°C",
    "kg kg-1": "kg/kg", "kg/kg": "kg/kg", "kg kg^-1": "kg/kg", "1": "1",
    "g kg-1": "g/kg", "g/kg": "g/kg",
    "m s-1": "m/s", "m/s": "m/s", "m s^-1": "m/s", "kt": "kt", "knots": "kt", "knot": "kt", "km h-1": "km/h", "km/h": "km/h",
    "Pa": "Pa", "hPa": "hPa", "mb": "hPa", "mbar": "hPa", "millibar": "hPa", "millibars": "hPa", "hectopascal": "hPa",
    "m": "m", "meters": "m", "km": "km", "mm": "mm",
    "dBZ": "dBZ", "dbz": "dBZ", "%": "%", "percent": "%",
}  # fmt: skip

# value in the second = value in the first * factor + offset
_CONVERSIONS = {
    ("K", "°C"): (1.0, -273.15), ("°C", "K"): (1.0, 273.15),
    ("kg/kg", "g/kg"): (1000.0, 0.0), ("g/kg", "kg/kg"): (0.001, 0.0),
    ("m/s", "kt"): (3600 / 1852, 0.0), ("m/s", "km/h"): (3.6, 0.0), ("kt", "m/s"): (1852 / 3600, 0.0),
    ("Pa", "hPa"): (0.01, 0.0), ("hPa", "Pa"): (100.0, 0.0),
    ("m", "km"): (0.001, 0.0), ("km", "m"): (1000.0, 0.0), ("m", "mm"): (1000.0, 0.0), ("mm", "m"): (0.001, 0.0),
    ("1", "%"): (100.0, 0.0), ("%", "1"): (0.01, 0.0),
}  # fmt: skip


def look_of(name: str, units: str, standard_name: str = "") -> Look:
    """Of a field with this name, in this unit; of names that nobody knows, by CF's name."""
    for known, text in ((_KNOWN, name), (_BY_STANDARD_NAME, standard_name)):
        for pattern, look in known:
            if re.fullmatch(pattern, text):
                return _in(look, spelled(units))
    return _ECHO if spelled(units) == "dBZ" else Look()


def _in(look: Look, units: str) -> Look:
    if look.units is not None and units != look.units and (units, look.units) not in _CONVERSIONS:
        # The same name, another thing: its steps are not to be trusted.
        look = replace(look, units=None, levels=None, hide_below=False, spans=None)
        return replace(look, colour_map="magma_r") if look.colour_map == "radar" else look
    return replace(look, units="%") if look.levels and units == "1" and look.units == "%" else look


def spelled(units: str) -> str:
    """The unit as it is shown. WRF has `-` and blanks where there is none."""
    plain = units.strip()
    return "" if plain in ("-", "dimensionless") else _SPELLINGS.get(plain, plain)


def converted(values: Any, have: str, want: str) -> Any | None:
    """The values in another unit; None where that conversion is not known."""
    source, target = spelled(have), spelled(want)
    if source == target:
        return values
    if (source, target) not in _CONVERSIONS:
        return None
    factor, offset = _CONVERSIONS[source, target]
    return values * factor + offset


def known_conversions(have: str) -> list[str]:
    return [target for source, target in _CONVERSIONS if source == spelled(have)]


CROWDED = ((1, 0.6), (2, 0.85))  # so many steps beside each other have more than this part of all values


def _crowd(levels: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """The values that would have one or two colours, though they are most of all; empty where there are none."""
    import numpy as np

    counts, _ = np.histogram(sample, levels)
    for bands, part in CROWDED:
        if len(counts) > 2 * bands:
            together = np.convolve(counts, np.ones(bands, int), "valid")
            first = int(together.argmax())
            if together[first] >= part * len(sample):
                found: np.ndarray = sample[(sample >= levels[first]) & (sample <= levels[first + bands])]
                return found
    return np.empty(0)


def _finer_where_crowded(levels: np.ndarray, sample: np.ndarray, number: int) -> np.ndarray:
    """Where most values would have one colour and yet differ (the air around a storm): up to half of the steps are for them.
    The other steps stay even, below and above."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    within = _crowd(levels, sample)
    if not within.size:
        return levels
    low, high = np.percentile(within, [2, 98])
    if high - low < 1e-3 * (levels[-1] - levels[0]):
        return levels  # they are the same
    ticks = MaxNLocator(number // 2, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    step = levels[1] - levels[0]
    below, above = levels[levels < ticks[0] - 0.2 * step], levels[levels > ticks[-1] + 0.2 * step]
    if not len(below) and sample.min() < ticks[0]:
        below = levels[:1]
    if not len(above) and sample.max() > ticks[-1]:
        above = levels[-1:]
    return np.concatenate([below, ticks, above])


def nice_levels(low: float, high: float, look: Look, number: int = 16, sample: Sequence[float] = ()) -> np.ndarray:
    """Round numbers from low to high; symmetric, or from zero, where the field is. `sample`: some of the values, in any
    order, for steps that are finer where most of them lie."""
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    if not (np.isfinite(low) and np.isfinite(high)):
        low, high = 0.0, 1.0
    if look.symmetric and low < 0 < high:
        high = max(abs(low), abs(high))
        low = -high
    elif look.positive and 0 <= low < 0.4 * high:
        low = 0.0
    if high - low <= max(abs(high), abs(low), 1e-30) * 1e-6:  # the same everywhere
        spread = abs(high) * 0.01 or 1.0
        low, high = low - spread, high + spread
    levels = np.asarray(MaxNLocator(number, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high))
    if look.symmetric and levels[0] < 0 < levels[-1]:
        levels = levels[levels != 0]  # nothing has a colour of its own, the middle one
    if look.hide_below and levels[0] == 0:
        levels = levels[1:] if len(levels) > 3 else levels
    if len(sample) and not (look.symmetric or look.positive or look.hide_below):
        levels = _finer_where_crowded(levels, np.asarray(sample, dtype=float), number)
    return levels


def palette(name: str) -> Any:
    """A colour map by its name: one of matplotlib's or ours. Raises ValueError with the nearest name."""
    import matplotlib
    from matplotlib.colors import ListedColormap

    if name in OWN_PALETTES:
        return ListedColormap(OWN_PALETTES[name], name)
    if name not in matplotlib.colormaps:
        from difflib import get_close_matches

        near = get_close_matches(name, [*matplotlib.colormaps, *OWN_PALETTES], 1, 0.5)
        raise ValueError(f"there is no colour map {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return matplotlib.colormaps[name]
