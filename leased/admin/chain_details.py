"""What status says of a chain that has a GPU for itself: how its components divide it, and by which
trials that was found."""

from __future__ import annotations

from leased.api import answers
from leased.chains.search import WHOLE, Division, Trial, plain
from leased.leasing.leases import Leases


def of_device(leases: Leases, uuid: str) -> answers.Chain | None:
    """None: no chain has the device for itself."""
    there = leases.chains.of.get(uuid)
    if there is None:
        return None
    found, trials = there.optimiser.found, there.optimiser.trials
    first = trials[0].throughput if trials else 0.0
    throughput = there.optimiser.throughput
    parts = zip(there.components, there.optimiser.division)
    return {
        "name": there.chain,
        "components": [
            {"job": one.tenant.job, "pid": one.client.pid, "part": part / WHOLE}
            for one, part in parts
        ],
        "by": "parts" if there.by_parts else "slices",
        "calls_s": None if throughput is None else round(throughput, 1),
        "why": there.why,
        "bottleneck": found.bottleneck if found else None,
        "gain": round(found.gain, 4) if found else None,
        "trials": [round(trial.throughput / first, 4) if first else 0.0 for trial in trials],
        "plain": _places(trials, plain(len(there.components))),
        "kept": _places(trials, found.division) if found else [],
        "bound": there.optimiser.bound,
    }


def _places(trials: list[Trial], division: Division) -> list[int]:
    return [place for place, trial in enumerate(trials) if trial.division == division]
