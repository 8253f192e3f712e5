"""Takes the connections of other nodes' daemons, and hands on what they say."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from leased.across.messages import Message
from leased.base.waiting import within
from leased.peers import greeting, messages, sealed
from leased.peers.greeting import Greeting, Stranger
from leased.peers.link import GREETING_S, Own, read_frame

log = logging.getLogger("gpu-leased")

GREETINGS = 16  # connections that have not proven yet who they are
PEERS = 4096  # connections that have
RATE, BURST = 2000.0, 2000.0  # messages a second of one peer, and at once
GREETINGS_S, GREETINGS_BURST = 50.0, 64.0  # connections a second, each with a credential to check
FAULTS_S, FAULTS_BURST = 0.1, 16.0  # lines in the log about those that were not taken


class Bucket:
    """Allows `burst` at once and `rate` a second."""

    def __init__(self, rate: float, burst: float):
        self.rate, self.burst, self.left, self.at = rate, burst, burst, 0.0

    def lacks_s(self, now: float) -> float:
        """Take one; returns for how long there is none."""
        self._fill(now)
        self.left -= 1
        return max(0.0, -self.left / self.rate)

    def takes(self, now: float) -> bool:
        """Take one, if there is one. Who is refused takes none from those that come later."""
        self._fill(now)
        found = self.left >= 1
        self.left -= found
        return found

    def _fill(self, now: float) -> None:
        self.left = min(self.burst, self.left + self.rate * (now - self.at))
        self.at = now


class Server:
    """received: called with the name of a node and what its daemon says. Where TLS is used, what
    comes without it is not taken."""

    def __init__(self, own: Own, received: Callable[[str, Message], None]):
        self.own, self.received = own, received
        self.server: asyncio.Server | None = None
        self.greeting = 0
        self.greetings = Bucket(GREETINGS_S, GREETINGS_BURST)
        self.peers: dict[str, asyncio.Task[None]] = {}  # by node, who serves its connection
        self.tasks: set[asyncio.Task[None]] = set()
        self.fault = ""  # of the last stranger
        self.faults = Bucket(FAULTS_S, FAULTS_BURST)

    async def listen(self, port: int, host: str | None = None) -> None:
        """host: None: on all addresses. OSError: the port is taken."""
        secured: dict[str, Any] = {}
        if self.own.tls is not None:
            secured = {"ssl": self.own.tls.called, "ssl_handshake_timeout": GREETING_S}
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self._accept, host, port, **secured)

    def _accept(self) -> asyncio.StreamReaderProtocol:
        """A connection has come. ConnectionRefusedError: it is closed before anything is done for
        it, as there were too many."""
        loop = asyncio.get_running_loop()
        if not self.greetings.takes(loop.time()):
            raise ConnectionRefusedError
        reader = asyncio.StreamReader(limit=sealed.LONGEST * 16, loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._begin, loop=loop)

    async def close(self) -> None:
        if self.server is not None:
            self.server.close()
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    async def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            await self._serve(reader, writer, task)
        except asyncio.CancelledError:
            pass  # another connection of the same node has come, or this daemon ends
        except (asyncio.TimeoutError, OSError, EOFError, ValueError, Stranger) as fault:
            self._failed(fault)
        finally:
            self.tasks.discard(task)
            writer.close()

    def _failed(self, fault: BaseException) -> None:
        """Say why, unless that was said last. Anybody can connect, so not without end."""
        if not isinstance(fault, (Stranger, ValueError)) or str(fault) == self.fault:
            return
        if self.faults.takes(asyncio.get_running_loop().time()):
            self.fault = str(fault)
            log.warning("a connection of another node is not taken, or ended: %s", fault)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        if self.greeting >= GREETINGS:
            return
        self.greeting += 1
        try:
            first, seal = await within(GREETING_S, self._greet(reader, writer))
        finally:
            self.greeting -= 1
        before = self.peers.get(first.caller)
        if before is not None:
            before.cancel()
        elif len(self.peers) >= PEERS:
            return
        self.peers[first.caller] = task
        try:
            await self._hear(first.caller, reader, seal)
        finally:
            if self.peers.get(first.caller) is task:
                del self.peers[first.caller]

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[Greeting, sealed.Seal]:
        first = await self.own.greeted(reader)
        second = greeting.answer(first, self.own.node, self.own.terms)
        await self.own.greet(writer, second)
        greeting.compare(first.caller, self.own.terms, first.terms)
        return first, sealed.Seal(greeting.key(first, second))

    async def _hear(self, node: str, reader: asyncio.StreamReader, seal: sealed.Seal) -> None:
        """What comes too fast waits in the network."""
        loop, bucket = asyncio.get_running_loop(), Bucket(RATE, BURST)
        with contextlib.suppress(EOFError):
            while True:
                message = messages.of_bytes(seal.opened(await read_frame(reader)))
                self.received(node, message)
                late_s = bucket.lacks_s(loop.time())
                if late_s:
                    await asyncio.sleep(late_s)
