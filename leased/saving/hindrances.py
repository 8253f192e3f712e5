"""Why processes cannot be saved with all that they have: what CRIU and the driver cannot take to
another node. It is looked for before anything is touched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
SOCKET = re.compile(r"socket:\[(\d+)\]")
# Of these the driver leaves none open once it has checkpointed a process.
GPU_FILES = "/dev/nvidia"
DEVICES = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "MPI_LOCALRANKID")
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user")
INET = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")
SCRAP = 1 << 22  # bytes of a file of /proc


def tree(root: int, proc: Path = PROC) -> list[int]:
    """A process and all below it, the root first."""
    found = [root]
    for pid in found:
        for task in (proc / str(pid) / "task").glob("*"):
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def hindrances(pids: Iterable[int], proc: Path = PROC) -> Iterator[str]:
    """Sentences; none: nothing is known that hinders."""
    for pid in pids:
        place = proc / str(pid)
        name = _text(place / "comm").strip()
        for why in (*_of_files(place), *_of_environment(place), *_of_namespaces(place, proc)):
            yield f"process {pid} ({name}) {why}"


def _text(path: Path) -> str:
    try:
        with path.open(errors="replace") as file:
            return file.read(SCRAP)
    except OSError:
        return ""


def _of_files(place: Path) -> Iterator[str]:
    inet = _inet_sockets(place)
    for link in _links(place / "fd"):
        socket = SOCKET.fullmatch(link)
        if socket and int(socket[1]) in inet:
            yield f"has a socket of the network open ({inet[int(socket[1])]})"
        elif link.startswith("/dev/infiniband"):
            yield f"uses Infiniband ({link})"
        elif link.startswith(("/dev/pts/", "/dev/tty", "/dev/ptmx")):
            yield f"has a terminal ({link})"
        elif link.startswith("/dev/") and not (
            link in DEVICES or link.startswith((GPU_FILES, "/dev/shm/"))
        ):
            yield f"has the device {link} open"


def _links(folder: Path) -> list[str]:
    found = []
    with suppress(OSError):
        for entry in os.scandir(folder):
            with suppress(OSError):
                found.append(str(Path(entry.path).readlink()))
    return found


def _inet_sockets(place: Path) -> dict[int, str]:
    """By inode, the protocol."""
    found = {}
    for protocol in INET:
        for line in _text(place / "net" / protocol).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[9].isdigit():
                found[int(fields[9])] = protocol
    return found


def _of_environment(place: Path) -> Iterator[str]:
    names = {entry.split("=", 1)[0]: entry for entry in _text(place / "environ").split("\0")}
    mpi = [name for name in MPI if name in names]
    if mpi:
        yield f"is of an MPI program ({mpi[0]})"
    nodes = names.get("SLURM_JOB_NUM_NODES", "=1").split("=", 1)[1]
    if nodes != "1":
        yield f"is of a job on {nodes} nodes"


def _of_namespaces(place: Path, proc: Path) -> Iterator[str]:
    for kind in NAMESPACES:
        with suppress(OSError):
            if (place / "ns" / kind).readlink() != (proc / "self" / "ns" / kind).readlink():
                yield f"is in a container (another {kind} namespace)"
                return
