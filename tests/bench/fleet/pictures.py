"""Pictures of what came of it, where matplotlib is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.bench.fleet.run import BINS, SLOWEST, Outcome
from tests.bench.fleet.trace import STEP_S


def draw(outcomes: Mapping[str, Outcome], folder: Path, name: str, device: str) -> None:
    """NAME.svg: GPU utilisation over the day, completion times, slowdowns of online work."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no pictures: matplotlib is not there")
        return
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    use, ends, slow = figure.subplots(1, 3)
    for each, outcome in outcomes.items():
        label = each.replace("_", " ")
        hours = np.arange(len(outcome.busy)) * STEP_S / 3600
        use.plot(hours, outcome.busy, label=label)
        parts = np.linspace(0, 1, 400)
        ends.plot(np.quantile(outcome.jct, parts) / 3600, parts, label=label)
        part = np.cumsum(outcome.slowed) / max(1e-9, outcome.slowed.sum())
        slow.plot(1 + np.arange(BINS) * (SLOWEST - 1) / BINS, part, label=label)
    use.set(xlabel="hour", ylabel="GPU utilisation", ylim=(0, 1))
    ends.set(xlabel="completion time, h", ylabel="part of offline tasks", xscale="log")
    slow.set(xlabel="slowdown", ylabel="part of online work", xlim=(0.98, 2.1))
    use.legend(fontsize="small")
    figure.suptitle(f"pairs of programs as measured on {device}", fontsize="small")
    figure.savefig(folder / f"{name}.svg")
