"""check: whether a job runs on, and leases, the GPU whose index Slurm gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leased.base.errors import Refused
from leased.cli.checks import shard_memory
from leased.cli.checks.finding import FAULT, OK, Finding, Site
from leased.slurm import slurm_gpus, slurmconf
from leased.slurm.node_gres import SlurmGpu

NAME = "gres-order"


def findings(site: Site, slurms: Sequence[SlurmGpu]) -> Iterator[Finding]:
    """slurms: Slurm's GPUs by their index."""
    if not site.gpus:
        return
    constrained = slurmconf.constrains_devices(site.slurm)
    try:
        index = slurm_gpus.indices(slurms, site.gpus, constrained=constrained)
    except Refused as fault:
        yield Finding(NAME, FAULT, f"{fault}; jobs are refused", fault.hint)
        return
    yield _order(site, slurms, index, constrained)
    yield from shard_memory.findings(site, slurms, index)


def _order(
    site: Site, slurms: Sequence[SlurmGpu], index: Mapping[str, int], constrained: bool
) -> Finding:
    devices = site.status.get("devices", []) if site.status else []
    leased = {device["uuid"]: device["index"] for device in devices if "uuid" in device}
    for gpu in sorted(site.gpus, key=lambda gpu: index.get(gpu.uuid, -1)):
        at = index.get(gpu.uuid, -1)
        if not 0 <= at < len(slurms):
            continue
        file = slurms[at].file
        if not constrained and slurm_gpus.minor(file) != gpu.minor:
            words = f"GPU {at} of Slurm is {file}, and jobs there run on /dev/nvidia{gpu.minor}"
            remedy = (
                "set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf"
            )
            return Finding(NAME, FAULT, words, remedy)
        if leased.get(gpu.uuid, at) != at:
            words = (
                f"GPU {at} of Slurm is {file}, and gpu-leased has that GPU as {leased[gpu.uuid]}"
            )
            return Finding(NAME, FAULT, words, "list the GPUs in gres.conf with File=")
    return Finding(NAME, OK, "jobs run on the GPUs that Slurm gives them")
