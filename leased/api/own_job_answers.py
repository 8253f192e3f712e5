"""What the daemon answers a user of the own jobs: to mine, park, unpark and env.

As in answers.py, a field that came later is read with .get().
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from leased.api.answers import Figures, Parked, Share


class Holder(TypedDict):
    """Who has a device. job_id, uid: None: the site does not let this user see it."""

    job_id: int | None
    uid: int | None
    own: bool
    since_s: float | None


class Reason(TypedDict):
    """Why a job waits for anything but its turn. code: enum gl_waits_code of shim/base/wire.h."""

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
    """With all figures of usage; these are read."""

    lease_s: float
    wait_s: float


class OwnJob(TypedDict):
    """A job of the user who asks."""

    job_id: int
    state: str
    stopped: bool
    parked: Parked | None
    since_s: float | None
    lock: str
    memory: str
    quantum_s: float
    share: NotRequired[Share | None]  # None: it requests nothing and has no limit
    clients: int
    reason: Reason | None
    gpus: list[OwnGpu]


class StepGpu(TypedDict, total=False):
    """What a step had of a device: figures of usage that are not 0. These are read."""

    lease_s: float
    wait_s: float
    time_s: float


Step = TypedDict("Step", {"from": float, "to": float, "gpus": dict[str, StepGpu]})


class EndedJob(TypedDict):
    """The last run of a job that is over. usage: by device. steps: by name."""

    job_id: int
    usage: dict[str, Figures]
    steps: NotRequired[dict[str, Step]]


class Mine(TypedDict):
    """more: how many jobs did not fit into the answer."""

    jobs: list[OwnJob]
    ended: NotRequired[list[EndedJob]]
    more: NotRequired[int]


class OneJob(TypedDict):
    """The job that was parked or brought back."""

    job: OwnJob


class Env(TypedDict):
    """What a process of a sharing job needs. job_id: None: it is of none, and needs nothing."""

    job_id: int | None
    preload: NotRequired[str]
    env: NotRequired[dict[str, str]]
