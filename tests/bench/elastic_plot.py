"""Draws what jobs with shares got over time, and what sharing cost (tests/bench/elastic.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leased.cli.plot_draw import LIGHT, Look, style

ALLOWED = {"30ms": 0.05, "100ms": 0.02}


def write(
    report: Mapping[str, Any], asked: Mapping[str, tuple[float, float]], to: Path
) -> list[Path]:
    """elastic.svg and elastic.png in this folder; nothing where there is no matplotlib. asked:
    request and limit of each job."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no picture: matplotlib is not installed (pip install '.[plot]')")
        return []
    files = [to / "elastic.svg", to / "elastic.png"]
    with mpl.rc_context(style(LIGHT)):
        figure = _figure(report, asked, LIGHT)
        for file in files:
            metadata = {"Date": None} if file.suffix == ".svg" else None
            figure.savefig(file, dpi=150, metadata=metadata)
    return files


def _figure(report: Mapping[str, Any], asked: Mapping[str, tuple[float, float]], look: Look) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    shares, lost = figure.subplots(1, 2, gridspec_kw={"width_ratios": [4, 1]})
    for number, (name, (request, limit)) in enumerate(asked.items()):
        rows = [row for row in report["by_second"] if name in row["got"]]
        shares.plot(
            [row["at"] for row in rows],
            [row["got"][name] for row in rows],
            color=look.jobs[number],
            lw=0,
            marker=".",
            ms=4,
            label=f"{name}: request {request:g}, limit {limit:g}",
        )
        shares.axhline(request, color=look.jobs[number], lw=0.6, ls=":")
        shares.axhline(limit, color=look.jobs[number], lw=0.6, ls="--")
    shares.set_ylim(0, 0.8)
    shares.set_xlabel("s")
    shares.set_title("part of the GPU's time, in each second", loc="left", fontsize=9)
    shares.legend(frameon=False, fontsize=7.5, loc="upper right", ncols=len(asked))
    _losses(lost, report["loss_at_quantum"], look)
    return figure


def _losses(axes: Any, found: Mapping[str, float], look: Look) -> None:
    axes.bar(list(found), [100 * part for part in found.values()], color=look.jobs[0], width=0.5)
    for place, quantum in enumerate(found):
        allowed = 100 * ALLOWED[quantum]
        axes.plot([place - 0.35, place + 0.35], [allowed] * 2, color=look.limit, lw=1.2)
    axes.set_ylim(bottom=0)
    axes.set_title("lost to sharing, %", loc="left", fontsize=9)
