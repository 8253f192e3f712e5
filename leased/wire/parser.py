"""Reads what a client says: bytes become one of the messages of client_messages.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _gpulease import ffi, lib

from leased.wire.client_messages import (
    FIXED,
    Channels,
    Claim,
    Details,
    Hello,
    HostGive,
    HostTake,
    Meet,
    Memory,
    Message,
    Name,
    Progress,
    Released,
    Request,
    Restored,
    Signalled,
    Stuck,
    Suspends,
    Unknown,
    Why,
)
from leased.wire.device_bytes import DeviceBytes, uuid_text
from leased.wire.header import WireError, check_header
from leased.wire.table import MESSAGES


def parse(data: bytes) -> Message:
    """A client's message; Unknown where only later releases know its type.

    WireError: the header, the length or a field breaks the protocol.
    """
    kind = check_header(data)
    if kind not in PARSERS:
        return Unknown()
    return PARSERS[kind](_cast(data, kind))


def _cast(data: bytes, kind: int) -> Any:
    row = MESSAGES[kind]
    if len(data) != row.size:
        raise WireError(f"{row.body} has {len(data)} bytes")
    return ffi.from_buffer(f"struct {row.body} *", data)


def _uuid(field: Any) -> str:
    return uuid_text(bytes(ffi.buffer(field)))


def _devices(message: Any) -> dict[str, DeviceBytes]:
    if message.n_devices > lib.GL_MAX_DEVICES:
        raise WireError(f"{message.n_devices} devices in one message")
    return {
        _uuid(entry.uuid): DeviceBytes(int(entry.bytes), int(entry.fixed), int(entry.resident))
        for entry in (message.devices[i] for i in range(message.n_devices))
    }


def _hello(m: Any) -> Message:
    return Hello(int(m.held_epoch), bool(m.flags & lib.GL_HELLO_WANTS), _devices(m))


def _released(m: Any) -> Message:
    return Released(
        *(int(m.epoch), int(m.prefetch_bytes), int(m.prefetch_ns)),
        wants=bool(m.flags & lib.GL_RELEASED_WANTS),
        stopped=bool(m.flags & lib.GL_RELEASED_STOPPED),
    )


def _meet(m: Any) -> Message:
    return Meet(bytes(ffi.buffer(m.name)), int(m.number), (int(m.what[0]), int(m.what[1])))


def _details(m: Any) -> Message:
    uuid = _uuid(m.uuid)
    return Details(uuid, int(m.left), int(m.clean), {why: int(getattr(m, why)) for why in FIXED})


def _channels(m: Any) -> Message:
    if m.state > lib.GL_CHANNELS_REFUSED:
        raise WireError(f"channel groups in state {m.state}")
    return Channels(int(m.state), _sentence(m.reason), int(m.given_up))


def _sentence(field: Any) -> str:
    """What a client wrote for people; what a terminal could take for an order is "?"."""
    text = bytes(ffi.buffer(field)).split(b"\0", 1)[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


# How to read a client's message, by its type.
PARSERS: dict[int, Callable[[Any], Message]] = {
    lib.GL_HELLO: _hello,
    lib.GL_MEMORY: lambda m: Memory(_devices(m)),
    lib.GL_REQUEST: lambda _: Request(),
    lib.GL_RELEASED: _released,
    lib.GL_STUCK: lambda m: Stuck(int(m.epoch)),
    lib.GL_PROGRESS: lambda m: Progress(int(m.calls), int(m.busy_ns), int(m.seen_ns)),
    lib.GL_RESTORED: lambda m: Restored(int(m.epoch), int(m.bytes), int(m.ns)),
    lib.GL_WHY: lambda _: Why(),
    lib.GL_NAME: lambda m: Name(bytes(ffi.buffer(m.name))),
    lib.GL_MEET: _meet,
    lib.GL_HOST_TAKE: lambda m: HostTake(int(m.number), int(m.bytes)),
    lib.GL_HOST_GIVE: lambda m: HostGive(int(m.number)),
    lib.GL_SUSPENDS: lambda _: Suspends(),
    lib.GL_SIGNALLED: lambda _: Signalled(),
    lib.GL_CLAIM: lambda m: Claim(int(m.number), _uuid(m.uuid), int(m.bytes), int(m.least)),
    lib.GL_DETAILS: _details,
    lib.GL_CHANNELS: _channels,
}
