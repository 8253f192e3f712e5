"""Channel groups for programs of tests, beside what program_api has."""

from __future__ import annotations

import ctypes
import os
import struct

from tests.emugpu.server import BUILD

__all__ = ["COMPUTE", "IN", "OUT", "Group", "compute", "disable", "gid", "groups", "of_engine"]
__all__ += ["watch"]

COMPUTE, IN, OUT, SPARE = 1, 11, 12, 13
GROUP, CHANNEL = 0xA06C, 0xC86F

library = ctypes.CDLL(str(BUILD / "libemugpu_groups.so"))
for name in ("groups_control", "groups_device_control", "groups_turn", "groups_set"):
    getattr(library, name).restype = ctypes.c_uint32
library.groups_set.argtypes = (ctypes.c_int, ctypes.c_uint64)


def watch() -> None:
    """Note what the driver's library makes from now on; before setup()."""
    ctypes.CDLL("libcuda.so.1", os.RTLD_NOW | os.RTLD_GLOBAL)
    assert library.groups_watch() == 0


class Group:
    """One of the process's channel groups. A call returns the kernel's status: 0, it did it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.engine: int = library.groups_engine(number)

    def control(self, command: int, params: bytes) -> tuple[int, bytes]:
        """Any control of the group: the status, and the parameters after it."""
        buffer = ctypes.create_string_buffer(params, len(params))
        status: int = library.groups_control(self.number, command, buffer, len(params))
        return status, buffer.raw

    def set(self, us: int) -> int:
        status: int = library.groups_set(self.number, us)
        return status

    def slice(self) -> int:
        """What the kernel says its slice is, in us."""
        status, after = self.control(0xA06C0104, bytes(8))
        assert status == 0, hex(status)
        return int(struct.unpack("Q", after)[0])

    def channels(self) -> list[tuple[int, int]]:
        """(client, channel), as disable() takes them."""
        client, handles = ctypes.c_uint32(), (ctypes.c_uint32 * 64)()
        n = library.groups_channels(self.number, ctypes.byref(client), handles)
        return [(client.value, handle) for handle in handles[:n]]

    def stop(self) -> int:
        status: int = library.groups_turn(self.number, 1)
        return status

    def start(self) -> int:
        status: int = library.groups_turn(self.number, 0)
        return status


def groups() -> list[Group]:
    """Those that there are now, in the order in which they were made."""
    return [Group(i) for i in range(library.groups_count(GROUP))]


def of_engine(engine: int) -> Group:
    """The first one for an engine."""
    return next(group for group in groups() if group.engine == engine)


def compute() -> Group:
    return of_engine(COMPUTE)


def disable(
    channels: list[tuple[int, int]], off: bool, n: int | None = None, event: int = 0
) -> int:
    """Stop or start exactly these channels."""
    room = [*channels, *[(0, 0)] * 64][:64]
    params = struct.pack(
        "B3xIBB6xQ64I64I",
        off,
        len(channels) if n is None else n,
        0,
        0,
        event,
        *(client for client, _ in room),
        *(channel for _, channel in room),
    )
    status: int = library.groups_device_control(0, 0x2080110B, params, len(params))
    return status


def gid(subdevice: int = 0) -> bytes:
    """The UUID of the GPU of a subdevice."""
    buffer = ctypes.create_string_buffer(struct.pack("3I", 0, 2, 0) + bytes(256), 268)
    assert library.groups_device_control(subdevice, 0x2080014A, buffer, 268) == 0
    (length,) = struct.unpack_from("I", buffer.raw, 8)
    return buffer.raw[12 : 12 + length]
