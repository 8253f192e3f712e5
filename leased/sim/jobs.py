"""What is simulated: GPUs, and jobs as they ask for them. Sizes are bytes, times are ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

GIB = 1 << 30
S = 1_000_000_000
MS = 1_000_000
LOCKS = ("on", "off", "auto")


@dataclass(frozen=True)
class Gpu:
    """One GPU of the node.

    memory: what jobs can have of it together. link_bytes_s: how fast swapped memory moves, each
    way; paging_bytes_s: how fast managed memory does. daemon_bytes_s: the speed that the daemon
    reckons with; None: the true one. side_by_side: how much jobs that compute at once get done
    together, where one alone gets 1 done; 1: they share the GPU's time, and nothing is gained.
    """

    memory: int
    link_bytes_s: float = 10.0 * GIB
    paging_bytes_s: float = 10.0 * GIB
    daemon_bytes_s: float | None = None
    side_by_side: float = 1.0


def name_of(gpu: int) -> str:
    """The GPU's name in the arbiter."""
    return f"GPU-{gpu}"


@dataclass(frozen=True)
class Job:
    """One job with one process on each of its nodes.

    gpus: indices; it computes on all of them at once. memory: what it has on each of them. nodes:
    indices; it has such a process and such GPUs on each, and these processes wait for each other.
    bursts: so long on the GPU when nobody disturbs it, then so long off it, for each burst.
    submit: when it begins. swaps: its memory is swapped, or else managed. drain: how much
    submitted work it finishes after a revoke. touches_bytes_s: how much memory its kernels touch
    in a second of their work, which is what is paged where memory does not fit side by side.
    idle_check: it looks only so often whether it has been idle since it last looked, and yields
    then, as nvshare's client does; None: it yields as the interposer does. request, limit: the
    parts of its GPUs' time that it is to have at least and may have at most. paced: its bursts are
    due at times of their own, as requests from outside are, and not a pause after the one before.
    """

    name: str
    memory: int
    bursts: Sequence[tuple[int, int]]
    gpus: tuple[int, ...] = (0,)
    submit: int = 0
    lock: str = "auto"
    quantum: int = 30 * S
    swaps: bool = False
    drain: int = 0
    touches_bytes_s: float = 0.0
    idle_check: int | None = None
    request: float = 0.0
    limit: float = 1.0
    paced: bool = False
    nodes: tuple[int, ...] = (0,)

    @property
    def gpu_ns(self) -> int:
        """All its work on the GPU."""
        return sum(gpu for gpu, _ in self.bursts)

    @property
    def alone_ns(self) -> int:
        """How long the job takes when it is alone and no memory moves."""
        return sum(gpu + cpu for gpu, cpu in self.bursts)


@dataclass(frozen=True)
class Setting:
    """What an administrator may choose. None: as each job asks. exclusive: one job after the
    other, each with its GPUs for itself, as with --gres=gpu:1. moves: jobs move to idle GPUs, as
    with limits.move_idle."""

    policy: str = "fcfs"
    lock: str | None = None
    quantum: int | None = None
    exclusive: bool = False
    moves: bool = False

    def of(self, job: Job) -> Job:
        """The job with the settings that the administrator has chosen. One on several nodes has its
        GPUs for itself whatever is chosen."""
        lock = job.lock if self.lock is None else self.lock
        return replace(
            job,
            lock=lock if len(job.nodes) < 2 else "on",
            quantum=job.quantum if self.quantum is None else self.quantum,
        )


@dataclass(frozen=True)
class Trace:
    """GPUs and the jobs that come to them, in the order in which they are submitted. nodes: how
    many there are with such GPUs each. latency: how long a message takes from one node to another,
    in ns."""

    gpus: tuple[Gpu, ...]
    jobs: tuple[Job, ...]
    nodes: int = 1
    latency: int = MS // 5
