"""Which GPU Slurm means by an index.

Slurm counts the devices of gres.conf in its own order. What a job gets for an index
depends on whether Slurm constrains devices:
  constrained    the job can open the device files with those indices and no others
  unconstrained  the job gets the indices in CUDA_VISIBLE_DEVICES, which CUDA
                 counts over all devices, in the order of their PCI addresses
So the index counts device files in the first case, and is NVML's number in the second.
The files are read as slurmd reads them (gres_common.c, gres_gpu.c, alike in 22.05 to 26.05).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from leased.base.errors import Refused
from leased.slurm import gres_conf, slurmconf
from leased.slurm.conf_lines import Fields
from leased.slurm.gres_conf import Gres
from leased.slurm.slurmconf import SlurmConf

FILES = ("gres.conf", "cgroup.conf")  # beside slurm.conf


class Device(Protocol):
    """minor: the number of its device file. number: NVML's, in the order of PCI addresses."""

    @property
    def uuid(self) -> str: ...

    @property
    def minor(self) -> int: ...

    @property
    def number(self) -> int: ...


@dataclass(frozen=True)
class Said:
    """What Slurm's files say of this node's GPUs."""

    gres: Gres
    node: Fields  # of its NodeName line
    constrained: bool


def read(path: Path, node: str | None = None) -> Said | None:
    """What slurm.conf and gres.conf say of GPUs; None: nothing. OSError: they cannot be read.

    node: the name of this node, where the host's name does not tell.
    """
    conf = SlurmConf(path)
    conf.read(path)
    name = node or conf.this_node()
    try:
        gres = gres_conf.gres_of(path.parent / "gres.conf", name)
    except FileNotFoundError:
        return None
    if not gres.gpus and not gres.autodetect:
        return None
    return Said(gres, conf.nodes.get(name or "", {}), slurmconf.constrains_devices(conf))


def seen(path: Path) -> list[tuple[int, int, int] | None]:
    """A value that changes when one of the files does."""
    found: list[tuple[int, int, int] | None] = []
    for file in (path, *(path.parent / name for name in FILES)):
        try:
            now = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((now.st_ino, now.st_mtime_ns, now.st_size))
    return found


def wanted(text: str) -> list[tuple[str, int]]:
    """Types and counts of GPUs in Gres= of a node: gpu:a100:2,gpu:1,shard:8 -> a100 2, "" 1."""
    found = []
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = part.strip().lower().split(":")
        if name == "gpu":
            number = gres_conf.count(rest.pop()) if rest and rest[-1][:1].isdigit() else 1
            found.append((rest[0] if rest else "", number))
    return found


def files_in_order(said: Said) -> list[str]:
    """Device files by Slurm's index, where gres.conf lists them and Slurm detects nothing."""
    lines = list(said.gres.gpus)
    chosen = wanted(said.node.get("gres", "")) or [("", sum(len(files) for _, files in lines))]
    found: list[str] = []
    for kind, number in chosen:
        left = number
        for line in [line for line in lines if not kind or line[0] == kind]:
            if left <= 0:
                break
            lines.remove(line)
            found += line[1][:left]
            left -= len(line[1])
    return found


def minor(file: str) -> int | None:
    """The minor number in a device file's name; the file need not exist. None: there is none."""
    try:
        found = Path(file).stat()
    except OSError:
        found = None
    if found is not None and stat.S_ISCHR(found.st_mode):
        return os.minor(found.st_rdev)
    digits = re.search(r"[0-9]{1,4}$", file)
    return int(digits[0]) if digits else None


def indices(said: Said, gpus: Sequence[Device]) -> Mapping[str, int]:
    """Slurm's index of each GPU, by UUID. GPUs that Slurm does not have are left out.

    Refused: the files do not tell.
    """
    by_number = sorted(gpus, key=lambda gpu: gpu.number)
    if not said.constrained:
        return {gpu.uuid: index for index, gpu in enumerate(by_number)}
    if not said.gres.autodetect:
        files = files_in_order(said)
        order = [minor(file) for file in files]
        if None in order:
            raise Refused(
                f"the device file {files[order.index(None)]} of gres.conf has no number",
                "write File=/dev/nvidia0 and so on",
            )
        return {gpu.uuid: order.index(gpu.minor) for gpu in gpus if gpu.minor in order}
    # slurmd sorts what it detects by device file, and what NVML told it by PCI address.
    there = by_number if "nvml" in said.gres.autodetect else sorted(gpus, key=lambda g: g.minor)
    named = {minor(file) for file in said.gres.files}
    chosen = [gpu for gpu in there if not named or gpu.minor in named]
    number = sum(count for _, count in wanted(said.node.get("gres", "")))
    if number and number < len(chosen):
        raise Refused(
            f"slurm.conf has {number} of the {len(chosen)} GPUs that are detected, and does not "
            "say which",
            "list them in gres.conf with File=, or have them all in slurm.conf",
        )
    return {gpu.uuid: index for index, gpu in enumerate(chosen)}
