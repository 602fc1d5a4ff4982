"""Derived fields: what may be said, what it gives, and what is refused."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("xarray")

from advectio.decoding import decode  # noqa: E402
from advectio.pictures.expressions import Expression, WrongExpression  # noqa: E402
from made_up import wrf  # noqa: E402


def value(text: str) -> np.ndarray:
    return Expression.parse(text).evaluate(decode(wrf()))


def test_a_named_expression():
    found = Expression.parse("wind10 = hypot(U10, V10)")
    assert (found.name, found.text, list(found.fields)) == ("wind10", "hypot(U10, V10)", ["U10", "V10"])
    assert (value("wind10 = hypot(U10, V10)") == 5).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("U10 + 2 * V10 - 1", 10), ("-U10 ** 2", -9), ("U10 / 0.5", 6), ("where(U10 > 2, V10, 0)", 4), ("clip(V10, 0, 1)", 1),
        ("maximum(U10, V10)", 4), ("sqrt(U10 * U10)", 3), ("degrees(arctan2(V10, V10))", 45), ("cos(pi * U10 / U10)", -1),
        ("column_max(QVAPOR) * 0 + U10", 3),
    ],
)  # fmt: skip
def test_values(text, expected):
    np.testing.assert_allclose(value(text).values, expected, rtol=1e-6)


def test_column_and_destaggered():
    ds = decode(wrf())
    assert (value("column_max(QVAPOR)") == ds.QVAPOR.max("bottom_top")).all()
    assert value("destagger(U)").dims == ("Time", "bottom_top", "south_north", "west_east")
    w = value("destagger(W)")
    np.testing.assert_allclose(w.values, 0.5 * (ds.W.values[:, 1:] + ds.W.values[:, :-1]))


def test_units_are_kept_where_they_are_sure():
    assert value("hypot(U10, V10)").attrs["units"] == "m s-1"
    assert value("column_max(QVAPOR)").attrs["units"] == "kg kg-1"
    for unsure in ("T2 - 273.15", "U10 * V10", "U10 / V10", "where(U10 > 2, V10, 0)", "U10 + T2", "log(PSFC)"):
        assert "units" not in value(unsure).attrs, unsure


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "T2.values", "T2.__class__", "T2[0]", "[T2]", "lambda: T2", "T2 if U10 else V10", "T2 and U10",
        "'T2'", "f'{T2}'", "(T2 := 1)", "open(T2)", "eval(T2)", "getattr(T2, U10)", "hypot(U10)", "hypot(U10, V10, out=T2)", "hypot(*T2)",
        "T2 +", "1 + 2", "T2; U10", "T2 @ U10", "T2 // 2", "0 < T2 < 1", "1j * T2", "",
    ],
)  # fmt: skip
def test_refused_before_anything_is_read(text):
    with pytest.raises(WrongExpression):
        Expression.parse(text)


def test_a_number_that_is_too_large_is_refused_at_once():
    with pytest.raises(WrongExpression, match="has no value"):
        value("T2 * 9 ** 9 ** 9 ** 9")
    with pytest.raises(WrongExpression):
        Expression.parse("-" * 5000 + "T2")


@pytest.mark.parametrize(
    ("text", "hint"), [("T22", "did you mean T2"), ("psfc", "did you mean PSFC"), ("hypott(U10, V10)", "did you mean hypot")]
)
def test_the_nearest_name_is_told(text, hint):
    with pytest.raises(WrongExpression, match=hint):
        value(text)


def test_fields_on_different_points_are_not_spread_over_each_other():
    with pytest.raises(WrongExpression, match=r"destagger\(U\)"):
        value("hypot(U, V)")
    assert (value("hypot(destagger(U), destagger(V))") == np.float32(np.sqrt(2))).all()
