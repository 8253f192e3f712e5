"""What the daemon answers administrators, as both ends see it: `admin` writes it, `cli` reads it.

own_job_answers.py has what it answers users about their own jobs.

docs/gpu-leasectl.md says what each field means. mypy compares the names and types here with
what is written and with what is read. An answer may come from a daemon of another release, so
a field that came later is read with .get().
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

# The figures of usage of one device: values by their keys (leased/usage/usage.py).
Figures = dict[str, Any]


class UserLimits(TypedDict):
    """What users may choose."""

    quantum_min_s: float
    quantum_max_s: float
    user_lock_off: bool
    user_oversub: bool


class Setting(TypedDict):
    """What `gpu-leasectl set` has set. device: a UUID, or "all"."""

    device: str
    key: str
    value: str


class UnleasedProcess(TypedDict):
    """A process that uses a leased device without a lease. job_id, step: None: of no job."""

    job_id: int | None
    step: str | None
    uid: int
    pid: int
    command: str
    device: str
    bytes: int
    user: NotRequired[str | None]  # the client adds it


class UnleasedProcesses(TypedDict, total=False):
    """The strays. jobs: how many were counted, by job. now: those that run; more: how many of them
    are left out."""

    action: str
    total: int
    jobs: dict[str, int]
    now: list[UnleasedProcess]
    more: int


class NodeMemory(TypedDict):
    """The node's host memory for copies. kept: gpu-leased-copies runs. unfreed_bytes: what was
    given back and is not free; None: it is not known."""

    kept: bool
    budget_bytes: int
    taken_bytes: int
    unfreed_bytes: int | None
    left_bytes: int


class Copies(NodeMemory):
    """waiting: jobs that wait for host memory. ahead_bytes: how much of it is made ahead of
    handoffs, ahead_most_bytes at most; older daemons do not say."""

    waiting: list[int]
    ahead_bytes: NotRequired[int]
    ahead_most_bytes: NotRequired[int]


class SlurmCluster(TypedDict, total=False):
    """name: the cluster whose jobs are served; None: not known yet. refused: how many steps of
    other clusters, by their names."""

    name: str | None
    refused: dict[str, int]


class UnwrittenUsage(TypedDict):
    """Usage of a job that has ended, which Slurm's accounting does not have. since_s: its end."""

    job_id: int
    job: str
    since_s: float
    why: str


class UsageWaiting(TypedDict):
    """Usage that has waited for longer than a minute for Slurm's accounting. runs: of how many runs
    of jobs; first: those that ended first."""

    runs: int
    first: list[UnwrittenUsage]


class HandoffTimes(TypedDict):
    """How long handoffs took since the daemon began. bounds_s: the upper bounds of all buckets
    but the last. counts: handoffs by bucket, each in one only."""

    bounds_s: list[float]
    counts: list[int]
    sum_s: float


class Health(TypedDict):
    """How well a GPU is for offline jobs: init, healthy, unhealthy, overlimit or disabled; and
    why."""

    state: str
    why: str | None


class Mps(TypedDict):
    """A GPU that is shared by MPS. why: why its server does not run; None: it runs. together: whose
    jobs may be there at once, of one "user", one "chain" or "any" users. ended: how often the
    server has ended by itself. faults: how often a fault of one process has ended the work of all
    since the daemon began; lost: the jobs that were there at the last one."""

    why: str | None
    together: str
    ended: int
    faults: int
    lost: list[str]


class ChainComponent(TypedDict):
    """A process of a chain. part: of the GPU's SMs, that it has at most, 0 to 1."""

    job: str
    pid: int
    part: float


class Chain(TypedDict):
    """A chain that has a GPU for itself, with its components in their order. by: "parts" of the
    multiprocessors, or time "slices". calls_s: how often the last one has submitted work lately;
    None: not known yet. why: what is done about its division, or why nothing is. bottleneck: which
    component holds it up; gain: what the division has brought over the plain one; None: not known
    yet. trials: of the last search, their throughput by that of the first; plain, kept: which of
    them had the plain division, and the one that was kept. bound: how many trials a search takes at
    most."""

    name: str
    components: list[ChainComponent]
    by: str
    calls_s: float | None
    why: str
    bottleneck: int | None
    gain: float | None
    trials: list[float]
    plain: list[int]
    kept: list[int]
    bound: int


class Device(TypedDict):
    """One GPU. index: Slurm's; number: NVML's. total: what all jobs together have had of it since
    the daemon began. Older daemons do not say number, total and handoff_times."""

    index: int
    number: NotRequired[int]
    uuid: str
    name: str
    memory_bytes: int
    usable_bytes: int
    reserve_bytes: int | None  # None: as much as is measured
    mem_per_shard_bytes: NotRequired[int | None]  # None: shards say nothing of memory
    overhead_bytes: int
    tenant_bytes: int
    resident_bytes: int
    fits: bool
    holders: list[int]
    waiting: list[int]
    quantum_left_s: float | None
    lock: str | None
    quantum_s: float | None
    policy: str
    requested: NotRequired[float]  # the part of its time that jobs request together
    online_slowdown: NotRequired[float | None]  # as measured of online jobs; None: not known
    offline_health: NotRequired[Health | None]  # None: not looked at yet
    mps: NotRequired[Mps | None]  # None: it is not shared by MPS
    chain: NotRequired[Chain | None]  # None: no chain has it for itself
    mode: str
    why: str
    fault: str | None
    busy_percent: int | None
    drain: str | None
    link_gib_s: float
    paging_gib_s: float
    total: NotRequired[Figures]
    handoff_times: NotRequired[HandoffTimes]


MOVE, CHECKPOINT = "a move", "a checkpoint"


class Parked(TypedDict):
    """A job was parked. by: who asked for it, or MOVE or CHECKPOINT, for the time of one."""

    since_s: float
    by: str


class KeptOut(TypedDict):
    """Memory that cannot be moved and leaves a job no room. by: bytes of the largest, by job,
    whose number is text in JSON."""

    needs_bytes: int
    jobs: int
    by: dict[int, int]


class Clean(TypedDict):
    """Whether memory that equals its copy is evicted without another copy. state: on; off, for
    the reason `why`; unknown, as long as no such memory was evicted. left_bytes: how much was
    evicted so."""

    state: str
    why: str | None
    left_bytes: int


class Channels(TypedDict):
    """Whether the GPU's time slices of a job can be set. state: controlled; refused, for the reason
    `why`; none: no process has channel groups, or has said so yet. processes: how many of its
    processes say that. given_up: how many stops in mid-kernel its processes have given up, since
    that could not be done in time, so that their work was waited for; why_given_up: why one of the
    last ones was; None: none was."""

    state: str
    why: str | None
    processes: int
    given_up: int
    why_given_up: str | None


class Slices(TypedDict):
    """How a job's channel groups run on a device. slice_s: their time slices; None: as the driver
    made them. duty: in which part of the time they may run. why: what follows "the job"."""

    slice_s: float | None
    duty: float
    why: str


class Share(TypedDict):
    """The part of its GPUs' time that a job has at least (request) and at most (limit).

    limited_s: it is at its limit, and may go on so soon; None: it is not. lacking: why its request
    does not count yet, so that it waits; None: it counts. turn_s: how long its turns are at least
    because memory has to move; None: tq says how long.
    """

    request: float
    limit: float
    limited_s: float | None
    lacking: str | None
    turn_s: float | None


class OnNodes(TypedDict):
    """A job on several nodes. nodes: by name, what it does there; None: its first node knows that.
    why: why it does not run on all of them, where another node is the reason."""

    nodes: dict[str, str | None]
    why: str | None


class Tenant(TypedDict):
    """One job. job: as squeue shows it. The rest is by device (UUID): total_bytes (what it
    sees of the device's memory), resident_bytes, fixed (bytes that cannot leave, by reason),
    kept_out, slices, gpus (usage, also of devices from which it has moved). Older daemons do not
    say total_bytes, fixed, clean, opened, share, channels and slices."""

    job_id: int
    job: str
    uid: int
    opened: NotRequired[float | None]  # seconds since 1970
    lock: str
    memory: str
    memory_why: str | None
    quantum_s: float
    job_class: NotRequired[str]  # online, offline or none
    space: NotRequired[str]  # how its GPUs are shared: time or mps
    sm: NotRequired[float]  # under MPS, the part of the multiprocessors that it may have
    share: NotRequired[Share | None]  # None: it requests nothing and has no limit
    copies_bytes: int
    ahead_bytes: NotRequired[int]  # 0 of older daemons
    clients: int
    channels: NotRequired[Channels]
    slices: NotRequired[dict[str, Slices]]
    state: str
    stopped: bool
    parked: Parked | None
    epoch: int | None
    total_bytes: NotRequired[dict[str, int]]
    resident_bytes: dict[str, int]
    fixed: NotRequired[dict[str, dict[str, int]]]
    clean: NotRequired[Clean | None]  # None: its memory is managed
    kept_out: dict[str, KeptOut]
    gpus: dict[str, Figures]
    on_nodes: NotRequired[OnNodes | None]  # None: it is on this node alone
    lease_share: NotRequired[float | None]  # gpu-leasectl top adds it


def devices_of(tenant: Tenant) -> Collection[str]:
    """The devices that a job has now."""
    return tenant["resident_bytes"].keys()


def jobs_on(device: Device, answer: TenantPage) -> list[Tenant]:
    """The jobs that have the device now."""
    return [t for t in answer["tenants"] if device["uuid"] in devices_of(t)]


class Called(dict[int, str]):
    """By their numbers, jobs as squeue shows them; by its number one that is not in the answer."""

    def __init__(self, tenants: Iterable[Tenant]):
        super().__init__({tenant["job_id"]: tenant["job"] for tenant in tenants})

    def __missing__(self, job_id: int) -> str:
        return str(job_id)

    def all(self, jobs: Iterable[int]) -> list[str]:
        return [self[job] for job in jobs]


class TenantPage(TypedDict):
    """next: the job after which the next page begins; left out of the last one."""

    tenants: list[Tenant]
    next: NotRequired[int]


class Status(TenantPage):
    """Everything; of the tenants the first page, or all of them when the client has asked on."""

    version: str
    wire_version: int
    uptime_s: float
    store_fault: str | None
    nvml_fault: str | None
    limits: UserLimits
    settings: list[Setting]
    strays: UnleasedProcesses
    copies: Copies | None
    cluster: SlurmCluster
    usage_waiting: NotRequired[UsageWaiting]
    devices: list[Device]
