"""Stands in for advectiod in the tests of the command line: the same arguments, socket and answers, no output at all.

What it does is told by a JSON file named in FAKE_ADVECTIOD:
  datasets   the datasets of its status (see `dataset` in conftest.py)
  refuse     serve: print this as one line and exit 2
  die_starting  serve: die by SIGKILL before it is ready
  die        serve: die by SIGKILL this many times, each shortly after it has started to listen
  die_draining  the same, when it has been asked to drain
  die_at_end serve: die by SIGKILL after the final status, with its directory there
  drain_s    how long a drain takes
  exit       exit code after the drain
  left       when asked to leave: there is something to leave, and its exit code is 3
  numbers    of its config's values, by key
  here       what its config comes to on this machine, where it is not as always
  rules      the dataset rules of its config (see `rule` in fake_installation.py)
  not_readable  its rules by which files are stored as somebody cannot read them
  like       what of its config fits none of the files of --like
  config_names  names in the rules of its config, and whether a dataset has them
  on         commands for events of its config
  transfers  stage.in and stage.out of its config
  recover    what `recover --json` prints; recover_exit its exit code, recover_s how long it takes
  inspect    what `inspect` finds (see `survey` in fake_installation.py); inspect_exit its exit code, records what it lists
What it meets is appended to events.log beside that file.

As advectiod_mpi it is one process of a job: the first one does all of the above, the others only tell what they have got.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time

MPI = "advectiod_mpi" in os.environ.get("FAKE_NAME", "")


def told():
    with open(os.environ["FAKE_ADVECTIOD"]) as f:
        return json.load(f)


def event(text):
    with open(os.path.join(os.path.dirname(os.environ["FAKE_ADVECTIOD"]), "events.log"), "a") as f:
        f.write(text + "\n")


def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def config():
    values = {
        "stage.directory": "/dev/shm",
        "stage.bytes_max": "auto",
        "stage.segment_bytes": "2MiB",
        "stage.warm_bytes": "256MiB",
        "stage.spill": "null",
        "stage.drain": "here",
        "server.restarts_max": "5",
        "server.memory_max": "512MiB",
        "log.level": "warning",
    }
    origins = {}
    file = option("--config")
    section = ""
    if file:
        if not os.path.exists(file):
            print(f"advectiod: error: config {file}: No such file or directory", file=sys.stderr)
            return 2
        with open(file) as f:
            lines = f.readlines()
        for number, line in enumerate(lines, 1):
            key, _, value = line.strip().partition(":")
            if not line.startswith(" "):
                section = key
            elif f"{section}.{key}" not in values:
                print(f"advectiod: error: {file}:{number}: unknown key {section}.{key}; did you mean ...?", file=sys.stderr)
                return 2
            else:
                values[f"{section}.{key}"] = value.strip()
                origins[f"{section}.{key}"] = f"{file}:{number}"
    if "--example" in sys.argv:
        print("stage:\n  directory: /dev/shm")
        return 0
    numbers = told().get("numbers", {}) | {
        "stage.segment_bytes": 2 << 20,
        "stage.warm_bytes": 256 << 20,
        "server.memory_max": 512 << 20,
    }
    print(
        json.dumps(
            {
                "values": [
                    {
                        "key": k,
                        "value": v,
                        "origin": origins.get(k, "default"),
                        "type": "",
                        "doc": "a word about it",
                        "number": numbers.get(k),
                    }
                    for k, v in values.items()
                ],
                "datasets": told().get("rules", []),
                "couple": [],
                "sets": [],
                "transfers": {"in": [], "out": []} | told().get("transfers", {}),
                "on": {"commands": {}, "at_once": 2, "timeout_s": 300.0} | told().get("on", {}),
                "here": {
                    "memory_bytes": 8 << 30,
                    "threads": 2,
                    "stage_free_bytes": 4 << 30,
                    "stage_bytes_max": 1 << 30,
                    "segment_bytes": 2 << 20,
                    "stage_error": None,
                }
                | told().get("here", {}),
                "not_readable": told().get("not_readable", []),
            }
            | ({"like": told()["like"]} if "--like" in sys.argv else {})
        )
    )
    return 0


def node():
    return int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))


def node_names():
    simulated = os.environ.get("ADVECTIO_NODES")
    if simulated:
        return [part.partition(":")[0] for part in simulated.split(",")]
    return [f"host{i}" for i in range(int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1")))]


def node_directory(run_dir):
    return os.path.join(run_dir, node_names()[node()]) if "ADVECTIO_NODES" in os.environ else run_dir


def note_path(name):
    """What the processes of this job, and of no other, tell each other."""
    return f"{os.environ['FAKE_ADVECTIOD']}.{os.environ.get('PMIX_NAMESPACE', '')}.{name}"


def another_node():
    """Alive until the first one has gone: cleanly, or mpirun ends this one."""
    os.makedirs(node_directory(option("--run-dir")), exist_ok=True)
    nodes = os.environ.get("ADVECTIO_NODES", "-")
    event(
        f"node {node()} of {os.environ['OMPI_COMM_WORLD_SIZE']}: ADVECTIO_NODES={nodes} HDF5_X={os.environ.get('HDF5_X', '-')}"
    )
    open(note_path(f"ready{node()}"), "w").close()
    while not os.path.exists(note_path("ended")):
        time.sleep(0.02)
    if "ADVECTIO_NODES" in os.environ:
        shutil.rmtree(node_directory(option("--run-dir")))
    return 0


class Serve:
    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.told = told()
        self.began = time.monotonic()
        self.draining = None

    def status(self, final=False):
        left = 0
        if self.draining:
            left = max(0.0, 1 - (time.monotonic() - self.draining) / max(self.told.get("drain_s", 0), 1e-9))
        return {
            "version": "0",
            "run_dir": self.run_dir,
            "pid": os.getpid(),
            "uptime_s": time.monotonic() - self.began,
            "final": final,
            "clean": final and self.told.get("exit", 0) == 0,
            "left": False,
            "server": {
                "threads": 2,
                "sprint_threads": 0,
                "sprint_s": 0.0,
                "memory_bytes": 1 << 20,
                "memory_peak_bytes": 2 << 20,
                "cpu_s": 0.7,
                "encode_cpu_s": 0.5,
                "drain_max": None,
                "held_back_s": 0.0,
            },
            "stage": {
                "directory": self.run_dir,
                "bytes_max": 1 << 30,
                "bytes_allocated": 0,
                "bytes_allocated_peak": 0,
                "bytes_held": 0,
                "bytes_warm": 0,
                "backlog_bytes": int(left * 1e9),
                "backlog_peak_bytes": 10**9,
                "spill_bytes_max": 0,
                "spill_bytes": 0,
                "spilled_bytes": 0,
                "waits": 0,
                "wait_s": 0.0,
            },
            "writers": [],
            "datasets": self.told.get("datasets", []),
            "config_names": self.told.get("config_names", []),
            "errors": [],
        } | self.nodes()

    def nodes(self):
        if not MPI:
            return {}
        return {
            "nodes": [
                {
                    "node": i,
                    "name": name,
                    "pid": 1000 + i,
                    "backlog_bytes": 5_000_000,
                    "bytes_max": 1 << 30,
                    "memory_peak_bytes": 9,
                }
                for i, name in enumerate(node_names())
            ]
        }

    def answer(self, link):
        with link.makefile("rw") as stream:
            for line in stream:
                do = json.loads(line).get("do")
                if do == "status":
                    reply = self.status()
                elif do in ("drain", "leave"):
                    event(do)
                    if self.may_die("die_draining"):
                        os.kill(os.getpid(), signal.SIGKILL)
                    self.draining = self.draining or time.monotonic()
                    time.sleep(max(0.0, self.draining + self.told.get("drain_s", 0) - time.monotonic()))
                    reply = self.status(final=True)
                    if do == "leave" and self.told.get("left"):
                        reply |= {"left": True, "clean": False}
                        self.told["exit"] = 3
                else:
                    reply = {"error": f"{do}: not understood"}
                with contextlib.suppress(OSError):
                    stream.write(json.dumps(reply) + "\n")
                    stream.flush()
                if reply.get("final"):
                    self.end()

    def end(self):
        code = self.told.get("exit", 0)
        event(f"end {code}")
        if self.told.get("die_at_end"):
            os.makedirs(os.path.join(self.run_dir, "journals", "of a process"))
            os.kill(os.getpid(), signal.SIGKILL)
        if code == 0:
            for name in os.listdir(self.run_dir):
                if name != "keeper":
                    os.unlink(os.path.join(self.run_dir, name))
            if not os.listdir(self.run_dir):
                os.rmdir(self.run_dir)
        if MPI:
            open(note_path("ended"), "w").close()
        os._exit(code)

    def may_die(self, of_what):
        """It has not died as often as it shall."""
        with open(os.environ["FAKE_ADVECTIOD"] + ".deaths", "a+") as deaths:
            deaths.seek(0)
            if len(deaths.read()) >= self.told.get(of_what, 0):
                return False
            deaths.write("x")
            return True

    def serve(self):
        if "refuse" in self.told:
            print(self.told["refuse"], file=sys.stderr)
            return 2
        words = sys.argv[2:]
        if "--ready-fd" in words:
            at = words.index("--ready-fd")
            del words[at : at + 2]
        event("serve " + " ".join(words))
        if self.told.get("die_starting"):
            os.kill(os.getpid(), signal.SIGKILL)
        event(f"pid {os.getpid()}")
        os.makedirs(self.run_dir, exist_ok=True)
        for name in ("control", "capture.conf"):
            open(os.path.join(self.run_dir, name), "w").close()
        for other in range(1, int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))):
            while not os.path.exists(note_path(f"ready{other}")):
                time.sleep(0.02)
        path = os.path.join(self.run_dir, "socket")
        if os.path.exists(path):
            os.unlink(path)
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(s, lambda number, _: event(f"signal {number}"))
        listener = socket.socket(socket.AF_UNIX)
        fd = os.open(self.run_dir, os.O_PATH)
        listener.bind(f"/proc/self/fd/{fd}/socket")
        listener.listen(64)
        ready = option("--ready-fd")
        if ready:
            os.write(int(ready), b"ready\n")
        if self.may_die("die"):
            threading.Timer(0.15, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        while True:
            link, _ = listener.accept()
            threading.Thread(target=self.answer, args=(link,), daemon=True).start()


def main():
    if sys.argv[1] == "config":
        return config()
    if MPI and node() > 0:
        if sys.argv[1] == "serve":
            return another_node()
        event(f"node {node()}: recover {sys.argv[2]}")
        return 0
    if sys.argv[1] == "serve":
        return Serve(node_directory(option("--run-dir"))).serve()
    if sys.argv[1] == "recover":
        event(" ".join(sys.argv[1:]))
        what = told()
        if "recover_s" in what:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            event(f"pid {os.getpid()}")
            time.sleep(what["recover_s"])
        if "recover" in what:
            print(json.dumps(what["recover"]))
        if what.get("recover_exit") != 2:
            shutil.rmtree(sys.argv[2], ignore_errors=True)
        return what.get("recover_exit", 0)
    if sys.argv[1] == "inspect":
        event(" ".join(sys.argv[1:]))
        what = told()
        if what.get("inspect_exit") == 2:
            print(f"advectiod: error: no stage at {sys.argv[2]}", file=sys.stderr)
            return 2
        print(json.dumps({"done": 1, "of": 2}))
        for record in what.get("records", []) if "--records" in sys.argv else []:
            print(json.dumps({"record": record}))
        empty = {
            "served": False,
            "power_lost": False,
            "node": 0,
            "server_pid": 1,
            "segment_bytes": 1,
            "segments_max": 2,
            "segments_free": 0,
            "nodes": 0,
        }
        found = empty | {"journals": [], "datasets": [], "errors": [], "damaged": False} | what.get("inspect", {})
        print(json.dumps({"result": found | {"run_dir": sys.argv[2]}}))
        return 1 if found["damaged"] else 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
