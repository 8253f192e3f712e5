"""Draws what `make bench NAME=kubeshare` has measured: `python -m tests.bench.kubeshare_plot`
writes docs/placement.svg of build/bench/kubeshare.json."""

from __future__ import annotations

import json
from typing import Any

import matplotlib as mpl

from tests.bench import ROOT
from tests.support.together import zip_strict

PANELS = (
    ("fig8a", "rate", "jobs submitted a minute", ("exclusive", "kubeshare")),
    ("fig8b", "demand", "mean demand", ("exclusive", "kubeshare")),
    ("ahead", "demand", "mean demand, 0.6 of the memory each", ("kubeshare", "ours")),
)
WORDS = {
    "exclusive": "a GPU for each job",
    "kubeshare": "shares, memory fits",
    "ours": "shares, memory moves",
}
COLORS = {"exclusive": "#888888", "kubeshare": "#1f77b4", "ours": "#d62728"}


def draw(report: dict[str, Any]) -> None:
    mpl.use("svg")
    # Text stays text, and the same figures make the same file.
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "placement", "font.size": 9}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(9, 3), sharey=True)
    for axis, (name, key, label, systems) in zip_strict(axes, PANELS):
        rows = report[name]
        for system in systems:
            done = [row[system]["jobs_per_minute"] for row in rows]
            axis.plot(
                [row[key] for row in rows], done, "o-", ms=3,
                color=COLORS[system], label=WORDS[system],
            )  # fmt: skip
        axis.set_xlabel(label)
        axis.set_ylim(0)
        axis.grid(alpha=0.3)
        axis.legend(loc="lower right", frameon=False, fontsize=8)
    axes[0].set_ylabel("jobs done a minute")
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "placement.svg", metadata={"Date": None})


if __name__ == "__main__":
    draw(json.loads((ROOT / "build" / "bench" / "kubeshare.json").read_text()))
