"""The messages of shim/base/wire.h as Python sees them; sizes and numbers come from C."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from _gpulease import ffi, lib

from leased.wire.table import MESSAGES

MAX_MESSAGE: int = lib.GL_MAX_MESSAGE
VERSION: int = lib.GL_VERSION
OLDEST_VERSION: int = lib.GL_OLDEST_VERSION
VERSION_AT = slice(4, 6)  # bytes of the header, in every version
IDLE_NEVER: int = lib.GL_IDLE_NEVER


class WireError(Exception):
    """A message that makes no sense; the text says what."""


class WrongVersion(WireError):
    """A sound header of a version that is not served. answer: in which one to say so: of both
    sides' the lower, which both can read."""

    def __init__(self, version: int):
        newer = version > VERSION
        super().__init__(
            f"its library speaks version {version} of the protocol, and gpu-leased "
            f"{OLDEST_VERSION} to {VERSION}: "
            + ("restart gpu-leased after its update" if newer else "submit the job again")
        )
        self.answer = min(version, VERSION)


class Bytes(NamedTuple):
    """Of one device: what can leave it, what cannot, what of the former is known to be there."""

    evictable: int = 0
    fixed: int = 0
    resident: int = 0


@dataclass(frozen=True)
class Hello:
    held_epoch: int
    wants: bool
    memory: dict[str, Bytes]


@dataclass(frozen=True)
class Memory:
    """By device UUID."""

    memory: dict[str, Bytes]


@dataclass(frozen=True)
class Request:
    pass


@dataclass(frozen=True)
class Released:
    epoch: int
    idle: bool
    drain_ns: int
    prefetch_bytes: int
    prefetch_ns: int
    wants: bool = False


@dataclass(frozen=True)
class Stuck:
    epoch: int


@dataclass(frozen=True)
class Progress:
    calls: int


@dataclass(frozen=True)
class Restored:
    epoch: int
    bytes: int
    ns: int


@dataclass(frozen=True)
class Why:
    pass


@dataclass(frozen=True)
class Name:
    name: bytes


@dataclass(frozen=True)
class Meet:
    """number: the asker's own, for the answer. what: a word between the two."""

    name: bytes
    number: int
    what: tuple[int, int]


@dataclass(frozen=True)
class HostTake:
    """So many bytes of host memory for copies, under a number of the asker's own."""

    number: int
    bytes: int


@dataclass(frozen=True)
class HostGive:
    number: int


@dataclass(frozen=True)
class Suspends:
    pass


@dataclass(frozen=True)
class Claim:
    """Of one device, by UUID. bytes: what the process would like to have there, least: must."""

    number: int
    uuid: str
    bytes: int
    least: int


@dataclass(frozen=True)
class Details:
    """Of one device, by UUID. left: bytes that left it without being copied, since the last one.
    clean: enum gl_clean. fixed: bytes that stay, by reason (FIXED)."""

    uuid: str
    left: int
    clean: int
    fixed: Mapping[str, int]


# Why memory is fixed: the fields of gl_details.
FIXED = ("shared", "unhosted", "mapped", "other")


@dataclass(frozen=True)
class Unknown:
    """Of a type that only later releases know: it is ignored."""


Message = (
    Hello
    | Memory
    | Request
    | Released
    | Stuck
    | Progress
    | Restored
    | Why
    | Name
    | Meet
    | HostTake
    | HostGive
    | Suspends
    | Claim
    | Details
    | Unknown
)


@dataclass(frozen=True)
class Gang:
    """What WELCOME says: the devices and how much memory the job sees on each."""

    job_id: int
    oversub: bool
    totals: Mapping[str, int] = field(default_factory=dict)
    swaps: bool = False
    host: bool = False  # the node has host memory for its copies
    cleans: bool = True  # memory that is as its copy is need not be copied again
    details: bool = False  # Details are heard


def uuid_text(raw: bytes) -> str:
    """16 bytes as NVML writes them."""
    h = raw.hex()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def uuid_bytes(text: str) -> bytes:
    """NVML's text (GPU-... or MIG-...) as 16 bytes."""
    return bytes.fromhex(text.split("-", 1)[1].replace("-", ""))


def _devices(message: Any) -> dict[str, Bytes]:
    if message.n_devices > lib.GL_MAX_DEVICES:
        raise WireError(f"{message.n_devices} devices in one message")
    return {
        uuid_text(bytes(ffi.buffer(entry.uuid))): Bytes(
            int(entry.bytes), int(entry.fixed), int(entry.resident)
        )
        for entry in (message.devices[i] for i in range(message.n_devices))
    }


def _cast(data: bytes, kind: int) -> Any:
    row = MESSAGES[kind]
    if len(data) != row.size:
        raise WireError(f"{row.body} has {len(data)} bytes")
    return ffi.from_buffer(f"struct {row.body} *", data)


def check_header(data: bytes) -> int:
    """The type of a message whose header is sound; WireError otherwise."""
    if len(data) < ffi.sizeof("struct gl_header"):
        raise WireError(f"a message of {len(data)} bytes")
    header = ffi.from_buffer("struct gl_header *", data)
    if header.magic != lib.GL_MAGIC or header.length != len(data):
        raise WireError("no header of ours")
    if not OLDEST_VERSION <= header.version <= VERSION:
        raise WrongVersion(int(header.version))
    return int(header.type)


def version_of(data: bytes) -> int:
    """Of a message whose header is sound."""
    return int.from_bytes(data[VERSION_AT], sys.byteorder)


def in_version(data: bytes, version: int) -> bytes:
    """A message as a client of this version reads it."""
    if version_of(data) == version:
        return data
    said = version.to_bytes(2, sys.byteorder)
    return data[: VERSION_AT.start] + said + data[VERSION_AT.stop :]


def _hello(m: Any) -> Message:
    return Hello(int(m.held_epoch), bool(m.flags & lib.GL_HELLO_WANTS), _devices(m))


def _released(m: Any) -> Message:
    if m.reason not in (lib.GL_RELEASE_REVOKED, lib.GL_RELEASE_IDLE):
        raise WireError(f"release for reason {m.reason}")
    idle = m.reason == lib.GL_RELEASE_IDLE
    return Released(
        *(int(m.epoch), idle, int(m.drain_ns), int(m.prefetch_bytes), int(m.prefetch_ns)),
        wants=bool(m.flags & lib.GL_RELEASED_WANTS),
    )


def _meet(m: Any) -> Message:
    return Meet(bytes(ffi.buffer(m.name)), int(m.number), (int(m.what[0]), int(m.what[1])))


def _details(m: Any) -> Message:
    uuid = uuid_text(bytes(ffi.buffer(m.uuid)))
    return Details(uuid, int(m.left), int(m.clean), {why: int(getattr(m, why)) for why in FIXED})


# By type: what a client's message says.
PARSERS: dict[int, Callable[[Any], Message]] = {
    lib.GL_HELLO: _hello,
    lib.GL_MEMORY: lambda m: Memory(_devices(m)),
    lib.GL_REQUEST: lambda _: Request(),
    lib.GL_RELEASED: _released,
    lib.GL_STUCK: lambda m: Stuck(int(m.epoch)),
    lib.GL_PROGRESS: lambda m: Progress(int(m.calls)),
    lib.GL_RESTORED: lambda m: Restored(int(m.epoch), int(m.bytes), int(m.ns)),
    lib.GL_WHY: lambda _: Why(),
    lib.GL_NAME: lambda m: Name(bytes(ffi.buffer(m.name))),
    lib.GL_MEET: _meet,
    lib.GL_HOST_TAKE: lambda m: HostTake(int(m.number), int(m.bytes)),
    lib.GL_HOST_GIVE: lambda m: HostGive(int(m.number)),
    lib.GL_SUSPENDS: lambda _: Suspends(),
    lib.GL_CLAIM: lambda m: Claim(
        int(m.number), uuid_text(bytes(ffi.buffer(m.uuid))), int(m.bytes), int(m.least)
    ),
    lib.GL_DETAILS: _details,
}


def parse(data: bytes) -> Message:
    """A client's message. WireError: not one of ours, in whatever way."""
    kind = check_header(data)
    if kind not in PARSERS:
        return Unknown()
    return PARSERS[kind](_cast(data, kind))


def new(kind: int) -> Any:
    """A message of this type with its header, and nothing else."""
    row = MESSAGES[kind]
    message = ffi.new(f"struct {row.body} *")
    header = message if row.body == "gl_header" else message.header
    header.magic, header.version = lib.GL_MAGIC, VERSION
    header.type, header.length = kind, row.size
    return message


def _fill(message: Any, amounts: Mapping[str, Bytes]) -> None:
    message.n_devices = len(amounts)
    for entry, (uuid, amount) in zip(message.devices, amounts.items(), strict=False):
        ffi.buffer(entry.uuid)[:] = uuid_bytes(uuid)
        entry.bytes, entry.fixed, entry.resident = amount


def _bytes(message: Any) -> bytes:
    return bytes(ffi.buffer(message))


def welcome(gang: Gang) -> bytes:
    message = new(lib.GL_WELCOME)
    message.job_id = gang.job_id
    message.flags = lib.GL_WELCOME_OVERSUB if gang.oversub else 0
    message.flags |= lib.GL_WELCOME_SWAP if gang.swaps else 0
    message.flags |= lib.GL_WELCOME_EXPLAINS | lib.GL_WELCOME_INTRODUCES
    message.flags |= lib.GL_WELCOME_HOST if gang.host else 0
    message.flags |= lib.GL_WELCOME_PARKS
    message.flags |= lib.GL_WELCOME_CLEAN if gang.cleans else 0
    message.flags |= lib.GL_WELCOME_DETAILS if gang.details else 0
    _fill(message, {uuid: Bytes(total) for uuid, total in gang.totals.items()})
    return _bytes(message)


def refused(code: int, reason: str) -> bytes:
    """The reason is cut to what fits."""
    return _reasoned(lib.GL_REFUSED, code, reason)


def waits(code: int, reason: str) -> bytes:
    """Why a client waits: enum gl_waits_code, and a sentence, cut to what fits."""
    return _reasoned(lib.GL_WAITS, code, reason)


def _reasoned(kind: int, code: int, reason: str) -> bytes:
    message = new(kind)
    message.code = code
    _fill_reason(message, reason)
    return _bytes(message)


def _fill_reason(message: Any, reason: str) -> None:
    """As much of it as there is room for."""
    text = reason.encode()[: len(message.reason) - 1]
    text = text.decode(errors="ignore").encode()  # no half character at the end
    ffi.buffer(message.reason)[: len(text)] = text


def grant(
    epoch: int,
    quantum_ns: int,
    shared: bool,
    prefetch: Mapping[str, int],
    *,
    idle_ns: int | None = None,
    in_flight_ns: int = 0,
    restore: bool = False,
) -> bytes:
    """idle_ns: as in contended(). restore: of the lease that it has; ignored if it has not."""
    message = new(lib.GL_RESTORE if restore else lib.GL_GRANT)
    message.epoch = epoch
    message.quantum_ns = quantum_ns
    message.idle_ns = IDLE_NEVER if idle_ns is None else idle_ns
    message.in_flight_ns = in_flight_ns
    message.flags = lib.GL_GRANT_SHARED if shared else 0
    _fill(message, {uuid: Bytes(size) for uuid, size in prefetch.items()})
    return _bytes(message)


def revoke(epoch: int, drain_ns: int) -> bytes:
    message = new(lib.GL_REVOKE)
    message.epoch = epoch
    message.deadline_ns = drain_ns
    return _bytes(message)


def step(epoch: int) -> bytes:
    message = new(lib.GL_STEP)
    message.epoch = epoch
    return _bytes(message)


def contended(epoch: int, idle_ns: int | None, in_flight_ns: int) -> bytes:
    """idle_ns: of idleness after which to yield; None: nobody waits any more."""
    message = new(lib.GL_CONTENDED)
    message.epoch = epoch
    message.idle_ns = IDLE_NEVER if idle_ns is None else idle_ns
    message.in_flight_ns = in_flight_ns
    return _bytes(message)


RESYNC = _bytes(new(lib.GL_RESYNC))
MEASURE = _bytes(new(lib.GL_MEASURE))
NAMED = _bytes(new(lib.GL_NAMED))
LEAVE = _bytes(new(lib.GL_LEAVE))


def met(code: int, number: int, what: tuple[int, int]) -> bytes:
    """The answer to a Meet, or its announcement to the other one; see enum gl_met_code."""
    message = new(lib.GL_MET)
    message.code, message.number, message.what = code, number, what
    return _bytes(message)


def host(code: int, number: int, size: int) -> bytes:
    """The answer to a HostTake or a HostGive; see enum gl_host_code."""
    message = new(lib.GL_HOST)
    message.code, message.number, message.bytes = code, number, size
    return _bytes(message)


def claimed(code: int, number: int, uuid: str, size: int, reason: str = "") -> bytes:
    """The answer to a Claim; see enum gl_claim_code."""
    message = new(lib.GL_CLAIMED)
    message.code, message.number, message.bytes = code, number, size
    ffi.buffer(message.uuid)[:] = uuid_bytes(uuid)
    _fill_reason(message, reason)
    return _bytes(message)


def others(memory: Mapping[str, Bytes]) -> bytes:
    message = new(lib.GL_OTHERS)
    _fill(message, memory)
    return _bytes(message)


def _amounts(kind: int, amounts: Mapping[str, int]) -> bytes:
    message = new(kind)
    _fill(message, {uuid: Bytes(size) for uuid, size in amounts.items()})
    return _bytes(message)


def evict(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that must leave each device."""
    return _amounts(lib.GL_EVICT, amounts)


def preload(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that may come to each device before the next lease."""
    return _amounts(lib.GL_PRELOAD, amounts)


def expect(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that may have to leave each device at the end of the lease."""
    return _amounts(lib.GL_EXPECT, amounts)


def ahead(amounts: Mapping[str, int]) -> bytes:
    """amounts: bytes that may have to leave each device some time, for which host memory is to
    be there; absolute: what is there for more is given back."""
    return _amounts(lib.GL_AHEAD, amounts)
