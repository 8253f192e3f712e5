"""Several nodes on one machine: each has its emulated GPU, its daemon and its port, on loopback or
on a network of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import Daemon
from tests.support import tenant
from tests.support.lan import Lan
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
RECORD = "record"  # of a node's events, in its folder
NOTES_WAITS = "tests.bench.processor_waits"
WAITS = "waits"  # of its daemon for a processor, there too
UNIT = ROOT / "packaging" / "gpu-leased.service.in"
# For the process itself, and for its session where the kernel weighs those.
GOES_FIRST = 'echo {0} >/proc/self/autogroup; exec nice -n {0} "$@"'


@contextlib.contextmanager
def munged(place: Path) -> Iterator[Path]:
    """MUNGE with a key of its own; the path of its socket."""
    place.mkdir(parents=True, exist_ok=True)
    key, path = place / "munge.key", place / "munge.socket"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    program = shutil.which("munged", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise FileNotFoundError("there is no munged; install munge")
    command = [program, "--foreground", "--force", f"--key-file={key}"]
    command += [f"--socket={path}", f"--pid-file={place}/munged.pid", "--num-threads=4"]
    command += [f"--seed-file={place}/munged.seed", f"--log-file={place}/munged.log"]
    daemon = Daemon.start("munged", command, place / "munged.out", os.environ)
    try:
        daemon.wait_ready(path.exists)
        yield path
    finally:
        # A SIGTERM just before it waits for a connection is seen at the next one.
        os.kill(daemon.process.pid, signal.SIGTERM)
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as wakes:
            wakes.connect(str(path))
        daemon.stop()


def overlap_ns(one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> int:
    """How long spans of the one overlap those of the other; those of each follow each other."""
    found = n = 0
    for start, end in one:
        while n < len(other) and other[n][1] <= start:
            n += 1
        for begin, over in itertools.islice(other, n, None):
            if begin >= end:
                break
            found += min(end, over) - max(start, begin)
    return found


def peers_conf(
    ports: Mapping[str, int], here: str, munge: Path, hosts: Mapping[str, str] | None = None
) -> str:
    """Where the daemons listen: a real node has an address of its own, and all have one port."""
    at = {name: f"{(hosts or {}).get(name, '127.0.0.1')}:{port}" for name, port in ports.items()}
    addresses = ", ".join(f'"{name}={place}"' for name, place in at.items())
    listen = at[here].rpartition(":")[0]
    return (
        f'[peers]\nport = {ports[here]}\nlisten = "{listen}"\naddresses = [{addresses}]\n'
        f'munge_socket = "{munge}"\n'
    )


def goes_first() -> list[str]:
    """What a command begins with that has the priority of the daemon's unit; needs root."""
    found = re.search(r"^Nice=(-\d+)$", UNIT.read_text(), re.MULTILINE)
    assert found, UNIT
    return ["sh", "-c", GOES_FIRST.format(found[1]), "sh"]


class Node:
    """name: as Slurm would call it. gpu, leased: its own."""

    def __init__(self, name: str, place: Path, gpu: EmulatedGpu, leased: Leased):
        self.name, self.place, self.gpu, self.leased = name, place, gpu, leased

    def records(self) -> list[Path]:
        """What its daemons have recorded, the older one first."""
        newer = self.place / RECORD
        return [path for path in (Path(f"{newer}.1"), newer) if path.exists()]

    @property
    def waits(self) -> Path:
        """What tests/bench/processor_waits.py has noted of its daemons."""
        return self.place / WAITS

    def job(self, job_id: int) -> dict[str, Any]:
        """What status says of the job."""
        tenants = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        found: dict[str, Any] = next(t for t in tenants if t["job_id"] == job_id)
        return found

    def slices(self, pid: int) -> list[tuple[int, int]]:
        """When a process computed here: ns of a clock that all nodes of this machine share."""
        return sorted((start, end) for _, who, start, end in self.gpu.trace() if who == pid)


class Nodes:
    """names: in the order that is the same on all of them. extra: for each configuration. lan: the
    network that they are on; None: loopback. gpus: of each. traced: their daemons record events
    (Node.records) and log what those of jobs on several nodes lead to. timed: they have the
    priority that their unit gives them, and note how long they wait for a processor (Node.waits).
    """

    def __init__(
        self,
        place: Path,
        names: Sequence[str],
        munge: Path,
        extra: str = "",
        *,
        lan: Lan | None = None,
        gpus: int = 1,
        traced: bool = False,
        timed: bool = False,
    ):
        self.names = tuple(names)
        self.ports = {name: free_port() for name in names}
        self.started: list[subprocess.Popen[str]] = []
        self.nodes: dict[str, Node] = {}
        self.stack = contextlib.ExitStack()
        hosts = {name: lan.address(name) for name in names} if lan else None
        for number, name in enumerate(names):
            conf = extra + peers_conf(self.ports, name, munge, hosts)
            if traced:
                conf = f'record = "{place / name / RECORD}"\n{conf}'
            gpu = EmulatedGpu(place / name / "gpu", devices=gpus, trace=True, node=number)
            env = os.environ | gpu.env | {"SLURMD_NODENAME": name}
            daemon = Leased(
                *(place / name, place / name / "run", env, conf),
                preload=CHECKED,
                debug=traced,
                within=[*(lan.enter(name) if lan else ()), *(goes_first() if timed else ())],
                through=[NOTES_WAITS, str(place / name / WAITS)] if timed else (),
            )
            self.nodes[name] = Node(name, place / name, gpu, daemon)

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __enter__(self) -> Nodes:
        with contextlib.ExitStack() as stack:
            for node in self.nodes.values():
                stack.enter_context(node.gpu)
                stack.enter_context(node.leased)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):  # with the program that it runs
                os.killpg(process.pid, signal.SIGKILL)
            sys.stderr.write("".join(process.communicate()))
        self.stack.close()

    def start(
        self, name: str, job: int, options: str, *command: str, nodes: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """A Python program as a job's process on a node. nodes: the job's, if several."""
        node, pipe = self.nodes[name], subprocess.PIPE
        program = sys.executable, *command
        admin = node.leased.admin_socket
        process = subprocess.Popen(
            tenant.command(admin, job, options, *program, nodes=",".join(nodes)),
            cwd=ROOT,
            env=node.leased.env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process
