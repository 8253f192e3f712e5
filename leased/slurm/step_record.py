"""The steps of a job in its record: what each had of each device, as far as there is room.

    "steps":{"batch":{"from":1795402022.1,"to":1795402084.2,"gpus":{"GPU-...":{"time_s":62.1,...}}}}

Slurm's accounting has no field for text of a step (slurmdb_step_rec_t, 22.05 to 26.05), so the
steps stand in the record of their job. docs/accounting.md describes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leased.usage.step_usage import STEPS_MOST, StepUsage, with_most
from leased.usage.usage import figures

LONGEST = 16_384  # bytes of a record that its steps may take
NAME_LONGEST = 32


@dataclass(frozen=True)
class StepRun:
    """What a record says of a step. since, until: seconds since 1970. gpus: by device UUID."""

    since: float
    until: float
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def and_also(self, other: StepRun) -> StepRun:
        """What two nodes say of one step."""
        since, until = min(self.since, other.since), max(self.until, other.until)
        return StepRun(since, until, {**self.gpus, **other.gpus})


def said(steps: Mapping[str, StepUsage], longest: int = LONGEST) -> dict[str, Any]:
    """The steps as JSON, in at most so many bytes: those that held the devices longest, and the
    rest together; {} where not even that fits."""
    most = min(len(steps), STEPS_MOST)
    while steps:
        found = {name: _said(step) for name, step in with_most(steps, most).items()}
        if len(json.dumps(found, separators=(",", ":"))) <= longest:
            return found
        if not most:
            break
        most //= 2
    return {}


def _said(step: StepUsage) -> dict[str, Any]:
    gpus = {uuid: figures(used, zeros=False) for uuid, used in step.usage.items()}
    return {"from": round(step.since, 1), "to": round(step.until, 1), "gpus": gpus}
