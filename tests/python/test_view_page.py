"""advectio view: the page in a real browser (headless Chromium), as a person uses it."""

import contextlib
import json
import signal
import subprocess
import sys

import chromium
import numpy as np
import pytest

for package in ("xarray", "starlette", "uvicorn", "netCDF4"):
    pytest.importorskip(package, reason=f"{package} is not installed")
import xarray as xr  # noqa: E402

pytestmark = pytest.mark.skipif(chromium.PROGRAM is None, reason="chromium is not installed (apt-get install chromium)")

PAINTED = "document.getElementById('map').dataset.painted"
COLOURS = """(() => { const map = document.getElementById('map');
  const pixels = new Uint32Array(map.getContext('2d').getImageData(0, 0, map.width, map.height).data.buffer);
  return [...new Set(pixels)].sort().join(); })()"""


def text(id_: str) -> str:
    return f"document.getElementById('{id_}').textContent"


def choose(id_: str, value: str) -> str:
    return (
        f"(s => {{ s.value = {json.dumps(value)}; s.dispatchEvent(new Event('change')); }})(document.getElementById('{id_}'))"
    )


@pytest.fixture
def file(tmp_path):
    y, x = np.mgrid[0:40, 0:60].astype(np.float32)
    t2 = np.stack([280 + x / 10 + y / 20 + 2 * n for n in range(3)])
    wind = np.stack([(x - 30) / 3 + 0 * y + n for n in range(3)])[:, None] * np.array([1, 2])[:, None, None]
    dims = ("Time", "south_north", "west_east")
    made = xr.Dataset(
        {
            "T2": (dims, t2.astype(np.float32), {"units": "K", "description": "TEMP at 2 M"}),
            "U": (("Time", "bottom_top", *dims[1:]), wind.astype(np.float32), {"units": "m s-1"}),
            "XLAT": (dims[1:], 40 + y / 4, {"units": "degree_north"}),
            "XLONG": (dims[1:], x / 4, {"units": "degree_east"}),
            "Times": (("Time",), np.array([f"2024-05-11_{n:02}:00:00".encode() for n in range(3)])),
        }
    )
    path = tmp_path / "wrfout_d01_2024-05-11_00:00:00"
    made.to_netcdf(path, unlimited_dims=["Time"])
    return path


@contextlib.contextmanager
def viewed(file):
    command = [sys.executable, "-m", "advectio", "view", "--json", "--pace", "0s", str(file)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.url = json.loads(process.stdout.readline())["url"]
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


@pytest.fixture
def server(file):
    with viewed(file) as process:
        yield process


@pytest.fixture
def page(server, tmp_path):
    made = chromium.Browser(tmp_path / "profile")
    made.go(server.url)
    made.wait(f"document.getElementById('map') && {PAINTED} === 'T2 2'")
    yield made
    made.close()


def middle_of_map(page) -> tuple[float, float]:
    box = page.run("(r => [r.x + r.width / 2, r.y + r.height / 2])(document.getElementById('map').getBoundingClientRect())")
    return box[0], box[1]


def test_a_person_sees_the_map_its_values_and_a_series(page):
    assert "TEMP at 2 M" in page.run(text("title")) and page.run(text("when")) == "2024-05-11 02:00:00"
    assert len(page.run(COLOURS).split(",")) > 50
    assert page.run(text("about")).startswith("min 284 · mean 287.9 · max 291.9")
    page.click(*middle_of_map(page))
    page.wait(f"{text('points')} === 'x 30, y 20: 288×' || {text('points')} === 'x 30, y 19: 287.95×'")
    assert page.run(text("series-of")) == "T2, 3 frames"
    assert page.run("document.querySelectorAll('#series circle').length") == 3
    page.wait(f"/^x 30, y (20 · 45.00|19 · 44.75)° N 7.50° E · 28[78]/.test({text('mouse')})")
    assert page.errors == []


def test_palettes_ranges_and_fields_change_the_picture(page):
    before = page.run(COLOURS)
    page.run(choose("palette", "cividis"))
    cividis = page.run(COLOURS)
    assert cividis != before
    page.run(choose("low", "100"))
    page.run(choose("high", "1000"))
    assert page.run("document.getElementById('range').value") == "hand"
    assert page.run(COLOURS) != cividis
    page.run(choose("high", "50"))
    page.wait("!document.getElementById('message').hidden")
    assert page.run(text("message")) == "range by hand: two numbers, the lower one first"
    page.key("ArrowDown")
    page.wait(f"{PAINTED} === 'U 2'")
    # On both sides of zero: a diverging palette, as far below as above.
    assert (
        page.run("[...['palette', 'low', 'high']].map(id => document.getElementById(id).value).join()")
        == "blue-red,−11.67,11.67"
    )
    page.key("]")
    page.wait("document.getElementById('high').value === '23.33'")
    page.run(choose("steps", "8"))
    assert page.run("[...['low', 'high']].map(id => document.getElementById(id).value).join()") == "−24,24"
    assert page.errors == []


def test_keys_lead_through_the_frames(page):
    page.key("ArrowLeft")
    page.wait(f"{PAINTED} === 'T2 1'")
    assert page.run(text("frame")) == "frame 2 of 3" and page.run(text("pause")) == "Go on"
    page.key("Home")
    page.wait(f"{PAINTED} === 'T2 0'")
    page.key(" ")
    page.wait(f"{PAINTED} === 'T2 2'")
    page.key("?")
    page.wait("document.getElementById('help').open && document.querySelectorAll('#keys dt').length > 10")


def test_the_table_has_the_numbers_of_all_fields(page):
    page.key("t")
    page.wait(
        "[...document.querySelectorAll('#rows tr')].every(r => r.children[4].textContent !== '…') && document.querySelectorAll('#rows tr').length === 4"
    )
    rows = page.run(
        "[...document.querySelectorAll('#rows tr')].map(r => [...r.children].slice(0, 5).map(c => c.textContent).join('|'))"
    )
    assert rows[:2] == ["T2|K|284|287.925|291.85", "U|m s-1|−16|2.75|23.3333"]


def test_a_server_that_has_gone_is_said_in_words(page, server):
    server.send_signal(signal.SIGINT)
    page.wait("!document.getElementById('message').hidden")
    assert "the server does not answer" in page.run(text("message"))
    assert page.run(text("status")) == "reconnecting"


ON_CANVAS = "(r => [r.x, r.y, r.width, r.height])(document.getElementById('map').getBoundingClientRect())"


def under(page, across: float, down: float, *words: str) -> None:
    """Until these words are said of the cell at a part of the map's width and height."""
    x, y, width, height = page.run(ON_CANVAS)
    page.move(x + across * width, y + down * height)
    page.wait(f"{json.dumps(words)}.every(word => {text('mouse')}.includes(word))", 20)


def brightness_of(across: float, down: float) -> str:
    """Of the pixel there: viridis is bright for high values."""
    return (
        f"(m => [...m.getContext('2d').getImageData({across} * m.width, {down} * m.height, 1, 1).data.slice(0, 3)].reduce((a, b) => a + b))"
        "(document.getElementById('map'))"
    )


@pytest.fixture
def from_the_north(tmp_path):
    """As ERA5 has it: latitudes from north to south, 500 hPa before 850. Warmest in the south and at 850 hPa."""
    lat, lon, levels = np.arange(60.0, 19, -1), np.arange(0.0, 60, 1), np.array([500, 850])
    t = 200 + 100 * (levels[:, None, None] == 850) + (60 - lat)[None, :, None] + 0 * lon
    xr.Dataset(
        {"t": (("level", "latitude", "longitude"), t.astype("f4"), {"units": "K"})},
        coords={
            "level": ("level", levels, {"units": "millibars"}),
            "latitude": ("latitude", lat, {"units": "degrees_north"}),
            "longitude": ("longitude", lon, {"units": "degrees_east"}),
        },
    ).to_netcdf(tmp_path / "era.nc")
    with viewed(tmp_path / "era.nc") as server:
        made = chromium.Browser(tmp_path / "profile")
        made.go(server.url)
        made.wait(f"document.getElementById('map') && {PAINTED} === 't 0'")
        yield made
        made.close()


def test_north_is_up_in_files_from_north_to_south(from_the_north):
    page = from_the_north
    assert "500 hPa" in page.run(text("levels"))
    under(page, 0.5, 0.02, "y 0 · 60.00° N", "200 K")
    under(page, 0.5, 0.98, "y 40 · 20.00° N", "240 K")
    assert page.run(brightness_of(0.5, 0.05)) < page.run(brightness_of(0.5, 0.95)), "the south is warm"
    # Zoomed into the south: still the south, in the cells that the server is asked for.
    x, y, width, height = page.run(ON_CANVAS)
    page.call("Input.dispatchMouseEvent", type="mouseWheel", x=x + width / 2, y=y + 0.95 * height, deltaX=0, deltaY=-600)
    under(page, 0.5, 0.97, "· 2", "° N")
    page.wait(f"{brightness_of(0.5, 0.95)} > {brightness_of(0.5, 0.05)}", 20)
    assert page.errors == []


def test_sections_and_profiles_are_shown_with_850_hpa_below_500(from_the_north):
    page = from_the_north
    page.click(*middle_of_map(page))
    page.wait(f"{text('points')} !== ''")
    page.run(choose("graph", "profile"))
    page.wait("document.querySelectorAll('#series circle').length === 2")
    heights = page.run("[...document.querySelectorAll('#series circle')].map(c => Number(c.getAttribute('cy')))")
    assert heights[0] < heights[1], "500 hPa is above 850"
    page.key("v")
    page.wait(f"{text('levels')}.startsWith('latitude')")
    under(page, 0.5, 0.1, "500 hPa, x ", "220 K")
    under(page, 0.5, 0.9, "850 hPa, x ", "320 K")
    page.wait(f"{brightness_of(0.5, 0.1)} < {brightness_of(0.5, 0.9)}", 20)
    page.key("v")
    page.wait(f"{text('levels')}.startsWith('longitude')")
    under(page, 0.01, 0.1, "500 hPa", "20.00° N")
    under(page, 0.99, 0.1, "500 hPa", "60.00° N")
    page.key("v")
    page.wait(f"{text('levels')}.startsWith('level')")
    assert page.errors == []
