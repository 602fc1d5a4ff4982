"""What is in a file, as text: reader.py FILE…"""

import hashlib
import sys

import netCDF4

for name in sys.argv[1:]:
    with netCDF4.Dataset(name) as file:
        print("file", file.filepath(), file.data_model)
        print("attributes", {key: str(file.getncattr(key)) for key in file.ncattrs()})
        print("dimensions", {key: len(d) for key, d in file.dimensions.items()})
        for key, variable in file.variables.items():
            variable.set_auto_maskandscale(False)
            print(key, variable.dtype, hashlib.sha256(variable[...].tobytes()).hexdigest())
