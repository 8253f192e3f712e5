"""Why processes cannot be saved with all that they have: what CRIU and the driver cannot take to
another node. It is looked for before anything is touched."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from leased.processes import procfs

SOCKET = re.compile(r"socket:\[(\d+)\]")
# Of these the driver leaves none open once it has checkpointed a process.
GPU_FILES = "/dev/nvidia"
DEVICES = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "MPI_LOCALRANKID")
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user")
INET = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


def hindrances(pids: Iterable[int]) -> Iterator[str]:
    """Sentences; none: nothing is known that hinders."""
    for pid in pids:
        name = procfs.command(pid) or ""
        for why in (*_of_files(pid), *_of_environment(pid), *_of_namespaces(pid)):
            yield f"process {pid} ({name}) {why}"


def _of_files(pid: int) -> Iterator[str]:
    inet = {inode: protocol for protocol in INET for inode in procfs.sockets(pid, protocol)}
    for link in _open_files(pid):
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


def _open_files(pid: int) -> list[str]:
    """None of a process that has ended."""
    found: list[str] = []
    with suppress(OSError):
        found.extend(procfs.open_files(pid))
    return found


def _of_environment(pid: int) -> Iterator[str]:
    pairs = (os.fsdecode(entry).partition("=") for entry in procfs.environment(pid))
    said = {name: value for name, _, value in pairs}
    mpi = [name for name in MPI if name in said]
    if mpi:
        yield f"is of an MPI program ({mpi[0]})"
    nodes = said.get("SLURM_JOB_NUM_NODES", "1")
    if nodes != "1":
        yield f"is of a job on {nodes} nodes"


def _of_namespaces(pid: int) -> Iterator[str]:
    for kind in NAMESPACES:
        theirs = procfs.namespace(pid, kind)
        if theirs is not None and theirs != procfs.namespace("self", kind):
            yield f"is in a container (another {kind} namespace)"
            return
