"""tenant.sock and admin.sock: where clients, users and root reach the daemon."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field

from leased.admin.admin import Admin
from leased.admin.questions import Questions
from leased.admin.reload import AdminSocket
from leased.base.listening_socket import ADMIN_BACKLOG, listen
from leased.base.service_manager import connections_kept, inherited_sockets, keep_connection
from leased.base.words import count
from leased.config.config import Config
from leased.connections.accounts import Accounts
from leased.connections.listener import Listener
from leased.core.events import Rejoined
from leased.leasing.leases import Leases
from leased.node.admin_connection import AdminConnection
from leased.node.client_connection import ClientConnection

GRACE_NS = 1_000_000_000  # after a restart: holders come back before anybody is granted


@dataclass
class Listeners:
    """Both sockets, and the clients' connections that a former daemon has left."""

    loop: asyncio.AbstractEventLoop
    admin: Admin
    questions: Questions
    accounts: Accounts  # of those who use tenant.sock
    listeners: list[Listener] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept_clients = KeptClients(self.admin.leases)

    def open(self, config: Config) -> AdminSocket:
        """Listen on the service manager's sockets, else on ones of our own.

        Returns admin.sock, which the admin group can open from now on. OSError: a socket cannot
        be made.
        """
        given = inherited_sockets()
        clients = given.pop("client", [])
        sockets = {name: found[0] for name, found in given.items()}
        tenant = sockets.get("tenant") or listen(config.tenant_socket, 0o666)
        path = config.admin_socket
        admin = sockets.get("admin") or listen(path, 0o600, ADMIN_BACKLOG)
        admin_socket = AdminSocket(path, ours="admin" not in sockets)
        admin_socket.open_to(self.admin.admin_gid)
        self.listeners = [
            Listener(tenant, self.loop, self._connect_client, self.accounts),
            Listener(admin, self.loop, self._connect_admin),
        ]
        self.kept_clients.take_back(self.listeners[0], clients)
        return admin_socket

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()

    def _connect_client(self, sock: socket.socket) -> ClientConnection:
        made = ClientConnection(
            sock, self.loop, self.admin.leases, self.admin.jobs.find, self.questions.handle
        )
        made.on_heard = self.kept_clients.heard
        return made

    def _connect_admin(self, sock: socket.socket) -> AdminConnection:
        return AdminConnection(sock, self.loop, self.admin.handle)


log = logging.getLogger("gpu-leased")


class KeptClients:
    """Connections of clients that outlive the daemon: systemd keeps them until the next one starts.
    take_back() at the start; heard() whenever a client has said HELLO or is gone."""

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
