"""Simple derived fields: `wind10 = hypot(U10, V10)`. Parsed by Python's own parser into a tree of which only names, numbers,
operators and the functions below are allowed; nothing of it is ever executed as Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import xarray as xr

LENGTH_MAX = 1000  # characters

# Named as in numpy, with their number of arguments.
_NUMPY = {
    "abs": 1, "sqrt": 1, "exp": 1, "log": 1, "log10": 1, "sin": 1, "cos": 1, "tan": 1, "arcsin": 1, "arccos": 1,
    "arctan": 1, "sinh": 1, "cosh": 1, "tanh": 1, "degrees": 1, "radians": 1, "floor": 1, "ceil": 1, "sign": 1,
    "hypot": 2, "arctan2": 2, "minimum": 2, "maximum": 2,
}  # fmt: skip
_OWN = {"where": 3, "clip": 3, "destagger": 1, "column_max": 1, "column_min": 1, "column_mean": 1}
FUNCTIONS = {**_NUMPY, **_OWN}
CONSTANTS = {"pi": 3.141592653589793, "nan": float("nan")}

# The result has the unit of its arguments, where they all have the same.
_KEEPS_UNITS = {"abs", "hypot", "minimum", "maximum", "destagger", "column_max", "column_min", "column_mean"}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
}
_NAMED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<text>.+)", re.DOTALL)


class WrongExpression(ValueError):
    """What is wrong with an expression, or why it cannot be had of a dataset."""


@dataclass(frozen=True)
class Expression:
    """`name = text`; a field of the file is an expression of one name."""

    name: str
    text: str

    @staticmethod
    def parse(source: str) -> Expression:
        match = _NAMED.fullmatch(source)
        text = (match["text"] if match else source).strip()
        found = Expression(match["name"] if match else _short(text), text)
        _check(found._tree())
        if not found.fields:
            raise WrongExpression(f"'{text}' names no field")
        return found

    @property
    def plain(self) -> bool:
        """It is a field of the file as it is."""
        return isinstance(self._tree(), ast.Name)

    @property
    def fields(self) -> Sequence[str]:
        """Names of the file's variables in it, each once, in their order."""
        tree = self._tree()
        functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in functions]
        return [name for name in dict.fromkeys(names) if name not in CONSTANTS]

    def evaluate(self, ds: xr.Dataset) -> xr.DataArray:
        """Lazy only where the dataset is chunked. Raises WrongExpression, e.g. for a variable that is not there."""
        missing = [name for name in self.fields if name not in ds.variables]
        if missing:
            raise WrongExpression(f"there is no field {missing[0]}{_near(missing[0], [str(n) for n in ds.variables])}")
        result = _value(self._tree(), ds)
        if not self.plain:
            result = result.rename(self.name)
            result.attrs = {"long_name": self.name if self.name != _short(self.text) else self.text}
            units = self._units(ds)
            if units:
                result.attrs["units"] = units
        return result  # type: ignore[no-any-return]

    def _units(self, ds: xr.Dataset) -> str | None:
        units = {str(ds[name].attrs.get("units", "")) for name in self.fields}
        for node in ast.walk(self._tree()):
            if isinstance(node, ast.Call):
                assert isinstance(node.func, ast.Name)
                keeps = node.func.id in _KEEPS_UNITS
            elif isinstance(node, ast.BinOp):
                keeps = isinstance(node.op, ast.Add | ast.Sub)
            else:
                keeps = not isinstance(node, ast.Constant | ast.Compare)  # a number has a unit that nobody tells
            if not keeps:
                return None
        return units.pop() if len(units) == 1 else None

    def _tree(self) -> ast.expr:
        if len(self.text) > LENGTH_MAX:
            raise WrongExpression(f"an expression of {len(self.text)} characters; at most {LENGTH_MAX}")
        try:
            return ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise WrongExpression(f"'{self.text}' is no expression") from error


def _short(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")


def _near(name: str, known: Sequence[str]) -> str:
    by_case = [each for each in known if each.lower() == name.lower()]
    near = by_case or get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


def _check(node: ast.expr) -> None:
    match node:
        case ast.Name():
            return
        case ast.Constant(value=bool() | str() | bytes() | complex() | None):
            raise WrongExpression(f"{ast.unparse(node)} is no number")
        case ast.Constant(value=int() | float()):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            _check(left)
            _check(right)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            _check(left)
            _check(right)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in FUNCTIONS:
                raise WrongExpression(
                    f"there is no function {name}{_near(name, list(FUNCTIONS)) or '; known: ' + ', '.join(FUNCTIONS)}"
                )
            if len(arguments) != FUNCTIONS[name]:
                raise WrongExpression(
                    f"{name} takes {FUNCTIONS[name]} argument{'s' * (FUNCTIONS[name] > 1)}, not {len(arguments)}"
                )
            for argument in arguments:
                _check(argument)
        case _:
            raise WrongExpression(
                f"'{ast.unparse(node)}' is not allowed: only fields, numbers, + - * / **, comparisons and functions"
            )


def _value(node: ast.expr, ds: xr.Dataset) -> Any:
    match node:
        case ast.Name(id=name):
            return CONSTANTS[name] if name in CONSTANTS else ds[name]
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.BinOp(left=left, op=op, right=right):
            operands = _together(_value(left, ds), _value(right, ds))
            try:
                return _BINARY[type(op)](*operands)
            except (OverflowError, ZeroDivisionError) as error:
                raise WrongExpression(f"'{ast.unparse(node)}' has no value") from error
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, ds)
            return -value if isinstance(op, ast.USub) else value
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARE[type(op)](*_together(_value(left, ds), _value(right, ds)))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _called(name, [_value(argument, ds) for argument in arguments])
    raise AssertionError(ast.dump(node))


def _together(*values: Any) -> tuple[Any, ...]:
    """Fields that lie on the same points, apart from dimensions that one has more: else each would be spread over all."""
    fields = sorted((value for value in values if hasattr(value, "dims")), key=lambda value: -len(value.dims))
    for field in fields[1:]:
        odd = [dim for dim in field.dims if dim not in fields[0].dims]
        if odd:
            staggered = next((f for f in fields if any(str(d).endswith("_stag") for d in f.dims)), None)
            advice = f"; write destagger({staggered.name})" if staggered is not None and staggered.name else ""
            raise WrongExpression(f"{fields[0].name} and {field.name} lie on different points ({odd[0]}){advice}")
    return values


def _called(name: str, values: list[Any]) -> Any:
    import numpy as np
    import xarray as xr

    if name == "destagger":
        return destaggered(_field(name, values[0]))
    if name.startswith("column_"):
        field = _field(name, values[0])
        from advectio.pictures.grids import vertical_dimension

        dimension = vertical_dimension(field)
        if dimension is None:
            raise WrongExpression(f"{name}: {field.name} has no levels")
        return getattr(field, name.removeprefix("column_"))(dimension)
    values = list(_together(*values))
    if name == "where":
        return xr.where(*values)  # type: ignore[no-untyped-call]
    if name == "clip":
        return _field(name, values[0]).clip(values[1], values[2])
    return getattr(np, name)(*values)


def _field(name: str, value: Any) -> xr.DataArray:
    if not hasattr(value, "dims"):
        raise WrongExpression(f"{name} is of a field, not of a number")
    return value  # type: ignore[no-any-return]


def destaggered(field: xr.DataArray) -> xr.DataArray:
    """Means of neighbours along each staggered dimension (WRF's `…_stag`); the field itself where there is none."""
    for dim in [str(d) for d in field.dims if str(d).endswith("_stag")]:
        if field.sizes[dim] < 2 or dim == "soil_layers_stag":
            continue
        plain = field.drop_vars([name for name in field.coords if dim in field[name].dims])
        name, attrs = field.name, field.attrs
        field = 0.5 * (plain.isel({dim: slice(None, -1)}) + plain.isel({dim: slice(1, None)}))
        field = field.rename({dim: dim.removesuffix("_stag")}).rename(name)
        field.attrs = attrs
    return field
