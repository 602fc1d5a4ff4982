"""Every type, unlimited and fixed, filled and not, contiguous and chunked, big and little endian."""

import netCDF4
import numpy as np

random = np.random.default_rng(1)

with netCDF4.Dataset("kinds.nc", "w") as file:
    file.createDimension("t", None)
    file.createDimension("y", 7)
    file.createDimension("x", 11)
    for kind in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
        values = (random.normal(size=(5, 7, 11)) * 100).astype(kind)
        file.createVariable(f"{kind}_fixed", kind, ("y", "x"))[:] = values[0]
        file.createVariable(f"{kind}_records", kind, ("t", "y", "x"))[:] = values
        file.createVariable(f"{kind}_deflated", kind, ("t", "y", "x"), zlib=True, chunksizes=(2, 4, 5))[:] = values
        file.createVariable(f"{kind}_big", ">" + kind if kind[1] != "1" else kind, ("y", "x"), endian="big")[:] = values[1]
        file.createVariable(f"{kind}_part", kind, ("t", "y", "x"), fill_value=7)[3, 2:5, ::2] = values[3, 2:5, ::2]
        file.createVariable(f"{kind}_unfilled", kind, ("y", "x"), fill_value=False)[:] = values[2]
        file.createVariable(f"{kind}_never", kind, ("y", "x"), zlib=True)
        file.createVariable(f"{kind}_scalar", kind, ())[...] = 3
    file.createVariable("checked", "f4", ("t", "y", "x"), fletcher32=True, shuffle=False)[:5] = 1.5
    letters = file.createVariable("letters", "S1", ("t", "x"))
    letters[0] = np.frombuffer(b"hello world", "S1")
    letters[4] = np.frombuffer(b"and so long", "S1")
    text = file.createVariable("text", str, ("y",))
    text[:] = np.array(["", "a", "größer", "日本", "x" * 300, "tab\t", "end"], object)
    file.createVariable("text_records", str, ("t",))[2] = "third"
    print(file["f4_part"].shape, file["f4_part"][3, 2, 2], file["text"][3])
