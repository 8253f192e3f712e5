"""Connections of clients that outlive the daemon: systemd keeps them until the next one starts."""

from __future__ import annotations

import logging
import socket

from leased.base.service_manager import connections_kept, keep_connection
from leased.base.words import count
from leased.connections.listener import Listener
from leased.core.arbiter import Rejoined
from leased.leasing.leases import Leases
from leased.node.client_connection import ClientConnection

log = logging.getLogger("gpu-leased")


class KeptClients:
    """take_back() at the start; heard() whenever a client has said HELLO or is gone."""

    def __init__(self, leases: Leases):
        self.leases = leases
        self.room = connections_kept()
        self.unheard: set[ClientConnection] = set()
        self.may_end_grace = False

    def take_back(self, listener: Listener, sockets: list[socket.socket]) -> None:
        """Ask each client for its state."""
        for sock in sockets:
            connection = listener.take(sock)
            if isinstance(connection, ClientConnection):
                self.unheard.add(connection)
                connection.isolated(connection.resync)
        if sockets:
            log.info("kept of the previous daemon: %s", count(len(sockets), "connection"))
        # With a full store some are missing here: they have the whole grace to come back.
        self.may_end_grace = 0 < len(sockets) < self.room

    def heard(self, connection: ClientConnection) -> None:
        """Takes note of a HELLO. When all clients have said what they hold, the grace after the
        restart is over."""
        if connection.open and self.room and not connection.restored:
            keep_connection(connection.sock)
        if connection in self.unheard:
            self.unheard.discard(connection)
            if not self.unheard and self.may_end_grace:
                self.leases.run(Rejoined())
