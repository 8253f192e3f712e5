"""Introduces two processes of a chain: one that shares memory, and one that opens it (CUDA IPC).

The memory's descriptors go from process to process. The daemon makes a pair of connected
sockets and gives each of the two an end. So it never holds a job's memory and never takes a
descriptor from a process, and since it knows only names, its restart loses nothing. A process is
found among those of the asker's own job, and of the jobs that are one chain with it
(leased/chains/membership.py), by a name that it has chosen itself, or as the chain's keeper.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from _gpulease import lib

from leased.leasing.tenant import Client
from leased.wire import client_messages, daemon_messages

KEEPER = bytes(16)  # instead of a name
SETTLING_NS = 5_000_000_000  # after a restart: clients of the previous daemon still reconnect


class Introductions:
    """The introductions of one node. clock: monotonic ns. restarted: jobs of before go on."""

    def __init__(self, clock: Callable[[], int], *, restarted: bool) -> None:
        self.clock = clock
        self.settled_at = clock() + (SETTLING_NS if restarted else 0)

    def meet(
        self, kin: Iterable[tuple[bool, Client]], asker: Client, message: client_messages.Meet
    ) -> Client | None:
        """Introduce the asker to the process of that name, which is returned. kin: the processes of
        its chain, and whether each lends memory to it: that leaves the GPU with its own lease."""

        def is_meant(other: Client) -> bool:
            if other is asker:
                return False
            return other.keeper if message.name == KEEPER else other.name == message.name

        lends, other = next((found for found in kin if is_meant(found[1])), (True, None))
        if other is None and self.clock() >= self.settled_at:
            asker.send(daemon_messages.met(lib.GL_MET_NOBODY, message.number, message.what))
        elif other is None or not self._introduce(asker, other, message, lends):
            asker.send(daemon_messages.met(lib.GL_MET_LATER, message.number, message.what))
        else:
            return other
        return None

    @staticmethod
    def _introduce(
        asker: Client, other: Client, message: client_messages.Meet, lends: bool
    ) -> bool:
        """False: not now. One of the two does not read, or no descriptors are left."""
        if not asker.takes_file():
            return False
        try:
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return False
        code = lib.GL_MET_ASKED if lends else lib.GL_MET_ABROAD
        asked = daemon_messages.met(code, 0, message.what)
        introduced = daemon_messages.met(lib.GL_MET_INTRODUCED, message.number, message.what)
        with ends[0], ends[1]:
            return other.send_file(asked, ends[0].fileno()) and asker.send_file(
                introduced, ends[1].fileno()
            )
