"""What the daemon answers users about their own jobs, to `mine`, `park`, `unpark` and `env`.

As in answers.py, a field that came later is read with .get().
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from leased.api.answers import Figures, Parked, Share

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class Holder(TypedDict):
    """A job that has a device. job: as squeue shows it. job_id, job, uid: None if the site hides
    them from this user."""

    job_id: int | None
    job: str | None
    uid: int | None
    own: bool
    since_s: float | None


class Reason(TypedDict):
    """Why a job waits, if not for its turn. code: enum gl_waits_code of shim/base/wire.h."""

    code: int
    text: str


class GpuOfJob(TypedDict):
    """A device of an own job. before: how many wait before it; None: it does not wait."""

    index: int
    uuid: str
    mode: str
    before: int | None
    holders: list[Holder]
    quantum_left_s: float | None
    wanted_bytes: int
    resident_bytes: int


class OwnGpu(GpuOfJob):
    """A device with all figures of usage, of which gpu-leasectl reads these."""

    lease_s: float
    wait_s: float


class OwnJob(TypedDict):
    """A job of the user who asks. job: as squeue shows it. nodes: all that it has, if several."""

    job_id: int
    job: str
    state: str
    stopped: bool
    parked: Parked | None
    since_s: float | None
    lock: str
    memory: str
    quantum_s: float
    job_class: NotRequired[str]  # online, offline or none
    share: NotRequired[Share | None]  # None: it requests nothing and has no limit
    clients: int
    nodes: NotRequired[list[str]]
    reason: Reason | None
    gpus: list[OwnGpu]


class StepGpu(TypedDict, total=False):
    """What a step had of a device: figures of usage that are not 0. These are read."""

    lease_s: float
    wait_s: float
    time_s: float


Step = TypedDict("Step", {"from": float, "to": float, "gpus": dict[str, StepGpu]})


class EndedJob(TypedDict):
    """The last run of a job that is over. usage: by device. steps: by name. nodes: all that it had,
    if several."""

    job_id: int
    job: str
    usage: dict[str, Figures]
    steps: NotRequired[dict[str, Step]]
    nodes: NotRequired[list[str]]


class Ended(TypedDict):
    """Jobs that are over."""

    ended: list[EndedJob]
    more: int


class Mine(TypedDict):
    """Jobs of the user, or those that were parked or brought back. more: how many did not fit into
    the answer."""

    jobs: list[OwnJob]
    ended: NotRequired[list[EndedJob]]
    more: int


class Env(TypedDict):
    """What a process needs to take part in its job's lease. job_id: None: the process is of no job
    that shares, and needs nothing."""

    job_id: int | None
    preload: NotRequired[str]
    env: NotRequired[dict[str, str]]
