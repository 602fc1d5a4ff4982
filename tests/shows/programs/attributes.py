"""Attributes of every type, changed, renamed, deleted and added late; names changed; define mode entered again and again."""

import netCDF4
import numpy as np

for format in ("NETCDF4", "NETCDF4_CLASSIC", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"):
    with netCDF4.Dataset(f"{format}.nc", "w", format=format) as file:
        file.createDimension("time", None)
        file.createDimension("x", 4)
        variable = file.createVariable("v", "f4", ("time", "x"))
        variable.units = "m"
        variable.long_name = "a name that will be shorter"
        variable.flag = np.int32(1)
        file.first = "1"
        for kind in ("i1", "i2", "i4", "f4", "f8"):
            setattr(file, f"one_{kind}", np.array(3, kind))
            setattr(file, f"many_{kind}", np.arange(9).astype(kind))
        if format in ("NETCDF4", "NETCDF3_64BIT_DATA"):
            for kind in ("u1", "u2", "u4", "i8", "u8"):
                setattr(file, f"many_{kind}", np.arange(5).astype(kind))
        if format == "NETCDF4":
            file.setncattr_string("string", "one string")
            file.setncattr("strings", ["several", "", "strings"])
        file.empty = ""
        variable[0] = [1, 2, 3, 4]
        file.sync()
        variable.long_name = "shorter"
        variable.units = "a unit that is longer than it was"
        variable.flag = np.float64(2.5)
        file.first = "changed, and longer"
        file.late = "added after data"
        variable[1] = [5, 6, 7, 8]
        file.createVariable("second", "i2", ("x",))[:] = 9
        file.renameVariable("second", "2nd")
        file.renameDimension("x", "eastward")
        file.delncattr("late")
        file.renameAttribute("many_i4", "renamed")
        file.sync()
        variable[3] = [9, 9, 9, 9]
        print(format, file.dimensions["time"].size, variable[2].tolist())
