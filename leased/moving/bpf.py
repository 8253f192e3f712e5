"""The system call bpf(2), as far as programs of cgroups for devices need it. OSError: the kernel
does not do it."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path
from typing import NamedTuple

NUMBERS = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, PROG_ATTACH, PROG_FD_BY_ID, INFO_BY_FD, PROG_QUERY = 5, 8, 13, 15, 16
CGROUP_DEVICE_TYPE, CGROUP_DEVICE = 15, 6  # of a program, and of its place
ALLOW_MULTI = 2
ATTR = 120  # bytes, more than any of these needs
PROGRAMS_MOST = 64
NAME = b"gpu_lease"


class Attached(NamedTuple):
    """The one program that is attached to a cgroup. insns: as the kernel has it."""

    insns: bytes
    flags: int


def _bpf(command: int, *parts: bytes) -> tuple[int, bytearray]:
    attr = bytearray(b"".join(parts).ljust(ATTR, b"\0"))
    number = NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, "no bpf(2) is known for this processor")
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * len(attr)).from_buffer(attr)
    result = libc.syscall(ctypes.c_long(number), command, buffer, ctypes.c_uint(len(attr)))
    if result < 0:
        fault = ctypes.get_errno()
        raise OSError(fault, os.strerror(fault))
    return int(result), attr


def _address(buffer: object) -> int:
    return ctypes.addressof(buffer)  # type: ignore[arg-type]


def attached(cgroup: Path) -> Attached | None:
    """None: there is none. OSError: it cannot be told, or there are several."""
    folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ids = (ctypes.c_uint32 * PROGRAMS_MOST)()
        _, attr = _bpf(
            PROG_QUERY,
            struct.pack("<IIIIQI", folder, CGROUP_DEVICE, 0, 0, _address(ids), PROGRAMS_MOST),
        )
        flags, count = struct.unpack_from("<I", attr, 12)[0], struct.unpack_from("<I", attr, 24)[0]
    finally:
        os.close(folder)
    if not count:
        return None
    if count > 1 or flags & ALLOW_MULTI:
        raise OSError(errno.EOPNOTSUPP, "there are several programs for devices, or there may be")
    program, _ = _bpf(PROG_FD_BY_ID, struct.pack("<I", ids[0]))
    try:
        return Attached(_insns(program), flags)
    finally:
        os.close(program)


def _insns(program: int) -> bytes:
    """bpf_prog_info: type, id, tag, jited and translated bytes, where to write either, ..."""
    info = (ctypes.c_char * 256)()
    _bpf(INFO_BY_FD, struct.pack("<IIQ", program, len(info), _address(info)))
    (size,) = struct.unpack_from("<I", info, 20)
    insns = (ctypes.c_char * max(1, size))()
    info = (ctypes.c_char * 256)()
    struct.pack_into("<I", info, 20, size)
    struct.pack_into("<Q", info, 32, _address(insns))
    _bpf(INFO_BY_FD, struct.pack("<IIQ", program, len(info), _address(info)))
    shown: int = struct.unpack_from("<Q", info, 32)[0]
    if not size or not shown:
        raise OSError(errno.EPERM, "the kernel does not show its instructions")
    return bytes(insns)


def attach(cgroup: Path, insns: bytes, flags: int) -> None:
    """Load a program and attach it in place of the one that is there; at no moment is there none.
    flags: of that one."""
    code = (ctypes.c_char * len(insns)).from_buffer_copy(insns)
    licence = ctypes.create_string_buffer(b"GPL")
    head = struct.pack(
        *("<IIQQIIQII", CGROUP_DEVICE_TYPE, len(insns) // 8, _address(code), _address(licence)),
        *(0, 0, 0, 0, 0),
    )
    program, _ = _bpf(PROG_LOAD, head, NAME.ljust(16, b"\0"))
    try:
        folder = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _bpf(PROG_ATTACH, struct.pack("<IIII", folder, program, CGROUP_DEVICE, flags))
        finally:
            os.close(folder)
    finally:
        os.close(program)
