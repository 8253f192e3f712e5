"""Jobs without Slurm whose processes are in cgroups as Slurm makes them: what a container runtime
detaches from its parents is found by its cgroup alone."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from leased.api.client import ask
from tests.emugpu.programs import line
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.support.cgroups import private
from tests.support.in_cgroup import start_in
from tests.support.together import pairwise

Process = subprocess.Popen[str]

REGISTER = """
import json, sys
from pathlib import Path
from tests.support.tenant import register
sys.stdin.readline()
print(json.dumps(register(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])), flush=True)
sys.stdin.read()
"""
# Begins in its cgroup, with whatever it may do as its user.
IN_CGROUP = ["sh", "-c", 'read go; exec "$@"', "sh"]


class Jobs:
    """Registers jobs and starts their tasks. env: of all of them."""

    def __init__(self, leased: Leased, place: Path, ends: contextlib.ExitStack):
        self.leased = leased
        self.place = place
        self.ends = ends
        self.given: dict[int, dict[str, str]] = {}  # what the plugin would set, by job

    def step(self, job: int) -> Path:
        """Where the tasks of the job's step are."""
        return self.place / "slurmstepd.scope" / f"job_{job}" / "step_0"

    def add(self, job: int, options: str) -> None:
        """A slurmstepd registers the job."""
        words = (sys.executable, "-c", REGISTER, str(self.leased.admin_socket), str(job), options)
        stepd = start_in(self.step(job) / "slurm", words, self.leased.env, None, self.ends)
        self.given[job] = json.loads(line(stepd))

    def start(
        self,
        job: int,
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        cgroup: Path | None = None,
    ) -> Process:
        """A task of the job, with the environment that the plugin would give it.

        cgroup: where it is, if not in the job's step.
        """
        environment = self.leased.env | self.given[job] | dict(env or {})
        words = [*IN_CGROUP, *command]
        return start_in(cgroup or self.step(job) / "user", words, environment, user, self.ends)

    def clients(self) -> dict[int, int]:
        """How many processes of each job the daemon serves."""
        tenants = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        return {tenant["job_id"]: tenant["clients"] for tenant in tenants}

    def usage(self, job: int) -> dict[str, float]:
        """What the job has had of its GPU."""
        usage = ask(self.leased.admin_socket, {"op": "usage", "job_id": job})["usage"]
        figures: dict[str, float] = next(iter(usage.values()))
        return figures


@contextlib.contextmanager
def jobs(leased: Leased) -> Iterator[Jobs]:
    """Skips the test where no cgroup of version 2 can be made."""
    with private() as place, contextlib.ExitStack() as ends:
        made = Jobs(leased, place, ends)
        try:
            yield made
        finally:
            # At first, also what has detached itself, as runtimes do: it may have our pipes.
            (place / "cgroup.kill").write_text("1")


def output(process: Process) -> str:
    """What it prints until its end; a failure shows its errors."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    return out


def took_turns(gpu: EmulatedGpu, made: Jobs, *numbers: int) -> None:
    """AssertionError: these two jobs did not have the GPU by turns."""
    slices = [pid for _, pid, _, _ in gpu.trace()]
    turns = sum(a != b for a, b in pairwise(slices))
    handoffs = sum(made.usage(job)["handoffs"] for job in numbers)
    assert turns >= 2, "both had the GPU by turns"
    # By the driver's own time slices there would be a change every millisecond.
    assert turns <= handoffs + 2
