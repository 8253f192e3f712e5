"""The kernel's own cap on a job's GPU memory: dmem.max of its cgroup, where it has the controller.

Linux has the controller from 6.14 on, and the driver has to register a region for each GPU, whose
name has the GPU's PCI address (dmem.capacity of the root cgroup lists them). Written by slurmstepd,
as root, before the step's tasks begin: the cgroup is that of the job, so all of its steps are below
one cap. Compiled into gpu_share_python.so with register.py, and run without site packages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
# The cgroup of a job, above those of its steps, as Slurm makes it in version 2.
JOB = re.compile(r"(.*/(?:job_\d{1,10}|s[0-9A-HJKMNP-TV-Z]{13}))(?=/)")
CONTROLLER = "dmem"


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
    wanted = {name: most[pci] for name in known for pci in most if pci.lower() in name.lower()}
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
