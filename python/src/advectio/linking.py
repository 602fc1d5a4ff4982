"""What a program is linked with, and whether a library that is preloaded reaches its calls of netCDF and PnetCDF.

Reads files, and asks the program's own loader which libraries it would get (`ldd` does the same). Starts no program.
"""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypedDict

from advectio import elf, installation, nothing
from advectio.nodes import LAUNCHER

# What starts the program: nobody asks about it.
_BEFORE = {
    "srun", "prun", "aprun", "jsrun", "ibrun", "orterun", "prterun", "env", "time", "nice", "ionice", "nohup", "setsid",
    "numactl", "taskset", "stdbuf", "timeout", "xargs", "gdb", "valgrind", "perf", "strace", "advectio",
}  # fmt: skip
_LOADS_WHILE_IT_RUNS = re.compile(r"python[\d.]*|pypy[\d.]*")
_BY_NAME = (("libnetcdff", "netCDF-Fortran"), ("libnetcdf", "netCDF"), ("libpnetcdf", "PnetCDF"), ("libhdf5", "HDF5"),
            ("libmpi", "MPI"), ("libmpich", "MPI"))  # fmt: skip
_OF_GLIBC = re.compile(r"ld-linux.*|ld64\.so.*|ld\.so\.\d+|ld-\d.*\.so")
_OF_PNETCDF = b"PNETCDF_HINTS"
_OF_NETCDF_4 = b"_NCProperties"
_OPEN_MPI, _MPICH = "Open MPI", "MPICH"
_RELATIVES = (("cray", "Cray MPICH"), ("intel", "Intel MPI"), ("impi", "Intel MPI"), ("mvapich", "MVAPICH"))
_MPI = {_OPEN_MPI, _MPICH, *(name for _, name in _RELATIVES)}
_LOADER_S = 30.0


class LinkedLibrary(TypedDict):
    what: str  # netCDF, netCDF-Fortran, PnetCDF, HDF5, Open MPI, …; other
    name: str  # as the program asks for it
    path: str | None  # None: not found


class ProgramReport(TypedDict):
    """One program of the command, in `check --json`."""

    path: str
    kind: str  # dynamic, static, static-pie, script, other
    interpreter: str | None  # of a script
    libraries: list[LinkedLibrary]
    inside: list[str]  # libraries that are linked into it
    reached: bool | None  # None: it makes no such call that can be seen
    verdict: str
    remedy: str  # empty where nothing is to be done


class Doubt(NamedTuple):
    what: str
    advice: str


@dataclass
class Program:
    path: str
    kind: str = "other"
    interpreter: str | None = None
    libraries: list[LinkedLibrary] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    reached: bool | None = None
    level: str = "ok"
    verdict: str = ""
    remedy: str = ""
    doubts: list[Doubt] = field(default_factory=list)

    def judge(self, level: str, reached: bool | None, verdict: str, remedy: str = "") -> "Program":
        self.level, self.reached, self.verdict, self.remedy = level, reached, verdict, remedy
        return self

    def unreached(self, why: str, remedy: str, calls: str = "its calls of netCDF and PnetCDF") -> "Program":
        return self.judge("error", False, f"the preload does not reach {calls}: {why}", remedy)

    @property
    def description(self) -> str:
        """One line: what it is, and what it gets."""
        if self.kind == "script":
            return f"a script for {self.interpreter}"
        told = [f"{library['what']} {library['path'] or library['name'] + ' (not found)'}" for library in self.libraries]
        told += [f"{what} linked into it" for what in self.inside]
        kinds = {"dynamic": "a dynamic program", "static": "a static program", "static-pie": "a static program (static-pie)"}
        return ": ".join([kinds.get(self.kind, "no program that is known here"), *([", ".join(told)] if told else [])])

    def report(self) -> ProgramReport:
        return {
            "path": self.path,
            "kind": self.kind,
            "interpreter": self.interpreter,
            "libraries": self.libraries,
            "inside": self.inside,
            "reached": self.reached,
            "verdict": self.verdict,
            "remedy": self.remedy,
        }


def programs_behind(command: Sequence[str], installed: installation.Installation) -> list[Program]:
    """Those of a command that matter: what calls netCDF, else the first behind launchers and shells."""
    found = [examine(path, installed) for path in nothing.programs_of(command) if not _only_starts(path)]
    for script in [program for program in found if program.kind == "script"]:
        path = script.interpreter and shutil.which(script.interpreter)
        if path and not _only_starts(path) and all(program.path != path for program in found):
            found.append(examine(path, installed))
    scripts = [program for program in found if program.kind == "script"]
    others = [program for program in found if program.kind != "script"]
    telling = [program for program in others if program.reached is not None]
    dynamic = [program for program in telling if program.kind == "dynamic" or program.inside]
    return [*scripts, *(dynamic or telling or others[:1])]


def _only_starts(path: str) -> bool:
    names = {os.path.basename(path), os.path.basename(os.path.realpath(path))}
    return bool(names & (_BEFORE | nothing.SHELLS)) or any(LAUNCHER.fullmatch(name) for name in names)


def examine(path: str, installed: installation.Installation) -> Program:
    interpreter = _interpreter(path)
    if interpreter is not None:
        return Program(path, "script", interpreter)
    program = Program(path)
    file = elf.read(path)
    if file is None:
        return program.judge("warning", None, "neither an ELF program nor a script: nothing can be said about it")
    program.kind = file.kind
    ours = elf.read(installed.netcdf)
    if ours is not None and (file.machine, file.bits) != (ours.machine, ours.bits):
        return program.unreached(
            f"it is for {_machine(file)}, and this Advectio for {_machine(ours)}",
            "use an Advectio that was built where the program was",
        )
    program.inside = _inside(file)
    if file.kind != "dynamic":
        return program.unreached(
            "it is a static program, and no library can be loaded before it",
            "link it dynamically (without -static), with the shared netCDF or the options of `advectio link-flags` (docs/linking.md)",
        )
    if _has_other_rights(path):
        return program.unreached(
            "it runs with other rights than yours (setuid), and no library of yours is loaded before it",
            "run a copy of it without these rights",
        )
    loaded = _loaded(file, installed)
    files = [known for _, where in loaded.libraries if where and not _is_ours(where) and (known := elf.read(where))]
    program.libraries = _told(loaded.libraries, files)
    missing = [name for name, where in loaded.libraries if where is None]
    if missing:
        return program.judge(
            "error",
            False,
            f"it would not start here: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not found",
            "load the modules that it was built with, or set LD_LIBRARY_PATH",
        )
    if not any(where and _is_ours(where) for _, where in loaded.libraries):
        return program.unreached(
            f"its loader ({file.loader}) does not load {installed.netcdf}{f': {loaded.said}' if loaded.said else ''}",
            "use an Advectio that was built for this system",
        )
    return _judge_calls(program, file, files, installed)


def _interpreter(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            line = file.readline(1024)
    except OSError:
        return None
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words[0] if words else "/bin/sh" if line.startswith(b"#!") else None


def _machine(file: elf.Elf) -> str:
    return f"{file.machine.removeprefix('EM_').replace('_', '-').lower()} ({file.bits} bits)"


def _inside(file: elf.Elf) -> list[str]:
    """Libraries that the linker has put into the program."""
    own = file.defined | file.exported
    found = [what for what, probe in elf.PROBES.items() if probe in own]
    # The linker takes a probe only where somebody calls it.
    others = (("netCDF", "nc_create"), ("PnetCDF", "ncmpi_create"), ("netCDF-Fortran", "__netcdf_MOD_nf90_create"))
    for what, function in others:
        if what not in found and function in own:
            found.append(what)
    calls = any(name.startswith(elf.OUTPUT_CALLS) for name in file.calls)
    if file.stripped and not calls and not found:
        parallel = elf.holds(file.path, _OF_PNETCDF)
        if elf.holds(file.path, *([] if parallel else [nothing.OF_NETCDF]), _OF_NETCDF_4):
            found.append("netCDF")
        found += ["PnetCDF"] if parallel else []
    return found


def _has_other_rights(path: str) -> bool:
    if os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID):
        return True
    try:
        return bool(os.getxattr(path, "security.capability"))
    except OSError:
        return False


class _Loaded(NamedTuple):
    libraries: list[tuple[str, str | None]]  # name, path; None: not found
    said: str


def _loaded(file: elf.Elf, installed: installation.Installation) -> _Loaded:
    loader = file.loader or ""
    environment = os.environ | {"LD_PRELOAD": installation.preload(installed, os.environ.get("LD_PRELOAD"))}
    # As ldd does: unlike --list, glibc's goes on where a library is missing. Other loaders would start the program.
    list_only = ["--list"]
    if _OF_GLIBC.fullmatch(os.path.basename(loader)):
        list_only = []
        environment["LD_TRACE_LOADED_OBJECTS"] = "1"
    try:
        done = subprocess.run(
            [loader, *list_only, os.path.abspath(file.path)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LOADER_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Loaded([], str(error))
    found: list[tuple[str, str | None]] = []
    for line in done.stdout.splitlines():
        if match := re.fullmatch(r"\s*(\S+) => not found", line):
            found.append((match[1], None))
        elif match := re.fullmatch(r"\s*(?:(\S+) => )?(/.*?) \(0x[0-9a-f]+\)", line):
            found.append((match[1] or os.path.basename(match[2]), match[2]))
    return _Loaded(found, " ".join(done.stderr.split()))


def _is_ours(path: str) -> bool:
    return os.path.basename(path) in (installation.NETCDF, installation.PNETCDF)


def _told(libraries: list[tuple[str, str | None]], files: list[elf.Elf]) -> list[LinkedLibrary]:
    by_path = {file.path: file for file in files}
    told: list[LinkedLibrary] = []
    for name, path in libraries:
        kinds = _kinds(by_path[path]) if path in by_path else []
        if path is None:
            kinds = [next((what for prefix, what in _BY_NAME if name.startswith(prefix)), "other")]
        told += [{"what": what, "name": name, "path": path} for what in kinds]
    return told


def _kinds(library: elf.Elf) -> list[str]:
    found = [what for what, probe in elf.PROBES.items() if probe in library.exported]
    if os.path.basename(library.path).startswith("libnetcdff") and "netCDF-Fortran" not in found:
        found.append("netCDF-Fortran")
    return [_mpi(library) if what == "MPI" else what for what in found]


def _mpi(library: elf.Elf) -> str:
    if "ompi_mpi_comm_world" in library.exported:
        return _OPEN_MPI
    path = os.path.realpath(library.path).lower()
    return next((name for part, name in _RELATIVES if part in path), _MPICH)


class _Calls(NamedTuple):
    """Of one library: netCDF or PnetCDF."""

    what: str
    reached: bool | None  # None: there are none
    why: str = ""
    remedy: str = ""


def _judge_calls(program: Program, file: elf.Elf, files: list[elf.Elf], installed: installation.Installation) -> Program:
    all_calls = [
        _calls(what, prefix, library, program, file, files)
        for what, prefix, library in (("netCDF", "nc_", installed.netcdf), ("PnetCDF", "ncmpi_", installed.pnetcdf))
    ]
    program.doubts += _doubts(program)
    made = [calls for calls in all_calls if calls.reached is not None]
    if not made:
        loads = _LOADS_WHILE_IT_RUNS.fullmatch(os.path.basename(os.path.realpath(program.path)))
        sentence = "no call of netCDF or PnetCDF can be seen in it; the preload reaches what it loads while it runs"
        if loads:
            return program.judge("ok", None, sentence)
        remedy = "is this the program that writes, and was it built with netCDF?"
        if any(library["what"] == "HDF5" for library in program.libraries):
            remedy = "what it writes by HDF5 itself is not carried; " + remedy
        return program.judge("warning", None, sentence, remedy)
    reached = [calls.what for calls in made if calls.reached]
    lost = [calls for calls in made if not calls.reached]
    if not lost:
        return program.judge("ok", True, f"the preload reaches its {' and '.join(reached)} calls")
    calls = " and ".join(calls.what for calls in lost)
    why = "; ".join(dict.fromkeys(calls.why for calls in lost))
    remedy = "; ".join(dict.fromkeys(calls.remedy for calls in lost))
    program.unreached(why, remedy, f"its {calls} calls")
    if reached:
        program.level = "warning"
        program.verdict = f"the preload reaches its {' and '.join(reached)} calls, but not those of {calls}: {why}"
    return program


def _calls(what: str, prefix: str, library: str | None, program: Program, file: elf.Elf, files: list[elf.Elf]) -> _Calls:
    ours = elf.read(library) if library else None
    wrapped = any(name.startswith(f"__wrap_{prefix}") for name in file.calls)
    if what in program.inside and (lost := _lost_inside(what, wrapped, ours, file, files)):
        return lost
    # Only calls between files pass the loader, where we stand before the others.
    caught = ours.exported if ours else frozenset({f"{prefix}create", f"{prefix}open"})
    libraries = [one for one in files if elf.PROBES[what] not in one.exported]
    callers = [one for one in (file, *libraries) if one.calls & caught]
    fortran = _fortran_inside(file, files) if what == "PnetCDF" and not (file.calls & caught) else None
    if fortran is not None and fortran.symbolic_of("ncmpi_create"):
        return _Calls(
            what,
            False,
            f"the Fortran functions of {fortran.path} call their own library directly (-Bsymbolic)",
            "build PnetCDF without -Bsymbolic and -Bsymbolic-functions",
        )
    if not callers and not wrapped and fortran is None:
        return _Calls(what, None)
    if ours is None:
        return _Calls(what, False, f"this Advectio was built without {what}", f"build Advectio where {what} and MPI are found")
    if what == "PnetCDF":
        mpi = [one["what"] for one in program.libraries if one["what"] in _MPI]
        if not mpi and "MPI" in program.inside:
            return _Calls(what, False, "MPI is linked into it, where Advectio does not find it", "link it with the shared MPI")
        built_for = _OPEN_MPI if elf.holds(ours.path, b"ompi_mpi_op_min") else _MPICH
        # Handles of one mean nothing to the other. MPICH's relatives have its handles.
        if mpi and (mpi[0] == _OPEN_MPI) != (built_for == _OPEN_MPI):
            return _Calls(
                what,
                False,
                f"it uses {mpi[0]}, and this Advectio was built for {built_for}",
                "build Advectio with the MPI of the program",
            )
    return _Calls(what, True)


def _lost_inside(what: str, wrapped: bool, ours: elf.Elf | None, file: elf.Elf, files: list[elf.Elf]) -> _Calls | None:
    """Of a static library in the program: why its calls do not come to us."""
    static = f"lib{what.lower()}.a"
    # The program comes first where the loader looks: other files find the real functions there, before ours.
    beside = [
        one for one in files if elf.PROBES[what] not in one.exported and ours and one.calls & ours.exported & file.exported
    ]
    if beside:
        why = f"{beside[0].path} calls the {what} in it ({static}) without us"
        return _Calls(what, False, why, "link both shared or both static")
    if not wrapped and ours and file.calls & ours.exported:
        why = (
            f"only a part of {what} ({static}) is linked into it, behind {os.path.basename(ours.path)}; calls of the rest fail"
        )
        return _Calls(what, False, why, "link it with the options of `advectio link-flags` (docs/linking.md) instead")
    if not wrapped:
        return _Calls(what, False, f"{what} is linked into it ({static})", nothing.RELINK)
    if elf.PROBES[what] not in file.exported:
        why = f"it was linked with a part of `advectio link-flags` only ({static})"
        return _Calls(what, False, why, "link it with all of them")
    return None


def _fortran_inside(file: elf.Elf, files: list[elf.Elf]) -> elf.Elf | None:
    """The PnetCDF library whose Fortran functions the program calls: these call the C ones from the inside."""
    if not any(name.startswith("nfmpi_") for name in file.calls):
        return None
    return next((one for one in files if any(name.startswith("nfmpi_") for name in one.exported)), None)


def _doubts(program: Program) -> list[Doubt]:
    paths = [one["path"] or "" for one in program.libraries if one["what"] == "netCDF"]
    several = [*(["one linked into it"] if "netCDF" in program.inside else []), *dict.fromkeys(paths)]
    if len(several) < 2:
        return []
    return [
        Doubt(
            f"{program.path} gets {len(several)} netCDF libraries: {', '.join(several)}",
            "each call goes to the one that its caller was linked with; link all of the program with the same one",
        )
    ]
