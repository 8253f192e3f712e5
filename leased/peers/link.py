"""One daemon's connection to another one, to which it sends orders and reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from leased.across.messages import Message
from leased.base.waiting import within
from leased.peers import greeting, messages, sealed
from leased.peers.greeting import Greeting, Stranger, Terms
from leased.peers.munge import Munge
from leased.peers.tls import Tls

log = logging.getLogger("gpu-leased")

Address = tuple[str, int]  # host and port

GREETING_S = 5.0  # for a connection and all that comes before the first message
AGAIN_S, AGAIN_MOST_S = 0.1, 5.0  # between attempts to connect
IDLE_S = 300.0  # a connection on which nothing was sent for so long is closed, or not sought
SILENT_MS = 5000  # one on which nothing is acknowledged for so long is broken
BUFFER_MOST = 1 << 16  # bytes that wait for the network; what comes then replaces what waits


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """EOFError: there is no more. ValueError: it is too long."""
    size = int.from_bytes(await reader.readexactly(sealed.LENGTH), "big")
    if size > sealed.LONGEST:
        raise ValueError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


class Own(NamedTuple):
    """What this daemon has alike on all its connections. tls: None: it is not used."""

    node: str
    terms: Terms
    munge: Munge
    tls: Tls | None = None

    async def greet(self, writer: asyncio.StreamWriter, said: Greeting) -> None:
        """The credential is made elsewhere, as munged may take its time."""
        credential = await asyncio.to_thread(greeting.to_credential, self.munge, said)
        writer.write(sealed.framed(credential))

    async def greeted(self, reader: asyncio.StreamReader) -> Greeting:
        frame = await read_frame(reader)
        return await asyncio.to_thread(greeting.of_credential, self.munge, frame)


class Link:
    """there: the name of the other node. sent: something is to be said, or was a while ago. fault:
    why nothing can be sent now; "": something can, or nobody has tried yet. address_of: where that
    node's daemon listens; OSError: it is not known."""

    def __init__(self, own: Own, there: str, address_of: Callable[[str], Awaitable[Address]]):
        self.own, self.there, self.address_of = own, there, address_of
        self.fault = ""
        # The last message of each kind about a job: it says all that those before it have said.
        self.kept: dict[tuple[type, str], Message] = {}
        self.writer: asyncio.StreamWriter | None = None
        self.seal: sealed.Seal | None = None
        self.sent = False
        self.task: asyncio.Task[None] | None = None

    def send(self, message: Message) -> None:
        """Send it as soon as that is possible, unless a newer one comes until then."""
        self.sent = True
        writer, seal = self.writer, self.seal
        full = writer is not None and writer.transport.get_write_buffer_size() > BUFFER_MOST
        if writer is None or seal is None or full:
            self.kept[type(message), message.job] = message
        else:
            writer.write(seal.seal(messages.to_bytes(message)))
        if self.task is None or self.task.done():
            self.task = asyncio.get_running_loop().create_task(self._serve())

    def forget(self, job: str) -> None:
        """The job is not here any more."""
        for kind, about in list(self.kept):
            if about == job:
                del self.kept[kind, about]

    async def close(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
        if self.writer is not None:  # it was there at that moment
            self.writer.close()

    async def _serve(self) -> None:
        """Connect, and again, for as long as there is something to say. What nobody has said anew
        for IDLE_S is lost: a daemon that comes back after that asks for what it is to know."""
        wait_s, silent_s = AGAIN_S, 0.0
        while self.sent or self.kept:
            try:
                reader, writer = await within(GREETING_S, self._connect())
            except (asyncio.TimeoutError, OSError, EOFError, ValueError, Stranger) as fault:
                self._failed(fault)
                silent_s = 0.0 if self.sent else silent_s + wait_s
                if silent_s > IDLE_S:
                    self.kept.clear()
                self.sent = False
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, AGAIN_MOST_S)
                continue
            wait_s = AGAIN_S
            log.info("gpu-leased on %s can be reached", self.there)
            try:
                await self._stay(reader)
            except OSError as fault:
                self._failed(fault)
            finally:
                self.writer = self.seal = None
                writer.close()

    def _failed(self, fault: BaseException) -> None:
        words = str(fault) if isinstance(fault, Stranger) else _words(fault)
        if words != self.fault:
            log.warning("gpu-leased on %s cannot be reached: %s", self.there, words)
        self.fault = words

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Greet the other daemon, and send what has been kept for it."""
        host, port = await self.address_of(self.there)
        secured = self.own.tls.calls if self.own.tls else None
        reader, writer = await asyncio.open_connection(host, port, ssl=secured)
        try:
            connected = writer.get_extra_info("socket")
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_MS)
            seal = sealed.Seal(await self._greet(reader, writer))
        except BaseException:
            writer.close()
            raise
        self.writer, self.seal, self.fault = writer, seal, ""
        kept, self.kept = self.kept, {}
        for message in kept.values():
            self.send(message)
        return reader, writer

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        first = greeting.begin(self.own.node, self.there, self.own.terms)
        await self.own.greet(writer, first)
        second = await self.own.greeted(reader)
        greeting.check(first, second)
        return greeting.key(first, second)

    async def _stay(self, reader: asyncio.StreamReader) -> None:
        """Until the other one ends the connection, or it is not used. OSError: it is broken."""
        while self.sent:
            self.sent = False
            with contextlib.suppress(asyncio.TimeoutError):
                await within(IDLE_S, reader.read(1))
                raise ConnectionResetError("it has ended the connection")


def _words(fault: BaseException) -> str:
    if isinstance(fault, asyncio.TimeoutError):
        return f"it does not answer within {GREETING_S:g} s"
    if isinstance(fault, EOFError):
        return "it has ended the connection"
    return str(fault) or type(fault).__name__
