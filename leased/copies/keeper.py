"""gpu-leased-copies: makes host memory for copies, and keeps a descriptor of each.

It is a process of its own, in a service of its own, so that this memory is charged to no job and
not to gpu-leased either, and outlives both: after a restart gpu-leased asks what there is. It
decides nothing: gpu-leased says how much is made under which name, and which of it is freed.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.base.errors import Refused
from leased.copies import memory_file, stored_files
from leased.copies.memory_file import MemoryFile
from leased.processes.identity import peer_of

log = logging.getLogger("gpu-leased")

MAKERS = 4  # threads, so that a large request does not delay a small one
LONGEST = 65_536
LISTED = 256  # names in one packet
BACKLOG = 4


@dataclass(eq=False)
class Asked:
    """Memory that is being made. connection: the one that has asked for it last, and as which of
    its requests."""

    bytes: int
    huge: bool
    connection: socket.socket
    number: int | None


@dataclass(frozen=True)
class Served:
    """A connection and the thread that serves it."""

    connection: socket.socket
    thread: threading.Thread

    def end(self) -> None:
        """Do what has come on it, and no more."""
        with contextlib.suppress(OSError):  # it has been closed
            self.connection.shutdown(socket.SHUT_RDWR)
        self.thread.join()


class Keeper:
    """All memory that has been made and not been freed, by name."""

    def __init__(self, files: dict[str, MemoryFile]):
        self.files = files
        self.asked: dict[str, Asked] = {}
        self.lock = threading.Lock()
        self.makers = ThreadPoolExecutor(MAKERS)

    def serve(self, connection: socket.socket, before: Served | None = None) -> None:
        """Serve one connection, of gpu-leased, until it ends. before: the one that it replaces, of
        which all is done first that has been said: it must not count as said later."""
        with connection, contextlib.suppress(OSError):
            if before is not None:
                before.end()
            while data := connection.recv(LONGEST):
                self.handle(connection, json.loads(data))

    def handle(self, connection: socket.socket, said: dict[str, Any]) -> None:
        """Do what gpu-leased has said on the connection."""
        name = str(said.get("name", ""))
        if said["op"] == "make":
            asked = Asked(int(said["bytes"]), bool(said["huge"]), connection, said.get("ask"))
            self._asked(name, asked)
        elif said["op"] == "end":
            self._end(name)
        elif said["op"] == "list":
            self._list(connection)

    def _asked(self, name: str, asked: Asked) -> None:
        with self.lock:
            file, begun = self.files.get(name), self.asked.get(name)
            if file is not None:
                self._send(name, asked, file)
                return
            if begun is not None:
                begun.connection, begun.number = asked.connection, asked.number
                return
            self.asked[name] = asked
        self.makers.submit(self._make, name, asked)

    def _end(self, name: str) -> None:
        """From now on the name is free for other memory; freeing the pages takes its time."""
        with self.lock:
            self.asked.pop(name, None)
            file = self.files.pop(name, None)
            if file is not None:
                stored_files.forget(name)
        if file is not None:
            self.makers.submit(file.end)

    # -- of a maker ----------------------------------------------------------------

    def _make(self, name: str, asked: Asked) -> None:
        """Make the memory and send its descriptor, unless it has ended meanwhile."""
        made: MemoryFile | None = None
        fault = ""
        try:
            made = memory_file.make(asked.bytes, asked.huge)
        except Refused as why:
            fault = why.sentence()
        with self.lock:
            wanted = self.asked.get(name) is asked
            if wanted:
                del self.asked[name]
                if made is not None:
                    self.files[name] = made
                    stored_files.store(name, made)
                self._send(name, asked, made, fault)
        if made is not None and not wanted:
            made.end()

    @staticmethod
    def _send(name: str, asked: Asked, file: MemoryFile | None, fault: str = "") -> None:
        """The caller holds the lock, so that the file is not ended meanwhile. Where the kernel
        passes no descriptor on, the answer comes without one."""
        answer: dict[str, Any] = {"name": name, "ask": asked.number}
        answer |= {"bytes": file.bytes, "huge": file.huge} if file else {"fault": fault}
        descriptors = [file.descriptor] if file else []
        data = json.dumps(answer).encode()
        with contextlib.suppress(OSError):  # it has ended; the next one asks what has been made
            try:
                socket.send_fds(asked.connection, [data], descriptors)
            except OSError as why:
                if why.errno != errno.ETOOMANYREFS:
                    raise
                asked.connection.send(data)

    # -- what has been made ----------------------------------------------------------------

    def _list(self, connection: socket.socket) -> None:
        """What is being made for the connection before this one is nobody's: if it is needed
        still, it is asked for again."""
        with self.lock:
            self.asked = {n: a for n, a in self.asked.items() if a.connection is connection}
            names = [(name, file.bytes) for name, file in self.files.items()]
        pages = [names[at : at + LISTED] for at in range(0, len(names), LISTED)] or [[]]
        for page in pages:
            last = page is pages[-1]
            connection.send(json.dumps({"files": page, "last": last}).encode())


def listen(path: Path) -> socket.socket:
    """A socket that only root can open, in place of what a keeper before left there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    old = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(old)
    made.listen(BACKLOG)
    return made


def serve(listening: socket.socket, keeper: Keeper) -> None:
    """Accept connections, each served in a thread; there is mostly one. It does not return."""
    before: Served | None = None
    while True:
        connection, _ = listening.accept()
        if peer_of(connection).uid not in (0, os.geteuid()):
            connection.close()
            continue
        thread = threading.Thread(target=keeper.serve, args=(connection, before), daemon=True)
        thread.start()
        before = Served(connection, thread)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-leased-copies", description="Keeps host memory for copies, for gpu-leased."
    )
    parser.add_argument(
        "--socket", type=Path, metavar="FILE", help="listen here, if systemd gives no socket"
    )
    return parser


def main() -> int:
    chosen = make_parser().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    log.addHandler(logging.StreamHandler())
    given, files = stored_files.inherited()
    if given is None and chosen.socket is None:
        print("gpu-leased-copies: no socket: use --socket", file=sys.stderr)
        return 1
    serve(given or listen(chosen.socket), Keeper(files))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
