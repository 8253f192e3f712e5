"""The node's GPUs as NVML shows them, and the memory that the driver itself takes of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from leased import policy
from leased.base.errors import Refused
from leased.config.config import Config
from leased.config.kinds import AUTO
from leased.config.options import parse_amount
from leased.memory.speed import Speed

# Of a device on which no context has been measured yet; a context of CUDA 13 takes 518 MiB
# of an H200, and never so large a part of a small device.
FIRST_CONTEXT_BYTES = 576 << 20
FIRST_CONTEXT_PART = 64
CONTEXT_MOST = 2  # times that: what a process takes beyond is no context, whatever it is
ROUNDING_PART = 100  # managed memory comes in whole blocks
RESERVE_PART = 2  # of a device, at most, is kept for what has been measured


NOT_SLURMS = -1  # in place of an index: Slurm gives the device to no job


@dataclass(frozen=True)
class Gpu:
    """One device. index: Slurm's, see slurm_gpus.py; sizes in bytes.

    memory: what the driver has to give. usable: what jobs' allocations may have of it
    together, by the site's cap. reserve: the site's, None for a measured one. link,
    paging: the first guess of how fast swapped and managed memory move.
    """

    index: int
    uuid: str
    name: str
    memory: int
    usable: int
    reserve: int | None = None
    link: Speed = field(default_factory=Speed)
    paging: Speed = field(default_factory=Speed)
    lanes: Speed = field(default_factory=Speed)  # of the link, as NVML describes it
    minor: int = 0  # of its device file: /dev/nvidia0, ...
    policy: str = policy.DEFAULT  # who is next, see leased/policy
    number: int = 0  # NVML's, in the order of PCI addresses
    pci: str = ""  # its address as the kernel writes it; "": not known


@dataclass
class Overhead:
    """What is taken of a device besides the jobs' own allocations, in bytes.

    first: the guess for one process of a job, as long as none is measured. context: the most
    that one process takes now, believed up to CONTEXT_MOST times the guess. taken: what all
    processes take together, with everything that those of no job have. lasting: the part of
    `taken` that is expected to stay. A job is told its total for good, so memory that other jobs
    have beyond their contexts, which is there for a while, is not in it.
    """

    first: int
    context: int = 0
    taken: int = 0
    lasting: int = 0
    contexts: dict[int, int] = field(default_factory=dict)  # by pid, as last measured

    def __post_init__(self) -> None:
        self.context = self.first

    @classmethod
    def of(cls, gpu: Gpu) -> Overhead:
        return cls(min(FIRST_CONTEXT_BYTES, gpu.memory // FIRST_CONTEXT_PART))

    def measure(
        self,
        processes: Mapping[int, int],
        plain: Mapping[int, int | None],
        unconnected: Collection[int] = (),
    ) -> None:
        """Measure the contexts. processes: bytes by pid as NVML says, without managed memory.

        plain: how many of them each client says are its allocations; the rest is its contexts.
        None: the client is moving memory, so the two figures are not of one moment, and its
        contexts count as before. unconnected: processes of jobs that are no clients.
        """
        contexts = {}
        for pid, used in processes.items():
            own = plain.get(pid, 0)
            if own is None:
                contexts[pid] = self.contexts.get(pid, self.context)
            elif used:
                contexts[pid] = max(0, used - own)
        self.contexts, self.taken = contexts, sum(contexts.values())
        most = CONTEXT_MOST * self.first
        clients = {pid: min(size, most) for pid, size in contexts.items() if pid in plain}
        settled = [size for pid, size in clients.items() if plain[pid] is not None]
        self.context = max(settled, default=self.context if clients else self.first)
        of_jobs = plain.keys() | unconnected
        self.lasting = sum(
            min(size, most) if pid in of_jobs else size for pid, size in contexts.items()
        )


def visible(gpu: Gpu, overhead: Overhead, tenants: int) -> int:
    """Bytes that the next of so many tenants sees as the device's total; never 0.

    Unless the site has said how much, memory is left for the contexts of these tenants and of one
    more.
    """
    reserve = gpu.reserve
    if reserve is None:
        contexts = max(overhead.lasting, overhead.context * tenants) + overhead.context
        reserve = max(0, contexts - (gpu.memory - gpu.usable)) + gpu.usable // ROUNDING_PART
        reserve = min(reserve, gpu.usable // RESERVE_PART)
    return max(1, gpu.usable - reserve)


def room(gpu: Gpu, taken: int) -> int:
    """Bytes that jobs' allocations can have together while `taken` bytes are taken by others."""
    kept = gpu.usable // ROUNDING_PART if gpu.reserve is None else gpu.reserve
    return max(0, min(gpu.usable - kept, gpu.memory - taken))


def configured(gpu: Gpu, config: Config) -> Gpu:
    """The device by the site's settings. Refused: they leave nothing of it."""
    settings = config.for_device(gpu.index, gpu.uuid)
    usable = min(gpu.memory, parse_amount(settings.memory, gpu.memory))
    reserve = None if settings.reserve == AUTO else parse_amount(settings.reserve, usable)
    if reserve is not None and reserve >= usable:
        raise Refused(
            f"device {gpu.index}: reserve {settings.reserve} leaves nothing of {usable} bytes",
            "make it smaller",
        )
    said = Speed.of_site(settings.link_gib_s) if settings.link_gib_s else None
    return replace(
        gpu,
        usable=usable,
        reserve=reserve,
        link=said or gpu.lanes,
        paging=said or Speed(),
        policy=settings.policy,
    )
