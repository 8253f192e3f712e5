"""Copies memory of a job's processes from GPU to GPU, in a process of its own, which asks the
driver for it (shim/base/wire_move.h).

carriers.py starts it, with how many bytes it may take away, the two GPUs between which it does (by
UUID, in hex digits), and the numbers of its sockets, one for each process of the job. It says
"ready", or why it cannot, in a line. From then on each line that it is told is "over" (nothing is
taken away any more) or a question, which it answers by "works" unless it has been busy with one
piece for too long. It ends when all sockets are closed, or with the daemon.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, NamedTuple

from _gpulease import ffi, lib

from leased.moving.driver_child import Fault, Library

PATIENCE_S = 300.0  # for a request: between two of them the driver may take its time
PIECE_S = 20.0  # for one piece, which takes some ms
OVER, ASK, WORKS = "over\n", "?\n", "works\n"  # what it is told, and answers
SPARE_PART = 64  # of a GPU's memory is left alone
OUT_OF_MEMORY = 2
NO_TIMES = 2  # CU_EVENT_DISABLE_TIMING
READ_WRITE, ON_DEVICE, PINNED, FILE = 3, 1, 1, 1


class Place(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_uint), ("number", c_int))


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_uint),
        ("handle_types", c_uint),
        ("place", Place),
        ("windows", c_void_p),
        ("flags", c_uint64),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("place", Place), ("flags", c_uint))


class Gpus:
    """The driver. Fault: it does not do what it is asked."""

    def __init__(self) -> None:
        self._driver = Library()
        self._contexts: dict[int, tuple[c_void_p, c_void_p]] = {}
        self._lock = threading.Lock()

    def named(self, uuid: str) -> int:
        found = [one.hex() for one in self._driver.uuids()]
        if uuid not in found:
            raise Fault(f"the driver does not know GPU {uuid}")
        return found.index(uuid)

    def open(self, one: int, other: int) -> None:
        """Make ready to copy between two of them."""
        can = c_int()
        for pair in ((one, other), (other, one)):
            self._driver.call("cuDeviceCanAccessPeer", byref(can), *pair)
            if not can.value:
                raise Fault("these GPUs do not reach each other's memory")
            self.use(pair[0])

    def use(self, device: int) -> c_void_p:
        """Makes its context this thread's; its stream."""
        with self._lock:
            if device not in self._contexts:
                context, stream = c_void_p(), c_void_p()
                self._driver.call("cuDevicePrimaryCtxRetain", byref(context), device)
                self._driver.call("cuCtxSetCurrent", context)
                self._driver.call("cuStreamCreate", byref(stream), 1)
                self._contexts[device] = context, stream
            context, stream = self._contexts[device]
        self._driver.call("cuCtxSetCurrent", context)
        return stream

    def has_room(self, device: int, size: int) -> bool:
        self.use(device)
        free, total = c_size_t(), c_size_t()
        self._driver.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value >= size + total.value // SPARE_PART

    def make(self, device: int, size: int) -> c_uint64 | None:
        """Memory; None: there is none."""
        properties = Properties(PINNED, FILE, Place(ON_DEVICE, device))
        handle = c_uint64()
        values = byref(handle), c_size_t(size), byref(properties), c_uint64(0)
        result = self._driver.result("cuMemCreate", *values)
        if result == OUT_OF_MEMORY:
            return None
        self._driver.check("cuMemCreate", result)
        return handle

    def release(self, handle: c_uint64) -> None:
        self._driver.call("cuMemRelease", handle)

    def of_file(self, file: int) -> tuple[c_uint64, int]:
        """Memory of another process, and its device."""
        handle, properties = c_uint64(), Properties()
        values = byref(handle), c_void_p(file), FILE
        self._driver.call("cuMemImportFromShareableHandle", *values)
        self._driver.call("cuMemGetAllocationPropertiesFromHandle", byref(properties), handle)
        return handle, properties.place.number

    def file_of(self, handle: c_uint64) -> int:
        file = c_int()
        values = byref(file), handle, FILE, c_uint64(0)
        self._driver.call("cuMemExportToShareableHandle", *values)
        return file.value

    @contextmanager
    def mapped(self, handle: c_uint64, size: int, devices: Sequence[int]) -> Iterator[c_uint64]:
        at, bytes_ = c_uint64(), c_size_t(size)
        nothing = c_uint64(0)
        self._driver.call("cuMemAddressReserve", byref(at), bytes_, c_size_t(0), nothing, nothing)
        try:
            self._driver.call("cuMemMap", at, bytes_, c_size_t(0), handle, nothing)
            try:
                access = (Access * len(devices))()
                for one, device in zip(access, devices):
                    one.place, one.flags = Place(ON_DEVICE, device), READ_WRITE
                self._driver.call("cuMemSetAccess", at, bytes_, access, c_size_t(len(devices)))
                yield at
            finally:
                self._driver.call("cuMemUnmap", at, bytes_)
        finally:
            self._driver.call("cuMemAddressFree", at, bytes_)

    @contextmanager
    def copying(
        self, to: c_uint64, source: c_uint64, size: int, devices: Sequence[int]
    ) -> Iterator[None]:
        """Copies, by the first one of the two devices, from the beginning to the end."""
        stream, copied = self.use(devices[0]), c_void_p()
        each = sorted(set(devices))
        with self.mapped(to, size, each) as there, self.mapped(source, size, each) as here:
            self._driver.call("cuEventCreate", byref(copied), NO_TIMES)
            try:
                self._driver.call("cuMemcpyDtoDAsync_v2", there, here, c_size_t(size), stream)
                self._driver.call("cuEventRecord", copied, stream)
                yield
            finally:
                self._driver.call("cuEventSynchronize", copied)
                self._driver.call("cuEventDestroy_v2", copied)


class Piece(NamedTuple):
    """A request that has begun. opened: what is to be released; copy: while it is open, bytes are
    copied. files: which the answer has. failed: there was no room."""

    opened: ExitStack
    copy: ExitStack
    files: tuple[int, ...] = ()
    failed: bool = False


class Carrier:
    """between: the two GPUs; none: nothing is taken away. most: bytes that may be."""

    def __init__(self, gpus: Gpus, between: Sequence[int], most: int):
        self._gpus, self._between, self._left = gpus, between, most
        self._lock = threading.Lock()
        self._since: dict[socket.socket, float] = {}  # when each that is busy has begun a piece

    def take_no_more(self) -> None:
        """The move is over."""
        with self._lock:
            self._left = 0

    def gets_on(self) -> bool:
        """Whether no piece takes too long."""
        since = list(self._since.values())
        return all(time.monotonic() - begun < PIECE_S for begun in since)

    def serve(self, end: socket.socket) -> None:
        """Answer one process of the job until it closes its socket, or something fails. While one
        piece is copied, the next one is opened, made and mapped."""
        end.settimeout(PATIENCE_S)
        pieces: deque[Piece] = deque()
        with end, suppress(Fault, OSError), ExitStack() as finally_:
            finally_.callback(self._since.pop, end, None)
            finally_.callback(_give_up, pieces)
            while self._begin(end, pieces):
                while len(pieces) > 1 or (pieces and not _asks(end)):
                    self._finish(end, pieces[0])
                    pieces.popleft()
                    self._since[end] = time.monotonic()
                if not pieces:
                    self._since.pop(end, None)

    def _begin(self, end: socket.socket, pieces: deque[Piece]) -> bool:
        """Begin what the process asks for next. Returns whether that is something known."""
        size = ffi.sizeof("struct gl_carry")
        data, files, _, _ = socket.recv_fds(end, size, 2)
        self._since[end] = time.monotonic()
        with ExitStack() as closed:
            for file in files:
                closed.callback(os.close, file)
            if len(data) != size:
                return False
            request = ffi.from_buffer("struct gl_carry *", data)
            if request.what == lib.GL_CARRY_AWAY and len(files) == 1:
                pieces.append(self._away(request.bytes, files[0]))
            elif request.what == lib.GL_CARRY_BACK and len(files) == 2:
                pieces.append(self._back(request.bytes, *files))
            else:
                return False
        return True

    def _finish(self, end: socket.socket, piece: Piece) -> None:
        """Wait until its bytes are there, and say so."""
        with piece.opened:
            piece.copy.close()
            answer = ffi.new("struct gl_carried *", {"failed": piece.failed})
            socket.send_fds(end, [bytes(ffi.buffer(answer))], piece.files)

    def _may(self, size: int) -> bool:
        with self._lock:
            may = size <= self._left
            self._left -= size if may else 0
        return may

    def _open(self, opened: ExitStack, file: int) -> tuple[c_uint64, int]:
        handle, device = self._gpus.of_file(file)
        opened.callback(self._gpus.release, handle)
        return handle, device

    def _away(self, size: int, file: int) -> Piece:
        with ExitStack() as opened:
            source, device = self._open(opened, file)
            others = [other for other in self._between if other != device]
            made = None
            if len(others) == 1 and self._gpus.has_room(others[0], size) and self._may(size):
                made = self._gpus.make(others[0], size)
            if made is None:
                return Piece(opened.pop_all(), ExitStack(), failed=True)
            opened.callback(self._gpus.release, made)
            mine = self._gpus.file_of(made)
            opened.callback(os.close, mine)
            copy = opened.enter_context(ExitStack())
            copy.enter_context(self._gpus.copying(made, source, size, (device, others[0])))
            return Piece(opened.pop_all(), copy, (mine,))

    def _back(self, size: int, to_file: int, file: int) -> Piece:
        with ExitStack() as opened:
            to, there = self._open(opened, to_file)
            source, device = self._open(opened, file)
            copy = opened.enter_context(ExitStack())
            copy.enter_context(self._gpus.copying(to, source, size, (there, device)))
            return Piece(opened.pop_all(), copy)


def _asks(end: socket.socket) -> bool:
    """Whether there is something to read, or the other end is closed."""
    poll = select.poll()  # select() knows no number from 1024 on, and a daemon has many files
    poll.register(end, select.POLLIN)
    return bool(poll.poll(0))


def _give_up(pieces: Iterable[Piece]) -> None:
    for piece in pieces:
        with suppress(Fault):
            piece.opened.close()


def _hear_the_daemon(carriers: Sequence[Carrier]) -> None:
    """carriers: at most one, which is there when it has said so."""
    for line in sys.stdin:
        for carrier in carriers:
            if line == OVER:
                carrier.take_no_more()
            elif carrier.gets_on():
                print(WORKS, end="", flush=True)
    os._exit(1)


def main() -> None:
    carriers: list[Carrier] = []
    threading.Thread(target=_hear_the_daemon, args=(carriers,), daemon=True).start()
    most, uuids, *numbers = sys.argv[1:]
    try:
        gpus = Gpus()
        between: Any = [gpus.named(uuid) for uuid in uuids.split(",") if uuid]
        if between:
            gpus.open(*between)
    except (Fault, OSError, AttributeError) as fault:
        print(fault, flush=True)
        return
    carrier = Carrier(gpus, between, int(most))
    carriers.append(carrier)
    ends = [socket.socket(fileno=int(number)) for number in numbers]
    threads = [threading.Thread(target=carrier.serve, args=(end,)) for end in ends]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    for thread in threads:
        thread.join()
