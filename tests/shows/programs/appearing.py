"""Creates a.nc in place of what is there, with the server stopped, and prints what it sees of it. Then it goes on when `on` is there.

Usage: appearing.py [frames] [rename] [remove] [hand-over] [below] [move]. frames: it syncs each frame, and waits for the test
after the first. below: the file is d/a.nc. move: it renames that directory.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import netCDF4
import numpy as np
import stopping


def stop_server(how: signal.Signals) -> None:
    if "ADVECTIO_RUN" in os.environ:
        with contextlib.suppress(ProcessLookupError):  # the test has killed it
            if how == signal.SIGSTOP:
                stopping.stop_server()
            else:
                os.kill(stopping.server_of_stage(pathlib.Path(os.environ["ADVECTIO_RUN"])), how)


def wait_for(name: str) -> None:
    while "ADVECTIO_RUN" in os.environ and not os.path.exists(name):
        time.sleep(0.005)


def refuses(action: object) -> bool:
    try:
        action()
    except OSError:
        return True
    return False


stop_server(signal.SIGSTOP)
if "below" in sys.argv:
    os.mkdir("d")
    os.chdir("d")
file = netCDF4.Dataset("a.nc", "w")
file.createDimension("t", None)
file.createDimension("x", 10_000)
v = file.createVariable("v", "f8", ("t", "x"))
v[0] = np.random.default_rng(0).random(10_000)
seen = {
    "there": os.path.exists("a.nc") and os.access("a.nc", os.W_OK) and os.path.isfile("a.nc"),
    "size": os.path.getsize("a.nc"),
    "by a child": os.system("[ -e a.nc ] && ! [ -s a.nc ]") == 0,
    "not to be created again": refuses(lambda: netCDF4.Dataset("a.nc", "w", clobber=False)),
    "not to be made": refuses(lambda: os.open("a.nc", os.O_CREAT | os.O_EXCL | os.O_WRONLY)),
    "listed": [name for name in os.listdir(".") if "a.nc" in name or name.endswith(".file")],
    "listed by a shell": os.popen("echo a.*").read().split(),
}
os.chmod("a.nc", 0o640)
seen["mode"] = oct(os.stat("a.nc").st_mode & 0o777)
if "rename" in sys.argv:
    os.rename("a.nc", "b.nc")
    seen["renamed"] = [os.path.exists(name) for name in ("a.nc", "b.nc")]
if "remove" in sys.argv:
    os.remove("a.nc")
    seen["removed"] = not os.path.exists("a.nc")
if "below" in sys.argv:
    os.chdir("..")
if "move" in sys.argv:
    os.rename("d", "e")
    seen["moved"] = [os.path.exists(name) for name in ("d/a.nc", "e/a.nc")]
if "hand-over" in sys.argv:
    stop_server(signal.SIGCONT)
    file.createCompoundType(np.dtype([("u", "f4"), ("v", "f4")]), "wind")
print(json.dumps(seen), flush=True)
wait_for("on")
stop_server(signal.SIGCONT)
for frame in range(1, 3):
    if "frames" in sys.argv:
        file.sync()
        if frame == 1:
            print("synced", flush=True)
            wait_for("further")
    v[frame] = np.random.default_rng(frame).random(10_000)
file.close()
