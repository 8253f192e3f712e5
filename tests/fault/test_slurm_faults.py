"""Slurm that answers garbage, late, with an error or not at all: leases go on; it is said once."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.fault.harness import JOBS, FaultyNode, faulty_node
from tests.monitors.test_ended_jobs import GARBAGE, HEADER
from tests.support.ports import free_port

SLURM_CONF = """
ClusterName=none
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/no-munge
NodeName=localhost
PartitionName=all Nodes=ALL
"""
# tests/monitors/test_ended_jobs.py tries all of them; to the daemon an answer that is wrong, none
# at all and one that it breaks off are different.
WRONG = ("words", "an error", "without end")
DOES_NOT_SAY = "Slurm does not say which jobs have ended"
NOT_WRITTEN = "is not in Slurm's accounting yet"


# For how long a daemon waits for a squeue that never answers, however long it waits.
PATIENCE = "leased.base.children.PATIENCE_S=5"


# Programs that a daemon of these tests finds besides its squeue, if the machine has them.
OTHERS = ("cat", "head", "sleep", "yes", "scontrol", "scancel")


def link_others(commands: Path) -> None:
    """Their own directory, since the machine's may have a squeue that works."""
    for name in OTHERS:
        if found := shutil.which(name):
            (commands / name).symlink_to(found)


def put_squeue(commands: Path, script: str | None) -> None:
    """What squeue does from now on; None: it is not there."""
    path = commands / "squeue"
    path.unlink(missing_ok=True)
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


class BrokenSlurm:
    """A node whose Slurm a test breaks: its squeue, and the server that it would ask."""

    def __init__(self, node: FaultyNode, commands: Path):
        self.node = node
        self.commands = commands

    def squeue(self, script: str | None) -> None:
        """The daemon asks it when it starts; see put_squeue."""
        self.node.leased.stop()
        put_squeue(self.commands, script)
        self.node.leased.start()


class Server:
    """Something on slurmctld's port, that does what a test says with each connection."""

    def __init__(self, port: int, serve: Callable[[socket.socket], None]):
        self.listening = socket.create_server(("127.0.0.1", port))
        self.serve = serve
        self.kept: list[socket.socket] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.kept.append(connection)
            with contextlib.suppress(OSError):
                self.serve(connection)

    def stop(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for connection in self.kept:
            connection.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broken(short_dir: Path, port: int) -> Iterator[BrokenSlurm]:
    """Eight jobs on a node with a squeue that knows them, and nobody on slurmctld's port."""
    commands = short_dir / "bin"
    commands.mkdir()
    link_others(commands)
    known = "\n".join(f"{job} RUNNING 0 N/A" for job in JOBS)
    put_squeue(commands, f"cat <<'END'\n{HEADER}\n{known}\nEND")
    conf = short_dir / "slurm.conf"
    conf.write_text(SLURM_CONF.format(port=port, folder=short_dir))
    env = {"PATH": str(commands), "SLURM_CONF": str(conf)}
    with faulty_node(short_dir, env) as node:
        node.begin()
        yield BrokenSlurm(node, commands)


@pytest.mark.parametrize("kind", WRONG)
def test_squeue_that_does_not_answer_as_squeue_does(broken: BrokenSlurm, kind: str) -> None:
    node = broken.node
    with node.everybody_goes_on():
        broken.squeue(GARBAGE[kind])
        node.wait_said(DOES_NOT_SAY)
    assert node.tenants() == list(JOBS)
    assert node.said(DOES_NOT_SAY) == 1


def test_squeue_that_is_not_there_or_hangs(broken: BrokenSlurm) -> None:
    node = broken.node
    with node.everybody_goes_on():
        broken.squeue(None)
        node.wait_said(f"{DOES_NOT_SAY}: [Errno 2] No such file or directory: 'squeue'")
    node.leased.hurried.append(PATIENCE)
    with node.everybody_goes_on():
        broken.squeue("sleep 600 & sleep 600")
    with node.everybody_goes_on():
        node.wait_said("it took longer than 5 s")
    assert node.tenants() == list(JOBS)


def test_jobs_that_squeue_does_not_know_live_on_while_they_do(broken: BrokenSlurm) -> None:
    with broken.node.everybody_goes_on(but=[8]):
        broken.squeue(f"echo {HEADER}; echo 8 CANCELLED 0 0")
        broken.node.wait_said("job 8 has ended, and its plugin has not reported it")
    assert broken.node.tenants() == list(JOBS[:-1])


def silent(_: socket.socket) -> None:
    """It takes the connection, and that is all."""


def garbage(connection: socket.socket) -> None:
    connection.sendall(os.urandom(65_536))


def nothing(connection: socket.socket) -> None:
    connection.close()


@pytest.mark.parametrize("serve", [None, silent, garbage, nothing])
def test_accounting_that_does_not_answer(
    broken: BrokenSlurm, port: int, serve: Callable[[socket.socket], None] | None
) -> None:
    node = broken.node
    server = Server(port, serve) if serve else None
    try:
        with node.everybody_goes_on(but=[8]):
            ask(node.leased.admin_socket, {"op": "job_end", "job_id": 8})
        with node.everybody_goes_on(but=[7, 8]):
            ask(node.leased.admin_socket, {"op": "job_end", "job_id": 7})
            node.wait_said(NOT_WRITTEN)
        with node.everybody_goes_on(but=[6, 7, 8]):
            ask(node.leased.admin_socket, {"op": "job_end", "job_id": 6})
        assert node.said(NOT_WRITTEN) == 1
        used = ask(node.leased.admin_socket, {"op": "usage", "job_id": 8})["usage"]
        assert used, "it is not lost"
        with node.everybody_goes_on(but=[6, 7, 8]):
            node.leased.stop()
            node.leased.start()
        assert ask(node.leased.admin_socket, {"op": "usage", "job_id": 8})["usage"] == used
    finally:
        if server:
            server.stop()
