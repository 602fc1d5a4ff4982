#!/usr/bin/env python3
"""Makes coastlines.npz of the package: Natural Earth's coasts and borders at 1:50 million, so that no map needs a download.

    npm pack world-atlas@2.0.2 && tar xzf world-atlas-2.0.2.tgz
    scripts/make_coastlines.py package/countries-50m.json python/src/advectio/pictures/coastlines.npz

Natural Earth is in the public domain; world-atlas (ISC licence) has it as TopoJSON.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np


def arcs_of(rings: object) -> Iterator[int]:
    """The arcs of a geometry; ~i is arc i the other way round."""
    if isinstance(rings, int):
        yield rings if rings >= 0 else ~rings
    elif isinstance(rings, list):
        for each in rings:
            yield from arcs_of(each)


def main(source: str, to: str) -> None:
    with open(source, encoding="utf-8") as file:
        topology = json.load(file)
    uses = Counter(
        arc for country in topology["objects"]["countries"]["geometries"] for arc in set(arcs_of(country.get("arcs", [])))
    )
    steps = np.concatenate([np.asarray(arc, dtype=np.int32) for arc in topology["arcs"]])  # each arc: a point, then steps
    np.savez_compressed(
        to,
        steps=steps,
        lengths=np.asarray([len(arc) for arc in topology["arcs"]], dtype=np.int32),
        border=np.asarray([uses[number] > 1 for number in range(len(topology["arcs"]))]),  # else a coast
        scale=np.asarray(topology["transform"]["scale"]),
        translate=np.asarray(topology["transform"]["translate"]),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
