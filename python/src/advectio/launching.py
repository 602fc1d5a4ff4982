"""Several nodes: how one program is started on each of them, and how the model's ranks learn of the run on all of them.

The servers of a run are one MPI job of their own, started by Open MPI's mpirun: whatever MPI the model uses.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from advectio.errors import UserError
from advectio.nodes import Launch, Nodes

ENV_LIST = "OMPI_MCA_mca_base_env_list"

# What a launcher tells its ranks, or a batch system a step, about themselves: another mpirun would believe it.
_OF_A_RANK = re.compile(
    r"OMPI_(?!MCA_|ALLOW_).*|PMIX_(?!MCA_).*|PMI2?_.*|HYDI?_.*|MPI_LOCAL.*"
    r"|OMPI_MCA_(orte_|ess|pmix$|initial_wdir|shmem_RUNTIME|mpi_oversubscribe|rmaps_|hwloc_base_binding|mca_base_env_list).*"
    r"|SLURM_(STEP.*|PROCID|LOCALID|NODEID|GTIDS|TASK_PID|CPU_BIND.*|SRUN_.*|LAUNCH_.*|MPI_TYPE|PMI.*|DISTRIBUTION|EXPORT_ENV)"
)
# What a server on another node must be told.
_OF_A_SERVER = re.compile(r"ADVECTIO_(?!RUN$).*|HDF5_.*|PNETCDF_.*|ROMIO_.*|LD_LIBRARY_PATH")


def version_of(launcher: str) -> str:
    try:
        done = subprocess.run([launcher, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout + done.stderr


def is_open_mpi(launcher: str) -> bool:
    # By another name than mpirun it calls itself by that of its run-time.
    version = version_of(launcher)
    return any(name in version for name in ("(Open MPI)", "(OpenRTE)", "(PRRTE)"))


@functools.cache
def _talks(launcher: str) -> bool:
    """Open MPI says helpful things unless it is told --quiet. Since 5, whose launcher is PRRTE, it refuses that option."""
    version = re.search(r"\((Open MPI|OpenRTE|PRRTE)\) (\d+)", version_of(launcher))
    return version is None or (version[1] != "PRRTE" and int(version[2]) < 5)


def launcher() -> str:
    """The mpirun that belongs to our servers."""
    named = os.environ.get("ADVECTIO_MPIRUN")
    if named:
        if not is_open_mpi(named):
            raise UserError(f"ADVECTIO_MPIRUN is {named}, which is not an mpirun of Open MPI")
        return named
    for name in ("mpirun.openmpi", "mpirun", "orterun"):
        path = shutil.which(name)
        if path and is_open_mpi(path):
            return path
    raise UserError(
        "servers on several nodes are started by Open MPI's mpirun, which is not there: install it (Debian: openmpi-bin), load its "
        "module, or name it by ADVECTIO_MPIRUN"
    )


@dataclass(frozen=True)
class Job:
    """Runs a command once on each node of a run."""

    mpirun: str
    nodes: Nodes

    def prefix(self, environment: Mapping[str, str]) -> list[str]:
        """What stands in front of the command."""
        number = str(self.nodes.number)
        if self.nodes.simulated is None:
            hosts = ",".join(f"{host}:1" for host in self.nodes.hosts)
            where = ["--host", hosts, "-n", number, "--map-by", "ppr:1:node"]
        else:
            where = ["--host", f"localhost:{number}", "-n", number, "--oversubscribe"]
        told = dict(environment) | self.additions(environment)
        passed = [word for name in sorted(told) if _OF_A_SERVER.fullmatch(name) for word in ("-x", name)]
        quiet = ["--quiet"] if _talks(self.mpirun) else []
        return [self.mpirun, *quiet, *where, "--bind-to", "none", *passed]

    def additions(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What its environment has beyond the user's."""
        added = {"ADVECTIO_NODES": self.nodes.variable} if self.nodes.variable else {}
        if os.geteuid() == 0:
            added |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if environment.get("SLURM_JOB_ID") and _slurm_steps_must_overlap():
            # Otherwise the servers' step would hold the nodes, and the model's srun would wait for them for ever.
            given = environment.get("OMPI_MCA_plm_slurm_args", "")
            added["OMPI_MCA_plm_slurm_args"] = given if "--overlap" in given else f"{given} --overlap".strip()
        return added

    def environment(self, environment: Mapping[str, str], run_directory: str) -> dict[str, str]:
        kept = {name: value for name, value in environment.items() if not _OF_A_RANK.fullmatch(name)}
        if self.nodes.simulated is not None:
            # What Open MPI shares between processes of a machine goes with the run, whatever becomes of them.
            kept.setdefault("OMPI_MCA_btl_vader_backing_directory", run_directory)
        return kept | self.additions(environment)


def _slurm_steps_must_overlap() -> bool:
    """Slurm before 20.11 knows no --overlap; its steps do."""
    version = re.search(r"slurm\D*(\d+)\.(\d+)", version_of("srun"))
    return version is None or (int(version[1]), int(version[2])) >= (20, 11)


def tell_all_ranks(
    command: Sequence[str], nodes: Nodes, environment: MutableMapping[str, str], names: Sequence[str]
) -> tuple[list[str], str | None]:
    """See to it that ``names`` of the environment reach the ranks on other nodes too. The command to start, and a warning."""
    told = list(command)
    launch = Launch.of(command)
    if nodes.simulated is not None:
        return told, None  # one machine: processes inherit it
    if launch is not None:
        if launch.keeps_variables:
            return told, f"{launch.path} is told which variables the ranks get: {', '.join(names)} must be among them"
        if not is_open_mpi(launch.path):
            return told, None  # Hydra and what is made of it pass everything
        if launch.gives_variables and not environment.get(ENV_LIST):
            # Open MPI takes either -x or the list, and refuses both.
            for at in reversed(launch.contexts):
                told[at:at] = [word for name in names for word in ("-x", name)]
            return told, None
        into_list(environment, names, environment)
        return told, None
    if exports_nothing(command, environment):
        return told, f"srun is told which variables the ranks get (--export): {', '.join(names)} must be among them, or ALL"
    if environment.get("SLURM_JOB_ID"):
        return told, None  # srun passes everything, also where mpirun uses it
    missing = _script_gives_variables(command, names)
    if missing is not None:
        with_x = " ".join(f"-x {name}" for name in missing)
        return told, f"{command[0]} gives mpirun variables by -x; it must give it {with_x} too" if missing else None
    into_list(environment, names, environment)
    return told, None


def into_list(told: MutableMapping[str, str], names: Sequence[str], environment: Mapping[str, str]) -> None:
    """Open MPI's own list of variables, with what the user has there."""
    separator = environment.get("OMPI_MCA_mca_base_env_list_delimiter", ";")
    given = [entry for entry in environment.get(ENV_LIST, "").split(separator) if entry.partition("=")[0] not in ("", *names)]
    told[ENV_LIST] = separator.join([*given, *names])


def exports_nothing(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Is srun told to keep variables from its ranks?"""
    exported = environment.get("SLURM_EXPORT_ENV", "ALL")
    at = next((i for i, word in enumerate(command) if os.path.basename(word) == "srun"), None)
    for i, word in enumerate(command[at + 1 :] if at is not None else (), (at or 0) + 1):
        if word.startswith("--export="):
            exported = word.partition("=")[2]
        elif word == "--export":
            exported = command[i + 1] if i + 1 < len(command) else ""
    return "ALL" not in exported.upper().split(",")


def _script_gives_variables(command: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """Does a script start mpirun with -x? Then which of ``names`` it leaves out."""
    for word in command[:3]:
        path = shutil.which(word) or word
        try:
            with open(path, "rb") as file:
                text = file.read(1 << 16)
        except OSError:
            continue
        if b"\0" in text:
            continue
        lines = text.decode(errors="replace").replace("\\\n", " ").splitlines()
        calls = [line for line in lines if re.search(r"(mpirun|mpiexec|orterun)\b.*\s--?x\s", line)]
        if calls:
            return [name for name in names if any(f"-x {name}" not in call for call in calls)]
    return None


def shell_line(prefix: Sequence[str], added: Mapping[str, str], rest: Sequence[str]) -> str:
    """As one would type it."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in added.items()]
    return " ".join([*variables, *map(shlex.quote, [*prefix, *rest])])
