"""Many small datasets, several open at once, from several threads; one abandoned."""

import threading

import netCDF4
import numpy as np

files = []
for n in range(12):
    file = netCDF4.Dataset(f"many-{n:02d}.nc", "w")
    file.createDimension("t", None)
    file.createDimension("x", 1000)
    file.createVariable("v", "f8", ("t", "x"), zlib=n % 2 == 0)
    files.append(file)
for t in range(5):
    for n, file in enumerate(files):
        file["v"][t] = np.sin(np.arange(1000) * 0.01 * n + t)
        if n % 3 == 0:
            file.sync()
for file in reversed(files):
    file.close()

lock = threading.Lock()  # netCDF-C serves one call at a time


def write(n: int) -> None:
    with lock:
        file = netCDF4.Dataset(f"thread-{n}.nc", "w", format="NETCDF3_CLASSIC")
        file.createDimension("x", 500)
        variable = file.createVariable("v", "f4", ("x",))
    for i in range(0, 500, 50):
        with lock:
            variable[i : i + 50] = n + i
    with lock:
        file.close()


threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

with netCDF4.Dataset("again.nc", "w") as file:
    file.createDimension("x", 3)
    file.createVariable("v", "i4", ("x",))[:] = [1, 2, 3]
with netCDF4.Dataset("again.nc", "w") as file:
    file.createDimension("y", 2)
    file.createVariable("w", "i4", ("y",))[:] = [4, 5]
print("done")
