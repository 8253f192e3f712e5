"""What one step of a job has had of the job's devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from leased.usage.usage import Usage, together

STEPS_MOST = 32  # of a job that are told apart; those that come later are one, OTHERS
OTHERS = "others"
UNKNOWN = "unknown"  # the step of a process whose step Slurm's cgroups and slurmstepd do not tell


@dataclass(frozen=True)
class StepUsage:
    """since, until: when processes of the step were clients of the daemon, in seconds since 1970.

    usage: by device UUID. docs/accounting.md says which of its figures the job's are divided into.
    """

    since: float = 0.0
    until: float = 0.0
    usage: Mapping[str, Usage] = field(default_factory=dict)

    @property
    def lease_ns(self) -> int:
        """On all devices together."""
        return sum(used.lease_ns for used in self.usage.values())

    def and_also(self, other: StepUsage) -> StepUsage:
        """Both together."""
        since, until = min(self.since, other.since), max(self.until, other.until)
        return StepUsage(since, until, together(self.usage, other.usage))


def added(runs: Iterable[Mapping[str, StepUsage]]) -> dict[str, StepUsage]:
    """The steps of several runs, by name: a requeued job begins again with step 0."""
    found: dict[str, StepUsage] = {}
    for steps in runs:
        for name, step in steps.items():
            found[name] = found[name].and_also(step) if name in found else step
    return found


def with_most(steps: Mapping[str, StepUsage], most: int) -> dict[str, StepUsage]:
    """The steps that held the devices longest, so many, and the rest together as OTHERS."""
    named = sorted((name for name in steps if name != OTHERS), key=lambda n: -steps[n].lease_ns)
    kept = set(named[:most])
    found = {name: step for name, step in steps.items() if name in kept}
    rest = [{OTHERS: step} for name, step in steps.items() if name not in kept]
    return found | added(rest)
