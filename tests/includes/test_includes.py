"""The folders of src/ stand in the order in which bytes travel; code uses only what stands before it.

Written down here once, and held against every #include and against the CMake targets.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ORDER = [
    "core",
    "config",
    "platform",
    "workflow",
    "journal",
    "readers",
    "exchange",
    "capture",
    "assembly",
    "operators",
    "sinks",
    "sources",
    "cluster",
    "server",
    "apps",
]

# The server knows sinks by their contract alone.
SINK_CONTRACT = "sinks/sink.h"
# Faces of capture run inside the model: what they must never bring with them.
NEVER = {"capture": {"assembly", "operators", "sinks", "cluster", "server"}}
# MPI is spoken in the examples, by the face that stands before a library which speaks it, and where that MPI is found.
FORBIDDEN_SYSTEM = re.compile(r"^(mpi|pnetcdf)\.h$")
SPEAKS_MPI = ("capture/pnetcdf/", "capture/shadow/mpi_library.", "apps/advectiod/mpi_transport.")

# What siblings share: the faces of capture, the sinks, and the sources. It uses none of them, and what stands before them does not
# use it.
SHARED_BY_SIBLINGS = {("capture", "shadow"), ("sinks", "chunks"), ("sinks", "transaction")}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)


def fault(file: str, included: str, system: bool) -> str | None:
    """What is wrong with one #include; `file` is below src/."""
    folder = Path(file).parts[0]
    if system:
        spoken = FORBIDDEN_SYSTEM.match(included) and not file.startswith(SPEAKS_MPI)
        return "MPI does not belong here" if spoken else None
    if "/" not in included:
        return "is included without its folder"
    target = Path(included).parts[0]
    if target not in ORDER:
        return f"{target}/ is no folder of src/"
    if folder == "server" and target == "sinks" and included != SINK_CONTRACT:
        return "the server knows sinks by sinks/sink.h alone"
    if target in NEVER.get(folder, set()):
        return f"{folder}/ runs inside the model and never uses {target}/"
    if ORDER.index(target) > ORDER.index(folder):
        return f"{target}/ stands after {folder}/"
    if folder == target and folder in ("sinks", "sources", "capture"):
        # Siblings: a sink does not know another sink, a source not another source, a face not another face. What they share lies above them.
        mine, other = Path(file).parent.parts, Path(included).parent.parts
        if len(other) > 1 and other != mine and not (other in SHARED_BY_SIBLINGS and len(mine) > 1):
            return f"{'/'.join(mine)}/ and {'/'.join(other)}/ are siblings"
    return None


def sources() -> list[Path]:
    return sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in (".h", ".cpp", ".c"))


def includes(path: Path) -> list[tuple[str, bool]]:
    return [(own or system, bool(system)) for own, system in INCLUDE.findall(path.read_text())]


def test_every_include_goes_up_the_stream():
    assert sources(), "no sources found"
    wrong = [
        f'src/{file}: "{included}": {what}'
        for path in sources()
        for file in [path.relative_to(ROOT / "src").as_posix()]
        for included, system in includes(path)
        if (what := fault(file, included, system))
    ]
    assert wrong == []


def test_every_included_file_is_there():
    wrong = [
        f'{path.relative_to(ROOT)}: "{included}"'
        for path in sources()
        for included, system in includes(path)
        if not system and not (ROOT / "src" / included).is_file()
    ]
    assert wrong == []


def test_every_folder_is_in_the_order():
    assert {p.name for p in (ROOT / "src").iterdir() if p.is_dir()} <= set(ORDER)


@pytest.mark.parametrize(
    ("file", "included", "system"),
    [
        ("core/box.cpp", "journal/writer.h", False),
        ("platform/files.cpp", "journal/stage.h", False),
        ("capture/netcdf/puts.cpp", "server/server.h", False),
        ("capture/netcdf/puts.cpp", "sinks/sink.h", False),
        ("capture/netcdf/puts.cpp", "capture/pnetcdf/put.h", False),
        ("journal/writer.cpp", "sinks/sink.h", False),
        ("server/server.cpp", "sinks/netcdf4/netcdf4_sink.h", False),
        ("sinks/netcdf4/a.cpp", "server/server.h", False),
        ("operators/a.cpp", "sinks/sink.h", False),
        ("sinks/netcdf4/a.cpp", "sinks/cdf5/b.h", False),
        ("sinks/transaction/a.h", "sinks/cdf5/b.h", False),
        ("sinks/a.h", "sinks/transaction/b.h", False),
        ("server/server.cpp", "sinks/transaction/b.h", False),
        ("sinks/netcdf4/a.cpp", "codec.h", False),
        ("server/server.cpp", "mpi.h", True),
        ("capture/netcdf/together.cpp", "mpi.h", True),
        ("capture/shadow/stall.h", "mpi.h", True),
        ("capture/shadow/stall.h", "capture/netcdf/captured_file.h", False),
        ("capture/session.cpp", "capture/shadow/ranks.h", False),
    ],
)
def test_what_goes_down_the_stream_is_found(file, included, system):
    assert fault(file, included, system) is not None


@pytest.mark.parametrize(
    ("file", "included", "system"),
    [
        ("server/server.cpp", "sinks/sink.h", False),
        ("server/server.cpp", "journal/reader.h", False),
        ("sinks/netcdf4/a.cpp", "sinks/library_lock.h", False),
        ("sinks/netcdf4/a.cpp", "sinks/netcdf4/b.h", False),
        ("sinks/netcdf4/a.cpp", "sinks/transaction/b.h", False),
        ("sinks/netcdf4/a.cpp", "sinks/chunks/b.h", False),
        ("operators/a.cpp", "core/field.h", False),
        ("capture/netcdf/puts.cpp", "capture/dataset.h", False),
        ("capture/pnetcdf/pnetcdf_api.h", "pnetcdf.h", True),
        ("capture/netcdf/puts.cpp", "capture/shadow/stall.h", False),
        ("capture/shadow/ranks.h", "capture/dataset.h", False),
        ("capture/shadow/mpi_library.h", "mpi.h", True),
        ("apps/advectiod/main.cpp", "sinks/netcdf4/netcdf4_sink.h", False),
        ("core/box.cpp", "vector", True),
    ],
)
def test_what_goes_up_the_stream_is_not(file, included, system):
    assert fault(file, included, system) is None


def linked_folders(folder: str) -> set[str]:
    """Folders whose targets the folder's own target links, from its CMakeLists.txt."""
    text = (ROOT / "src" / folder / "CMakeLists.txt").read_text()
    call = re.search(rf"advectio_folder\({folder}\b([^)]*)\)", text)
    return set(re.findall(r"advectio_(\w+)", call[1])) if call else set()


@pytest.mark.parametrize("folder", ["core", "config", "platform", "journal", "capture", "operators", "server"])
def test_a_folder_links_what_it_includes(folder):
    directory = ROOT / "src" / folder
    if not (directory / "CMakeLists.txt").is_file():
        pytest.skip(f"src/{folder} has no content yet")
    reached, todo = set(), [folder]
    while todo:
        for linked in linked_folders(todo.pop()) & set(ORDER):
            if linked not in reached:
                reached.add(linked)
                todo.append(linked)
    used = {
        Path(included).parts[0]
        for path in [*directory.glob("*.h"), *directory.glob("*.cpp")]
        for included, system in includes(path)
        if not system and included != SINK_CONTRACT
    }
    # glob.h belongs to config/ and is a target of its own, for code that runs inside the model.
    if "advectio_glob" in (directory / "CMakeLists.txt").read_text():
        reached.add("config")
    assert used - {folder} - reached == set()
