"""gpu-leased-copies: makes host memory for copies, and keeps a descriptor of each.

It is a process of its own, in a service of its own, so that this memory is charged to no job and
not to gpu-leased either, and outlives both: after a restart gpu-leased asks what there is. It
decides nothing: gpu-leased says how much is made under which name, and which of it is freed.
"""

from __future__ import annotations

import argparse
import contextlib
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
    """Memory that is being made. connection: the one that has asked for it last."""

    bytes: int
    huge: bool
    connection: socket.socket


class Keeper:
    """All memory that has been made and not been freed, by name."""

    def __init__(self, files: dict[str, MemoryFile]):
        self.files = files
        self.asked: dict[str, Asked] = {}
        self.lock = threading.Lock()
        self.makers = ThreadPoolExecutor(MAKERS)

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection, of gpu-leased, until it ends."""
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(LONGEST):
                self._handle(connection, json.loads(data))

    def _handle(self, connection: socket.socket, asked: dict[str, Any]) -> None:
        name = str(asked.get("name", ""))
        if asked["op"] == "make":
            self._asked(connection, name, int(asked["bytes"]), bool(asked["huge"]))
        elif asked["op"] == "end":
            self._end(name)
        elif asked["op"] == "list":
            self._list(connection)

    def _asked(self, connection: socket.socket, name: str, size: int, huge: bool) -> None:
        with self.lock:
            begun = self.asked.get(name)
            if begun is not None:
                begun.connection = connection
                return
            self.asked[name] = asked = Asked(size, huge, connection)
        self.makers.submit(self._make, name, asked)

    def _end(self, name: str) -> None:
        """From now on the name is free for other memory; freeing the pages takes its time."""
        with self.lock:
            self.asked.pop(name, None)
            file = self.files.pop(name, None)
        if file is not None:
            self.makers.submit(self._ended, name, file)

    # -- of a maker ----------------------------------------------------------------

    def _make(self, name: str, asked: Asked) -> None:
        """Make the memory, unless it has been made before, and send its descriptor."""
        with self.lock:
            file = self.files.get(name)
        try:
            made = file or memory_file.make(asked.bytes, asked.huge)
        except Refused as fault:
            self._send(name, asked, {"fault": fault.sentence()})
            return
        if file is None:
            stored_files.store(name, made)
        with self.lock:
            wanted = self.asked.get(name) is asked
            if wanted:
                self.files[name] = made
        if not wanted:  # it has ended meanwhile
            self._ended(name, made)
            return
        self._send(name, asked, {"bytes": made.bytes, "huge": made.huge}, made)

    def _send(
        self, name: str, asked: Asked, answer: dict[str, Any], file: MemoryFile | None = None
    ) -> None:
        """Send it to the connection that asked last, unless it has ended meanwhile."""
        data = json.dumps({"name": name} | answer).encode()
        descriptors = [file.descriptor] if file else []
        with self.lock:
            if self.asked.get(name) is not asked:
                return
            del self.asked[name]
            with contextlib.suppress(
                OSError
            ):  # the connection has ended; the next one asks what has been made
                socket.send_fds(asked.connection, [data], descriptors)

    @staticmethod
    def _ended(name: str, file: MemoryFile) -> None:
        stored_files.forget(name)
        file.end()

    # -- what has been made ----------------------------------------------------------------

    def _list(self, connection: socket.socket) -> None:
        with self.lock:
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
    while True:
        connection, _ = listening.accept()
        if peer_of(connection).uid not in (0, os.geteuid()):
            connection.close()
            continue
        threading.Thread(target=keeper.serve, args=(connection,), daemon=True).start()


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
