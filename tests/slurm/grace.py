"""Slurm's wait between announcing a suspension and stopping the job, as long as a test needs it.

In that time the job's memory has to leave. It is 2 s of the clock, and how much a machine does in
2 s nobody knows. So slurmstepd waits for the test here, however long that takes, and gpu-leased
believes that Slurm waits for hours. It asks Slurm sooner than after its usual 3 s whether a job
runs again whose stop was too short to be seen: a test may resume a job as soon as it is stopped.

`python -m tests.slurm.grace ARGUMENTS`: that gpu-leased.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from leased.monitors import suspensions
from leased.node import daemon
from leased.slurm import slurmconf
from tests.emugpu.server import ROOT
from tests.slurm.leased import Leased

LIBRARY = ROOT / "build" / "meson" / "tests" / "slurm" / "libgrace.so"
HOURS_S = 36_000
ASK_FIRST_NS = 500_000_000


@dataclass
class Grace:
    """over: the file that ends the wait, and is there while nobody wants one."""

    over: Path

    def __post_init__(self) -> None:
        self.over.touch()

    @property
    def slurmd_env(self) -> dict[str, str]:
        """What slurmd needs in its environment."""
        return {"LD_PRELOAD": str(LIBRARY), "GPU_LEASE_GRACE_OVER": str(self.over)}

    def begin(self) -> None:
        """From now on who is suspended has as long as it needs."""
        self.over.unlink(missing_ok=True)

    def end(self) -> None:
        """Slurm stops who is being suspended; also behind a test that has failed."""
        self.over.touch()


class PatientLeased(Leased):
    """gpu-leased that believes in a long grace."""

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "tests.slurm.grace", "--config", str(self.config)]


if __name__ == "__main__":
    slurmconf.GRACE_S = HOURS_S
    suspensions.ASK_FIRST_NS = ASK_FIRST_NS
    raise SystemExit(daemon.main())
