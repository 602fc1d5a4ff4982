"""Writes a file, stops the server before it can be complete, makes markers in every way, and says of each what it sees and what
others do: a program without the preloaded library lists the directory.

Usage: marking.py [die | wait]. die: the program is killed with the markers held. wait: it stays until the file `on` is there."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import netCDF4
import numpy as np
import stopping


def server() -> int:
    """server_pid, see journal/SPEC.md."""
    control = pathlib.Path(os.environ["ADVECTIO_RUN"], "control").read_bytes()
    return int.from_bytes(control[12:16], "little")


def seen_by_others() -> list[str]:
    return subprocess.check_output(["env", "-u", "LD_PRELOAD", "ls", "-A"], text=True).split()


def seen(name: str) -> dict[str, object]:
    text = pathlib.Path(name).read_text() if os.path.isfile(name) else None
    return {"inside": os.path.lexists(name), "outside": name in seen_by_others(), "text": text}


values = np.random.default_rng(7).random((64, 256, 256))
pathlib.Path("old.done").write_text("of before\n")
pathlib.Path("older.done").write_text("of before\n")
pathlib.Path("there.ok").write_text("of before\n")
os.symlink("log.f002", "logf002")
os.symlink("behind", "link.done")
file = netCDF4.Dataset("hist.nc", "w")
file.createDimension("x", values.shape[0])
file.createDimension("y", values.shape[1])
file.createDimension("z", values.shape[2])
file.createVariable("v", "f8", ("x", "y", "z"), zlib=True)[:] = values
stopping.stop_server()
file.close()

pathlib.Path("python.done").write_text("done\n")
os.close(os.open("excl.flag", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
subprocess.run(["sh", "-c", "echo step 1 > log.f001; echo step 2 >> log.f001"], check=True)
subprocess.run(["touch", "touched.ready"], check=True)
with open("old.done", "a") as marker:
    marker.write("and of now\n")
pathlib.Path("older.done").write_text("of now\n")
pathlib.Path("draft").write_text("renamed\n")
os.rename("draft", "renamed.complete")
pathlib.Path("first").write_text("linked\n")
os.link("first", "linked.trigger")
os.symlink("first", "rpointer.atm")
pathlib.Path("logf002").write_text("through a link\n")
with open("link.done", "a") as marker:
    marker.write("through a link\n")
through_links = [pathlib.Path(name).read_text() for name in ("logf002", "link.done")]
pathlib.Path("dropped.ok").write_text("not to be\n")
os.remove("dropped.ok")
pathlib.Path("a_done").write_text("moved\n")
os.rename("a_done", "b_done")
pathlib.Path("kept_done").write_text("moved away\n")
os.rename("kept_done", "kept")
refused = []
for call in (lambda: os.open("there.ok", os.O_CREAT | os.O_EXCL), lambda: os.link("first", "there.ok")):
    try:
        call()
    except FileExistsError:
        refused.append(True)
pathlib.Path("plain.txt").write_text("no marker\n")

names = [
    "python.done",
    "excl.flag",
    "log.f001",
    "log.f002",
    "behind",
    "touched.ready",
    "old.done",
    "older.done",
    "renamed.complete",
    "linked.trigger",
    "rpointer.atm",
    "dropped.ok",
    "a_done",
    "b_done",
    "kept_done",
    "kept",
    "there.ok",
    "plain.txt",
]
said = {"refused": refused, "through_links": through_links, "after": sorted(seen_by_others())}
print(json.dumps({name: seen(name) for name in names} | said), flush=True)
if sys.argv[1:] == ["die"]:
    os.kill(os.getpid(), signal.SIGKILL)
while sys.argv[1:] == ["wait"] and not os.path.exists("on"):
    time.sleep(0.01)
os.kill(server(), signal.SIGCONT)
