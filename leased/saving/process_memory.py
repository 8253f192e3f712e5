"""The memory of another process of this user.

Large parts are copied by process_vm_readv() and process_vm_writev(), which look up many pages at a
time; a file in /proc looks up each page by itself, and several threads get in each other's way. But
these calls know a process by its number, which may be another one's by then: the file in /proc,
which is of one process for ever, says whether it is still that one.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)


class _Part(ctypes.Structure):
    """struct iovec"""

    _fields_ = (("at", ctypes.c_void_p), ("size", ctypes.c_size_t))


_PARTS = ctypes.POINTER(_Part), ctypes.c_ulong
for _call in (_libc.process_vm_readv, _libc.process_vm_writev):
    _call.argtypes = (ctypes.c_int, *_PARTS, *_PARTS, ctypes.c_ulong)
    _call.restype = ctypes.c_ssize_t


class ProcessMemory:
    """Use it as a context. OSError: the process has ended, or is not ours. What is read or written
    goes to, or comes from, memory that can be changed (bytearray)."""

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
