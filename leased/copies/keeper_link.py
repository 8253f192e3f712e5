"""gpu-leased's end of the connection with the keeper of memory for copies (keeper.py).

The connection is made again whenever it has ended. Requests to make memory that have not been
answered are then repeated, which has no effect at the keeper. Whether it has heard what is to be
freed is not known then; `found` is called with all that it has.

What the keeper has no time for waits here: it may be told of thousands of files at once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leased.base.waiting import to_next
from leased.copies.asks import Ask, Asks, Made
from leased.copies.unfreed import Owner

log = logging.getLogger("gpu-leased")

SOCKET = "copies.sock"
LONGEST = 65_536
UNSENT_MOST = 65_536  # messages; with more the keeper counts as gone
RETRY_S = 1.0
PATIENCE_S = 3.0  # after so long without a keeper, requests are refused
SILENT_S = 10.0  # and of one that is asked and says nothing; a slice takes some milliseconds


class KeeperLink:
    """found: called with all that the keeper has, whenever there is a new connection. unfreed:
    called with the bytes, by their owners, that were given back and that something still refers to;
    with None where the keeper does not know that."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop):
        self.path = path
        self.loop = loop
        self.found: Callable[[dict[str, int]], None] = lambda _: None
        self.sock: socket.socket | None = None
        self.asks = Asks(loop.time)
        self.rest: asyncio.TimerHandle | None = None
        self.unfreed: Callable[[dict[Owner, int] | None], None] = lambda _: None
        self.unsent: deque[bytes] = deque()
        self.listed: dict[str, int] = {}
        self.since = loop.time()  # when the connection ended
        self.retry: asyncio.TimerHandle | None = None
        self.heard = loop.time()  # when it said something, or was asked and had said all
        self.look: asyncio.TimerHandle | None = None  # for whether it answers
        self.open = True

    @property
    def connected(self) -> bool:
        return self.sock is not None

    # -- the connection -------------------------------------------------------------

    def connect(self) -> None:
        """Connect now, or as soon as the keeper runs."""
        self.retry = None
        sock = self._connection()
        if sock is None:
            self._refuse_who_waits()
            if self.open:
                pause = to_next(RETRY_S, self.loop.time())
                self.retry = self.loop.call_later(pause, self.connect)
            return
        self.sock = sock
        self.loop.add_reader(sock, self._readable)
        self.heard = self.loop.time()
        self.listed = {}
        self._send({"op": "list"})
        self._send_asks()

    def _connection(self) -> socket.socket | None:
        """A new connection; None: the keeper does not run, or no descriptors are left."""
        sock = None
        if not self.path.exists():
            return None
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
            sock.setblocking(False)
            sock.connect(str(self.path))
        except OSError:
            if sock is not None:
                sock.close()
            return None
        return sock

    def _refuse_who_waits(self) -> None:
        if self.loop.time() - self.since < PATIENCE_S:
            return
        for ask in self.asks.take_all():
            ask.made(None, "gpu-leased-copies does not run")

    def _lose(self) -> None:
        if self.sock is None:
            return
        self.loop.remove_reader(self.sock)
        self.loop.remove_writer(self.sock)
        self.sock.close()
        self.sock = None
        self.unsent.clear()
        self.asks.lost()
        self.since = self.loop.time()
        if self.open:
            log.warning("gpu-leased-copies has ended: gpu-leased tries to connect again")
            self.retry = self.loop.call_later(0, self.connect)

    def close(self) -> None:
        self.open = False
        for timer in (self.retry, self.rest, self.look):
            if timer is not None:
                timer.cancel()
        self._lose()

    def _send(self, message: dict[str, Any] | str) -> bool:
        """False: there is no connection."""
        if self.sock is None:
            return False
        text = message if isinstance(message, str) else json.dumps(message)
        self.unsent.append(text.encode())
        if len(self.unsent) == 1:
            self._send_unsent()
        elif len(self.unsent) > UNSENT_MOST:
            log.warning("gpu-leased-copies reads nothing")
            self._lose()
        return self.connected

    def _send_unsent(self) -> None:
        """Send what waits, as far as the keeper has room for it."""
        assert self.sock is not None
        try:
            while self.unsent:
                self.sock.send(self.unsent[0], socket.MSG_NOSIGNAL)
                self.unsent.popleft()
            self.loop.remove_writer(self.sock)
        except (BlockingIOError, InterruptedError):
            self.loop.add_writer(self.sock, self._send_unsent)
        except OSError as fault:
            log.warning("gpu-leased-copies cannot be reached: %s", fault)
            self._lose()

    # -- requests ------------------------------------------------------------

    def make(self, name: str, size: int, huge: bool, made: Made, *, user: int) -> None:
        """Have the keeper make this memory for the user; if it has been made before, it is sent
        again."""
        if name in self.asks.by_name:
            self.asks.by_name[name].made = made  # it is asked for once, and who asked last gets it
        else:
            self.asks.add(Ask(name, size, huge, made, user))
        self._send_asks()

    def end(self, name: str) -> None:
        """Have the keeper free this memory; without a connection, `found` is to do so later."""
        self.asks.given_back(name)
        self._send({"op": "end", "name": name})
        self._send_asks()

    def _send_asks(self) -> None:
        """Send the next requests."""
        while self.sock is not None:
            ask = self.asks.next()
            if ask is None:
                break
            if self.look is None:
                self.heard = self.loop.time()
                self.look = self.loop.call_later(SILENT_S, self._look_whether_it_answers)
            self._send(ask.message)
        pause = self.asks.pause_s()
        if pause is not None and self.rest is None and self.sock is not None:
            self.rest = self.loop.call_later(pause, self._rested)

    def _rested(self) -> None:
        self.rest = None
        self._send_asks()

    def _look_whether_it_answers(self) -> None:
        """Where it hangs nobody waits for it: processes have memory of their own."""
        self.look = None
        if self.sock is None or not self.asks.under_way:
            return
        silent_s = self.loop.time() - self.heard
        if silent_s >= SILENT_S:
            for ask in self.asks.take_all():
                self.end(ask.name)
                ask.made(None, "gpu-leased-copies does not answer")
        pause = SILENT_S - silent_s if silent_s < SILENT_S else RETRY_S
        self.look = self.loop.call_later(pause, self._look_whether_it_answers)

    # -- answers -------------------------------------------------------------------

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
        self.heard = self.loop.time()
        self._take(json.loads(data), descriptors[0] if descriptors else None)

    def _take(self, said: dict[str, Any], descriptor: int | None) -> None:
        if "files" in said:
            self.listed.update({str(name): int(size) for name, size in said["files"]})
            if said["last"]:
                self.found(self.listed)
            return
        if "unfreed" in said:
            found = said["unfreed"]
            self.unfreed(None if found is None else {(job, user): n for job, user, n in found})
        elif "ended" in said:
            self.asks.ended(said)
        else:
            self._answered(said, descriptor)
        self._send_asks()

    def _answered(self, said: dict[str, Any], descriptor: int | None) -> None:
        ask = self.asks.answered(said)
        if ask is not None:
            fault = str(said.get("fault", ""))
            if descriptor is None and not fault:  # the kernel could not give it to this process
                self.end(ask.name)
                fault = "gpu-leased has no descriptors left"
            ask.made(descriptor, fault)
        elif descriptor is not None:  # it has ended meanwhile
            os.close(descriptor)
