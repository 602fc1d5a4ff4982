"""Uses of a file's name beside opening it with netCDF: names.py CASE, or names.py show FILE…"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable

import netCDF4


def write(name: str, value: int) -> None:
    with netCDF4.Dataset(name, "w") as out:
        out.createDimension("x", 100)
        out.createVariable("v", "i4", ("x",), zlib=True)[:] = value


def content(name: str) -> str:
    with open(name, "rb") as file:
        if file.read(4) not in (b"\x89HDF", b"CDF\x01"):
            file.seek(0)
            return file.read().decode()
    with netCDF4.Dataset(name) as file:
        return str(file["v"][:].tolist()[:2] + list(file.ncattrs()))


def show(*names: str) -> None:
    for name in names:
        print(name, content(name))


def bytes_of(name: str) -> bytes:
    with open(name, "rb") as file:
        return file.read()


def put_bytes(name: str, mode: str, data: bytes) -> None:
    with open(name, mode) as file:
        file.write(data)


def why(call: Callable[[], object]) -> None:
    """The error of a call."""
    try:
        call()
    except OSError as error:
        print(error.strerror)
    else:
        print("done")


def run(*words: str) -> None:
    print(words[0], subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode)


def overwrite() -> None:
    write("other", 2)
    write("a.nc", 1)
    put_bytes("a.nc", "wb", bytes_of("other"))
    show("a.nc")


def copy_over() -> None:
    write("other", 2)
    write("a.nc", 1)
    run("cp", "other", "a.nc")
    run("cp", "a.nc", "b.nc")
    show("a.nc", "b.nc")


def text() -> None:
    put_bytes("a.nc", "xb", b"begun\n")
    put_bytes("a.nc", "ab", b"more\n")
    show("a.nc")
    why(lambda: open("a.nc", "xb"))  # noqa: SIM115
    put_bytes("a.nc", "r+b", b"BEGUN")
    os.truncate("a.nc", 8)
    os.close(os.open("b.nc", os.O_CREAT | os.O_WRONLY | os.O_TRUNC))
    print(os.stat("b.nc").st_size, os.path.exists("b.nc"))
    show("a.nc")


def half_written() -> None:
    write("a.nc", 1)
    with open("a.nc", "w") as file:
        file.write("first")
        file.flush()
        show("a.nc")
        print(os.stat("a.nc").st_size)
        file.write(", second")
    show("a.nc")
    subprocess.run("echo from a shell > b.nc", shell=True, check=True)
    show("b.nc")


def renamed() -> None:
    for value in range(3):
        write("a.nc.tmp", value)
        os.rename("a.nc.tmp", "a.nc")
        show("a.nc")
    print(os.path.exists("a.nc.tmp"))
    put_bytes("b.nc.tmp", "wb", b"text")
    os.replace("b.nc.tmp", "b.nc")
    show("b.nc")
    why(lambda: os.rename("none.nc", "b.nc"))


def moved() -> None:
    write("a.nc.tmp", 4)
    run("mv", "a.nc.tmp", "a.nc")
    write("b.nc", 5)
    run("mv", "-n", "a.nc", "b.nc")
    show("a.nc", "b.nc")
    run("mv", "b.nc", "c.nc")
    run("mv", "-f", "c.nc", "b.nc")
    show("b.nc")
    print(os.path.exists("c.nc"))


def moved_while_open() -> None:
    out = netCDF4.Dataset("other", "w")
    out.createDimension("x", 100)
    out.createVariable("v", "i4", ("x",))[:] = 7
    os.rename("other", "a.nc")
    out.close()
    show("a.nc")


def archived() -> None:
    write("a.nc", 6)
    os.chmod("a.nc", 0o640)
    os.rename("a.nc", "archive")
    print(os.path.exists("a.nc"), oct(os.stat("archive").st_mode))
    show("archive")
    why(lambda: os.rename("a.nc", "archive"))
    os.rename("archive", "a.nc")
    print(oct(os.stat("a.nc").st_mode), os.path.exists("archive"))
    show("a.nc")


def linked() -> None:
    write("a.nc", 7)
    os.symlink("a.nc", "guess")
    os.symlink(os.path.abspath("guess"), "b.nc")  # its own name matches the rule, too
    show("guess", "b.nc")
    print(os.path.islink("guess"), os.path.islink("a.nc"), os.stat("guess").st_size == os.stat("a.nc").st_size)
    run("test", "-s", "guess")
    write("guess", 8)
    show("a.nc", "guess")
    os.remove("guess")
    os.remove("b.nc")
    show("a.nc")


def hard_linked() -> None:
    write("other", 9)
    os.link("other", "a.nc")
    show("a.nc", "other")
    why(lambda: os.link("other", "a.nc"))


def looked_at() -> None:
    write("a.nc", 1)
    run("ls", "-la", "a.nc")
    run("test", "-s", "a.nc")
    run("cp", "-a", "a.nc", "copy")
    show("copy")
    print(os.stat("a.nc").st_nlink, os.access("a.nc", os.W_OK))


def by_nco() -> None:
    write("a.nc", 3)
    run("ncatted", "-O", "-h", "-a", "note,global,c,c,text", "a.nc")
    run("ncks", "-O", "-h", "a.nc", "b.nc")
    show("a.nc", "b.nc")


def in_memory_alone() -> None:
    with netCDF4.Dataset("a.nc", "w", diskless=True) as out:
        out.createDimension("x", 2)
    print(os.path.exists("a.nc"))
    with netCDF4.Dataset("a.nc", "w", diskless=True, persist=True) as out:
        out.createDimension("x", 100)
        out.createVariable("v", "i4", ("x",))[:] = 5
    show("a.nc")
    with netCDF4.Dataset("a.nc", "r+", diskless=True) as file:
        file["v"][:] = 6
    show("a.nc")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        globals()[sys.argv[1]](*sys.argv[2:])
