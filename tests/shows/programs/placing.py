"""Puts of every shape: points, rows, strides, overlapping, out of order, beyond the end of what is there."""

import netCDF4
import numpy as np

random = np.random.default_rng(2)

for name, options in {
    "chunked": {"zlib": True, "complevel": 1, "chunksizes": (3, 5, 4)},
    "plain": {},
    "bitrounded": {"zlib": True, "significant_digits": 3, "quantize_mode": "BitRound"},
    "zstd": {"compression": "zstd", "complevel": 3},
}.items():
    with netCDF4.Dataset(f"{name}.nc", "w") as file:
        file.createDimension("t", None)
        file.createDimension("y", 23)
        file.createDimension("x", 17)
        variable = file.createVariable("v", "f4", ("t", "y", "x"), **options)
        for t in (4, 0, 7, 2):
            variable[t] = random.normal(size=(23, 17))
            file.sync()
        variable[1, 3:9, 2:15:3] = random.normal(size=(6, 5))
        variable[5, ::4, ::2] = random.normal(size=(6, 9))
        variable[:, 11, 6] = np.arange(8)
        variable[0:8:7, :, 3] = random.normal(size=(2, 23))
        for n in range(40):
            variable[6, n % 23, (n * 7) % 17] = n
        variable[9, 22, 16] = 1.0
        doubles = file.createVariable("converted", "i2", ("t",))
        doubles[:] = np.arange(10.0) * 3.0
        print(name, variable.shape, float(variable[5].sum()), int(doubles[9]))
