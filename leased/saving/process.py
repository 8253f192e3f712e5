"""The interposer of a process of this user, by its block in that one's memory
(shim/base/wire_save.h)."""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable
from typing import Any

from _gpulease import ffi, lib

from leased.base.errors import Refused
from leased.processes.identity import ProcessId, alive, process_id
from leased.saving.bytes_file import Range

_libc = ctypes.CDLL(None, use_errno=True)


class _Part(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t))


_PARTS = ctypes.POINTER(_Part), ctypes.c_ulong
for _call in (_libc.process_vm_readv, _libc.process_vm_writev):
    _call.argtypes = (ctypes.c_int, *_PARTS, *_PARTS, ctypes.c_ulong)
    _call.restype = ctypes.c_ssize_t


class ProcessMemory:
    """The memory of another process of this user. Use it as a context. OSError: the process has
    ended, or is not ours. What is read or written goes to, or comes from, memory that can be
    changed (bytearray).

    Large parts are copied by process_vm_readv() and process_vm_writev(), which look up many pages
    at a time; a file in /proc looks up each page by itself, and several threads get in each other's
    way. But these calls know a process by its number, which may be another one's by then: the file
    in /proc, which is of one process for ever, says whether it is still that one.
    """

    def __init__(self, pid: int):
        self.pid = pid
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)

    def __enter__(self) -> ProcessMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._file)

    def read(self, at: int, into: memoryview) -> None:
        self._copy(_libc.process_vm_readv, at, into)
        self._check(at)

    def write(self, at: int, data: memoryview) -> None:
        self._check(at)
        self._copy(_libc.process_vm_writev, at, data)

    def _copy(self, call: Any, at: int, ours: memoryview) -> None:
        here = ctypes.addressof(ctypes.c_char.from_buffer(ours))
        done, size = 0, len(ours)
        while done < size:
            mine, its = _Part(here + done, size - done), _Part(at + done, size - done)
            n = call(self.pid, ctypes.byref(mine), 1, ctypes.byref(its), 1, 0)
            if n <= 0:
                code = ctypes.get_errno() if n else errno.ESRCH
                raise OSError(code, os.strerror(code))
            done += n

    def _check(self, at: int) -> None:
        """OSError: the process has ended."""
        if not os.pread(self._file, 1, at):
            raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))


STEP_S = 60.0  # for the interposer to do what it is told
POLL_S = 0.002
RANGES_MOST = 1 << 20
STATE, BEATS, OLD = 0, 4, 24  # where in gl_saved they are


class Interposer:
    """The interposer of a process that has listed its copies at the address `at`. OSError: the
    process has ended, or is not ours. close() it."""

    def __init__(self, pid: int, at: int):
        self.pid, self.at = pid, at
        self.memory = ProcessMemory(pid)
        self._beats = 0

    def close(self) -> None:
        self.memory.close()

    def _read(self, at: int, size: int) -> bytearray:
        data = bytearray(size)
        self.memory.read(at, memoryview(data))
        return data

    def _write(self, at: int, data: bytes) -> None:
        self.memory.write(at, memoryview(bytearray(data)))

    def state(self) -> int:
        return int.from_bytes(self._read(self.at + STATE, 4), "little")

    def ranges(self) -> list[Range]:
        """OSError, Refused: there is no list."""
        saved = ffi.from_buffer(
            "struct gl_saved *", self._read(self.at, ffi.sizeof("struct gl_saved"))
        )
        if saved.state != lib.GL_SAVED_LISTED or saved.n > RANGES_MOST:
            raise Refused(f"process {self.pid} has no list of its copies where it should be")
        size = ffi.sizeof("struct gl_range")
        rows = ffi.from_buffer("struct gl_range[]", self._read(saved.ranges, saved.n * size))
        return [(int(row.at), int(row.bytes)) for row in rows]

    def beat(self) -> None:
        """Whoever saves the process still runs."""
        self._beats += 1
        self._write(self.at + BEATS, self._beats.to_bytes(4, "little"))

    def tell(self, state: int) -> None:
        self._write(self.at + STATE, state.to_bytes(4, "little"))

    def exchange(self, old: bytes, fresh: bytes) -> None:
        """The process has been restored with these two GPUs exchanged (UUIDs)."""
        self._write(self.at + OLD, old + fresh)

    def ask(self, state: int, answer: int) -> None:
        """Tell it, and wait. Refused: it does not do it."""
        self.tell(state)
        process = process_id(self.pid)
        wait_until(
            lambda: self.state() == answer, f"process {self.pid} does not answer", STEP_S, process
        )


def wait_until(
    done: Callable[[], bool], why_not: str, most_s: float, process: ProcessId | None = None
) -> None:
    """Refused: it is not so in time, or the process has ended."""
    until = time.monotonic() + most_s
    while not done():
        if time.monotonic() > until or (process is not None and not alive(process)):
            raise Refused(why_not)
        time.sleep(POLL_S)
