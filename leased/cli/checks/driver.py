"""check: the NVIDIA driver and the GPUs, as NVML shows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from leased.base.words import count
from leased.cli.checks.finding import FAULT, OK, Finding, Site
from leased.gpus import nvml_answers
from leased.gpus.nvml import Nvml, Silent
from leased.gpus.nvml_answers import Described


def describe() -> dict[str, Any]:
    """What NVML says, asked as the daemon asks it. Silent: nothing."""

    async def ask() -> dict[str, Any]:
        nvml = Nvml()
        try:
            return await nvml.describe()
        finally:
            nvml.close()

    return asyncio.run(ask())


def findings(site: Site) -> Iterator[Finding]:
    try:
        said = describe()
    except Silent as fault:
        remedy = "load the NVIDIA driver; nvidia-smi must work"
        yield Finding("driver", FAULT, str(fault), remedy)
        return
    shown, unusable = nvml_answers.each_described(said)
    site.gpus = shown
    yield Finding("driver", OK, f"NVIDIA driver {nvml_answers.printable(str(said.get('driver')))}")
    for number, why in unusable.items():
        words = f"GPU {number} of NVML cannot be used: {why}"
        yield Finding("gpus", FAULT, words, "see nvidia-smi and dmesg; reset the GPU")
    if shown and not unusable:
        names = {gpu.name for gpu in shown}
        yield Finding("gpus", OK, f"{count(len(shown), 'GPU')}: {', '.join(sorted(names))}")
    elif not unusable:
        yield Finding("gpus", FAULT, "NVML shows no GPU", "see nvidia-smi and dmesg")
    yield from _modes(shown)


def _modes(shown: list[Described]) -> Iterator[Finding]:
    """Modes of a GPU in which it cannot be shared."""
    for gpu in shown:
        if gpu.mode:
            words, _, remedy = gpu.mode.partition("; ")
            yield Finding("gpu-modes", FAULT, f"GPU {gpu.number} of NVML: {words}", remedy)
    if shown and not any(gpu.mode for gpu in shown):
        yield Finding("gpu-modes", OK, "no GPU is in a mode that keeps jobs from sharing it")
