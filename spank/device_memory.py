"""The kernel's own cap on a job's GPU memory: dmem.max of its cgroup, where it has the controller.

Linux has the controller from 6.14 on, and the driver has to register a region for each GPU, with
the GPU's PCI address as a part of its name (dmem.capacity of the root cgroup lists them): NVIDIA's
is nvidia/0000:3b:00/vidmem, without the number of the function, others' drm/0000:3b:00.0/vram.
Written by slurmstepd, as root, before the step's tasks begin: the cgroup is that of the job, so all
of its steps are below one cap. Compiled into gpu_share_python.so with register.py, and run without
site packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# The cgroup of a job, above those of its steps, as Slurm makes it in version 2.
JOB = re.compile(r"(.*/(?:job_\d{1,10}|s[0-9A-HJKMNP-TV-Z]{13}))(?=/)")
CONTROLLER = "dmem"
PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)
Address = tuple[int, ...]  # domain, bus, device and function


def regions(root: Path) -> dict[str, int]:
    """By name, the bytes of each region; empty where the kernel or the driver has none."""
    try:
        lines = (root / "dmem.capacity").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.rpartition(" ") for line in lines)
    return {name: int(size) for name, _, size in pairs if size.isdecimal()}


def cap(most: Mapping[str, int], root: Path = ROOT, own: Path = OWN) -> str:
    """Keep the job of this slurmstepd to so many bytes of each GPU, by PCI address. Why it is not
    kept to them; "": it is, or there is nothing to keep it with. A smaller cap is left as it is."""
    known = regions(root) if most else {}
    sizes = {address: size for pci, size in most.items() for address in _addresses(pci)}
    wanted = {name: sizes[at] for name in known for at in _addresses(name) if at in sizes}
    if not wanted:
        return ""
    try:
        found = JOB.match(_own(own) + "/")
        if found is None:
            return "slurmstepd is in no cgroup of its job (is Slurm's cgroup/v2 used?)"
        job = root / found[1].lstrip("/")
        for above in reversed(job.relative_to(root).parents):
            _enable(root / above)
        for name, size in wanted.items():
            if _cap_of(job, name) > size:
                (job / "dmem.max").write_text(f"{name} {size}\n")
    except (OSError, ValueError) as fault:
        return f"the kernel's cap on its GPU memory is not set: {fault}"
    return ""


def _addresses(name: str) -> list[Address]:
    """The PCI addresses among the parts of a region's name."""
    found = filter(None, map(PCI.fullmatch, name.split("/")))
    return [tuple(int(number or "0", 16) for number in each.groups()) for each in found]


def _own(own: Path) -> str:
    """The cgroup of version 2 that this process is in."""
    for line in own.read_text().splitlines():
        if line.startswith("0::"):
            return line[len("0::") :]
    return ""


def _enable(folder: Path) -> None:
    """Let the cgroups below this one have the controller."""
    control = folder / "cgroup.subtree_control"
    if CONTROLLER not in control.read_text().split():
        control.write_text(f"+{CONTROLLER}")


def _cap_of(job: Path, region: str) -> float:
    for line in (job / "dmem.max").read_text().splitlines():
        name, _, size = line.rpartition(" ")
        if name == region and size.isdecimal():
            return int(size)
    return float("inf")
