#!/usr/bin/env python3
"""Read what the netcdf4 sink made of every codec with decoders that are not ours.

Usage: check_with_wheels.py TEST_PROGRAM
Has TEST_PROGRAM (test_sinks) write its files, and compares each with the raw values beside it, through the netCDF4 wheel and
hdf5plugin's filters. Exit code 77 where the wheels are missing.
"""

import os
import subprocess
import sys
import tempfile

try:
    import hdf5plugin  # noqa: F401  (importing it registers the filters)
    import netCDF4
    import numpy as np
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)


def main() -> int:
    program = sys.argv[1]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="advectio-codecs-") as directory:
        env = dict(os.environ, ADVECTIO_CODEC_FILES=directory)
        subprocess.run([program, "--gtest_filter=Codecs.Each*"], env=env, check=True, stdout=subprocess.DEVNULL)
        # hdf5plugin brings its filters into the HDF5 that h5py uses; netCDF4 has its own.
        import h5py

        names = sorted(n for n in os.listdir(directory) if n.endswith(".nc"))
        if not names:
            print("no files were written")
            return 1
        for name in names:
            path = os.path.join(directory, name)
            with open(path[:-3] + ".raw", "rb") as f:
                raw = f.read()
            for reader in ("h5py+hdf5plugin", "netCDF4"):
                try:
                    got = b""
                    if reader == "netCDF4":
                        with netCDF4.Dataset(path) as ds:
                            ds.set_auto_maskandscale(False)
                            for v in ds.variables.values():
                                got += np.ascontiguousarray(v[:]).tobytes()
                    else:
                        with netCDF4.Dataset(path) as ds:
                            order = list(ds.variables)
                        with h5py.File(path) as f:
                            for v in order:
                                got += np.ascontiguousarray(f[v][:]).tobytes()
                    verdict = "equal" if got == raw else "DIFFERENT"
                except Exception as e:
                    verdict = f"cannot read ({type(e).__name__}: {e})"
                # The netCDF4 wheel has no LZ4 of its own.
                expected = verdict == "equal" or (reader == "netCDF4" and "lz4" in name and "blosc" not in name)
                if reader == "netCDF4" and name.startswith("bitshuffle"):
                    expected = verdict != "DIFFERENT"
                if reader == "netCDF4" and name.startswith("szip"):
                    expected = verdict != "DIFFERENT"
                failed += not expected
                print(f"{name:36s} {reader:16s} {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
