"""A tenant of this node, and its clients as their connections show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from leased.config.options import Resolved
from leased.leasing.drain import Drain
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes

# shim/memory/swap moves so much at once: a part of what a job may have, of these sizes.
PARTS, UNIT, PIECE = 32, 2 << 20, 256 << 20


class Client(Protocol):
    """One process of a tenant, as its connection shows it."""

    wants: bool
    held: int  # epoch of the lease it holds, else 0
    passed: int  # of one that its job has lost meanwhile, and that it has not given back, else 0
    restoring: bool  # its memory is on the way back
    memory: dict[str, DeviceBytes]
    details: dict[str, client_messages.Details]  # what it has said of its devices besides
    calls: tuple[int, int] | None  # gated calls that it has made, and when it said so (ns)

    @property
    def pid(self) -> int: ...

    def send(self, message: bytes) -> None: ...


@dataclass
class Tenant:
    """One job on this node. given: its options, which stay what they were when it began.

    totals: bytes the job sees on each device of its gang.
    """

    job_id: int
    uid: int
    given: Resolved
    totals: Mapping[str, int]
    clients: list[Client] = field(default_factory=list)
    evictions: dict[str, int] = field(default_factory=dict)  # to be told when it has released
    leaves: bool = False  # to be told then that all of it must leave
    idle_ns: int | None = None  # what the holder was told while contended, else None
    doubted: bool = False  # NVML has contradicted what its processes say of their memory
    weighed: dict[str, DeviceBytes] = field(default_factory=dict)  # of it, as last believed
    memory_why: str = ""  # a sentence: why it is of its kind; "": a daemon before this one knew
    drain: Drain[Client] | None = None  # of its lease, once that is revoked

    def __post_init__(self) -> None:
        self.gang = tuple(self.totals)

    @property
    def swaps(self) -> bool:
        return self.given.swaps

    @property
    def memory_kind(self) -> str:
        """As --gpu-share and the answers of the daemon name it."""
        return "swap" if self.swaps else "managed"

    def holders(self, epoch: int) -> list[Client]:
        """Those of its processes that hold this lease."""
        return [client for client in self.clients if client.held == epoch]

    def wanting(self) -> list[Client]:
        """Those of its processes that wait at their gates, and have no lease to give back."""
        return [client for client in self.clients if client.wants and not client.held]

    @property
    def host_most(self) -> int:
        """Bytes that its copies may take of the host: a piece more than all for each process."""
        piece = max(UNIT, min(PIECE, max(self.totals.values()) // PARTS))
        return sum(self.totals.values()) + piece * (1 + len(self.clients))

    def tell_holders(self, message: bytes) -> None:
        for client in list(self.clients):
            if client.held:
                client.send(message)

    def tell_all(self, message: bytes) -> None:
        for client in list(self.clients):
            client.send(message)
