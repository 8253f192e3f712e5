"""Introduces two processes of a job: one that shares memory, and one that opens it (CUDA IPC).

The memory's descriptors go from process to process. The daemon makes a pair of connected
sockets and gives each of the two an end. So it never holds a job's memory and never takes a
descriptor from a process, and since it knows only names, its restart loses nothing. A process is
found among those of the asker's own job, by a name that it has chosen itself.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from _gpulease import lib

from leased.wire import client_messages, daemon_messages

log = logging.getLogger("gpu-leased")

SETTLING_NS = 5_000_000_000  # after a start, clients of the previous daemon may still reconnect


class Named(Protocol):
    """One process of a tenant."""

    name: bytes

    def send(self, message: bytes, descriptor: int | None = None) -> None: ...


class Introductions:
    """The introductions of one node. clock: monotonic ns."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.settled_at = clock() + SETTLING_NS

    def named(self, client: Named, message: client_messages.Name) -> None:
        """Other processes of its job can find the client by this name from now on."""
        client.name = message.name
        client.send(daemon_messages.NAMED)

    def meet(self, clients: Iterable[Named], asker: Named, message: client_messages.Meet) -> None:
        """Introduce the asker to the process of that name. clients: the processes of its job."""
        other = next((c for c in clients if c.name and c.name == message.name), None)
        if other is None:
            settled = self.clock() >= self.settled_at
            asker.send(self._refusal(message, lib.GL_MET_NOBODY if settled else lib.GL_MET_LATER))
            return
        try:
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as fault:  # no descriptors are left for now
            log.warning("two processes of a job cannot share memory for now: %s", fault)
            asker.send(self._refusal(message, lib.GL_MET_LATER))
            return
        with ends[0], ends[1]:
            other.send(daemon_messages.met(lib.GL_MET_ASKED, 0, message.what), ends[0].fileno())
            asked = daemon_messages.met(lib.GL_MET_INTRODUCED, message.number, message.what)
            asker.send(asked, ends[1].fileno())

    @staticmethod
    def _refusal(message: client_messages.Meet, code: int) -> bytes:
        return daemon_messages.met(code, message.number, message.what)
