"""JSON held against the types that say what it is: nothing is missing, nothing is there that they do not tell of."""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict


def keys_of(shape: Any) -> dict[str, tuple[Any, bool]]:
    """Of a TypedDict: each key with its type, and whether it is always there."""
    hints = get_type_hints(shape, include_extras=True)
    return {key: (get_args(hint)[0], False) if get_origin(hint) is NotRequired else (hint, True) for key, hint in hints.items()}


def differences(value: Any, shape: Any, where: str = "") -> Iterator[str]:
    """What of the value is not as its type says."""
    origin = get_origin(shape)
    if is_typeddict(shape):
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no {shape.__name__}"
            return
        keys = keys_of(shape)
        for key in sorted(value.keys() - keys.keys()):
            yield f"{where}.{key} is not in {shape.__name__}"
        for key, (kind, always) in keys.items():
            if key in value:
                yield from differences(value[key], kind, f"{where}.{key}")
            elif always:
                yield f"{where}.{key} is missing"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for number, each in enumerate(value):
            yield from differences(each, get_args(shape)[0], f"{where}[{number}]")
    elif origin is dict:
        for key, each in value.items():
            yield from differences(each, get_args(shape)[1], f"{where}.{key}")
    elif origin in (Union, UnionType):
        if all(list(differences(value, kind, where)) for kind in get_args(shape)):
            yield from differences(value, get_args(shape)[0], where)
    elif origin is Literal:
        if value not in get_args(shape):
            yield f"{where}: {value!r}"
    else:
        fits = isinstance(value, (int, float) if shape is float else shape) and (shape is bool or not isinstance(value, bool))
        if not fits:
            yield f"{where}: {value!r} is no {shape.__name__}"


def must_fit(value: Any, shape: Any) -> None:
    found = list(differences(value, shape))
    assert not found, "\n".join(found)


def heading(shape: Any) -> str:
    """Of its section in docs/json.md."""
    return "".join(" " + c.lower() if c.isupper() else c for c in shape.__name__).strip()


def in_words(shape: Any) -> str:
    """The type as docs/json.md writes it."""
    origin = get_origin(shape)
    if is_typeddict(shape):
        return f"[{heading(shape)}](#{heading(shape).replace(' ', '-')})"
    if origin is list:
        return f"list of {in_words(get_args(shape)[0])}"
    if origin is dict:
        return f"{in_words(get_args(shape)[1])} by name"
    if origin in (Union, UnionType):
        return " or ".join(in_words(kind) for kind in get_args(shape))
    words = {int: "integer", float: "number", str: "text", bool: "boolean", NoneType: "null", None: "null"}
    return words[shape]
