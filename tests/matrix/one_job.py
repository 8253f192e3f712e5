"""Two jobs that do not fit together share a GPU on the Slurm of this machine, and usage is kept.

`python3 -m tests.matrix.one_job`, as root, with the system's Python and nothing of pip: what
quick.sh runs in a tree that has next to nothing. Prints Slurm's release and what sacct has.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from tests.emugpu.server import KERNELS
from tests.slurm.site import Site, sharing_site

JOB = Path(__file__).resolve().parents[1] / "support" / "plain_job.py"
MIB, STEPS = 160, 10  # of the 256 MiB of the GPU


def submit(site: Site, name: str) -> int:
    words = [sys.executable, str(JOB), str(KERNELS), str(MIB), str(STEPS), "10"]
    program = shlex.join([*words, str(site.work / f"{name}.step")])
    asked = ("--gres=shard:1", "--gpu-share=tq:500ms", f"--output={site.work}/{name}.out")
    return site.slurm.sbatch(*asked, "--wrap", program)


def main() -> int:
    with sharing_site() as site:
        jobs = {submit(site, name): name for name in ("first", "second")}
        for job, name in jobs.items():
            state = site.slurm.wait(job)
            said = (site.work / f"{name}.out").read_text()
            if (state, said) != ("COMPLETED", "right on 1 GPUs\n"):
                print(f"job {job} is {state}: {said}", file=sys.stderr)
                return 1
        used = [site.slurm.accounting(job, usage=True).usage for job in jobs]
        figures = [gpu for usage in used for gpu in usage["gpus"].values()]
        print(f"Slurm {site.slurm.version}:", *(f"lease {gpu['lease_s']} s" for gpu in figures))
        return 0 if len(figures) == len(jobs) and all(gpu["lease_s"] > 0 for gpu in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
