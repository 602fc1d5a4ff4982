#!/usr/bin/env python3
"""Makes the first inputs of corpus/: from the golden journals, from schemas of files written under Advectio, by hand.

    .venv/bin/python tests/fuzz/seeds.py        (after `make build`)

What libFuzzer and its findings have added to corpus/ stays.
"""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import netCDF4
import numpy as np

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"

SEGMENT_HEADER, RECORD_HEADER, ALIGNMENT = 4096, 64, 64
RECORDS = {1: 0, 7: 1, 3: 2, 4: 3, 5: 3, 8: 4}  # type in the journal → choice in records.cpp
SCHEMA = 2


def put(target: str, name: str, content: bytes) -> None:
    directory = CORPUS / target
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(content)


def padded(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


def journals() -> None:
    for version in sorted((ROOT / "tests/journal/golden").iterdir()):
        segments = sorted(version.glob("journals/*/0000*"))
        for number, path in enumerate(segments):
            content = path.read_bytes()
            (committed,) = struct.unpack_from("<Q", content, 64)
            for flags in (0, 1, 3):
                put(
                    "journal",
                    f"{version.name}-{number}-{flags}",
                    bytes([flags]) + content[:80] + content[SEGMENT_HEADER:committed],
                )
            if number == 0:
                records(version.name, content[:committed])


def records(version: str, content: bytes) -> None:
    at = SEGMENT_HEADER
    while len(content) - at >= RECORD_HEADER:
        kind, dataset_meta, payload_bytes = (
            *struct.unpack_from("<H", content, at + 4),
            *struct.unpack_from("<IQ", content, at + 28),
        )
        meta = content[at + RECORD_HEADER :][:dataset_meta]
        payload = content[at + RECORD_HEADER + padded(dataset_meta) :][:payload_bytes]
        if kind in RECORDS:
            put("records", f"{version}-{kind}", bytes([RECORDS[kind]]) + meta)
        elif kind == SCHEMA:
            put("schema", f"{version}", payload)
        at += RECORD_HEADER + padded(dataset_meta) + padded(payload_bytes)
    put("records", "join", bytes([1]) + struct.pack("<I3sI", 3, b"1-2", 1))
    put("records", "settle", bytes([4]) + struct.pack("<IQQIQ", 2, 7, 9, 1, 8))
    put("records", "put-strided", bytes([2]) + struct.pack("<IIQQIQQIQQ", 5, 2, 0, 1, 2, 3, 4, 2, 1, 2))
    # The example of SPEC.md, "Packed boxes".
    packed = bytes.fromhex("0200 0102 0100 0108 0107 0102 0200 0102 0200")
    box = struct.pack("<IIQQIQQI", 5, 2, 4, 10, 2, 2, 5, 0)
    put("records", "put-boxes", bytes([2]) + box + struct.pack("<II", 3, len(packed)) + packed)


def write(path: str) -> None:
    """Tiles of the models whose place we read, and one file with everything else."""
    with netCDF4.Dataset(f"{path}/wrf", "w") as f:
        for name, n in (("Time", None), ("west_east", 5), ("south_north", 4), ("west_east_stag", 6)):
            f.createDimension(name, n)
        for axis, count in (("WEST-EAST", 10), ("SOUTH-NORTH", 8), ("BOTTOM-TOP", 3)):
            f.setncattr(f"{axis}_GRID_DIMENSION", np.int32(count + 1))
            for edge, at in (("START", 1), ("END", count // 2)):
                f.setncattr(f"{axis}_PATCH_{edge}_UNSTAG", np.int32(at))
                f.setncattr(f"{axis}_PATCH_{edge}_STAG", np.int32(at))
        f.createVariable("T", "f4", ("Time", "south_north", "west_east"), zlib=True, fill_value=-1.0)[0] = 1
        f.createVariable("U", "f4", ("Time", "south_north", "west_east_stag"))[0] = 2
    with netCDF4.Dataset(f"{path}/scale", "w") as f:
        f.setncatts({"scale_cartesC_prc_rank_x": np.int32(0), "scale_cartesC_prc_num_x": np.int32(2)})
        for name in ("x", "y"):
            f.createDimension(name, 6)
            axis = f.createVariable(name, "f8", (name,))
            axis.setncatts({"size_global": np.int32([12]), "start_global": np.int32([1])})
            axis.setncatts({"halo_global": np.int32([0, 0]), "halo_local": np.int32([0, 1])})
            axis[:] = 0
        f.createVariable("PREC", "f4", ("y", "x"))[:] = 3
    with netCDF4.Dataset(f"{path}/nemo", "w") as f:
        f.createDimension("x", 7)
        f.createDimension("y", 5)
        for name, pair in (
            ("dimensions_ids", (1, 2)), ("size_global", (12, 8)), ("size_local", (7, 5)), ("position_first", (1, 1)),
            ("position_last", (7, 5)), ("halo_size_start", (0, 0)), ("halo_size_end", (1, 1)),
        ):  # fmt: skip
            f.setncattr(f"DOMAIN_{name}", np.int32(pair))
        f.setncatts({"DOMAIN_number_total": np.int32(4), "DOMAIN_number": np.int32(0), "DOMAIN_type": "BOX"})
        f.createVariable("sst", "f8", ("y", "x"))[:] = 4
    with netCDF4.Dataset(f"{path}/all", "w") as f:
        f.createDimension("n", 9)
        for letter in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
            f.createVariable(letter, letter, ("n",), fill_value=7, chunksizes=(3,), fletcher32=True)[:] = 1
        f.createVariable("s", str, ("n",))[0] = "text"
        f.createVariable("big", ">f4", ("n",), endian="big")[:] = 1
        f.setncatts({"title": "a", "list": np.float64([1, 2, 3])})


def schemas() -> None:
    """As the server keeps them beside datasets in flight: files that are open, and synced."""
    with tempfile.TemporaryDirectory() as out:
        code = (
            f"import glob, os, shutil, sys, time; sys.path.insert(0, {str(HERE)!r}); import netCDF4, seeds\n"
            "held = []\n"
            "netCDF4.Dataset.__exit__ = lambda file, *_: (file.sync(), held.append(file))[1]\n"
            f"seeds.write({out!r})\n"
            "time.sleep(1)\n"
            f"for f in glob.glob(os.environ['ADVECTIO_RUN'] + '/datasets/*.schema'): shutil.copy(f, {out!r})\n"
        )
        subprocess.run([ROOT / ".venv/bin/advectio", "run", "--quiet", "--", sys.executable, "-c", code], check=True)
        for number, path in enumerate(sorted(Path(out).glob("*.schema"))):
            put("schema", f"file-{number}", path.read_bytes())


def configs() -> None:
    example = subprocess.run([ROOT / ".venv/bin/advectio", "config", "example"], check=True, capture_output=True).stdout
    put("config", "example", example)
    put("config", "rules", b'datasets:\n  - match: "wrfout_*"\n    codec: deflate\n    deflate: libdeflate\n    level: 4\n'
        b'    chunks: {bottom_top: 1}\n    round: {T: 10, "*": 12}\n  - {match: "/a/wrfrst_[!x]?", close: wait, durable: false}\n')  # fmt: skip
    put(
        "config",
        "top",
        b"stage: {directory: /tmp, bytes_max: 1.5GiB, segment_bytes: 1MiB}\nserver: {threads: 2}\nlog: {file: null}\n",
    )


def chunks() -> None:
    text = bytes(range(64)) * 2
    n = len(text)
    literal = bytes([0xF0, n - 15]) + text  # an LZ4 block of literals alone
    put("codec", "zstd", bytes([0, 0, 0, 0]) + b"\x28\xb5\x2f\xfd\x20" + bytes([n]) + (n << 3 | 1).to_bytes(3, "little") + text)
    put("codec", "lz4", bytes([1, 0, 0, 0]) + struct.pack(">QII", n, n, n) + text)
    put("codec", "lz4-packed", bytes([1, 0, 0, 0]) + struct.pack(">QII", n, n, len(literal)) + literal)
    put("codec", "blosc", bytes([2, 0, 0, 0, 2, 1, 2, 4]) + struct.pack("<III", n, n, n + 16) + text)
    put("codec", "bitshuffle", bytes([3, 0, 4, 0]) + text)
    put("codec", "bitshuffle-lz4", bytes([3, 2, 4, 0]) + struct.pack(">QII", n, n, len(literal)) + literal)


def requests() -> None:
    for name, line in (
        ("status", b'{"do":"status","secret":"s"}'),
        ("drain", b'{"do":"drain","secret":"s"}'),
        ("leave", b'{"do":"leave","secret":"s"}'),
        ("other", b'{"do":["\\u00e9",1e9,null]}'),
    ):
        put("request", name, line)


if __name__ == "__main__":
    journals()
    schemas()
    configs()
    chunks()
    requests()
