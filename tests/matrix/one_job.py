"""Two jobs that do not fit together share a GPU on the Slurm of this machine, and usage is kept,
whether CUDA_VISIBLE_DEVICES names the GPU by its index or by its UUID.

`python3 -m tests.matrix.one_job`, as root, with the system's Python and nothing of pip: what
quick.sh runs in a tree that has next to nothing. Prints Slurm's release and what sacct has.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.emugpu.server import KERNELS
from tests.slurm import conf, gpus_by_uuid
from tests.slurm.site import Site, sharing_site

JOB = Path(__file__).resolve().parents[1] / "support" / "plain_job.py"
MIB, STEPS = 160, 10  # of the 256 MiB of the GPU


def submit(site: Site, name: str) -> int:
    words = [sys.executable, str(JOB), str(KERNELS), str(MIB), str(STEPS), "10"]
    program = shlex.join([*words, str(site.work / f"{name}.step")])
    asked = ("--gres=shard:1", "--gpu-share=tq:500ms", f"--output={site.work}/{name}.out")
    return site.slurm.sbatch(*asked, "--wrap", f"echo $CUDA_VISIBLE_DEVICES; {program}")


def main() -> int:
    with sharing_site() as site:
        status = share(site, "0")
    conf.gres_conf = gpus_by_uuid.gres_conf
    with sharing_site(prepare=gpus_by_uuid.detect) as site:
        (uuid,) = site.devices()
        return status or share(site, uuid)


def share(site: Site, visible: str) -> int:
    """visible: what the jobs are to have in CUDA_VISIBLE_DEVICES. The exit status."""
    jobs = {submit(site, name): name for name in ("first", "second")}
    for job, name in jobs.items():
        state = site.slurm.wait(job)
        said = (site.work / f"{name}.out").read_text()
        if (state, said) != ("COMPLETED", f"{visible}\nright on 1 GPUs\n"):
            print(f"job {job} is {state}: {said}", file=sys.stderr)
            return 1
    used = [site.slurm.accounting(job, usage=True).usage for job in jobs]
    figures = [gpu for usage in used for gpu in usage["gpus"].values()]
    print(
        f"Slurm {site.slurm.version}, {visible[:3]}:",
        *(f"lease {gpu['lease_s']} s" for gpu in figures),
    )
    return 0 if len(figures) == len(jobs) and all(gpu["lease_s"] > 0 for gpu in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
