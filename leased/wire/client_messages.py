"""What a client, a process with the interposer, says to the daemon: each message as plain data,
and how it is read from its struct.

Their fields are explained beside the C structs in shim/base/wire.h. Devices are named by their
UUIDs, as NVML writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from _gpulease import ffi, lib

from leased.wire.device_bytes import DeviceBytes, uuid_text
from leased.wire.header import SIZE, VERSION, WireError, check_header, sound
from leased.wire.table import MESSAGES, POINTERS

# The fields of gl_details: reasons why memory is fixed.
FIXED = ("shared", "unhosted", "mapped", "other")


def _uuid(m: Any) -> str:
    return uuid_text(bytes(ffi.buffer(m.uuid)))


def _devices(m: Any) -> dict[str, DeviceBytes]:
    if m.n_devices > lib.GL_MAX_DEVICES:
        raise WireError(f"{m.n_devices} devices in one message")
    return {
        _uuid(entry): DeviceBytes(entry.bytes, entry.fixed, entry.resident)
        for entry in (m.devices[i] for i in range(m.n_devices))
    }


def _sentence(m: Any) -> str:
    """What a client wrote for people; what a terminal could take for an order is "?"."""
    text = bytes(ffi.buffer(m.reason)).split(b"\0", 1)[0].decode(errors="replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class Hello(NamedTuple):
    """The first message of a connection.

    held_epoch: of the lease that the client holds, else 0. wants: threads wait at its gate. keeper:
    it keeps the memory of its chain. moves: it can move to another GPU. saves: its copies can be
    saved to files. carries: its memory can leave by a carrier.
    """

    held_epoch: int
    wants: bool
    memory: dict[str, DeviceBytes]
    keeper: bool = False
    moves: bool = False
    saves: bool = False
    carries: bool = False


class Memory(NamedTuple):
    """The client's memory has changed. memory: by UUID, all that it has now."""

    memory: dict[str, DeviceBytes]


class Request(NamedTuple):
    """A thread waits at the gate."""


class Released(NamedTuple):
    """The gate is shut and all submitted work has finished.

    prefetch_bytes, prefetch_ns: what was restored for the lease, and how long that took. wants:
    threads wait at the gate again, or stopped: its work is stopped in mid-kernel, and goes on with
    the next lease.
    """

    epoch: int
    prefetch_bytes: int
    prefetch_ns: int
    wants: bool = False
    stopped: bool = False


class Stuck(NamedTuple):
    """The submitted work does not finish."""

    epoch: int


class Progress(NamedTuple):
    """calls: how many have been submitted so far. For how many ns the process has looked whether it
    has unfinished work (seen_ns), for how many it had some (busy_ns), and for how many it had some
    or submitted more after a moment (wanted_ns). bursts: how often that was seen to begin. done,
    done_graphs: how many calls have finished, and how many of them launched a graph; done_ns: for
    how much of busy_ns they were unfinished."""

    calls: int
    busy_ns: int = 0
    seen_ns: int = 0
    wanted_ns: int = 0
    bursts: int = 0
    done: int = 0
    done_graphs: int = 0
    done_ns: int = 0


class Rests(NamedTuple):
    """The program does not work: a long burst has ended, or it has nothing to do."""


class Works(NamedTuple):
    """It works again."""


class Restored(NamedTuple):
    """All memory is restored: so many bytes in so many ns."""

    epoch: int
    bytes: int
    ns: int


class Why(NamedTuple):
    """A thread has waited for a while and wants to know the reason."""


class Name(NamedTuple):
    """The client shares memory; name: GL_NAME_BYTES bytes by which others find it."""

    name: bytes


class Meet(NamedTuple):
    """The client asks for the process of its job that has this name.

    number: the asker's own, for the answer. what: two numbers that the other process gets.
    """

    name: bytes
    number: int
    what: tuple[int, int]


class HostTake(NamedTuple):
    """The client asks for so many bytes of host memory for copies, under a number of its own."""

    number: int
    bytes: int


class HostGive(NamedTuple):
    """The client has unmapped the host memory of this number."""

    number: int


class Suspends(NamedTuple):
    """Slurm is about to stop the client."""


class Saves(NamedTuple):
    """Where in its memory the list of its copies lies; 0: it could not make one."""

    at: int


class Signalled(NamedTuple):
    """A thread that waits at the gate has handled a signal."""


class Parts(NamedTuple):
    """The client changes what part of the multiprocessors it uses, as it is told."""


class Ready(NamedTuple):
    """Host memory is there for what the client was told to expect, or no more of it can be had."""


class Stranded(NamedTuple):
    """Memory of the client is away by a carrier that has ended."""


class Claim(NamedTuple):
    """The client is about to allocate on a device.

    number: its own, for the answer. bytes: what it would like to have there in all. least: what it
    needs at least.
    """

    number: int
    uuid: str
    bytes: int
    least: int


class Details(NamedTuple):
    """What people want to know of the memory on a device.

    left: bytes evicted without a copy since the last message. clean: enum gl_clean. fixed: bytes by
    reason (FIXED).
    """

    uuid: str
    left: int
    clean: int
    fixed: Mapping[str, int]


class Channels(NamedTuple):
    """Whether the client's channel groups can be controlled.

    state: enum gl_channels_state. reason: why they cannot, or why the last stop that was given up
    was; of an unprivileged process, but harmless to a terminal. given_up: how many stops in
    mid-kernel could not be done, so that its work was waited for.
    """

    state: int
    reason: str
    given_up: int = 0


def _released(m: Any) -> Released:
    return Released(
        *(m.epoch, m.prefetch_bytes, m.prefetch_ns),
        wants=bool(m.flags & lib.GL_RELEASED_WANTS),
        stopped=bool(m.flags & lib.GL_RELEASED_STOPPED),
    )


def _channels(m: Any) -> Channels:
    if m.state > lib.GL_CHANNELS_REFUSED:
        raise WireError(f"channel groups in state {m.state}")
    return Channels(m.state, _sentence(m), m.given_up)


Message = tuple[Any, ...]  # one of the classes above

# How each is read from its struct, by its type.
READERS: dict[int, Callable[[Any], Message]] = {
    lib.GL_HELLO: lambda m: Hello(
        m.held_epoch,
        bool(m.flags & lib.GL_HELLO_WANTS),
        _devices(m),
        keeper=bool(m.flags & lib.GL_HELLO_KEEPER),
        moves=bool(m.flags & lib.GL_HELLO_MOVES),
        saves=bool(m.flags & lib.GL_HELLO_SAVES),
        carries=bool(m.flags & lib.GL_HELLO_CARRIES),
    ),
    lib.GL_MEMORY: lambda m: Memory(_devices(m)),
    lib.GL_REQUEST: lambda _: Request(),
    lib.GL_RELEASED: _released,
    lib.GL_STUCK: lambda m: Stuck(m.epoch),
    lib.GL_PROGRESS: lambda m: Progress(
        *(m.calls, m.busy_ns, m.seen_ns, m.wanted_ns, m.bursts),
        *(m.done.calls, m.done.graphs, m.done.ns),
    ),
    lib.GL_RESTORED: lambda m: Restored(m.epoch, m.bytes, m.ns),
    lib.GL_WHY: lambda _: Why(),
    lib.GL_NAME: lambda m: Name(bytes(ffi.buffer(m.name))),
    lib.GL_MEET: lambda m: Meet(bytes(ffi.buffer(m.name)), m.number, (m.what[0], m.what[1])),
    lib.GL_HOST_TAKE: lambda m: HostTake(m.number, m.bytes),
    lib.GL_HOST_GIVE: lambda m: HostGive(m.number),
    lib.GL_SUSPENDS: lambda _: Suspends(),
    lib.GL_SIGNALLED: lambda _: Signalled(),
    lib.GL_SAVES: lambda m: Saves(m.at),
    lib.GL_PARTS: lambda _: Parts(),
    lib.GL_READY: lambda _: Ready(),
    lib.GL_CLAIM: lambda m: Claim(m.number, _uuid(m), m.bytes, m.least),
    lib.GL_DETAILS: lambda m: Details(
        _uuid(m), m.left, m.clean, {why: getattr(m, why) for why in FIXED}
    ),
    lib.GL_CHANNELS: _channels,
    lib.GL_RESTS: lambda _: Rests(),
    lib.GL_WORKS: lambda _: Works(),
    lib.GL_STRANDED: lambda _: Stranded(),
}


# Their types, by the headers that they have as a rule: it need not be looked at what is wrong.
USUAL = {sound(kind, VERSION): kind for kind in READERS}


def parse(data: bytes) -> Message | None:
    """A client's message; None where only later releases know its type.

    WireError: the header, the length or a field breaks the protocol.
    """
    kind = USUAL.get(data[:SIZE])
    if kind is None or len(data) != MESSAGES[kind].size:
        kind = check_header(data)
        if kind not in READERS:
            return None
        row = MESSAGES[kind]
        if len(data) != row.size:
            raise WireError(f"{row.body} has {len(data)} bytes")
    return READERS[kind](ffi.from_buffer(POINTERS[kind], data))
