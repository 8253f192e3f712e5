"""An event loop, sockets and a clock in memory: the real connections run on them."""

from __future__ import annotations

import errno
import heapq
import itertools
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

SO_PEERPIDFD = 77
READ, _OTHER_END = socket.socketpair()
FULL = 200  # packets that a peer may leave unread, about as many as the kernel keeps


class FakeHandle:
    """Of a timer."""

    def __init__(self, callback: Callable[[], None]):
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeLoop:
    """What connections need of asyncio's loop. Time passes by advance() alone."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.readers: dict[Any, Callable[[], None]] = {}
        self.soon: deque[Callable[[], None]] = deque()
        self.timers: list[tuple[float, int, FakeHandle]] = []
        self.numbers = itertools.count()

    def time(self) -> float:
        return self.now

    def ns(self) -> int:
        return int(self.now * 1e9)

    def add_reader(self, sock: Any, callback: Callable[..., None], *args: Any) -> None:
        """A descriptor, of a process whose end is waited for, never has anything to read."""
        if not isinstance(sock, int):
            self.readers[sock] = lambda: callback(*args)

    def remove_reader(self, sock: Any) -> bool:
        return self.readers.pop(sock, None) is not None

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> FakeHandle:
        handle = FakeHandle(lambda: callback(*args))
        heapq.heappush(self.timers, (self.now + max(0.0, seconds), next(self.numbers), handle))
        return handle

    def run_soon(self) -> None:
        while self.soon:
            self.soon.popleft()()

    def read(self, sock: Any) -> None:
        """Call the reader of one socket, if it has one."""
        callback = self.readers.get(sock)
        if callback is not None:
            callback()
        self.run_soon()

    def turn(self) -> None:
        """One turn: every socket that can be read is read once."""
        for sock in list(self.readers):
            if sock.readable():
                self.read(sock)

    def advance(self, seconds: float) -> None:
        """Let time pass, with the timers that come due."""
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            due, _, handle = heapq.heappop(self.timers)
            self.now = max(self.now, due)
            if handle.callback is not None:
                handle.callback()
            self.run_soon()
        self.now = end


class FakeSocket:
    """The daemon's end of a connection. What comes in is put into `inbox`."""

    def __init__(self, pid: int, uid: int = 1000, gone: bool = False, gid: int = 1000):
        self.pid = pid
        self.uid = uid
        self.gid = gid
        self.gone = gone  # the process that connected has ended
        self.inbox: deque[bytes] = deque()
        self.outbox: deque[bytes] = deque()
        self.open = True
        self.full = FULL
        self.on_send: Callable[[bytes], None] = lambda _: None

    def readable(self) -> bool:
        return bool(self.inbox)

    def setblocking(self, _: bool) -> None:
        pass

    def getsockopt(self, level: int, name: int, size: int = 0) -> Any:
        assert level == socket.SOL_SOCKET
        if name == socket.SO_PEERCRED:
            return struct.pack("iII", self.pid, self.uid, self.gid)
        if name == SO_PEERPIDFD:
            raise OSError(errno.ESRCH if self.gone else errno.ENOPROTOOPT, "no pidfd")
        return b"" if size else 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        if not self.inbox:
            raise BlockingIOError
        if flags & socket.MSG_PEEK:
            return self.inbox[0][:size]
        return self.inbox.popleft()[:size]

    def send(self, data: bytes, flags: int = 0) -> int:
        del flags
        assert self.open
        if len(self.outbox) >= self.full:
            raise BlockingIOError
        self.outbox.append(data)
        self.on_send(data)
        return len(data)

    def sendmsg(self, data: list[bytes], descriptors: Any, flags: int = 0) -> int:
        assert len(descriptors) == 1
        return self.send(b"".join(data), flags)

    def shutdown(self, how: int) -> None:
        pass

    def close(self) -> None:
        self.open = False
        self.inbox.clear()

    def fileno(self) -> int:
        """Of a socket on which nothing is unread, as the kernel would be asked."""
        return READ.fileno()


class FakeListening:
    """A listening socket; who wants to connect is put into `waiting`."""

    def __init__(self) -> None:
        self.waiting: deque[FakeSocket] = deque()
        self.fault: OSError | None = None

    def readable(self) -> bool:
        return bool(self.waiting)

    def setblocking(self, _: bool) -> None:
        pass

    def accept(self) -> tuple[FakeSocket, str]:
        if self.fault is not None:
            raise self.fault
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.popleft(), ""

    def close(self) -> None:
        self.waiting.clear()
