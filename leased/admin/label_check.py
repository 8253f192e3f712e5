"""Labels of a job that starts: whether it may be on the GPUs that Slurm has given it.

Slurm knows no labels. So the node's daemon looks at the other jobs of its GPUs before a job
begins, and a job that Slurm has put where its labels or theirs forbid it is refused: it never runs
misplaced. Jobs of other nodes are not known here.
"""

from __future__ import annotations

from collections.abc import Collection

from leased.base.errors import Refused
from leased.config.options import Resolved
from leased.gpus.devices import Gpu
from leased.leasing.tenant import Tenant
from leased.placement.api import Device, Request
from leased.placement.kubeshare import conflict

LATER = "submit the job again when they have ended, or without the label"


def check(given: Resolved, gpus: Collection[Gpu], others: Collection[Tenant]) -> None:
    """Refused: a label forbids that a job with these options has these GPUs."""
    mine = request_of(given)
    for gpu in gpus:
        there = tuple(request_of(other.given) for other in others if gpu.uuid in other.gang)
        fault = conflict(mine, Device(gpu.uuid, 0, there))
        if fault is not None:
            raise Refused(f"Slurm has given the job GPU {gpu.index}, but {fault}", LATER)
    uuids = {gpu.uuid for gpu in gpus}
    elsewhere = [other for other in others if not uuids & set(other.gang)]
    if mine.affinity and any(other.given.affinity == mine.affinity for other in elsewhere):
        raise Refused(
            f"the jobs with affinity:{mine.affinity} are on another GPU of this node than the one "
            "that Slurm has given the job",
            LATER,
        )


def request_of(given: Resolved) -> Request:
    """What a placement knows of a job with these options."""
    return Request(
        given.request,
        affinity=given.affinity or None,
        anti_affinity=given.anti_affinity or None,
        exclusion=given.exclusion or None,
    )
