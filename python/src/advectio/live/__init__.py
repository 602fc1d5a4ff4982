"""Frames of running models: ``advectio.frames`` and the xarray engine ``advectio`` stand on this.

    client.py     the C++ client (src/readers), by ctypes: one connection to one server
    find.py       which run a file belongs to, and how to connect to it
    stream.py     frames of a run, one after the other, also over a server that is replaced
    datasets.py   a frame as an xarray.Dataset
    engine.py     xarray.open_dataset(path, engine="advectio")

Importing it starts nothing. numpy and xarray are imported when the first dataset is made.
"""
