"""What the daemon says to a client: each function makes the bytes of one message.

shim/base/wire.h explains the fields. Times are in ns, amounts in bytes; devices are named by their
UUIDs, as NVML writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from _gpulease import ffi, lib

from leased.wire.device_bytes import DeviceBytes, uuid_bytes
from leased.wire.header import new

IDLE_NEVER: int = lib.GL_IDLE_NEVER


@dataclass(frozen=True)
class Gang:
    """What WELCOME says: the devices and how much memory the job sees on each."""

    job_id: int
    oversub: bool
    totals: Mapping[str, int] = field(default_factory=dict)
    swaps: bool = False
    host: bool = False  # the node has host memory for its copies
    cleans: bool = True  # memory that equals its copy is evicted without another copy


def _fill(message: Any, amounts: Mapping[str, DeviceBytes]) -> None:
    message.n_devices = len(amounts)
    for entry, (uuid, amount) in zip(message.devices, amounts.items()):
        ffi.buffer(entry.uuid)[:] = uuid_bytes(uuid)
        entry.bytes, entry.fixed, entry.resident = amount


def _bytes(message: Any) -> bytes:
    return bytes(ffi.buffer(message))


def _made(of: int, /, **fields: object) -> Any:
    """The struct of a type of message, with these fields; devices are named by their UUIDs."""
    message = new(of)
    for name, value in fields.items():
        if name in ("uuid", "old", "fresh"):
            ffi.buffer(getattr(message, name))[:] = uuid_bytes(str(value))
        else:
            setattr(message, name, value)
    return message


def welcome(gang: Gang) -> bytes:
    message = new(lib.GL_WELCOME)
    message.job_id = gang.job_id
    message.flags = lib.GL_WELCOME_OVERSUB if gang.oversub else 0
    message.flags |= lib.GL_WELCOME_SWAP if gang.swaps else 0
    message.flags |= lib.GL_WELCOME_HOST if gang.host else 0
    message.flags |= lib.GL_WELCOME_CLEAN if gang.cleans else 0
    _fill(message, {uuid: DeviceBytes(total) for uuid, total in gang.totals.items()})
    return _bytes(message)


def refused(code: int, reason: str) -> bytes:
    """The reason is cut to what fits."""
    return _reasoned(lib.GL_REFUSED, code, reason)


def waits(code: int, reason: str) -> bytes:
    """Why a client waits: enum gl_waits_code, and a sentence, cut to what fits."""
    return _reasoned(lib.GL_WAITS, code, reason)


def _reasoned(kind: int, code: int, reason: str) -> bytes:
    message = _made(kind, code=code)
    _fill_reason(message, reason)
    return _bytes(message)


def _fill_reason(message: Any, reason: str) -> None:
    """Put the reason into its field, cut to what fits."""
    text = reason.encode()[: len(message.reason) - 1]
    text = text.decode(errors="ignore").encode()  # no half character at the end
    ffi.buffer(message.reason)[: len(text)] = text


def grant(
    epoch: int,
    prefetch: Mapping[str, int],
    *,
    idle_ns: int | None = None,
    in_flight_ns: int = 0,
    restore: bool = False,
) -> bytes:
    """GRANT, or with `restore` RESTORE: for the lease that the client has, and ignored by one that
    has it no more. idle_ns: as in contended()."""
    message = new(lib.GL_RESTORE if restore else lib.GL_GRANT)
    message.epoch = epoch
    message.idle_ns = IDLE_NEVER if idle_ns is None else idle_ns
    message.in_flight_ns = in_flight_ns
    _fill(message, {uuid: DeviceBytes(size) for uuid, size in prefetch.items()})
    return _bytes(message)


def revoke(epoch: int, drain_ns: int) -> bytes:
    message = new(lib.GL_REVOKE)
    message.epoch, message.deadline_ns = epoch, drain_ns
    return _bytes(message)


def step(epoch: int) -> bytes:
    return _bytes(_made(lib.GL_STEP, epoch=epoch))


def contended(epoch: int, idle_ns: int | None, in_flight_ns: int) -> bytes:
    """idle_ns: the idleness after which the client is to release; None: no job waits any more."""
    message = new(lib.GL_CONTENDED)
    message.epoch = epoch
    message.idle_ns = IDLE_NEVER if idle_ns is None else idle_ns
    message.in_flight_ns = in_flight_ns
    return _bytes(message)


RESYNC = _bytes(new(lib.GL_RESYNC))
MEASURE = _bytes(new(lib.GL_MEASURE))
WATCH = _bytes(new(lib.GL_WATCH))
NAMED = _bytes(new(lib.GL_NAMED))
LEAVE = _bytes(new(lib.GL_LEAVE))
MOVES = _bytes(new(lib.GL_MOVES))
CARRIER = _bytes(new(lib.GL_CARRIER))
SAVE = _bytes(new(lib.GL_SAVE))


def met(code: int, number: int, what: tuple[int, int]) -> bytes:
    """The answer to a Meet, or its announcement to the other one; see enum gl_met_code."""
    return _bytes(_made(lib.GL_MET, code=code, number=number, what=what))


def host(code: int, number: int, size: int) -> bytes:
    """The answer to a HostTake or a HostGive; see enum gl_host_code."""
    return _bytes(_made(lib.GL_HOST, code=code, number=number, bytes=size))


def claimed(code: int, number: int, uuid: str, size: int, reason: str = "") -> bytes:
    """The answer to a Claim; see enum gl_claim_code."""
    message = _made(lib.GL_CLAIMED, code=code, number=number, bytes=size, uuid=uuid)
    _fill_reason(message, reason)
    return _bytes(message)


def run(uuid: str, kind: int, value: int, begins: int = 0, period_ms: int = 0) -> bytes:
    """How the client's channel groups on a device run: enum gl_run_kind."""
    return _bytes(
        _made(lib.GL_RUN, uuid=uuid, kind=kind, value=value, begins=begins, period_ms=period_ms)
    )


def moved(old: str, fresh: str) -> bytes:
    """The client's move is over: `fresh` has taken the place of the old GPU, or is the same."""
    return _bytes(_made(lib.GL_MOVED, old=old, fresh=fresh))


def others(memory: Mapping[str, DeviceBytes]) -> bytes:
    message = new(lib.GL_OTHERS)
    _fill(message, memory)
    return _bytes(message)


def _amounts(kind: int, amounts: Mapping[str, int], flags: int = 0) -> bytes:
    message = _made(kind, flags=flags)
    _fill(message, {uuid: DeviceBytes(size) for uuid, size in amounts.items()})
    return _bytes(message)


def evict(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that must leave each device."""
    return _amounts(lib.GL_EVICT, amounts)


def preload(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that may come to each device before the next lease."""
    return _amounts(lib.GL_PRELOAD, amounts)


def expect(amounts: Mapping[str, int], *, tells: bool = False) -> bytes:
    """amounts: bytes that may have to leave each device at the end of the lease. tells: the client
    is to say READY when there is host memory for them."""
    return _amounts(lib.GL_EXPECT, amounts, lib.GL_EXPECT_TELLS if tells else 0)


def ahead(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that may have to leave each device some day. Host memory is kept ready for
    them and for no more."""
    return _amounts(lib.GL_AHEAD, amounts)
