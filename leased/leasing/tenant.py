"""A tenant of this node, and its clients as their connections show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from _gpulease import lib

from leased.chains.shares import Part
from leased.classes.pulse import Work
from leased.config.options import Resolved
from leased.connections.connection import Connection
from leased.leasing.drain import Drain
from leased.processes.identity import ProcessId
from leased.slices.job import Runs
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes

# shim/memory/swap moves segments: 1/PARTS of what a job may have, from UNIT to PIECE bytes.
PARTS, UNIT, PIECE = 32, 2 << 20, 256 << 20


class Busy(NamedTuple):
    """In what part of the time in which it might run a process had unfinished work, and wanted more
    if it had finished it. at: when it said so (ns)."""

    unfinished: float
    wanted: float
    at: int


@dataclass
class Restart:
    """Of what a process starts again so that it has another part of the multiprocessors. before:
    its processes that began with the part before. since: when it was told to start it again; None:
    it has done so. times: how often it was told since `counted`. since, counted: ns."""

    counted: int
    before: tuple[Client, ...] = ()
    since: int | None = None
    times: int = 0


class Client(Connection):
    """One process of a tenant, and its connection: what it has said, and what it was told."""

    pid: int
    # What follows stays when it says HELLO anew.
    restart: Restart | None = None  # of one that it starts again; None: it has never been told to
    borrows = False  # in its present turn it may have opened memory of another job of its chain
    progress = client_messages.Progress(0)  # what it last answered to MEASURE
    progress_at: int | None = None  # when it said so; None: it has not
    busy: Busy | None = None  # what it said of a time that was long enough
    rests = False  # it has said that its program does not work
    work: Work | None = None  # what it said of its calls since that was last asked

    def forget(self) -> None:
        """It has said nothing yet."""
        self.wants = False
        self.held = 0  # the epoch of the lease that it holds, else 0
        # The epoch of a lease that its job has lost and it has not released, else 0.
        self.passed = 0
        self.restoring = False  # its memory is being restored
        self.moves = False  # it can move to another GPU
        self.saves = False  # its copies can be saved to files
        self.carries = False  # its memory can leave by a carrier
        # Where its list of copies lies; None: it has not said so; 0: it has none.
        self.saved_at: int | None = None
        self.ready = True  # it has said READY since it was last told to, or it never was
        self.name = b""  # by which processes of its chain ask for it
        self.keeper = False  # it keeps the memory of its chain
        self.arriving = ""  # the GPU to which it was moved, until it says what it has there
        self.stopped = False  # its work was stopped in mid-kernel when it last released
        self.memory: dict[str, DeviceBytes] = {}
        self.details: dict[str, client_messages.Details] = {}  # by UUID, for people
        self.channels: client_messages.Channels | None = None  # what it last said of them
        self.runs: dict[str, Runs] = {}  # by UUID, Choice.runs as it was told
        # Of the multiprocessors, as it was told; None: it changes none.
        self.part: Part | None = None
        # How many calls it has submitted, and when it said so (ns); None: it has not.
        self.calls: tuple[int, int] | None = None


class Elsewhere(NamedTuple):
    """What is known of a job on several nodes beyond this one. why: why it does not run on all of
    them; "": nothing but its turn here is known. nodes: what it does on each, in one word, as the
    daemon of its first node has heard; empty on the others."""

    why: str
    nodes: Mapping[str, str]


@dataclass
class Tenant:
    """One job on this node.

    given: its options, which stay what they were when it began. totals: by UUID, the bytes that
    the job sees on each device of its gang. job: as squeue shows it. nodes: the names of its nodes,
    in an order that is the same on all of them; none for a job on this node alone.
    """

    job_id: int
    uid: int
    given: Resolved
    totals: Mapping[str, int]
    clients: list[Client] = field(default_factory=list)
    # By UUID, bytes to evict once the lease is released.
    evictions: dict[str, int] = field(default_factory=dict)
    must_leave: bool = False  # all its memory is to be evicted once the lease is released
    idle_ns: int | None = None  # of the last CONTENDED; None: no job waits
    doubted: bool = False  # NVML has contradicted its processes' reports of memory
    believed: dict[str, DeviceBytes] = field(default_factory=dict)  # what the arbiter was told
    memory_why: str = ""  # why its memory is of its kind; "": not known after a restart
    drain: Drain[Client] | None = None  # once its lease is revoked
    # By UUID, processes whose connection has ended with a lease: where such a process has not
    # ended, it may run on without one.
    cut_off: set[tuple[str, ProcessId]] = field(default_factory=set)
    job: str = ""
    nodes: tuple[str, ...] = ()
    # By UUID, what it saw of devices that it had before it was moved. Processes that begin later
    # are there: CUDA_VISIBLE_DEVICES says so.
    former: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.gang = tuple(self.totals)
        self.job = self.job or str(self.job_id)

    @property
    def swaps(self) -> bool:
        return self.given.swaps

    @property
    def chain(self) -> str:
        """The name of its chain (leased/chains/membership.py); "": it names none."""
        return self.given.chain

    @property
    def memory_kind(self) -> str:
        """swap or managed, as --gpu-share and the daemon's answers name it."""
        return "swap" if self.swaps else "managed"

    @property
    def controlled(self) -> bool:
        """Whether none of its processes says that its channel groups cannot be controlled."""
        said = [client.channels for client in self.clients if client.channels is not None]
        return all(one.state != lib.GL_CHANNELS_REFUSED for one in said)

    def holders(self, epoch: int) -> list[Client]:
        """The tenant's processes that hold this lease."""
        return [client for client in self.clients if client.held == epoch]

    def wanting(self) -> list[Client]:
        """The tenant's processes that wait at their gates and hold no lease."""
        return [client for client in self.clients if client.wants and not client.held]

    @property
    def host_most(self) -> int:
        """Bytes of host memory that its copies may take: its memory and a segment for each
        process, of as many as its memory has segments."""
        return sum(self.totals.values()) + self._segments

    def most_on(self, uuid: str) -> int:
        """Bytes that its processes may have on the device together, with what they round up. What
        they say beyond that is not believed. It may have had the device before it was moved."""
        return {**self.former, **self.totals}[uuid] + self._segments

    @property
    def _segments(self) -> int:
        piece = max(UNIT, min(PIECE, max(self.totals.values()) // PARTS))
        return piece * min(1 + len(self.clients), PARTS)

    def tell_holders(self, message: bytes) -> None:
        """Send the message to its processes that hold a lease."""
        for client in list(self.clients):
            if client.held:
                client.send(message)

    def tell_all(self, message: bytes) -> None:
        """Send the message to all its processes."""
        for client in list(self.clients):
            client.send(message)
