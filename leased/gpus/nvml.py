"""Asks NVML, and waits for its answers for a limited time.

It runs in a child (nvml_child.py), which is given up when it hangs or crashes, and
another is tried. Nothing waits for a child that the driver does not let go.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import time
from typing import Any

from leased.base import children
from leased.base.waiting import within

# For an answer of the child, which is patient with each device for less.
LOOK_S, LOOK_EACH_S = 6.0, 3.0
DESCRIBE_S, DESCRIBE_EACH_S = 12.0, 8.0  # the driver may first have to wake a device
LONGEST = 32 << 20  # bytes of an answer
AGAIN_FIRST_S, AGAIN_LAST_S = 1.0, 60.0
GIVEN_UP = 2  # children that have not ended yet; then no other is started
CHILD = "from leased.gpus.nvml_child import main; main()"


class Silent(Exception):
    """NVML gives no answer; the text is a sentence that says why."""


class Nvml:
    """Asks one request at a time. time: seconds of a clock that never steps back."""

    def __init__(self, command: list[str] | None = None) -> None:
        self.command = command or children.python(CHILD)
        self.child: subprocess.Popen[bytes] | None = None
        self.sock: socket.socket | None = None
        self.given_up: list[subprocess.Popen[bytes]] = []
        self.turn = asyncio.Lock()
        self.wait_s = AGAIN_FIRST_S
        self.next_at = 0.0
        self.why = ""  # it was silent the last time

    async def describe(self) -> dict[str, Any]:
        """All devices; see nvml_child.describe. Silent: no answer."""
        return await self._ask({"op": "describe", "each_s": DESCRIBE_EACH_S}, DESCRIBE_S)

    async def look(self, uuids: list[str]) -> dict[str, Any]:
        """By UUID, processes and work of each device; see nvml_child.look. Silent: no answer."""
        request = {"op": "look", "uuids": uuids, "each_s": LOOK_EACH_S}
        return await self._ask(request, LOOK_S)

    async def _ask(self, request: dict[str, Any], patience_s: float) -> dict[str, Any]:
        async with self.turn:
            sock = self._start()
            try:
                said = json.loads(await within(patience_s, self._answer(sock, request)))
            except asyncio.TimeoutError:
                raise self._give_up(f"NVML does not answer within {patience_s:g} s") from None
            except (OSError, ValueError, RecursionError):
                raise self._give_up("the process that asks NVML has ended") from None
            if not isinstance(said, dict):
                raise self._give_up(
                    "the process that asks NVML gives an answer that cannot be read"
                )
            if isinstance(said.get("fault"), str):
                raise self._give_up(said["fault"])
            self.wait_s = AGAIN_FIRST_S
            return said

    async def _answer(self, sock: socket.socket, request: dict[str, Any]) -> bytes:
        """The line that the child says to a request. ValueError: it is too long. ConnectionError:
        the child has ended."""
        loop, said = asyncio.get_running_loop(), bytearray()
        await loop.sock_sendall(sock, json.dumps(request).encode() + b"\n")
        while not said.endswith(b"\n"):
            part = await loop.sock_recv(sock, 1 << 16)
            if not part:
                raise ConnectionResetError
            said += part
            if len(said) > LONGEST:
                raise ValueError("a line without end")
        return bytes(said)

    def _start(self) -> socket.socket:
        """The socket to a child. Silent: it is not time to try another one."""
        if self.sock is not None:
            return self.sock
        self.reap()
        if len(self.given_up) >= GIVEN_UP:
            raise Silent(self.why)
        if time.monotonic() < self.next_at:
            raise Silent(self.why)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                self.child = subprocess.Popen(
                    self.command,
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    cwd="/",
                    env=children.environment(os.environ),
                    start_new_session=True,
                )
            except OSError as fault:
                ours.close()
                raise self._give_up(f"cannot start a process that asks NVML: {fault}") from None
        self.sock = ours
        return ours

    def _give_up(self, why: str) -> Silent:
        self.close()
        self.next_at = time.monotonic() + self.wait_s
        self.wait_s = min(2 * self.wait_s, AGAIN_LAST_S)
        self.why = why
        return Silent(why)

    def reap(self) -> bool:
        """Forget the children that have ended. True: one that was given up has not."""
        self.given_up = [child for child in self.given_up if child.poll() is None]
        return bool(self.given_up)

    def close(self) -> None:
        """Close NVML, so that the driver can be unloaded. The next question opens it again."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        if self.child is not None:
            with contextlib.suppress(OSError):
                self.child.kill()
            self.given_up.append(self.child)
            self.child = None
