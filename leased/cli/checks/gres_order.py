"""check: whether a job runs on the GPU whose index Slurm gives it."""

from __future__ import annotations

from collections.abc import Iterator

from leased.base.errors import Refused
from leased.cli.checks.finding import FAULT, OK, Finding, Site
from leased.slurm import slurm_gpus


def findings(site: Site) -> Iterator[Finding]:
    assert site.slurm.path is not None
    said = slurm_gpus.read(site.slurm.path, site.node)
    if said is None or not site.gpus:
        return
    name = "gres-order"
    try:
        index = slurm_gpus.indices(said, site.gpus)
    except Refused as fault:
        yield Finding(name, FAULT, f"{fault}; jobs are refused", fault.hint)
        return
    remedy = "set ConstrainDevices=yes in cgroup.conf and TaskPlugin=task/cgroup in slurm.conf"
    files = {} if said.gres.autodetect else dict(enumerate(slurm_gpus.files_in_order(said)))
    for gpu in sorted(site.gpus, key=lambda gpu: index.get(gpu.uuid, -1)):
        file = files.get(index.get(gpu.uuid, -1))
        if not said.constrained and file and slurm_gpus.minor(file) != gpu.minor:
            words = f"GPU {index[gpu.uuid]} of Slurm is {file}, and jobs there run on"
            yield Finding(name, FAULT, f"{words} /dev/nvidia{gpu.minor}", remedy)
            return
    yield Finding(name, OK, "jobs run on the GPUs that Slurm gives them")
