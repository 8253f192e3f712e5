"""check: whether a job runs on, and leases, the GPU whose index Slurm gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leased.base.errors import Refused
from leased.base.words import count, size
from leased.cli.checks.finding import FAULT, OK, WARNING, Finding, Site
from leased.config.options import parse_amount
from leased.gpus.nvml_answers import Described
from leased.slurm import slurm_gpus, slurmconf
from leased.slurm.node_gres import SlurmGpu

NAME, MEM_PER_SHARD = "gres-order", "mem-per-shard"
LEFT_PART = 10  # a smaller part of a GPU than this may be left over


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
    yield from _of_shards(site, slurms, index)


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
            remedy = "set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in "
            return Finding(NAME, FAULT, words, remedy + "slurm.conf")
        if leased.get(gpu.uuid, at) != at:
            words = f"GPU {at} of Slurm is {file}, and gpu-leased has that GPU as "
            words += str(leased[gpu.uuid])
            return Finding(NAME, FAULT, words, "list the GPUs in gres.conf with File=")
    return Finding(NAME, OK, "jobs run on the GPUs that Slurm gives them")


def _of_shards(site: Site, gpus: Sequence[SlurmGpu], order: Mapping[str, int]) -> Iterator[Finding]:
    """Whether what shards stand for goes with the GPUs' memory (device.mem_per_shard). gpus: as
    slurmd has them. order: Slurm's index of each GPU, by UUID."""
    by_index = {order[gpu.uuid]: gpu for gpu in site.gpus if gpu.uuid in order}
    said: set[tuple[str, str, int]] = set()
    for index, gpu in enumerate(gpus):
        there = by_index.get(index)
        settings = site.config.for_device(index, there.uuid if there else "")
        if settings.mem_per_shard and there is not None and gpu.shards:
            alike = (settings.memory, settings.mem_per_shard, gpu.shards)
            if alike not in said:  # one of many that are alike
                yield _of_gpu(index, there, *alike)
            said.add(alike)


def _of_gpu(index: int, gpu: Described, memory: str, per_shard: str, shards: int) -> Finding:
    usable = min(gpu.memory, parse_amount(memory, gpu.memory))
    each = parse_amount(per_shard, gpu.memory)
    together = each * shards
    if each > usable:
        words = f"a shard of GPU {index} stands for {size(each)}, and jobs may use {size(usable)}"
        return Finding(MEM_PER_SHARD, WARNING, words, "write a smaller device.mem_per_shard")
    words = f"{count(shards, 'shard')} of GPU {index} stand for {size(each)} each, "
    words += f"{size(together)} of the {size(usable)} that jobs may use"
    if usable - together > usable // LEFT_PART:
        words += f": nobody can have the other {size(usable - together)}"
        remedy = "give the GPU more shards, or raise mem_per_shard"
        return Finding(MEM_PER_SHARD, WARNING, words, remedy)
    if together > usable:
        words += ": jobs take turns while all of it does not fit"
    return Finding(MEM_PER_SHARD, OK, words)
