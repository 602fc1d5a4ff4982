"""Numbers as people read and write them."""

import pytest
from advectio.quantities import config_size_text, parse_duration, parse_size, rate_text, size_text, time_text
from advectio.summary import median


@pytest.mark.parametrize(("text", "count"), [("1.2GiB", 1288490189), ("300MB", 300_000_000), ("0.5 kB", 500), ("7B", 7)])
def test_sizes(text, count):
    assert parse_size(text) == count


@pytest.mark.parametrize("text", ["", "12", "GiB", "-1GB", "1Gb", "1e3MB"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="is not understood"):
        parse_size(text)


def test_durations():
    assert parse_duration("5min") == 300
    assert parse_duration("500ms") == 0.5


def test_sizes_of_a_config_are_shown_as_they_are_written():
    written = ["2MiB", "900GiB", "1.5GiB", "512KiB", "300MB", "4GB", "7B", "1TiB"]
    assert [config_size_text(parse_size(text)).replace(" ", "") for text in written] == [
        "2MiB", "900GiB", "1.5GiB", "512KiB", "300MB", "4.00GB", "7B", "1TiB",
    ]  # fmt: skip
    assert config_size_text(6318718976) == "6.32 GB"
    assert config_size_text(1288490189) == "1.29 GB"


def test_three_digits_everywhere():
    assert [size_text(n) for n in (0, 999, 999_600, 1_234_000, 99_960_000)] == ["0 B", "999 B", "1.00 MB", "1.23 MB", "100 MB"]
    assert [time_text(s) for s in (None, 2e-5, 0.0312, 1.5, 61, 300, 7200)] == [
        "–", "20.0 µs", "31.2 ms", "1.50 s", "61.0 s", "5.0 min", "2.0 h",
    ]  # fmt: skip
    assert rate_text(5e8) == "500 MB/s"


def test_a_median_is_one_of_the_values_or_between_two():
    assert median([3.0]) == 3.0
    assert median([5.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 9.0]) == 3.0
