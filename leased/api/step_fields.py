"""What slurmstepd tells gpu-leased of a step of a job, and what the step gets.

Both ends read this: the daemon, and the SPANK plugin, into whose Python half it is compiled
(spank/build_half.py). So it needs nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from typing_extensions import NotRequired

NODES_MOST = 64  # of a job that shares; its first node's daemon speaks with all the others


class Join(TypedDict):
    """A further step of a job that shares. memory_mib: what the step may have of the host's
    memory; 0: as much as it likes. cluster: of Slurm; "": not known. options: of --gpu-share; "":
    none."""

    job_id: int
    uid: int
    cluster: str
    memory_mib: int
    options: str


class Step(Join):
    """What slurmstepd knows of any step.

    Each field is a member of struct registration (spank/registration.h), too.
    """


class Register(Step):
    """The first step of a job, or one with other GPUs. slurmctld says the rest: the job as squeue
    shows it, when its run began (seconds since 1970), its partition, QOS and account ("": none),
    how often it has begun anew, on how many nodes it is and how these are called (in one order, the
    same on all of them; none for one node, or for more than NODES_MOST), and its shards, its
    GPUs (Slurm's indices) and how many shards of each, on this one."""

    job: str
    start: int
    partition: str
    qos: str
    account: str
    restarts: int
    nodes: int
    node_names: list[str]
    shards: int
    gpus: list[int]
    shards_of: list[int]


class Admitted(TypedDict):
    """What the tasks of the step need. tenant: the job's number. preload: the interposer. env: to
    be set in their environment. note: a sentence for the job's user. dmem: by PCI address of a
    GPU, the bytes of it to which the kernel is to keep the job (spank/device_memory.py)."""

    tenant: int
    preload: str
    env: dict[str, str]
    note: NotRequired[str]
    dmem: NotRequired[dict[str, int]]


JOIN_FIELDS = tuple(Join.__annotations__)
STEP_FIELDS = tuple(Step.__annotations__)
REGISTER_FIELDS = tuple(Register.__annotations__)
