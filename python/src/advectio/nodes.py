"""The nodes of a run: named, simulated, or found in the command and in what the batch system says. Light: standard library only."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from advectio import places
from advectio.errors import UserError

LAUNCHER = re.compile(r"(mpirun|mpiexec|orterun)([._-]\w+)*")
# Options of mpirun and mpiexec (Open MPI, Hydra, Intel MPI) by how many words follow them; the program is the first word behind.
_HOSTS = {"H", "host", "hosts"}
_HOST_FILES = {"hostfile", "machinefile", "default-hostfile", "f"}
_ONE_WORD = (
    "n np c N npernode npersocket ppn perhost x map-by bind-to rank-by wdir wd path prefix launcher bootstrap launcher-exec rmk "
    "iface rf rankfile cpu-set cpu-list output-filename tune am stdin timeout configfile app membind personality genvlist "
    "envlist H host hosts hostfile machinefile default-hostfile f"
)
_TWO_WORDS = "mca gmca omca pmca prtemca pmixmca genv env"
_WORDS = dict.fromkeys(_ONE_WORD.split(), 1) | dict.fromkeys(_TWO_WORDS.split(), 2)


class Nodes(NamedTuple):
    """One server each. The first is this machine; the last ``io_nodes`` have no rank of the model."""

    hosts: tuple[str, ...]
    io_nodes: int = 0
    simulated: tuple[int, ...] | None = None  # ranks of the model on each; all of them are this machine then

    @property
    def number(self) -> int:
        return len(self.hosts)

    @property
    def variable(self) -> str | None:
        """ADVECTIO_NODES, by which servers and ranks know which of the simulated nodes is theirs."""
        if self.simulated is None:
            return None
        return ",".join(f"{name}:{ranks}" for name, ranks in zip(self.hosts, self.simulated, strict=True))

    def save(self, run_directory: str, config: str | None) -> None:
        """For who finds the run directory later: ``advectio status`` and ``advectio recover``."""
        said = {"hosts": self.hosts, "io_nodes": self.io_nodes, "simulated": self.simulated, "config": config}
        path = os.path.join(run_directory, places.SERVERS_FILE)
        with open(path, "w", encoding="utf-8", opener=places.private) as out:
            json.dump(said, out, indent=2)
            out.write("\n")


def of_run(run_directory: str) -> tuple[Nodes, str | None] | None:
    """The nodes of a run directory and the config that was kept for them; None: it has one server."""
    said = places.servers_of(run_directory)
    if said is None:
        return None
    simulated = tuple(said["simulated"]) if said["simulated"] else None
    return Nodes(tuple(said["hosts"]), said["io_nodes"], simulated), said["config"]


def named(text: str, io_nodes: int) -> Nodes:
    hosts = _unique(text.split(","))
    if not hosts:
        raise UserError("--nodes names no host; write e.g. --nodes node1,node2")
    return _with_this_machine_first(hosts, io_nodes, "--nodes")


def simulated(text: str) -> Nodes:
    try:
        ranks = tuple(int(word) for word in text.split(","))
    except ValueError:
        ranks = ()
    if not ranks or min(ranks) < 0:
        raise UserError(
            f"--simulate-nodes: '{text}' is not understood; write the ranks of each node, e.g. 4,4,0 (0: an I/O node)"
        )
    io_nodes = ranks.count(0)
    if io_nodes == len(ranks) or any(ranks[len(ranks) - io_nodes :]):
        raise UserError(f"--simulate-nodes {text}: I/O nodes (0 ranks) stand last, behind at least one that has ranks")
    model = len(ranks) - io_nodes
    names = [f"n{i}" for i in range(model)] + (["io"] if io_nodes == 1 else [f"io{i}" for i in range(io_nodes)])
    return Nodes(tuple(names), io_nodes, ranks)


def found(command: Sequence[str], io_nodes: int) -> Nodes | None:
    """What the command says, else what the batch system says. None where there is one node."""
    launch = Launch.of(command)
    for source, hosts in (("the command", launch.hosts if launch else None), of_batch_system(os.environ)):
        if hosts:
            return _with_this_machine_first(hosts, io_nodes, source, ordered=False) if len(hosts) > 1 else None
    return None


def of_batch_system(environment: Mapping[str, str]) -> tuple[str, list[str] | None]:
    slurm = environment.get("SLURM_JOB_NODELIST") or environment.get("SLURM_NODELIST")
    number = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES")
    if slurm and number:
        return "Slurm", [slurm] if number == "1" else _slurm_hosts(slurm)
    for name in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE"):
        if environment.get(name):
            return name, host_file(environment[name])
    if environment.get("LSB_HOSTS"):
        return "LSB_HOSTS", _unique(environment["LSB_HOSTS"].split())
    return "", None


def _slurm_hosts(nodelist: str) -> list[str]:
    try:
        done = subprocess.run(["scontrol", "show", "hostnames", nodelist], capture_output=True, text=True, check=False)
    except OSError as error:
        raise UserError(f"scontrol, which tells the nodes of this Slurm job, cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise UserError(f"scontrol show hostnames {nodelist}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return _unique(done.stdout.split())


def host_file(path: str) -> list[str] | None:
    """One host a line, with slots behind a blank or a colon."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            words = [line.partition("#")[0].split() for line in lines]
    except OSError:
        return None  # who starts the ranks with it will say so
    return _hosts_of(w[0] for w in words if w)


def _hosts_of(words: Iterable[str]) -> list[str] | None:
    """Without their slots. None where a host is not named but counted (``+n1``) or excluded."""
    hosts = [word.partition(":")[0].strip() for word in words]
    return None if any(host.startswith(("+", "^")) for host in hosts) else _unique(hosts)


def _unique(hosts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(host.strip() for host in hosts if host.strip()))


def is_here(host: str) -> bool:
    here = socket.gethostname()
    if host in ("localhost", "127.0.0.1", "::1", here):
        return True
    if re.fullmatch(r"[\d.]+|.*:.*", host):  # an address
        try:
            return host in {str(entry[4][0]) for entry in socket.getaddrinfo(here, None)}
        except OSError:
            return False
    return host.partition(".")[0] == here.partition(".")[0]


def _with_this_machine_first(hosts: list[str], io_nodes: int, source: str, *, ordered: bool = True) -> Nodes:
    """`advectio run` speaks with the first server by a socket, which is on this machine then. ``ordered``: by the user."""
    if io_nodes >= len(hosts):
        raise UserError(f"--io-nodes {io_nodes}: of {len(hosts)} nodes ({source}) none would be left for the model")
    here = next((host for host in hosts if is_here(host)), None)
    if here is None:
        raise UserError(f"this machine ({socket.gethostname()}) is none of the nodes ({source}: {', '.join(hosts)})")
    if ordered and here in hosts[len(hosts) - io_nodes :]:
        raise UserError(
            f"this machine ({here}) would be an I/O node (the last {io_nodes} of {source}); name it earlier in --nodes"
        )
    return Nodes((here, *(host for host in hosts if host != here)), io_nodes)


class Launch:
    """An mpirun or mpiexec in a command, as far as it concerns us."""

    def __init__(self, path: str, contexts: list[int]) -> None:
        self.path = path
        self.contexts = contexts  # where options of its programs begin; several where they are separated by ':'
        self.hosts: list[str] | None = None
        self.programs: list[str] = []  # those that it starts
        self.elsewhere = False  # in another directory
        self.gives_variables = False  # -x
        self.keeps_variables = False  # -genvnone and the like: ranks do not get the environment

    @classmethod
    def of(cls, command: Sequence[str]) -> "Launch | None":
        at = next((i for i, word in enumerate(command) if LAUNCHER.fullmatch(os.path.basename(word))), None)
        if at is None:
            return None
        launch = cls(command[at], [at + 1])
        position: int | None = at + 1
        while position is not None:
            position = launch._read_context(command, position)
        return launch

    def _read_context(self, command: Sequence[str], position: int) -> int | None:
        """The options before one program; where the next ones begin."""
        while position < len(command) and command[position].startswith("-"):
            option, equals, value = command[position].lstrip("-").partition("=")
            position += 1
            words = [value] if equals else list(command[position : position + _WORDS.get(option, 0)])
            position += 0 if equals else len(words)
            self._read_option(option, words[0] if words else "")
        self.programs += command[position : position + 1]
        for i in range(position, len(command)):
            if command[i] == ":":
                self.contexts.append(i + 1)
                return i + 1
        return None

    def _read_option(self, option: str, value: str) -> None:
        hosts: list[str] | None = None
        if option in _HOSTS:
            hosts = _hosts_of(value.split(","))
        elif option in _HOST_FILES:
            hosts = host_file(value)
        self.hosts = _unique([*(self.hosts or []), *hosts]) if hosts else self.hosts
        self.elsewhere |= option in ("wdir", "wd", "path")
        self.gives_variables |= option == "x"
        self.keeps_variables |= option in ("genvnone", "envnone", "genvlist", "envlist")
