"""However a program is linked with netCDF: its output is carried, or `advectio check` says why not and what to do. Every line
of docs/linking.md that says "tried" is a test here."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from running import ROOT, Advectio, environment, run_plainly
from same import differences

sys.path.append(str(Path(__file__).parent / "linked"))
import archive

SOURCES = Path(__file__).parent / "linked"
RELINK = "link it with the shared library, or with the options of `advectio link-flags` (docs/linking.md)"
Link = Callable[..., Path]


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([os.fspath(word) for word in words], capture_output=True, text=True, check=False, **options)


def need(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def shared_library(name: str) -> Path:
    """As the linker finds it."""
    path = Path(run(need("cc"), f"-print-file-name={name}").stdout.strip())
    if not path.is_absolute() or not path.exists():
        pytest.skip(f"{name} is not installed")
    return path.resolve()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("linked")


@pytest.fixture(scope="module")
def flags(advectio_command: Path, directory: Path) -> Path:
    """The file of `advectio link-flags`."""
    done = run(advectio_command, "link-flags", env=environment())
    assert done.returncode == 0, done.stderr
    (directory / "advectio.link").write_text(done.stdout)
    return directory / "advectio.link"


@pytest.fixture(scope="module")
def ours(flags: Path) -> Path:
    """Where libadvectio_netcdf.so is."""
    return Path(re.findall(r"^-rpath (.*)$", flags.read_text(), re.MULTILINE)[0])


@pytest.fixture(scope="module")
def netcdf_archive(directory: Path) -> Path:
    if platform.machine() != "x86_64":
        pytest.skip("the stand-in for libnetcdf.a is for x86-64")
    (directory / "archive").mkdir()
    return archive.make(shared_library("libnetcdf.so"), directory / "archive")


@pytest.fixture(scope="module")
def link(directory: Path, request: pytest.FixtureRequest) -> Link:
    """Links one of the models, each way once. OURS, FLAGS and ARCHIVE stand for what the fixtures above make."""
    made: dict[tuple[str, ...], Path] = {}

    def told(word: str) -> str:
        if "FLAGS" in word:
            word = word.replace("FLAGS", str(request.getfixturevalue("flags")))
        if "OURS" in word:
            word = word.replace("OURS", str(request.getfixturevalue("ours")))
        if "ARCHIVE" in word:
            word = word.replace("ARCHIVE", str(request.getfixturevalue("netcdf_archive")))
        if word.endswith(".a") and "/" not in word:
            word = str(shared_library(word))
        return word

    def build(source: str, *words: str) -> Path:
        key = (source, *words)
        if key not in made:
            compiler = need({"model.c": "cc", "model.f90": "gfortran", "model_pnetcdf.c": "mpicc"}[source])
            program = directory / f"model-{len(made)}"
            options = ["-I/usr/include"] if source == "model.f90" else []
            done = run(compiler, *options, "-o", program, *map(told, words), env=environment(), cwd=SOURCES)
            assert done.returncode == 0, done.stderr
            made[key] = program
        return made[key]

    return build


# What is carried. MODEL stands for the source itself: options are tried before and behind it.
BY_THE_PRELOAD = {
    "C, shared netCDF": ("model.c", "MODEL", "-lnetcdf"),
    "Fortran, all shared": ("model.f90", "MODEL", "-lnetcdff", "-lnetcdf"),
    "Fortran, static libnetcdff.a, shared netCDF": ("model.f90", "MODEL", "libnetcdff.a", "-lnetcdf"),
}
AHEAD = ("-Wl,--no-as-needed", "-LOURS", "-ladvectio_netcdf", "-Wl,-rpath,OURS", "-Wl,--as-needed")
BY_THE_LINK = {
    "C, ours ahead of shared netCDF": ("model.c", "MODEL", *AHEAD, "-lnetcdf"),
    "Fortran, ours ahead of shared netCDF": ("model.f90", "MODEL", *AHEAD, "-lnetcdff", "-lnetcdf"),
    "C, link-flags and shared netCDF": ("model.c", "MODEL", "-Wl,@FLAGS", "-lnetcdf"),
    "Fortran, link-flags and shared netCDF": ("model.f90", "MODEL", "-Wl,@FLAGS", "-lnetcdff", "-lnetcdf"),
    "C, static netCDF, link-flags first": ("model.c", "-Wl,@FLAGS", "MODEL", "ARCHIVE"),
    "C, static netCDF, link-flags last": ("model.c", "MODEL", "ARCHIVE", "-Wl,@FLAGS"),
    "C, static netCDF, not position-independent": ("model.c", "-no-pie", "MODEL", "-Wl,@FLAGS", "ARCHIVE"),
    "C, static netCDF, stripped of all that can be": (
        "model.c", "-s", "-Wl,--as-needed", "-Wl,--gc-sections", "-Wl,@FLAGS", "MODEL", "ARCHIVE"
    ),
    "C, static netCDF, gold": ("model.c", "-fuse-ld=gold", "MODEL", "-Wl,@FLAGS", "ARCHIVE"),
    "C, static netCDF, link-time optimisation": ("model.c", "-O2", "-flto", "MODEL", "-Wl,@FLAGS", "ARCHIVE"),
    "Fortran, static libnetcdff.a and netCDF": ("model.f90", "MODEL", "-Wl,@FLAGS", "libnetcdff.a", "ARCHIVE"),
    "PnetCDF, static": ("model_pnetcdf.c", "MODEL", "-Wl,@FLAGS", "libpnetcdf.a"),
}  # fmt: skip


def ready(link: Link, way: Sequence[str]) -> list[str | Path]:
    """Linked that way: the command."""
    source, *words = way
    if "-fuse-ld=gold" in words:
        need("ld.gold")
    program = link(source, *(source if word == "MODEL" else word for word in words))
    return [need("mpirun"), "-n", "2", program] if source == "model_pnetcdf.c" else [program]


def plain(link: Link, way: Sequence[str]) -> list[str | Path]:
    """The same model linked plainly with the shared library."""
    if way[0] == "model_pnetcdf.c":
        return ready(link, (way[0], "MODEL", "-lpnetcdf"))
    return ready(link, BY_THE_PRELOAD["C, shared netCDF" if way[0] == "model.c" else "Fortran, all shared"])


def verdict(advectio: Advectio, *command: str | Path) -> tuple[int, dict[str, Any]]:
    """Of `advectio check`: its exit code, and what it says of the last program."""
    result = advectio.call("check", "--json", "--", *command)
    assert result.stdout, result.said
    report = json.loads(result.stdout)
    errors = [f["what"] for f in report["findings"] if f["level"] == "error"]
    assert len(errors) == report["errors"] == result.code, result.said
    return result.code, report["programs"][-1]


@pytest.mark.parametrize("way", BY_THE_PRELOAD | BY_THE_LINK)
def test_under_advectio_run_its_output_is_carried(link: Link, advectio: Advectio, tmp_path: Path, way: str):
    words = (BY_THE_PRELOAD | BY_THE_LINK)[way]
    command = ready(link, words)
    for name in ("plain", "carried"):
        (tmp_path / name).mkdir()
    without = run_plainly(plain(link, words), tmp_path / "plain")
    assert without.code == 0, without.said
    result = advectio.run(command, tmp_path / "carried", datasets=1)
    assert result.dataset("out.nc")["frames_visible"] == 3
    assert list(differences(tmp_path / "plain" / "out.nc", tmp_path / "carried" / "out.nc")) == []
    code, said = verdict(advectio, *command)
    calls = "PnetCDF" if words[0] == "model_pnetcdf.c" else "netCDF"
    assert (code, said["reached"], said["verdict"]) == (0, True, f"the preload reaches its {calls} calls")


@pytest.mark.parametrize("way", BY_THE_LINK)
def test_what_is_linked_with_us_needs_no_preload(link: Link, advectio: Advectio, tmp_path: Path, way: str):
    command = ready(link, BY_THE_LINK[way])
    result = advectio.run(["env", "-u", "LD_PRELOAD", *command], tmp_path, datasets=1)
    assert result.dataset("out.nc")["frames_visible"] == 3


@pytest.mark.parametrize("way", BY_THE_LINK)
def test_what_is_linked_with_us_writes_the_same_by_itself_without_a_server(link: Link, tmp_path: Path, way: str):
    words = BY_THE_LINK[way]
    for name, command in (("plain", plain(link, words)), ("alone", ready(link, words))):
        (tmp_path / name).mkdir()
        result = run_plainly(command, tmp_path / name)
        assert result.code == 0, result.said
        assert ("advectio: no server (ADVECTIO_RUN is not set)" in result.stderr) == (name == "alone"), result.said
    assert list(differences(tmp_path / "plain" / "out.nc", tmp_path / "alone" / "out.nc")) == []


# What is not carried, and what check says of it.
LOST = {
    "C, static netCDF": ("netCDF", "model.c", "MODEL", "ARCHIVE"),
    "C, static netCDF, stripped": ("netCDF", "model.c", "-s", "MODEL", "ARCHIVE"),
    "Fortran, static libnetcdff.a and netCDF": ("netCDF", "model.f90", "MODEL", "libnetcdff.a", "ARCHIVE"),
    "PnetCDF, static": ("PnetCDF", "model_pnetcdf.c", "MODEL", "libpnetcdf.a"),
    "PnetCDF, static, stripped": ("PnetCDF", "model_pnetcdf.c", "-s", "MODEL", "libpnetcdf.a"),
}


@pytest.mark.parametrize("way", LOST)
def test_a_static_netcdf_by_itself_is_not_reached_and_both_say_so(link: Link, advectio: Advectio, tmp_path: Path, way: str):
    what, *words = LOST[way]
    command = ready(link, words)
    code, said = verdict(advectio, *command)
    why = f"the preload does not reach its {what} calls: {what} is linked into it (lib{what.lower()}.a)"
    assert (code, said["reached"], said["verdict"], said["remedy"]) == (1, False, why, RELINK)
    assert what in said["inside"]
    result = advectio.call("run", "--", *command, directory=tmp_path)
    assert result.code == 0 and (tmp_path / "out.nc").exists(), result.said
    sentence = f"{command[-1]} has netCDF or PnetCDF linked into it statically; {RELINK}"
    assert result.stderr.splitlines()[-1] == f"advectio: no dataset was captured: {sentence}", result.said


def test_ours_ahead_of_a_static_netcdf_breaks_the_program_and_check_says_so(link: Link, advectio: Advectio, tmp_path: Path):
    """The linker takes out of the archive only what nobody has defined before."""
    program = link("model.c", "model.c", *AHEAD, "ARCHIVE")
    code, said = verdict(advectio, program)
    assert (code, said["reached"]) == (1, False)
    assert said["verdict"].endswith(
        "only a part of netCDF (libnetcdf.a) is linked into it, behind libadvectio_netcdf.so; calls of the rest fail"
    )
    result = run_plainly([program], tmp_path)
    assert result.code == 1 and "feature that was not turned on" in result.stderr, result.said


def test_a_shared_library_beside_a_static_netcdf_calls_it_without_us(link: Link, advectio: Advectio, tmp_path: Path):
    program = link("model.f90", "model.f90", "-Wl,@FLAGS", "-lnetcdff", "ARCHIVE")
    code, said = verdict(advectio, program)
    assert (code, said["reached"]) == (1, False)
    assert re.search(r"libnetcdff\.so\S* calls the netCDF in it \(libnetcdf\.a\) without us$", said["verdict"])
    result = advectio.call("run", "--", program, directory=tmp_path)
    assert "no dataset was captured" in result.stderr and (tmp_path / "out.nc").exists(), result.said


def test_a_part_of_the_options_is_not_enough(link: Link, advectio: Advectio, flags: Path):
    """Without the references nothing of the real netCDF is there to be called."""
    wraps = [f"-Wl,{line}" for line in flags.read_text().splitlines() if line.startswith("--wrap=nc_")]
    code, said = verdict(advectio, link("model.c", "model.c", *wraps, *AHEAD, "ARCHIVE"))
    assert (code, said["reached"]) == (1, False)
    assert said["verdict"].endswith("it was linked with a part of `advectio link-flags` only (libnetcdf.a)")


def static_program(directory: Path, *options: str) -> Path:
    text = "int main(void) { return 0; }"
    done = run(need("cc"), *options, "-o", directory / "model", "-x", "c", "-", input=text, env=environment())
    if done.returncode != 0:
        pytest.skip(f"nothing is linked with {' '.join(options)} here")
    return directory / "model"


@pytest.mark.parametrize("kind", ["static", "static-pie"])
def test_a_static_program(advectio: Advectio, tmp_path: Path, kind: str):
    code, said = verdict(advectio, static_program(tmp_path, f"-{kind}"))
    assert (code, said["kind"], said["reached"]) == (1, kind, False)
    assert said["verdict"] == (
        "the preload does not reach its calls of netCDF and PnetCDF: it is a static program, and no library can be loaded before it"
    )
    assert said["remedy"] == (
        "link it dynamically (without -static), with the shared netCDF or the options of `advectio link-flags` (docs/linking.md)"
    )


def test_a_program_of_another_machine(link: Link, advectio: Advectio, tmp_path: Path):
    content = bytearray(link("model.c", "model.c", "-lnetcdf").read_bytes())
    content[18:20] = (243).to_bytes(2, "little")  # e_machine: RISC-V
    (tmp_path / "model").write_bytes(content)
    (tmp_path / "model").chmod(0o755)
    code, said = verdict(advectio, tmp_path / "model")
    assert (code, said["reached"]) == (1, False)
    assert re.search(r": it is for riscv \(64 bits\), and this Advectio for \S+ \(64 bits\)$", said["verdict"])


def test_a_program_of_other_rights(link: Link, advectio: Advectio, tmp_path: Path):
    shutil.copy(link("model.c", "model.c", "-lnetcdf"), tmp_path / "model")
    (tmp_path / "model").chmod(0o755 | stat.S_ISUID)
    code, said = verdict(advectio, tmp_path / "model")
    assert (code, said["reached"]) == (1, False)
    assert said["verdict"].endswith(
        ": it runs with other rights than yours (setuid), and no library of yours is loaded before it"
    )


def test_a_library_that_is_not_found(advectio: Advectio, tmp_path: Path):
    make_library(tmp_path / "libnetcdf.so", "int nc_create(void) { return 0; }", "-Wl,-soname,libnetcdf.so.99")
    program = make_program(tmp_path, "int nc_create(void); int main(void) { return nc_create(); }", "-L.", "-lnetcdf")
    code, said = verdict(advectio, program)
    assert (code, said["reached"]) == (1, False)
    assert said["libraries"] == [{"what": "netCDF", "name": "libnetcdf.so.99", "path": None}]
    assert said["verdict"] == "it would not start here: libnetcdf.so.99 is not found"


def make_library(path: Path, text: str, *options: str) -> None:
    done = run(need("cc"), "-shared", "-fPIC", "-o", path, "-x", "c", "-", *options, input=text)
    assert done.returncode == 0, done.stderr


def make_program(directory: Path, text: str, *options: str) -> Path:
    words = ["-Wl,-rpath," + str(directory)] if "-Wl,-rpath" in options else []
    options = tuple(option for option in options if option != "-Wl,-rpath")
    done = run(need("cc"), "-o", directory / "model", "-x", "c", "-", *options, *words, input=text, cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory / "model"


@pytest.mark.parametrize("symbolic", [False, True])
def test_fortran_functions_of_a_pnetcdf_that_binds_its_own_calls(advectio: Advectio, tmp_path: Path, symbolic: bool):
    """A made-up library: what counts is how it was linked."""
    library = """int ncmpi_create(void) { return 0; }
        const char* ncmpi_inq_libvers(void) { return ""; }
        int nfmpi_create_(void) { return ncmpi_create(); }"""
    make_library(tmp_path / "libpnetcdf.so", library, "-O0", *(["-Wl,-Bsymbolic-functions"] if symbolic else []))
    text = "int nfmpi_create_(void); int main(void) { return nfmpi_create_(); }"
    _, said = verdict(advectio, make_program(tmp_path, text, "-L.", "-lpnetcdf", "-Wl,-rpath"))
    assert said["reached"] is not symbolic, said
    if symbolic:
        assert said["verdict"].endswith(f"of {tmp_path}/libpnetcdf.so call their own library directly (-Bsymbolic)")


PNETCDF = 'int ncmpi_create(void) { return 0; } const char* ncmpi_inq_libvers(void) { return ""; }'
WITH_MPI = "int MPI_Init(void); int ncmpi_create(void); int main(void) { return MPI_Init() + ncmpi_create(); }"


def test_a_pnetcdf_with_another_mpi_than_ours(advectio: Advectio, tmp_path: Path):
    """Made-up libraries; ours knows whose MPI it was built for."""
    reached = {}
    for kind, symbol in (("MPICH", "int MPIR_made_up;"), ("Open MPI", "int ompi_mpi_comm_world;")):
        make_library(tmp_path / "libmpi.so", f"{symbol} int MPI_Init(void) {{ return 0; }}")
        make_library(tmp_path / "libpnetcdf.so", PNETCDF)
        _, said = verdict(advectio, make_program(tmp_path, WITH_MPI, "-L.", "-lpnetcdf", "-lmpi", "-Wl,-rpath"))
        assert kind in [one["what"] for one in said["libraries"]]
        reached[kind] = said["reached"]
        if not said["reached"]:
            other = "Open MPI" if kind == "MPICH" else "MPICH"
            assert said["verdict"].endswith(f": it uses {kind}, and this Advectio was built for {other}")
    assert sorted(reached.values()) == [False, True]


def test_a_static_mpi_under_a_static_pnetcdf(advectio: Advectio, flags: Path, tmp_path: Path):
    (tmp_path / "inside.c").write_text(f"{PNETCDF} int MPI_Init(void) {{ return 0; }}")
    assert run(need("cc"), "-c", "inside.c", cwd=tmp_path).returncode == 0
    assert run("ar", "rcs", "libinside.a", "inside.o", cwd=tmp_path).returncode == 0
    _, said = verdict(advectio, make_program(tmp_path, WITH_MPI, f"-Wl,@{flags}", "-L.", "-linside"))
    assert said["reached"] is False
    assert said["verdict"].endswith(" PnetCDF calls: MPI is linked into it, where Advectio does not find it")


def test_two_netcdf_libraries_are_pointed_out(link: Link, advectio: Advectio):
    both = [str(shared_library("libnetcdf.so")), str(shared_library("libnetcdf_mpi.so"))]
    program = link("model.c", "model.c", "-Wl,--no-as-needed", *both)
    result = advectio.call("check", "--", program)
    assert result.code == 0
    assert re.search(rf"! {program} gets 2 netCDF libraries: \S+/libnetcdf\S+, \S+/libnetcdf_mpi\S+\n  → ", result.stdout)


def test_libraries_are_named_with_their_paths(link: Link, advectio: Advectio):
    program = link("model_pnetcdf.c", "model_pnetcdf.c", "-lpnetcdf")
    _, said = verdict(advectio, need("mpirun"), "-n", "2", program)
    assert said["path"] == str(program)
    found = {one["what"]: one["path"] for one in said["libraries"]}
    assert Path(found["PnetCDF"]).resolve() == shared_library("libpnetcdf.so")
    assert Path(found["Open MPI"]).name.startswith("libmpi.so")
    text = advectio.call("check", "--", need("mpirun"), "-n", "2", program).stdout.splitlines()
    assert f"✓ {program}: a dynamic program: PnetCDF {found['PnetCDF']}, Open MPI {found['Open MPI']}" in text
    assert text[-2] == f"✓ {program}: the preload reaches its PnetCDF calls"


def test_the_program_of_a_script(link: Link, advectio: Advectio, tmp_path: Path):
    program = link("model.c", "model.c", "-lnetcdf")
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\ncd /tmp\nmpirun -n 4 {program} >log\n")
    script.chmod(0o755)
    result = advectio.call("check", "--json", "--", script)
    assert [(one["kind"], one["interpreter"], one["path"]) for one in json.loads(result.stdout)["programs"]] == [
        ("script", "/bin/sh", str(script)),
        ("dynamic", None, str(program)),
    ]


def test_a_script_that_names_no_program(advectio: Advectio, tmp_path: Path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\nexec $MODEL\n")
    script.chmod(0o755)
    result = advectio.call("check", "--", script)
    assert result.code == 0
    assert f"! {script}: a script that names no program by a path\n" in result.stdout, result.said


def test_python_and_programs_without_netcdf(advectio: Advectio):
    sentence = "no call of netCDF or PnetCDF can be seen in it; the preload reaches what it loads while it runs"
    python = os.path.realpath(ROOT / ".venv" / "bin" / "python")
    code, said = verdict(advectio, python, "plot.py")
    assert (code, said["reached"], said["verdict"], said["remedy"]) == (0, None, sentence, "")
    code, said = verdict(advectio, "env", "A=b", need("true"))
    assert (code, said["reached"], said["verdict"]) == (0, None, sentence)
    assert said["remedy"] == "is this the program that writes, and was it built with netCDF?"


def test_a_program_that_writes_by_hdf5_itself(advectio: Advectio, tmp_path: Path):
    hdf5 = next((n for n in ("hdf5-serial", "hdf5") if run("pkg-config", "--exists", n).returncode == 0), None)
    if hdf5 is None:
        pytest.skip("HDF5 is not installed")
    options = run("pkg-config", "--cflags", "--libs", hdf5).stdout.split()
    source = tmp_path / "model.c"
    source.write_text(
        '#include <hdf5.h>\nint main(void) { return H5Fclose(H5Fcreate("x.h5", H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) < 0; }\n'
    )
    built = run(need("cc"), "-o", tmp_path / "model", source, *options)
    assert built.returncode == 0, built.stderr
    code, said = verdict(advectio, tmp_path / "model")
    assert (code, said["reached"]) == (0, None)
    assert said["remedy"] == (
        "what it writes by HDF5 itself is not carried; is this the program that writes, and was it built with netCDF?"
    )


def test_a_program_that_is_not_there(advectio: Advectio, tmp_path: Path):
    result = advectio.call("check", "--", need("env"), "A=b", tmp_path / "wrf.exe")
    assert result.code == 1
    assert f"✗ no program is found behind {need('env')}\n  → " in result.stdout, result.said
    result = advectio.call("check", "--", "mpirum", "-n", "4", "./wrf.exe")
    assert result.code == 1
    assert "✗ mpirum: command not found\n  → " in result.stdout, result.said


def test_an_environment_that_is_dropped_is_said_before_the_run(link: Link, advectio: Advectio):
    result = advectio.call("check", "--", "env", "-i", link("model.c", "model.c", "-lnetcdf"))
    assert "! env -i drops the environment: LD_PRELOAD and ADVECTIO_RUN do not reach the program\n  → " in result.stdout


@pytest.mark.parametrize(("library", "prefix"), [("libadvectio_netcdf.so", "nc_"), ("libadvectio_pnetcdf.so", "ncmpi_")])
def test_every_function_that_we_call_is_taken_out_of_a_static_library(flags: Path, library: str, prefix: str):
    """What is missing among the options would be missing in the program, and be found in the middle of a run."""
    lines = flags.read_text().splitlines()
    directories = [Path(line.removeprefix("-rpath ")) for line in lines if line.startswith("-rpath ")]
    ours = next((d / library for d in directories if (d / library).exists()), None)
    if ours is None:
        pytest.skip(f"{library} is not built")
    real = run("nm", "-D", "--defined-only", shared_library(library.replace("advectio_", ""))).stdout
    known = set(re.findall(rf" T ({prefix}\w+)", real))
    named = {name.decode() for name in re.findall(rb"\0(" + prefix.encode() + rb"\w+)(?=\0)", ours.read_bytes())}
    asked = {line.removeprefix("-u ") for line in lines if line.startswith("-u ")}
    assert named & known - asked == set()
