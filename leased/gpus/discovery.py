"""Finds the devices of the node: those that NVML shows now, or has shown since the boot."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from leased.base.errors import Refused
from leased.config.config import Config
from leased.gpus import known_gpus, nvml_answers
from leased.gpus.devices import Gpu, configured
from leased.gpus.nvml import Nvml, Silent
from leased.gpus.nvml_answers import OF_NONE, Described
from leased.gpus.silence import SILENT

log = logging.getLogger("gpu-leased")

GONE = "NVML does not show it any more; see nvidia-smi and dmesg, reset it"


@dataclass(frozen=True)
class Found:
    """faults: by UUID, of those that were seen before and do not answer now. silent: why NVML
    says nothing, or None."""

    gpus: list[Gpu]
    faults: dict[str, str] = field(default_factory=dict)
    silent: str | None = None


async def find(nvml: Nvml, config: Config) -> Found:
    """The devices. Refused: NVML says nothing, or shows no GPU, and none is known of before."""
    known = known_gpus.load(config.state_dir)
    try:
        shown, unusable = nvml_answers.each_described(await nvml.describe())
        if unusable and not shown and set(unusable.values()) == {SILENT}:
            raise Silent(OF_NONE)
    except Silent as why:
        if not known:
            raise Refused(f"{why}", "is the NVIDIA driver loaded? try nvidia-smi") from None
        return Found(_indexed(known, 0, config), silent=str(why))
    for number, fault in unusable.items():
        log.error("GPU %d of NVML is left out: %s; see nvidia-smi, reset it", number, fault)
    there = {gpu.uuid for gpu in shown} | {gpu.minor for gpu in shown}
    # A device whose file is another device's by now was taken out of the node.
    gone = [gpu for gpu in known if not {gpu.uuid, gpu.minor} & there]
    if not shown and not gone:
        raise Refused("this node has no NVIDIA GPU that works", "run gpu-leased on GPU nodes only")
    known_gpus.save(config.state_dir, [*shown, *gone])
    faults = {gpu.uuid: unusable.get(gpu.number, GONE) for gpu in gone}
    faults |= {gpu.uuid: gpu.mode for gpu in shown if gpu.mode}
    return Found(_indexed([*shown, *gone], len(unusable) - len(gone), config), faults)


def _indexed(found: list[Described], lost: int, config: Config) -> list[Gpu]:
    """The devices with Slurm's index: the order of their minor numbers.

    lost: how many there are of which nothing is known. Refused: then the numbers of
    the others do not tell which.
    """
    minors = sorted(gpu.minor for gpu in found)
    count = len(found) + max(0, lost)
    if lost > 0 and minors[-1] >= count:
        raise Refused(
            f"{lost} of {count} GPUs are lost, and the minor numbers of the others "
            f"({', '.join(map(str, minors))}) do not tell which",
            "reset them, or drain the node",
        )
    indices = {minor: minor if lost > 0 else n for n, minor in enumerate(minors)}
    made = [
        Gpu(
            *(indices[gpu.minor], gpu.uuid, gpu.name, gpu.memory, gpu.memory),
            lanes=gpu.lanes,
            minor=gpu.minor,
            number=gpu.number,
            pci=gpu.pci,
        )
        for gpu in found
    ]
    return [configured(gpu, config) for gpu in sorted(made, key=lambda gpu: gpu.index)]
