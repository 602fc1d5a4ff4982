"""What an ELF file, a program or a shared library, says of itself, as far as output libraries are concerned."""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

OUTPUT_CALLS = ("nc_", "ncmpi_")
# One function that every version has, of each library that is looked for.
PROBES = {
    "netCDF": "nc_inq_libvers",
    "PnetCDF": "ncmpi_inq_libvers",
    "HDF5": "H5open",
    "MPI": "MPI_Init",
    "netCDF-Fortran": "nf_inq_libvers_",
}
_KEPT = tuple(
    prefix.encode()
    for prefix in (
        "nc_",
        "ncmpi_",
        "nfmpi_",
        "__wrap_nc",
        "__real_nc",
        "ompi_mpi_comm_world",
        "__netcdf_MOD_nf90_create",
        *PROBES.values(),
    )
)
_DF_SYMBOLIC = 0x2


@dataclass(frozen=True)
class Elf:
    path: str
    machine: str  # EM_X86_64
    bits: int
    kind: str  # dynamic, static, static-pie; of a shared library dynamic too
    loader: str | None
    needed: list[str] = field(default_factory=list)
    symbolic: bool = False  # it calls its own functions without asking the loader
    undefined: frozenset[str] = frozenset()  # what the loader has to find elsewhere
    exported: frozenset[str] = frozenset()
    defined: frozenset[str] = frozenset()  # also for itself alone; empty where it is stripped
    stripped: bool = False
    relocated: frozenset[str] = frozenset()  # what it asks the loader for, its own functions too

    @property
    def calls(self) -> frozenset[str]:
        """Functions of other files. A name that is only undefined may be there for the linker's sake."""
        return self.undefined & self.relocated

    def symbolic_of(self, function: str) -> bool:
        """Does it call this function of its own without asking the loader?"""
        return function in self.exported and (self.symbolic or function not in self.relocated)


def read(path: str) -> Elf | None:
    """None: this is no ELF file, or one that is damaged."""
    # Here, as the import takes longer than `advectio check` without a command.
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return None
            file.seek(0)
            return _read(path, ELFFile(file))
    except (OSError, ELFError, struct.error, ValueError, KeyError):
        return None


def _read(path: str, file: Any) -> Elf:
    loader = next((s.get_interp_name() for s in file.iter_segments() if s["p_type"] == "PT_INTERP"), None)
    dynamic = next((s for s in file.iter_sections() if s["sh_type"] == "SHT_DYNAMIC"), None)
    tags: list[Any] = list(dynamic.iter_tags()) if dynamic is not None else []
    needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
    flags = next((tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"), 0)
    symbolic = bool(flags & _DF_SYMBOLIC) or any(tag.entry.d_tag == "DT_SYMBOLIC" for tag in tags)
    kind = "dynamic" if loader or needed else "static-pie" if dynamic is not None and file["e_type"] == "ET_DYN" else "static"
    undefined: set[str] = set()
    exported: set[str] = set()
    for name, is_defined in _symbols(file, ".dynsym"):
        (exported if is_defined else undefined).add(name)
    defined = {name for name, is_defined in _symbols(file, ".symtab") if is_defined}
    return Elf(
        path,
        file["e_machine"],
        file.elfclass,
        kind,
        loader,
        needed,
        symbolic,
        frozenset(undefined),
        frozenset(exported),
        frozenset(defined),
        file.get_section_by_name(".symtab") is None,
        frozenset(_relocated(file)),
    )


def _symbols(file: Any, section: str) -> Iterator[tuple[str, bool]]:
    """Names that matter, each with whether it is defined here. By hand: a model has a hundred thousand symbols."""
    table = file.get_section_by_name(section)
    if table is None or table["sh_type"] == "SHT_NOBITS":
        return
    strings = file.get_section(table["sh_link"]).data()
    order = "<" if file.little_endian else ">"
    form, name_at, section_at = ("IBBHQQ", 0, 3) if file.elfclass == 64 else ("IIIBBH", 0, 5)
    data = table.data()
    whole = len(data) // struct.calcsize(order + form) * struct.calcsize(order + form)
    for symbol in struct.iter_unpack(order + form, data[:whole]):
        at = symbol[name_at]
        if strings.startswith(_KEPT, at):
            yield strings[at : strings.index(b"\0", at)].decode(errors="replace"), symbol[section_at] != 0


def _relocated(file: Any) -> Iterator[str]:
    symbols = file.get_section_by_name(".dynsym")
    if symbols is None:
        return
    strings = file.get_section(symbols["sh_link"]).data()
    order = "<" if file.little_endian else ">"
    names: dict[int, int] = {}
    wide = file.elfclass == 64
    size = symbols["sh_entsize"] or (24 if wide else 16)
    data = symbols.data()
    for number in range(len(data) // size):
        at = struct.unpack_from(order + "I", data, number * size)[0]
        if strings.startswith(_KEPT, at):
            names[number] = at
    if not names:
        return
    for section in file.iter_sections():
        if section["sh_type"] not in ("SHT_REL", "SHT_RELA") or section["sh_link"] != file.get_section_index(".dynsym"):
            continue
        relocations, step = section.data(), section["sh_entsize"]
        for at in range(0, len(relocations) - step + 1, step):
            information = struct.unpack_from(order + ("Q" if wide else "I"), relocations, at + (8 if wide else 4))[0]
            number = information >> (32 if wide else 8)
            if number in names:
                start = names[number]
                yield strings[start : strings.index(b"\0", start)].decode(errors="replace")


def holds(path: str, *texts: bytes) -> bool:
    """Is one of these texts in the file? For programs without a table of their functions."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(text) >= 0 for text in texts)
    except (OSError, ValueError):
        return False
