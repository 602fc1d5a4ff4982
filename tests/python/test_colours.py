"""`advectio plot`: the steps of the colours, by the values that are shown."""

from __future__ import annotations

import json

import pytest

np = pytest.importorskip("numpy")
xr = pytest.importorskip("xarray")
pytest.importorskip("matplotlib")

from advectio import plotting  # noqa: E402
from advectio.errors import UserError  # noqa: E402
from advectio.pictures import drawing, looks, recipes, values  # noqa: E402
from made_up import THREE, wrf_file  # noqa: E402

RANDOM = np.random.default_rng(5)


def scale(field: str, units: str, shown, text: str = "") -> drawing.Scale:
    seen = values.spread_of(np.asarray(shown, dtype=float))
    return drawing.scale_of(
        recipes.of_option("map", f"{field}{text}"), looks.look_of(field, units), seen.low, seen.high, seen.sample
    )


def steps_in(found: drawing.Scale, low: float, high: float) -> int:
    """Colours between two values."""
    inner = [level for level in found.levels if low < level < high]
    return len(inner) + 1


def storm():
    """T2 around a cold pool: nearly all of it at 24.7 to 24.9 °C, a few cells down to 17.6."""
    return np.concatenate([RANDOM.uniform(24.7, 24.9, 9500), np.linspace(17.6, 24.7, 500)])


def test_the_air_around_a_storm_has_more_than_one_colour():
    found = scale("T2", "degC", storm())
    assert steps_in(found, 24.7, 24.9) >= 4 and steps_in(found, 17.6, 24.6) >= 8 and not found.even
    assert found.levels[0] <= 17.6 and found.levels[-1] >= 24.9 and found.extend == "neither"
    assert found.levels == sorted(set(found.levels))
    even = looks.nice_levels(17.6, 24.9, looks.look_of("T2", "degC"))
    assert np.histogram(storm(), even)[0].max() > 9000, "with even steps it has one"


def test_one_value_far_away_does_not_take_the_colours_from_the_others():
    sea = np.concatenate([RANDOM.uniform(10, 28, 7000), np.full(60, -273.15)])  # SST with 0 K on lakes
    assert steps_in(scale("SST", "degC", sea), 10, 28) >= 5


@pytest.mark.parametrize(
    ("field", "units", "shown"),
    [
        ("T2", "degC", RANDOM.uniform(5, 30, 1000)),  # no value is frequent
        ("T2", "degC", np.concatenate([np.full(950, 24.7), np.linspace(17, 24, 50)])),  # all around is the same
        ("W", "m s-1", np.concatenate([RANDOM.normal(0, 0.1, 950), np.linspace(-5, 30, 50)])),  # about zero
        ("QVAPOR", "kg kg-1", np.concatenate([RANDOM.uniform(0, 1e-4, 950), np.linspace(0, 2e-2, 50)])),  # from zero
    ],
)
def test_elsewhere_steps_stay_even(field, units, shown):
    assert scale(field, units, shown).even


def test_percentiles_leave_out_what_lies_far_away():
    found = scale("T2", "degC", storm(), ",range=20%:80%")
    assert 24.7 <= found.levels[0] <= 24.74 and 24.84 <= found.levels[-1] < 24.9 and found.extend == "both"


@pytest.mark.parametrize(
    "text", ["map T2,range=98%:2%", "map T2,range=2%:101%", "map T2,range=2%:30", "series T2@1,1,range=2%:98%"]
)
def test_wrong_percentiles_are_refused(text):
    kind, _, option = text.partition(" ")
    with pytest.raises(UserError, match="range"):
        recipes.of_option(kind, option)


def test_percentiles_are_of_all_frames(tmp_path, capsys, monkeypatch):
    seen = []
    original = drawing.scale_of
    monkeypatch.setattr(drawing, "scale_of", lambda *a: seen.append(original(*a)) or seen[-1])
    wrf_file(tmp_path / "wrfout_d01", THREE)
    options = plotting.Options([str(tmp_path / "wrfout_d01")], ["T2,range=0%:50%"], output=str(tmp_path), jobs=1, dpi=50, as_json=True)  # fmt: skip
    assert plotting.plot(options) == 0
    assert len(json.loads(capsys.readouterr().out)["pictures"]) == 3
    assert seen[0] == seen[1] == seen[2] and seen[0].extend == "max"


def test_a_long_live_run_keeps_its_sample_small():
    seen = values.spread_of(np.arange(100.0))
    for number in range(200):
        seen = seen.also(values.spread_of(np.arange(100.0) + number % 7))
    assert len(seen.sample) <= values.SAMPLES_MAX and (seen.low, seen.high) == (0, 105)
    assert np.median(seen.sample) == pytest.approx(52.5, abs=2)
    nothing = values.spread_of(np.full(3, np.nan))
    assert nothing.also(seen) == seen.also(nothing) and nothing.sample == ()


def test_fields_of_other_names_are_known_by_cfs():
    assert looks.look_of("t", "K", "air_temperature").units == "°C"
    assert looks.look_of("var130", "m s-1", "eastward_wind").symmetric
    assert looks.look_of("DBZH", "dBZ", "equivalent_reflectivity_factor").colour_map == "radar"
    assert looks.look_of("t", "1", "air_temperature").units is None and looks.look_of("t", "K") == looks.Look()


# --- reflectivity -----------------------------------------------------------------------------------------------------------


def colour_at(value: float, field: str = "REFL_10CM", text: str = "") -> str:
    from matplotlib.colors import to_hex

    plot = recipes.of_option("map", f"{field}{text}")
    look = looks.look_of(field, "dBZ")
    colour_map, norm = drawing._colours(plot, look, drawing.scale_of(plot, look, -35, 80))
    return to_hex(colour_map(norm(value)), keep_alpha=True)


def hue(colour: str) -> float:
    import colorsys

    return 360 * colorsys.rgb_to_hsv(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]


@pytest.mark.parametrize("field", ["REFL_10CM", "refc", "DBZ1km", "column_max_REFL_10CM", "anything_in_dBZ"])
def test_reflectivity_has_the_colours_of_radar_displays(field):
    names = {
        7: (180, 250),
        17: (180, 250),
        22: (90, 170),
        32: (90, 170),
        37: (40, 65),
        47: (20, 45),
        52: (0, 20),
        62: (0, 20),
        67: (270, 320),
    }
    for value, (low, high) in names.items():
        assert low <= hue(colour_at(value, field)) <= high, value
    assert colour_at(-20, field).endswith("00"), "no echo has no colour"
    assert len({colour_at(value, field) for value in range(7, 75, 5)}) == 14


def test_35_dbz_has_its_colour_whatever_the_range_is():
    assert colour_at(36) == colour_at(36, text=",range=0:40") == colour_at(36, text=",levels=30:35:40:60")


def test_another_palette_and_other_units_as_asked_for():
    from matplotlib.colors import to_hex

    assert colour_at(80, text=",colour_map=viridis")[:7] == to_hex(looks.palette("viridis")(1.0))
    assert looks.look_of("REFL_10CM", "mm6 m-3").colour_map != "radar"
