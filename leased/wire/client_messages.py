"""What a client, a process with the interposer, says to the daemon: the messages as plain data.

Their fields are explained beside the C structs in shim/base/wire.h; leased/wire/parser.py makes
them from bytes. Devices are named by their UUIDs, as NVML writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leased.wire.device_bytes import DeviceBytes

# The fields of gl_details: reasons why memory is fixed.
FIXED = ("shared", "unhosted", "mapped", "other")


@dataclass(frozen=True)
class Hello:
    """The first message of a connection.

    held_epoch: of the lease that the client holds, else 0. wants: threads wait at its gate.
    """

    held_epoch: int
    wants: bool
    memory: dict[str, DeviceBytes]


@dataclass(frozen=True)
class Memory:
    """The client's memory has changed. memory: by UUID, all that it has now."""

    memory: dict[str, DeviceBytes]


@dataclass(frozen=True)
class Request:
    """A thread waits at the gate."""


@dataclass(frozen=True)
class Released:
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


@dataclass(frozen=True)
class Stuck:
    """The submitted work does not finish."""

    epoch: int


@dataclass(frozen=True)
class Progress:
    """calls: how many have been submitted so far. For how many ns the process has looked whether it
    has unfinished work (seen_ns), and for how many it had some (busy_ns)."""

    calls: int
    busy_ns: int = 0
    seen_ns: int = 0


@dataclass(frozen=True)
class Restored:
    """All memory is restored: so many bytes in so many ns."""

    epoch: int
    bytes: int
    ns: int


@dataclass(frozen=True)
class Why:
    """A thread has waited for a while and wants to know the reason."""


@dataclass(frozen=True)
class Name:
    """The client shares memory; name: GL_NAME_BYTES bytes by which others find it."""

    name: bytes


@dataclass(frozen=True)
class Meet:
    """The client asks for the process of its job that has this name.

    number: the asker's own, for the answer. what: two numbers that the other process gets.
    """

    name: bytes
    number: int
    what: tuple[int, int]


@dataclass(frozen=True)
class HostTake:
    """The client asks for so many bytes of host memory for copies, under a number of its own."""

    number: int
    bytes: int


@dataclass(frozen=True)
class HostGive:
    """The client has unmapped the host memory of this number."""

    number: int


@dataclass(frozen=True)
class Suspends:
    """Slurm is about to stop the client."""


@dataclass(frozen=True)
class Signalled:
    """A thread that waits at the gate has handled a signal."""


@dataclass(frozen=True)
class Claim:
    """The client is about to allocate on a device.

    number: its own, for the answer. bytes: what it would like to have there in all. least: what it
    needs at least.
    """

    number: int
    uuid: str
    bytes: int
    least: int


@dataclass(frozen=True)
class Details:
    """What people want to know of the memory on a device.

    left: bytes evicted without a copy since the last message. clean: enum gl_clean. fixed: bytes by
    reason (FIXED).
    """

    uuid: str
    left: int
    clean: int
    fixed: Mapping[str, int]


@dataclass(frozen=True)
class Channels:
    """Whether the client's channel groups can be controlled.

    state: enum gl_channels_state. reason: why they cannot, or why the last stop that was given up
    was; of an unprivileged process, but harmless to a terminal. given_up: how many stops in
    mid-kernel could not be done, so that its work was waited for.
    """

    state: int
    reason: str
    given_up: int = 0


@dataclass(frozen=True)
class Unknown:
    """A message of a type that only later releases know: it is ignored."""


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
    | Signalled
    | Claim
    | Details
    | Channels
    | Unknown
)
