"""Whether the labels of a job that starts allow the GPUs that Slurm has given it.

Slurm knows no labels. So before a job begins the node's daemon looks at the other jobs on its GPUs.
If the job's labels, or theirs, forbid one of these GPUs the job is refused, and does not run there.
Jobs of other nodes are not known here.
"""

from __future__ import annotations

from collections.abc import Collection

from leased.base.errors import Refused
from leased.config.options import Resolved
from leased.gpus.devices import Gpu
from leased.leasing.tenant import Tenant
from leased.placement.api import ANYBODY, Device, Request
from leased.placement.kubeshare import conflict

LATER = "submit the job again when those jobs have ended, or without the label"


def check(given: Resolved, gpus: Collection[Gpu], others: Collection[Tenant]) -> None:
    """Refused: a label forbids a job with these options to be on these GPUs."""
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
            "Slurm has given the job a GPU of this node, but the jobs with "
            f"affinity:{mine.affinity} are on another one",
            LATER,
        )


def request_of(given: Resolved) -> Request:
    """What a placement knows of a job with these options."""
    return Request(
        given.request,
        affinity=given.affinity or None,
        anti_affinity=given.anti_affinity or None,
        exclusion=given.exclusion or None,
        chain=(ANYBODY, given.chain) if given.chain else None,
        job_class=given.job_class,
    )
