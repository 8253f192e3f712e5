"""Which GPU Slurm means by an index.

Slurm counts the GPUs of a node as slurmd has merged them (node_gres.py). What a job gets for an
index depends on whether Slurm constrains devices:
  constrained    the job can open the device files with those indices and no others
  unconstrained  the job gets the indices in CUDA_VISIBLE_DEVICES, which CUDA
                 counts over all devices, in the order of their PCI addresses
So the index counts device files in the first case, and is NVML's number in the second.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from leased.base.errors import Refused
from leased.gpus.devices import Gpu
from leased.gpus.nvml_answers import Described
from leased.slurm import gres_conf, node_gres, slurmconf
from leased.slurm.gres_conf import GresConf
from leased.slurm.node_gres import Detected, SlurmGpu
from leased.slurm.slurmconf import SlurmConf

FILES = ("gres.conf", "cgroup.conf")  # beside slurm.conf
Device = Union[Gpu, Described]  # as the daemon has it, and as NVML describes it


@dataclass(frozen=True)
class Said:
    """What Slurm's files say of this node's GPUs. gres: Gres= of the node; "": unknown."""

    conf: GresConf
    gres: str
    constrained: bool


def read(path: Path) -> Said | None:
    """What slurm.conf and gres.conf say of GPUs; None: nothing. OSError: they cannot be read."""
    conf = SlurmConf(path)
    conf.read(path)
    name = conf.name_here()
    try:
        said = gres_conf.gres_of(path.parent / "gres.conf", name)
    except FileNotFoundError:
        return None
    if not said.autodetect and not any(line.name == "gpu" for line in said.lines):
        return None
    return Said(said, conf.node(name).get("gres", ""), slurmconf.constrains_devices(conf))


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


def detected(gpus: Sequence[Device]) -> list[Detected]:
    """What slurmd with AutoDetect= finds, in the order of PCI addresses."""
    by_number = sorted(gpus, key=lambda gpu: gpu.number)
    return [Detected(f"/dev/nvidia{gpu.minor}", gpu.name) for gpu in by_number]


def merged(said: Said, gpus: Sequence[Device]) -> tuple[SlurmGpu, ...]:
    """Slurm's GPUs by their index, from the files."""
    files = sum(len(line.files) for line in said.conf.lines if line.name == "gpu")
    every = f"gpu:{len(gpus) if said.conf.autodetect else files}"
    return node_gres.merged(said.conf, said.gres or every, detected(gpus)).gpus


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


def indices(
    slurms: Sequence[SlurmGpu], gpus: Sequence[Device], *, constrained: bool
) -> Mapping[str, int]:
    """Slurm's index of each GPU, by UUID. GPUs that Slurm does not have are left out.

    slurms: Slurm's GPUs by their index. Refused: their files do not tell which they are.
    """
    if not constrained:
        by_number = sorted(gpus, key=lambda gpu: gpu.number)
        return {gpu.uuid: index for index, gpu in enumerate(by_number)}
    files = [gpu.file for gpu in slurms]
    order = [minor(file) for file in files]
    if None in order:
        raise Refused(
            f"the device file {files[order.index(None)]} of gres.conf has no number",
            "write File=/dev/nvidia0 and so on",
        )
    return {gpu.uuid: order.index(gpu.minor) for gpu in gpus if gpu.minor in order}
