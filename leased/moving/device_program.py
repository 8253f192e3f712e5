"""BPF programs that say which device files a cgroup's processes may open: pure.

Such a program, whoever made it, is widened by a prefix that lets one device file pass and else runs
into the program as it is; so it is narrowed again by cutting the prefix off, and whoever finds a
widened program knows all of what was there before.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import NamedTuple

INSN = struct.Struct("<BBhi")
LOAD, AND, RIGHT, NOT_EQUAL, MOVE, EXIT, CALL, WIDE = 0x61, 0x54, 0x74, 0x55, 0xB7, 0x95, 0x85, 0x18
CHAR, MKNOD = 2, 1  # BPF_DEVCG_DEV_CHAR, BPF_DEVCG_ACC_MKNOD
CONTEXT_IN_R2 = 0x12  # source r1, destination r2
R0, R2 = 0, 2
MOST = 1 << 20  # bytes: the kernel's own limit is a million instructions


class CharDevice(NamedTuple):
    """A character device."""

    major: int
    minor: int


def _prefix(device: CharDevice) -> bytes:
    """Returns 1 for this device, unless a device file is to be made. r1 stays what it is."""
    insns = (
        (LOAD, CONTEXT_IN_R2, 0, 0),
        (AND, R2, 0, 0xFFFF),
        (NOT_EQUAL, R2, 10, CHAR),
        (LOAD, CONTEXT_IN_R2, 4, 0),
        (NOT_EQUAL, R2, 8, device.major),
        (LOAD, CONTEXT_IN_R2, 8, 0),
        (NOT_EQUAL, R2, 6, device.minor),
        (LOAD, CONTEXT_IN_R2, 0, 0),
        (RIGHT, R2, 0, 16),
        (AND, R2, 0, MKNOD),
        (NOT_EQUAL, R2, 2, 0),
        (MOVE, R0, 0, 1),
        (EXIT, 0, 0, 0),
    )
    return b"".join(INSN.pack(*insn) for insn in insns)


SIZE = len(_prefix(CharDevice(0, 0)))
MAJOR_AT, MINOR_AT = 4 * INSN.size + 4, 6 * INSN.size + 4


def split(program: bytes) -> tuple[list[CharDevice], bytes]:
    """The devices for which it was widened, and the program without that."""
    devices = []
    while len(program) > SIZE:
        device = CharDevice(
            *(int.from_bytes(program[at : at + 4], "little") for at in (MAJOR_AT, MINOR_AT))
        )
        if program[:SIZE] != _prefix(device):
            break
        devices.append(device)
        program = program[SIZE:]
    return devices, program


def widened(program: bytes, devices: Collection[CharDevice]) -> bytes:
    """It, with exactly these devices besides."""
    return b"".join(map(_prefix, sorted(set(devices)))) + split(program)[1]


def can_be_loaded(program: bytes) -> bool:
    """Whether it can be loaded again as the kernel shows it: it calls nothing and has no maps."""
    codes: Iterable[int] = (code for code, *_ in INSN.iter_unpack(program))
    return 0 < len(program) <= MOST and not {CALL, WIDE} & set(codes)
