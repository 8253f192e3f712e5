"""A daemon that had no processor for a while hears who has come meanwhile before it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from pathlib import Path

from leased.base.listening_socket import listen
from leased.connections.connection import Connection
from leased.connections.listener import Listener
from leased.node.deadline_timer import HearsFirst


class Heard(Connection):
    """Notes what it has heard."""

    LONGEST = 100
    noted: list[str]

    def received(self, data: bytes) -> None:
        self.noted.append(data.decode())


def test_who_has_connected_is_heard_before_what_is_due(tmp_path: Path) -> None:
    noted: list[str] = []

    async def main() -> None:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def make(sock: socket.socket) -> Heard:
            made = Heard(sock, loop)
            made.noted = noted
            return made

        listener = Listener(listen(tmp_path / "s", 0o600), loop, make)

        def due() -> None:
            noted.append("due")
            done.set()

        hears = HearsFirst(loop, due)
        loop.call_later(0.01, hears.tick)
        with contextlib.ExitStack() as stack:
            for name in ("one", "two"):
                client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                stack.enter_context(client).connect(str(tmp_path / "s"))
                client.send(name.encode())
            time.sleep(0.02)  # noqa: ASYNC251 - it has no processor, and the time comes
            await done.wait()
            listener.close()

    asyncio.run(main())
    assert sorted(noted[:2]) == ["one", "two"]
    assert noted[2:] == ["due"]
