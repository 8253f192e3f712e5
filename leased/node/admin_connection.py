"""A connection on admin.sock: root, or the admin group, asks in JSON."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from leased.base.requests import answered
from leased.connections import limits
from leased.connections.connection import LONGEST_REQUEST, Connection
from leased.processes.identity import Peer

# Answers one request of a peer; Refused says why not.
Handler = Callable[[dict[str, Any], Peer], dict[str, Any]]


class AdminConnection(Connection):
    """Each packet is a request, a JSON object, and is answered by one packet."""

    IDLE_MOST = limits.ADMIN_PER_UID
    PATIENCE_S = limits.ADMIN_IDLE_S

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, handle: Handler):
        self.handle = handle
        super().__init__(sock, loop)

    def received(self, data: bytes) -> None:
        self.idle_since = self.loop.time()
        if not self.has_opener():  # a slurmstepd, whose number would be taken for its step's
            self.close()
            return
        answer = answered(data, LONGEST_REQUEST, lambda request: self.handle(request, self.peer))
        self.send(json.dumps(answer).encode())
