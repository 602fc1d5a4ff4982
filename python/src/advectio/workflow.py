"""Programs whose files are each other's input: the workflow directory, and the registry in memory (src/workflow/README.md)."""

import contextlib
import fcntl
import fnmatch
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple, TypedDict

from advectio import places
from advectio.errors import UserError, say

FILE = "advectio.workflow"  # in the workflow directory: which registry is its
NODES = "advectio.nodes"  # in the workflow directory, where it has several nodes: a file of each
END_TIMEOUT_S = 15.0


class Wanted(NamedTuple):
    """What the command line and the config say."""

    directory: str
    name: str
    listens: bool = False  # its files go between nodes


def wanted(raw: dict[str, Any], directory: str | None, name: str | None) -> Wanted | None:
    """None: the run is in no workflow. What is missing is refused."""
    values = {entry["key"]: entry["value"] for entry in raw["values"]}

    def of_config(key: str) -> str | None:
        value: str = values.get(key, "null")
        return None if value == "null" else json.loads(value) if value.startswith('"') else value

    directory = directory or of_config("workflow.directory")
    name = name or of_config("workflow.name")
    rules = raw.get("couple", [])
    if directory is None:
        if rules:
            raise UserError(
                f"{rules[0]['origin']}: couple has rules, but there is no workflow: say where its programs meet, "
                "--workflow DIR (or workflow.directory), the same for all of them"
            )
        if name and not any(s["members"] for s in raw.get("sets", [])):
            raise UserError(f"--as {name}: there is no workflow: add --workflow DIR (or workflow.directory)")
        return None
    if name is None:
        raise UserError(f"--workflow {directory}: which of its programs is this? Add --as NAME (or workflow.name)")
    if not name.replace("_", "").replace("-", "").replace(".", "").isalnum() or not name.isascii():
        raise UserError(f"--as {name}: a name has letters, digits, _ - . only")
    if not rules:
        raise UserError(f"--workflow {directory}: the config has no rules (couple), so no file is coupled; see coupling.md")
    return Wanted(os.path.abspath(directory), name, values.get("workflow.listen", "[]") != "[]")


class Place(NamedTuple):
    directory: str
    memory: str
    identity: "Identity"


def in_memory(path: str) -> bool:
    """It is a version of a coupled file. Others of the workflow remove it when its program is gone."""
    return any(part.startswith(".workflow-") for part in path.split(os.sep))


class Identity(NamedTuple):
    """What the file in the workflow directory says."""

    id: str
    host: str  # of who has made it
    listens: bool


def _identity(directory: str, make: Identity | None) -> Identity | None:
    """That of the workflow there. ``make``: where there is none, this one. Needs of the file system that link(2) makes a name
    or fails; no locks."""
    path = os.path.join(directory, FILE)
    while True:
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            return Identity(str(said["id"]), str(said.get("host", "")), bool(said.get("listens", False)))
        except FileNotFoundError:
            if make is None:
                return None
        except OSError as error:
            raise UserError(f"workflow {directory}: {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path} is not of a workflow of Advectio") from error
        mine = f"{path}.{make.id}"
        try:
            with open(mine, "w", encoding="utf-8", opener=places.private) as file:
                json.dump(make._asdict(), file)
                file.write("\n")
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)
        except OSError as error:
            raise UserError(f"workflow {directory}: {path}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(mine)


@contextlib.contextmanager
def _turn(directory: str, make: Identity | None = None) -> Iterator[Place | None]:
    """One at a time comes or leaves on this node. None: there is no such workflow."""
    while True:
        found = _identity(directory, make)
        if found is None:
            yield None
            return
        top = places.user_directory()
        places.make_private(top)
        fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _identity(directory, None) != found:
                continue  # the last one has left meanwhile
            yield Place(directory, os.path.join(top, f".workflow-{found.id}"), found)
            return
        finally:
            os.close(fd)


def _other_node(directory: str, found: Identity) -> UserError:
    return UserError(
        f"the workflow {directory} is of node {found.host} alone, and this is node {socket.gethostname()}: set workflow.listen in the "
        "config of all its programs, or start them on one node"
    )


class Member:
    """This run in a workflow, from construction to ``leave``. It lives for the others as long as it, its command or its
    server has ``lock`` open."""

    def __init__(self, wanted: Wanted) -> None:
        self.directory, self.name, listens = wanted
        os.makedirs(self.directory, exist_ok=True)
        identity = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
        with _turn(self.directory, Identity(identity, socket.gethostname(), listens)) as place:
            assert place is not None
            there = place.identity
            if listens != there.listens:
                without, with_it = ("others", "this program") if listens else ("this program", "others")
                raise UserError(
                    f"workflow {self.directory}: {with_it} {'has' if listens else 'have'} workflow.listen and {without} "
                    f"{'have' if listens else 'has'} not; the config must be the same for all of them"
                )
            if not listens and there.host != socket.gethostname():
                raise _other_node(self.directory, there)
            self.memory = place.memory
            for below in ("", "members", "waits", "files"):
                places.make_private(os.path.join(self.memory, below))
            self.entry = f"{self.name},{os.getpid()}-{secrets.token_hex(3)}"
            self._path = os.path.join(self.memory, "members", self.entry)
            self.lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            os.write(self.lock, f"pid {os.getpid()}\nhost {socket.gethostname()}\nstarted {time.time():.6f}\n".encode())

    def arguments(self) -> list[str]:
        """Of its server."""
        return ["--workflow", self.directory, "--workflow-memory", self.memory, "--as", self.name, "--member", self.entry]

    def leave(self, code: int) -> None:
        with contextlib.suppress(OSError):
            os.write(self.lock, f"ended {code}\n".encode())
        os.close(self.lock)
        with _turn(self.directory) as place:
            if place is None or not os.path.isdir(self.memory):
                return
            clean_up_after(self.memory, self.entry)
            free_what_is_read(self.memory)
            if any(m["alive"] for m in members(self.memory)):
                return
            unread = [f for f in files(self.memory) if f["unread_by"]]
            if not unread:
                if not is_served(self.memory):  # its server ends it, when that holds on all nodes
                    end(place)
                return
        names = ", ".join(f["path"] for f in unread[:3]) + (", …" if len(unread) > 3 else "")
        size = sum(f["bytes"] for f in unread)
        say(
            "",
            f"the workflow {self.directory} keeps {len(unread)} file{'s' * (len(unread) > 1)} ({size / 1e6:.1f} MB of memory) that "
            f"{' and '.join(sorted({name for f in unread for name in f['unread_by']}))} may still read: {names}; "
            f"`advectio status --workflow {self.directory} --end` removes them",
        )

    def forget(self) -> None:
        """The run has not begun. Where nobody else has come to the workflow, it has not either."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self.lock)
        with _turn(self.directory) as place:
            if place is None or not os.path.isdir(self.memory):
                return
            if not members(self.memory) and not files(self.memory) and not is_served(self.memory):
                end(place)


def end(place: Place) -> None:
    """On this node, whose server does not live, or that is the only one."""
    nodes = os.path.join(place.directory, NODES)
    own = _read(os.path.join(place.memory, "node"))
    shutil.rmtree(place.memory, ignore_errors=True)
    with contextlib.suppress(OSError):
        if own:
            os.unlink(os.path.join(nodes, own))
    with contextlib.suppress(OSError):
        if os.path.isdir(nodes):
            os.rmdir(nodes)  # others are there: they end it
        os.unlink(os.path.join(place.directory, FILE))


def is_served(memory: str) -> bool:
    """Of a workflow of several nodes: does this one's server live?"""
    return _is_held(os.path.join(memory, "server"))


def is_alive(memory: str, entry: str) -> bool:
    return _is_held(os.path.join(memory, "members", entry))


def _is_held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _list(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


class WorkflowProgram(TypedDict):
    name: str
    entry: str
    alive: bool
    exit_code: int | None
    pid: int
    host: str
    node: str | None


# "from" is no name in Python.
WorkflowWait = TypedDict("WorkflowWait", {"name": str, "pid": int, "path": str, "from": list[str]})


class WorkflowFile(TypedDict):
    path: str
    version: int
    writer: str | None
    bytes: int
    node: str | None
    keep: str
    writing: list[str]
    read_by: list[str]
    unread_by: list[str]
    readers: list[str]
    trouble: str | None


class WorkflowNode(TypedDict):
    node: str
    host: str
    state: str
    bytes_fetched: int
    bytes_sent: int


class WorkflowStatus(TypedDict):
    """What `status --workflow DIR --json` prints."""

    workflow: str
    memory: str
    nodes: list[WorkflowNode]
    programs: list[WorkflowProgram]
    waits: list[WorkflowWait]
    files: list[WorkflowFile]


def members(memory: str) -> list[WorkflowProgram]:
    found: list[WorkflowProgram] = []
    for entry in _list(os.path.join(memory, "members")):
        said = dict(line.split(" ", 1) for line in _read(os.path.join(memory, "members", entry)).splitlines() if " " in line)
        code = said.get("ended")
        found.append(
            {
                "name": entry.partition(",")[0],
                "entry": entry,
                "alive": is_alive(memory, entry) and code is None,
                "exit_code": None if code is None else int(code),
                "pid": int(said.get("pid", 0)),
                "host": said.get("host", ""),
                "node": said.get("node"),
            }
        )
    return sorted(found, key=lambda m: (m["name"], m["pid"]))


def waits(memory: str) -> list[WorkflowWait]:
    found: list[WorkflowWait] = []
    for entry in _list(os.path.join(memory, "waits")):
        lines = _read(os.path.join(memory, "waits", entry)).splitlines()
        here, _, node = entry.partition("@")  # of another node its server says whether it waits
        pid = here.rpartition(",")[2].split(".")[1]
        if lines and (node or os.path.exists(f"/proc/{pid}")):
            found.append({"name": entry.partition(",")[0], "pid": int(pid), "path": lines[0], "from": lines[1:]})
    return found


def version_directories(memory: str) -> Iterator[tuple[str, str, list[str]]]:
    """Path of the coupled file, its directory of versions, and what is in that."""
    top = os.path.join(memory, "files")
    for directory, _, names in os.walk(top):
        if names:
            yield directory.removeprefix(top), directory, names


def _is_version(name: str) -> bool:
    return name.partition(".")[0].isdigit()


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:  # another program has just removed it
        return 0


def _target(path: str) -> str:
    """Of a symbolic link; empty: it is none, or not there any more."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def files(memory: str) -> list[WorkflowFile]:
    found: list[WorkflowFile] = []
    for path, directory, names in version_directories(memory):
        version = max((n for n in names if _is_version(n)), default=None, key=lambda n: int(n.partition(".")[0]))
        told = _read(os.path.join(directory, "readers")).splitlines()
        readers = told[1:]
        # A version that a program has itself written it need not read.
        having_read = {
            n.removeprefix("read.")
            for n in names
            if n.startswith("read.") and version and os.path.basename(_read(os.path.join(directory, n))) == version
        }
        writer = version.partition(".")[2] if version else None
        size = sum(_size(os.path.join(directory, n)) for n in names)
        target = _target(os.path.join(directory, version)) if version else ""
        elsewhere = target[1:].partition("/") if target.startswith("@") else None
        found.append(
            {
                "path": path,
                "version": int(version.partition(".")[0]) if version else 0,
                "writer": writer,
                "bytes": size if elsewhere is None else int(elsewhere[2]),
                "node": elsewhere[0] if elsewhere else None,
                "keep": told[0] if told else "workflow",
                "writing": sorted({n.partition(".")[2].partition(",")[0] for n in names if n.startswith("writing.")}),
                "read_by": sorted(having_read),
                "unread_by": [
                    r for r in readers if version and r != writer and not any(fnmatch.fnmatchcase(n, r) for n in having_read)
                ],
                "readers": readers,
                "trouble": _read(os.path.join(directory, "trouble")) or None,
            }
        )
    return sorted(found, key=lambda f: str(f["path"]))


def coupled_here(name: str) -> list[str]:
    """Files in the memory of this user's workflows on this node that have the name, or match the pattern that it is."""
    top, wanted = places.user_directory(), os.path.abspath(name)
    return sorted(
        path
        for entry in _list(top)
        if entry.startswith(".workflow-")
        for path, _, names in version_directories(os.path.join(top, entry))
        if any(map(_is_version, names)) and fnmatch.fnmatchcase(path, wanted)
    )


def clean_up_after(memory: str, entry: str) -> None:
    """What a run that is over has left: it was killed, or has not closed its files."""
    for _, directory, names in version_directories(memory):
        for name in names:
            if name.startswith((f"writing.{entry}.", f"open.{entry}.")):
                copy = _target(os.path.join(directory, name))  # of a file on the disk that is overwritten in place
                for path in (os.path.join(directory, name), copy):
                    if path and (path != copy or os.path.basename(copy).startswith(".advectio-")):
                        with contextlib.suppress(OSError):
                            os.unlink(path)
    for below in ("waits", "pending"):
        for name in _list(os.path.join(memory, below)):
            if name.startswith(f"{entry}."):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(memory, below, name))


def free_what_is_read(memory: str) -> None:
    """Of files with ``keep: read``: when all programs that read them have ended."""
    there = members(memory)
    for entry in [m["entry"] for m in there if not m["alive"] and m["exit_code"] is None]:
        clean_up_after(memory, entry)
    alive = [m["name"] for m in there if m["alive"]]
    for file in files(memory):
        in_use = any(fnmatch.fnmatchcase(name, r) for name in alive for r in file["readers"])
        if file["keep"] == "read" and file["version"] and not file["unread_by"] and not in_use and not file["writing"]:
            shutil.rmtree(os.path.join(memory, "files") + file["path"], ignore_errors=True)


def show(directory: str, as_json: bool, ends: bool) -> int:
    """``advectio status --workflow``."""
    directory = os.path.abspath(directory)
    served = False
    with _turn(directory) as place:
        if place is None:
            raise UserError(f"{directory} is no workflow directory (one that all programs have left is none any more)", 1)
        memory = place.memory
        if not os.path.isdir(memory):
            raise not_here(directory, place.identity)
        there = members(memory)
        alive = sorted({m["name"] for m in there if m["alive"]})
        if ends:
            if alive:
                raise UserError(f"--end: {', '.join(alive)} still run{'s' * (len(alive) == 1)} in {directory}", 1)
            served = is_served(memory)
            if served:
                with open(os.path.join(memory, "end"), "w", opener=places.private):
                    pass
            else:
                end(place)
    if served:
        ended_by_its_servers(directory, memory)
    state: WorkflowStatus = {
        "workflow": directory,
        "memory": memory,
        "nodes": nodes(memory),
        "programs": there,
        "waits": waits(memory),
        "files": files(memory),
    }
    if as_json:
        print(json.dumps(state, indent=2))
        return 0
    if ends:
        print(f"{directory} has ended; nothing of it is in memory any more")
        return 0
    _print(state)
    return 0


def not_here(directory: str, found: Identity) -> UserError:
    if not found.listens:
        return (
            _other_node(directory, found)
            if found.host != socket.gethostname()
            else UserError(f"{directory}: nothing is there", 1)
        )
    hosts = [
        json.loads(_read(os.path.join(directory, NODES, n)) or "{}").get("host", n)
        for n in _list(os.path.join(directory, NODES))
    ]
    return UserError(
        f"no program of {directory} is on this node ({socket.gethostname()}); ask on one of its own: {', '.join(hosts) or 'none'}",
        1,
    )


def ended_by_its_servers(directory: str, memory: str) -> None:
    """Of all nodes; here it is waited for."""
    until = time.monotonic() + END_TIMEOUT_S
    while os.path.isdir(memory):
        if time.monotonic() > until:
            raise UserError(f"{directory} has not ended after {END_TIMEOUT_S:.0f} s; {memory}/log may say why", 1)
        time.sleep(0.02)


def nodes(memory: str) -> list[WorkflowNode]:
    """Of a workflow of several nodes, as this one's server knows them; it is the first."""
    with contextlib.suppress(ValueError):
        return list(json.loads(_read(os.path.join(memory, "nodes"))))
    return []


def _print(state: WorkflowStatus) -> None:
    from rich.console import Console
    from rich.table import Table

    out = Console(highlight=False)
    if not out.is_terminal:
        out = Console(highlight=False, width=max(140, out.width))
    out.print(f"{state['workflow']} (memory: {state['memory']})")
    hosts = {n["node"]: n["host"] for n in state["nodes"]}
    if len(hosts) > 1:
        table = Table("node", "state", "fetched MB", "sent MB", box=None, pad_edge=False)
        for node in state["nodes"]:
            table.add_row(node["host"], node["state"], f"{node['bytes_fetched'] / 1e6:.1f}", f"{node['bytes_sent'] / 1e6:.1f}")
        out.print(table)
    programs = Table("program", "state", box=None, pad_edge=False)
    waiting = state["waits"]
    for member in state["programs"]:
        code = member["exit_code"]
        how = "runs" if member["alive"] else "has died" if code is None else f"has ended (exit code {code})"
        mine = [w for w in waiting if w["name"] == member["name"]] if member["alive"] else []
        for_whom = "; ".join(f"waits for {w['path']} from {' or '.join(w['from'])}" for w in mine)
        programs.add_row(f"{member['name']} ({member['pid']} on {member['host']})", for_whom or how)
    out.print(programs)
    if not state["files"]:
        return
    table = Table("file", "version", "by", "MB", "state", box=None, pad_edge=False)
    for file in state["files"]:
        about = []
        if file["writing"]:
            about.append(f"{' and '.join(file['writing'])} writes the next")
        if file["unread_by"]:
            about.append(f"not read by {' and '.join(file['unread_by'])} yet")
        elif file["read_by"]:
            about.append(f"read by {' and '.join(file['read_by'])}")
        if file["node"]:
            about.append(f"in the memory of {hosts.get(file['node'], file['node'])}")
        if file["trouble"]:
            about.append(file["trouble"])
        number = str(file["version"]) if file["version"] else "none yet"
        table.add_row(file["path"], number, file["writer"] or "", f"{file['bytes'] / 1e6:.1f}", "; ".join(about))
    out.print(table)


class Doubt(NamedTuple):
    what: str
    advice: str


def doubts(raw: dict[str, Any], name: str | None) -> list[Doubt]:
    """What may be wrong with the rules of ``couple``."""
    import difflib

    rules = raw.get("couple", [])
    found: list[Doubt] = []
    every = [(n, r) for r in rules for n in {*r["from"], *r["to"]}]
    names = sorted({n for n, _ in every})
    if name and rules and not any(fnmatch.fnmatchcase(name, _as_pattern(n)) for n in names):
        near = difflib.get_close_matches(name, names, 1)
        found.append(
            Doubt(
                f"no rule of couple names {name}",
                f"did you mean {near[0]}?" if near else f"they name: {', '.join(names)}; it would be alone in the workflow",
            )
        )
    paired: set[frozenset[str]] = set()
    for one in names:
        mine = [r for n, r in every if n == one]
        near = [n for n in difflib.get_close_matches(one, names, 3, 0.8) if n != one and n[:-1] != one[:-1]]
        if len(mine) == 1 and near and frozenset((one, near[0])) not in paired:
            paired.add(frozenset((one, near[0])))
            found.append(
                Doubt(f"{mine[0]['origin']}: {one} and {near[0]} are two programs", "make them one name if one is misspelt")
            )
    for rule in rules:
        if set(rule["from"]) == set(rule["to"]):
            found.append(
                Doubt(f"{rule['origin']}: {rule['match']} goes from {', '.join(rule['from'])} to itself", "correct from or to")
            )
    for k, rule in enumerate(rules):
        for earlier in rules[:k]:
            differ = [key for key in ("mode", "when", "keep") if rule[key] != earlier[key]]
            if rule["match"] == earlier["match"] and differ:
                found.append(
                    Doubt(
                        f"{rule['origin']}: {differ[0]}: {rule[differ[0]]} does not hold: the rule at {earlier['origin']} matches "
                        f"the same files, and the first one counts ({earlier[differ[0]]})",
                        "say the same in both",
                    )
                )
    for cycle in _cycles(rules):
        found.append(
            Doubt(
                f"{' → '.join([*cycle, cycle[0]])}: each of these programs waits for files of another",
                "right for a cycle whose first files are not coupled (exclude:); else all of them wait for ever",
            )
        )
    return found


def _as_pattern(name: str) -> str:
    out, rest = "", name
    while "{" in rest:
        before, _, rest = rest.partition("{")
        out += before + "*"
        rest = rest.partition("}")[2]
    return out + rest


def _cycles(rules: list[dict[str, Any]]) -> list[list[str]]:
    """Shortest ones, each once."""
    after: dict[str, set[str]] = {}
    for rule in rules:
        for a in rule["from"]:
            after.setdefault(a, set()).update(b for b in rule["to"] if b != a)
    found: dict[frozenset[str], list[str]] = {}
    for start in sorted(after):
        paths = [[start]]
        seen = {start}
        while paths:
            path = paths.pop(0)
            for following in sorted(after.get(path[-1], ())):
                if following == start:
                    found.setdefault(frozenset(path), path)
                    paths = []
                    break
                if following not in seen:
                    seen.add(following)
                    paths.append([*path, following])
    return list(found.values())
