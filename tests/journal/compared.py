"""Is a netCDF file what the journals hold of it?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from journal_contents import Dataset
from journal_reader import FORMATS, STRING, TYPES

sys.path.append(str(Path(__file__).resolve().parents[1] / "shows"))
from same import NC_GLOBAL, File


def as_bytes(kind: int, values: Any) -> object:
    if kind == STRING:
        return tuple(values)
    return values if isinstance(values, bytes) else np.array(values, TYPES[kind][1]).tobytes()


def assert_file_is(path: Path, dataset: Dataset) -> None:
    """The file has the dimensions, attributes, types, fill values, storage and values that the journal has."""
    schema, arrays = dataset.schema, dataset.arrays()
    assert schema
    with File(path) as file:
        assert file.format == FORMATS[schema.format]
        names = [(d.name, d.unlimited) for d in schema.dimensions]
        assert [(name, unlimited) for name, _, unlimited in file.dims()] == names
        for number, attributes in [
            (NC_GLOBAL, schema.attributes),
            *((n, v.attributes) for n, v in enumerate(schema.variables)),
        ]:
            ours = [(a.name, a.type, as_bytes(a.type, a.values)) for a in attributes]
            assert file.atts(number) == ours, f"attributes of variable {number}"
        assert file.var_count() == len(schema.variables)
        for number, v in enumerate(schema.variables):
            name, kind, dimensions, _ = file.var(number)
            assert (name, kind, list(dimensions)) == (v.name, v.type, v.dimensions)
            shape = tuple(file.dims()[d][1] for d in dimensions)
            values = arrays[name]
            assert values.shape == shape, name
            theirs = file.read(number, (0,) * len(shape), shape)
            ours = values.ravel().tolist() if kind == STRING else values.tobytes()
            assert (theirs if kind == STRING else theirs.tobytes()) == ours, f"values of {name}"
            if kind != STRING and not v.no_fill:
                assert file.fill(number)[1] == as_bytes(kind, [v.fill])
            if file.hdf5 and shape:
                stored = file.storage(number)
                layout = "compact" if v.compact else "contiguous" if v.contiguous else "chunked"
                assert (stored["layout"], stored["chunks"]) == (layout, tuple(v.chunks))
                # HDF5 adds parameters of its own to some.
                filters = zip(stored["filters"], v.filters, strict=True)  # type: ignore[call-overload]
                assert all(i == j and p[: len(q)] == tuple(q) for (i, p), (j, q) in filters)
                assert v.endian in (0, stored["byte order"])
