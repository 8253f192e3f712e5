"""The node's GPUs as NVML sees them."""

from __future__ import annotations

from dataclasses import dataclass

import pynvml

from leased.config import Config
from leased.errors import Refused
from leased.options import parse_amount


@dataclass(frozen=True)
class Gpu:
    """One device. index: Slurm's absolute index (order of minor numbers); sizes in bytes.

    usable: what jobs may have together, memory cap less the reserve.
    """

    index: int
    uuid: str
    name: str
    memory: int
    usable: int
    link_gib_s: float = 0.0


def discover(config: Config) -> list[Gpu]:
    """All GPUs of the node. Refused: no NVML or no GPU, with what to look at."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as fault:
        raise Refused(
            f"NVML does not start: {fault}", "is the NVIDIA driver loaded? try nvidia-smi"
        ) from None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        # Slurm counts /dev/nvidia0, /dev/nvidia1, ...: minor numbers, not PCI order.
        handles.sort(key=pynvml.nvmlDeviceGetMinorNumber)
        found = [_describe(index, handle, config) for index, handle in enumerate(handles)]
    except pynvml.NVMLError as fault:
        raise Refused(f"NVML: {fault}", "see nvidia-smi") from None
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise Refused("this node has no NVIDIA GPU", "run gpu-leased on GPU nodes only")
    return found


def _describe(index: int, handle: object, config: Config) -> Gpu:
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    settings = config.for_device(index, uuid)
    capped = min(total, parse_amount(settings.memory, total))
    reserve = parse_amount(settings.reserve, capped)
    if reserve >= capped:
        raise Refused(
            f"device {index}: reserve {settings.reserve} leaves nothing of {capped} bytes",
            "make it smaller",
        )
    name = pynvml.nvmlDeviceGetName(handle)
    return Gpu(index, uuid, name, total, capped - reserve, settings.link_gib_s)
