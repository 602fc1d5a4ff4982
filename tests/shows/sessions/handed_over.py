"""handed_over.py WHAT: a file with values gets a group, which only the netCDF library can write.

WHAT is what happens before that: nothing, renamed, moved (to another directory), removed; or killed: the process dies
by a signal as soon as the library has written a part of the values anew.
"""

import os
import resource
import signal
import sys
from pathlib import Path

import netCDF4
import numpy as np

what = sys.argv[1]
with netCDF4.Dataset("out.nc", "w") as file:
    file.createDimension("x", 2_000_000)
    values = file.createVariable("v", "f4", ("x",))
    values[:] = np.arange(2_000_000)
    file.sync()
    os.chmod("out.nc", 0o640)
    if what == "renamed":
        os.rename("out.nc", "other.nc")
    elif what == "moved":
        Path("below").mkdir()
        os.rename("out.nc", "below/out.nc")
    elif what == "removed":
        os.unlink("out.nc")
    elif what == "killed":
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
    try:
        group = file.createGroup("g")
    except RuntimeError as error:
        print(error)
        os._exit(3)
    values[0] = -1
    group.createVariable("w", "i4", ())[:] = 5
    print(file.filepath())
print(sorted(os.listdir()))
