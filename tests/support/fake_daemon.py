"""gpu-leased's side of the wire, under a test's command: nothing is decided here."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from _gpulease import ffi, lib

from leased.wire import client_messages, daemon_messages, header
from leased.wire.device_bytes import DeviceBytes

WAIT_S = 60.0


class Client:
    """One process: its messages, and orders to it. A grant lasts until it is revoked."""

    def __init__(self, connection: socket.socket, pid: int, epochs: itertools.count[int]):
        self.pid = pid
        self.memory: dict[str, DeviceBytes] = {}
        self.memories: list[dict[str, DeviceBytes]] = []  # each that it has reported, in order
        self.wants = 0
        self.released: list[client_messages.Released] = []
        self.channels: client_messages.Channels | None = None
        self.progress: list[int] = []
        self.told: list[client_messages.Progress] = []  # of the same answers, all
        self.stuck: list[int] = []
        self.ready = 0  # how often it has said so
        self.rests: list[bool] = []  # each time that it said so, or that it works again
        self.epoch = 0
        self.held = 0  # as its greeting said
        self.asked = 0  # why it waits
        self.why: tuple[int, str] | None = (lib.GL_WAITS_TURN, "")  # None: no answer
        self.gone = False
        self._epochs = epochs
        self._connection = connection
        self._changed = threading.Condition()

    def send(self, message: bytes) -> None:
        self._connection.send(message)

    def listen(self, auto: Callable[[], bool]) -> None:
        """Read messages until the connection ends; each wakes the threads that wait."""
        while data := self._receive():
            message = client_messages.parse(data)
            if isinstance(message, client_messages.Why):
                self.asked += 1
                if self.why is not None:
                    self.send(daemon_messages.waits(*self.why))
            if isinstance(message, client_messages.Name):
                self.send(daemon_messages.NAMED)
            with self._changed:
                if isinstance(message, (client_messages.Hello, client_messages.Memory)):
                    self.memory = message.memory
                    self.memories.append(self.memory)
                if isinstance(message, client_messages.Hello):
                    self.held = message.held_epoch
                if isinstance(message, client_messages.Released):
                    self.released.append(message)
                if isinstance(message, client_messages.Channels):
                    self.channels = message
                if isinstance(message, client_messages.Progress):
                    self.told.append(message)
                    self.progress.append(message.calls)
                self.ready += isinstance(message, client_messages.Ready)
                if isinstance(message, client_messages.Stuck):
                    self.stuck.append(message.epoch)
                if isinstance(message, (client_messages.Rests, client_messages.Works)):
                    self.rests.append(isinstance(message, client_messages.Rests))
                wants = isinstance(message, client_messages.Request) or getattr(
                    message, "wants", False
                )
                self.wants += wants
                self._changed.notify_all()
            if wants and auto():
                self.grant()
        with self._changed:
            self.gone = True
            self._changed.notify_all()

    def _receive(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._connection.recv(header.MAX_MESSAGE)
        return b""

    def until(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until the condition is true of what the process has said."""
        end = time.monotonic() + WAIT_S
        with self._changed:
            while not condition():
                if self.gone or not self._changed.wait(end - time.monotonic()):
                    raise TimeoutError(f"process {self.pid}: no {what}; it has {self.memory}")

    def until_gone(self) -> None:
        """Wait for the end of its connection."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.gone, WAIT_S):
                raise TimeoutError(f"process {self.pid} is still there")

    def calls(self) -> int:
        """Submissions so far."""
        answers = len(self.progress)
        self.send(daemon_messages.MEASURE)
        self.until("progress", lambda: len(self.progress) > answers)
        return self.progress[-1]

    def watch(self) -> None:
        """Have it say for a second when it rests and works."""
        self.send(daemon_messages.MEASURE)
        self.send(daemon_messages.WATCH)

    def grant(self, amounts: Mapping[str, int] | None = None, idle_ns: int | None = None) -> None:
        """amounts: by device, the bytes of managed memory that it may restore."""
        self.epoch = next(self._epochs)
        self.send(daemon_messages.grant(self.epoch, amounts or {}, idle_ns=idle_ns))

    def restore(self, amounts: Mapping[str, int] | None = None) -> None:
        """For its lease: by device, the bytes that it may restore."""
        self.send(daemon_messages.grant(self.epoch, amounts or {}, restore=True))

    def send_revoke(self) -> None:
        """Take the lease, and wait for nothing."""
        self.send(daemon_messages.revoke(self.epoch, 10**10))

    def revoke(self) -> client_messages.Released:
        """Take the lease and wait for its release."""
        epoch = self.epoch
        self.send_revoke()
        self.until("release", lambda: self.released and self.released[-1].epoch == epoch)
        return self.released[-1]

    def resident(self, uuid: str) -> int:
        return self.memory.get(uuid, DeviceBytes()).resident

    def step(self) -> None:
        """Let it hold the lease for one call."""
        self.epoch = next(self._epochs)
        self.send(daemon_messages.step(self.epoch))

    def evict(self, amounts: Mapping[str, int]) -> None:
        """Order it to evict bytes from each device; wait until they have left, or cannot."""
        before = {uuid: self.resident(uuid) for uuid in amounts}
        self.send(daemon_messages.evict(amounts))
        self.until(
            "eviction",
            lambda: all(self.resident(u) <= max(before[u] - n, 0) for u, n in amounts.items()),
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class FakeDaemon:
    """Listens on a socket and says to everybody that their memory is swapped, or managed.

    totals: bytes that a job sees, by device UUID. auto: grant whoever asks at once. welcome: what
    is said first; a test may change it before anybody comes.
    """

    def __init__(
        self,
        path: Path,
        totals: Mapping[str, int],
        *,
        auto: bool = True,
        oversub: bool = False,
        swaps: bool = True,
        cleans: bool = True,
    ):
        self.path = path
        self.auto = auto
        self.clients: dict[int, Client] = {}
        self.welcome = ffi.new("struct gl_welcome *")
        gang = daemon_messages.Gang(1, oversub, totals, swaps, cleans=cleans)
        ffi.buffer(self.welcome)[:] = daemon_messages.welcome(gang)
        self._changed = threading.Condition()
        self._epochs = itertools.count(1)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._threads: list[threading.Thread] = []
        self._all: list[Client] = []  # a process may come twice

    def __enter__(self) -> FakeDaemon:
        self._socket.bind(str(self.path))
        self._socket.listen()
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # Nobody else is accepted once this has ended, so all who ever came are known.
        self._threads[0].join(WAIT_S)
        self._socket.close()
        for client in self._all:
            client.close()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            client = Client(connection, struct.unpack("iii", packed)[0], self._epochs)
            self._all.append(client)
            with self._changed:  # so that it is known once it has been answered
                with contextlib.suppress(OSError):  # a process that has ended meanwhile
                    client.send(bytes(ffi.buffer(self.welcome)))
                self._start(lambda client=client: client.listen(lambda: self.auto))  # type: ignore[misc]
                self.clients[client.pid] = client
                self._changed.notify_all()

    def client(self, pid: int) -> Client:
        """Wait for the connection of a process, and return it."""
        with self._changed:
            if not self._changed.wait_for(lambda: pid in self.clients, WAIT_S):
                raise TimeoutError(f"process {pid} has not come")
            return self.clients[pid]
