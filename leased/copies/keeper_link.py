"""gpu-leased's end of the connection with the keeper of memory for copies (keeper.py).

It is made again whenever it has ended. What was asked for and is not answered is asked again, and
what has ended is said again: the keeper takes both as often as they come.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger("gpu-leased")

SOCKET = "copies.sock"
LONGEST = 65_536
AT_ONCE = 8  # questions that are with the keeper
RETRY_S = 1.0
PATIENCE_S = 3.0  # without a keeper; then who asks is refused

# Of made memory: its descriptor, which is the callee's; or None, and why there is none.
Made = Callable[[int | None, str], None]


class Ask:
    """One piece of memory that is to be made."""

    def __init__(self, name: str, size: int, huge: bool, made: Made):
        self.name = name
        self.made = made
        self.message = json.dumps({"op": "make", "name": name, "bytes": size, "huge": huge})
        self.sent = False


class KeeperLink:
    """found: told of all that the keeper has, whenever there is a new connection."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop):
        self.path = path
        self.loop = loop
        self.found: Callable[[dict[str, int]], None] = lambda _: None
        self.sock: socket.socket | None = None
        self.asks: dict[str, Ask] = {}  # in the order in which they are served
        self.ends: set[str] = set()  # to be said once there is a connection
        self.listed: dict[str, int] = {}
        self.since = loop.time()  # when the connection ended
        self.retry: asyncio.TimerHandle | None = None
        self.open = True

    @property
    def connected(self) -> bool:
        return self.sock is not None

    # -- the connection -------------------------------------------------------------

    def connect(self) -> None:
        """Now, and again and again until it is there."""
        self.retry = None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            sock.setblocking(False)
            sock.connect(str(self.path))
        except OSError:
            sock.close()
            self._refuse_who_waits()
            if self.open:
                self.retry = self.loop.call_later(RETRY_S, self.connect)
            return
        self.sock = sock
        self.loop.add_reader(sock, self._readable)
        for name in tuple(self.ends):
            if self._send({"op": "end", "name": name}):
                self.ends.discard(name)
        self.listed = {}
        self._send({"op": "list"})
        for ask in self.asks.values():
            ask.sent = False
        self._send_asks()

    def _refuse_who_waits(self) -> None:
        if self.loop.time() - self.since < PATIENCE_S:
            return
        asks, self.asks = self.asks, {}
        for ask in asks.values():
            ask.made(None, "the keeper of memory for copies does not run")

    def _lose(self) -> None:
        if self.sock is None:
            return
        self.loop.remove_reader(self.sock)
        self.sock.close()
        self.sock = None
        self.since = self.loop.time()
        if self.open:
            log.warning("gpu-leased-copies has ended: gpu-leased tries to connect again")
            self.retry = self.loop.call_later(0, self.connect)

    def close(self) -> None:
        self.open = False
        if self.retry is not None:
            self.retry.cancel()
        self._lose()

    def _send(self, message: dict[str, Any] | str) -> bool:
        if self.sock is None:
            return False
        text = message if isinstance(message, str) else json.dumps(message)
        try:
            self.sock.send(text.encode(), socket.MSG_NOSIGNAL)
        except OSError as fault:
            log.warning("gpu-leased-copies: %s", fault)
            self._lose()
            return False
        return True

    # -- what is asked of it ------------------------------------------------------------

    def make(self, name: str, size: int, huge: bool, made: Made) -> None:
        """Have it made, or given again."""
        self.asks[name] = Ask(name, size, huge, made)
        self._send_asks()

    def end(self, name: str) -> None:
        """Nobody needs it any more."""
        self.asks.pop(name, None)
        if not self._send({"op": "end", "name": name}):
            self.ends.add(name)
        self._send_asks()

    def _send_asks(self) -> None:
        """The next of each job in turn: the names begin with its number."""
        sent = [ask for ask in self.asks.values() if ask.sent]
        busy = {ask.name.split(".")[0] for ask in sent}
        room = AT_ONCE - len(sent)
        for others in (True, False):  # first of jobs for which none is being made
            for ask in self.asks.values():
                if room <= 0 or self.sock is None:
                    return
                job = ask.name.split(".")[0]
                if ask.sent or (others and job in busy):
                    continue
                ask.sent = self._send(ask.message)
                busy.add(job)
                room -= 1

    # -- what it says -------------------------------------------------------------------

    def _readable(self) -> None:
        assert self.sock is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self.sock, LONGEST, 1, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        if not data:
            self._lose()
            return
        self._take(json.loads(data), descriptors[0] if descriptors else None)

    def _take(self, said: dict[str, Any], descriptor: int | None) -> None:
        if "files" in said:
            self.listed.update({str(name): int(size) for name, size in said["files"]})
            if said["last"]:
                self.found(self.listed)
            return
        ask = self.asks.pop(str(said["name"]), None)
        if ask is None:  # it has ended meanwhile
            with contextlib.suppress(TypeError):
                os.close(descriptor)  # type: ignore[arg-type]
        else:
            ask.made(descriptor, str(said.get("fault", "")))
        self._send_asks()
