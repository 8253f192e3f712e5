"""check: whether what shards stand for goes with the GPUs' memory (device.mem_per_shard)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leased.base.words import count, size
from leased.cli.checks.finding import OK, WARNING, Finding, Site
from leased.config.options import parse_amount
from leased.gpus.nvml_answers import Described
from leased.slurm.node_gres import SlurmGpu

ID = "mem-per-shard"
LEFT_PART = 10  # a smaller part of a GPU than this may be left over


def findings(site: Site, gpus: Sequence[SlurmGpu], order: Mapping[str, int]) -> Iterator[Finding]:
    """gpus: as slurmd has them. order: Slurm's index of each GPU, by UUID."""
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
        return Finding(ID, WARNING, words, "write a smaller device.mem_per_shard")
    words = f"{count(shards, 'shard')} of GPU {index} stand for {size(each)} each, "
    words += f"{size(together)} of the {size(usable)} that jobs may use"
    if usable - together > usable // LEFT_PART:
        words += f": nobody can have the other {size(usable - together)}"
        return Finding(ID, WARNING, words, "give the GPU more shards, or raise mem_per_shard")
    if together > usable:
        words += ": jobs take turns while all of it does not fit"
    return Finding(ID, OK, words)
