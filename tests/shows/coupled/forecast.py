"""One member of an ensemble, for some cycles in one process: forecast.py FILE MEMBER CYCLES.

Each cycle reads the analysis of the last one from the file that it then writes anew."""

import sys

import netCDF4
import numpy as np

name, member, cycles = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
state = np.arange(50.0) + member
for cycle in range(cycles):
    with netCDF4.Dataset(name, "w") as out:
        out.createDimension("x", 50)
        out.cycle = cycle
        out.createVariable("T", "f8", ("x",))[:] = state
    with netCDF4.Dataset(name) as analysis:
        assert analysis.cycle == cycle, f"{analysis.cycle} is not the analysis of cycle {cycle}"
        state = 1.5 * analysis["T"][:] + member
print(" ".join(f"{value!r}" for value in state.tolist()))
