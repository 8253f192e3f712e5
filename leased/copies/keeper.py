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
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from leased.base import listening_socket
from leased.base.errors import Refused
from leased.base.only_one import only_one
from leased.copies import asks, memory_file, stored_files
from leased.copies.memory_file import MemoryFile
from leased.copies.own_cgroup import Charge, own_cgroup
from leased.copies.pool import Key
from leased.copies.turns import Turns
from leased.copies.unfreed import NOBODY, Owner, Unfreed
from leased.processes.identity import peer_of

log = logging.getLogger("gpu-leased")

PROGRAM = "gpu-leased-copies"
AT_ONCE = 5  # slices of memory that are made
LONGEST = 65_536
LISTED = 256  # names in one packet
LOOK_S = 1.0  # between looks whether pages that were given back are free by now
BACKLOG = 4


@dataclass(eq=False)
class Asked:
    """Memory that is being made. connection: the one that has asked for it last, and as which of
    its requests. took: seconds of a processor to make it."""

    bytes: int
    huge: bool
    connection: socket.socket
    number: int | None
    user: int
    took: float = 0.0


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
    """All memory that has been made and not been freed, by name. charge: what the kernel charges to
    the keeper's cgroup now, if that is known."""

    def __init__(
        self, files: dict[str, MemoryFile], charge: Callable[[], Charge | None] = lambda: None
    ):
        self.files = files
        self.asked: dict[str, Asked] = {}
        self.lock = threading.Lock()
        self.makers = ThreadPoolExecutor(asks.AT_ONCE)
        self.turns = Turns(AT_ONCE)
        # One thread frees: what is not free after the end of a file is of its job. It alone uses
        # these two.
        self.ender = ThreadPoolExecutor(1)
        self.unfreed = Unfreed(charge)
        self.told: dict[Owner, int] | None = None  # what gpu-leased has been told is unfreed
        self.connection: socket.socket | None = None  # the newest

    def serve(self, connection: socket.socket, before: Served | None = None) -> None:
        """Serve one connection, of gpu-leased, until it ends. before: the one that it replaces, of
        which all is done first that has been said: it must not count as said later."""
        with connection, contextlib.suppress(OSError):
            if before is not None:
                before.end()
            self.connection = connection
            while data := connection.recv(LONGEST):
                self.handle(connection, json.loads(data))

    def handle(self, connection: socket.socket, said: dict[str, Any]) -> None:
        """Do what gpu-leased has said on the connection."""
        name = str(said.get("name", ""))
        if said["op"] == "make":
            asked = Asked(
                *(int(said["bytes"]), bool(said["huge"]), connection),
                *(said.get("ask"), int(said["user"])),
            )
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
            self.ender.submit(self._free, name, file)

    # -- of a maker ----------------------------------------------------------------

    def _make(self, name: str, asked: Asked) -> None:
        """Make the memory and send its descriptor, unless it has ended meanwhile."""
        made: MemoryFile | None = None
        fault = ""
        began = time.thread_time()
        try:
            with self.turns.of(asks.job_of(name)) as turn:
                made = memory_file.make(asked.bytes, asked.huge, turn)
            made = replace(made, user=asked.user)
        except Refused as why:
            fault = why.sentence()
        asked.took = time.thread_time() - began
        with self.lock:
            wanted = self.asked.get(name) is asked
            if wanted:
                del self.asked[name]
                if made is not None:
                    self.files[name] = made
                    stored_files.store(name, made)
                self._send(name, asked, made, fault)
        if not wanted:
            self.ender.submit(self._free, name, made, asked)

    @staticmethod
    def _send(name: str, asked: Asked, file: MemoryFile | None, fault: str = "") -> None:
        """The caller holds the lock, so that the file is not ended meanwhile. Where the kernel
        passes no descriptor on, the answer comes without one."""
        answer: dict[str, Any] = {"name": name, "ask": asked.number, "took": asked.took}
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

    # -- of the ender ----------------------------------------------------------------

    def _free(self, name: str, file: MemoryFile | None, unwanted: Asked | None = None) -> None:
        """Free the memory. unwanted: the request for it, if nobody has got it."""
        began = time.thread_time()
        if file is not None:
            self.unfreed.end(owner_of(name, file), file, self.turns.quiet)
        took = time.thread_time() - began
        if unwanted is None:
            self._tell(self.connection, {"ended": name, "took": took})
        else:
            # Only the connection that it came on knows it by this number.
            said = {"ended": name, "ask": unwanted.number, "took": took + unwanted.took}
            self._tell(unwanted.connection, said)
        self._tell_unfreed()

    def _see(self, *, again: bool = False) -> None:
        """Pages that were given back may be free by now. again: gpu-leased hears of it anyway."""
        self.unfreed.see()
        self._tell_unfreed(again=again)

    def _tell_unfreed(self, *, again: bool = False) -> None:
        found = self.unfreed.report()
        if again or found != self.told:
            self.told = found
            whose = None if found is None else [(*who, size) for who, size in found.items()]
            self._tell(self.connection, {"unfreed": whose})

    @staticmethod
    def _tell(connection: socket.socket | None, said: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has ended; the next one asks
            if connection is not None:
                connection.send(json.dumps(said).encode())

    def watch(self) -> None:
        """Look again and again whether what was given back is free. It does not return."""
        while True:
            time.sleep(LOOK_S)
            if self.files or self.told:
                self.ender.submit(self._see).result()

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
        self.ender.submit(self._see, again=True)


def owner_of(name: str, file: MemoryFile) -> Owner:
    """Of whose memory this is the file."""
    key = Key.of(name)
    return NOBODY if key is None or file.user is None else (key.job_id, file.user)


def listen(path: Path) -> socket.socket:
    """A socket that only root can open, in place of what a keeper before left there."""
    made = listening_socket.listen(path, 0o600, BACKLOG)
    made.setblocking(True)
    return made


def serve(listening: socket.socket, keeper: Keeper) -> NoReturn:
    """Accept connections, each served in a thread; there is mostly one. It does not return."""
    before: Served | None = None
    threading.Thread(target=keeper.watch, daemon=True).start()
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
        prog=PROGRAM, description="Keeps host memory for copies, for gpu-leased."
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
        print(f"{PROGRAM}: no socket: use --socket", file=sys.stderr)
        return 1
    group = own_cgroup()
    keeper = Keeper(files, group.charge) if group else Keeper(files)
    if given is not None:
        serve(given, keeper)
    try:
        with only_one(PROGRAM, chosen.socket.parent):
            serve(listen(chosen.socket), keeper)
    except Refused as why:
        print(f"{PROGRAM}: {why.sentence()}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
