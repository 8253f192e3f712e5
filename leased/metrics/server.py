"""Serves metrics over HTTP. A client that is slow or comes too often takes a bounded part of it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from leased.base.errors import Refused
from leased.config.listen_address import ListenAddress

log = logging.getLogger("gpu-leased-metrics")

MOST_OPEN = 32  # connections; one more ends the oldest
LONGEST_S = 20.0  # that a connection may last
POLL_S = 0.5

Request = Any  # a connected socket; socketserver's types allow more


class Handler(WSGIRequestHandler):
    """One request of a connection, which then ends."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: it would be a line for each scrape."""


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection. Refused: the address is taken, or cannot be had.

    When the most are open, the oldest ends: a scrape takes milliseconds, so what is old waits
    for a client that does not come on.
    """

    daemon_threads = False
    block_on_close = True
    request_queue_size = MOST_OPEN

    def __init__(self, address: ListenAddress, app: Callable[..., Any]):
        self._began: dict[Request, float] = {}
        self._lock = threading.Lock()
        self._path = address.path
        self.address_family = _family(address)
        if self._path is not None:
            remove_left_over(self._path)
        where = (address.host, address.port) if self._path is None else str(self._path)
        try:
            super().__init__(where, Handler)  # type: ignore[arg-type]
        except OSError as fault:
            raise Refused(
                f"metrics.listen: {address} cannot be had: {fault.strerror}",
                "choose another, or end what has it (ss -lxtp shows that)",
            ) from None
        self.set_app(app)

    def server_bind(self) -> None:
        """WSGIServer's would ask a name server for this host's name."""
        old = os.umask(0o111)  # who may reach the socket its directory says
        try:
            TCPServer.server_bind(self)
        finally:
            os.umask(old)
        self.server_name, self.server_port = "localhost", 0
        self.setup_environ()

    def get_request(self) -> tuple[Request, Any]:
        """A UNIX socket's client has no address, which its handler would ask for."""
        connection, _ = self.socket.accept()
        return connection, ("local", 0)

    # -- bounds ---------------------------------------------------------------------

    def process_request(self, request: Request, client_address: Any) -> None:
        with self._lock:
            self._began[request] = time.monotonic()
            if len(self._began) > MOST_OPEN:
                _end(next(iter(self._began)))
            refused = len(self._began) > 2 * MOST_OPEN
        if refused:  # those that were ended have not all gone yet
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Request) -> None:
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that last too long; socketserver calls this again and again."""
        super().service_actions()
        late = time.monotonic() - LONGEST_S
        with self._lock:
            for request in [one for one, began in self._began.items() if began < late]:
                _end(request)

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is no fault of ours."""
        log.debug("a connection has failed", exc_info=True)

    def server_close(self) -> None:
        """Returns when no thread is left."""
        with self._lock:
            for request in self._began:
                _end(request)
        super().server_close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _family(address: ListenAddress) -> socket.AddressFamily:
    if address.path is not None:
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _end(connection: Request) -> None:
    """End a connection: its thread reads the end of the stream."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def remove_left_over(path: Path) -> None:
    """Remove a socket at which nobody listens any more. Refused: it is something else."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as fault:
        raise Refused(f"metrics.listen: {path}: {fault.strerror}", "choose another path") from None
    if not stat.S_ISSOCK(mode):
        raise Refused(f"metrics.listen: {path} is not a socket", "choose another path or remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        try:
            tried.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as fault:
            words = f"metrics.listen: {path}: {fault.strerror}"
            raise Refused(words, "choose another path, or remove it") from None
    raise Refused(f"metrics.listen: somebody listens at {path}", "choose another path")
