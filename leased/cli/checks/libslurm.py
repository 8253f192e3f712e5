"""check: whether usage can be written through libslurm."""

from __future__ import annotations

from collections.abc import Iterator

from leased.base import children
from leased.cli.checks.finding import Finding, Site, finding

IMPORT_S = 30
# As Slurm's own plugins expect: symbols of libslurm are global.
IMPORT = "import os; sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL); import _gpulease_slurmdb"


def findings(_: Site) -> Iterator[Finding]:
    """libslurm may end the process that loads it, so it is tried in another one."""
    done = children.run_and_wait(*children.python(IMPORT), patience_s=IMPORT_S)
    said = done.fault
    if done.status and not said:
        said = (done.err.strip().splitlines() or [f"exit status {done.status}"])[-1]
    wrong = f"usage cannot be written for sacct: {said}" if said else ""
    remedy = "install gpu-lease's build for this Slurm (it needs libslurm)"
    yield finding("libslurm", wrong, remedy, "the binding of libslurm can be loaded")
