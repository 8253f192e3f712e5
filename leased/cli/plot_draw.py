"""Draws leases and memory of GPUs over time.

matplotlib is an optional package, and imported where something is drawn and nowhere else.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.base.words import size
from leased.sim.spans import COMES, HOLDS, LEAVES, WAITS, DeviceSpans, Lane, Picture, Series

WIDTH, LANE, MEMORY, AROUND = 9.0, 0.26, 1.5, 1.1  # inches
NAME = 24  # characters of a job; Slurm's own names are shorter
MANY = 32  # jobs of a GPU, from which on lines and dots would cover the colours of their memory
# Okabe and Ito's: told apart by people who see colours differently, and in grey. Jobs beyond
# them have these colours again, with dots.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933")
ON_DARK = ("#4AA8E8", "#E69F00", "#1FBF92", "#E08FBC", "#8CCBF0", "#F07A3C", "#BDBD55")
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"))
# From how many ns on the axis counts in which unit, of so many ns.
TIMES = ((36_000e9, 3600e9, "h"), (600e9, 60e9, "min"), (1e9, 1e9, "s"), (0, 1e6, "ms"))


@dataclass(frozen=True)
class Look:
    """Colours: jobs', and those of what is not a job's."""

    jobs: tuple[str, ...]
    paper: str
    ink: str
    faint: str
    limit: str
    handoff: str


LIGHT = Look(COLOURS, "#ffffff", "#1f2328", "#d0d7de", "#cf222e", "#59636e")
DARK = Look(ON_DARK, "#0d1117", "#e6edf3", "#30363d", "#ff7b72", "#9198a1")


def draw(found: Picture, file: Path, dark: bool = False) -> None:
    """Write the picture; the file's suffix says which format. OSError: it cannot be written.
    ImportError: there is no matplotlib."""
    save(lambda look: _figure(found, look), file, DARK if dark else LIGHT)


def save(figure_of: Callable[[Look], Any], file: Path, look: Look) -> None:
    """Make a figure, and write it; as draw() says."""
    import matplotlib as mpl

    with mpl.rc_context(style(look)):
        figure = figure_of(look)
        # Without a date the same record gives the same file.
        metadata = {"Date": None} if file.suffix == ".svg" else None
        with warnings.catch_warnings():
            # Of a job's name: a box stands for it in a PNG, and an SVG has it as text.
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from")
            figure.savefig(file, dpi=150, metadata=metadata)


def style(look: Look) -> dict[str, Any]:
    edges = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    return dict.fromkeys(edges, look.ink) | {
        "figure.facecolor": look.paper,
        "axes.facecolor": look.paper,
        "savefig.facecolor": look.paper,
        "axes.edgecolor": look.faint,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.6,
        "font.size": 8.5,
        "font.family": "sans-serif",
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "gpu-lease",
    }


@dataclass(frozen=True)
class Canvas:
    """What all parts of a picture share. unit: ns of one on the axis of time. styles: colour and
    hatch of each job."""

    length: int
    unit: float
    look: Look
    styles: dict[int, tuple[str, str]]


def _figure(found: Picture, look: Look) -> Any:
    from matplotlib.figure import Figure

    heights = [h for device in found.devices for h in (LANE * len(device.lanes) + 0.1, MEMORY)]
    tall = sum(heights) + 0.55 * len(found.devices) + AROUND
    figure = Figure(figsize=(WIDTH, tall), layout="constrained")
    axes: Any = figure.subplots(
        len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    unit, name = next((unit, name) for least, unit, name in TIMES if found.length >= least)
    canvas = Canvas(found.length, unit, look, _styles(found, look))
    for number, device in enumerate(found.devices):
        _leases(axes[2 * number][0], device, canvas)
        _memory(axes[2 * number + 1][0], device, canvas)
    axes[-1][0].set_xlim(0, found.length / unit)
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.began))
    axes[-1][0].set_xlabel(f"{name} after {began}")
    _legend(figure, look)
    return figure


def _styles(found: Picture, look: Look) -> dict[int, tuple[str, str]]:
    jobs = dict.fromkeys(lane.job for device in found.devices for lane in device.lanes)
    most = len(look.jobs)
    return {job: (look.jobs[n % most], "" if n < most else "....") for n, job in enumerate(jobs)}


# -- leases ------------------------------------------------------------------------------


def _leases(axes: Any, device: DeviceSpans, canvas: Canvas) -> None:
    unit = canvas.unit
    for number, handoff in enumerate(device.handoffs):
        axes.axvspan(
            *(handoff.since / unit, handoff.until / unit),
            # Not moved to whole pixels: of thousands that are narrower, some would be lines.
            **{"color": canvas.look.handoff, "alpha": 0.25, "lw": 0, "snap": False},
            gid=f"handoff-{device.index}-{number}",
        )
    for place, lane in enumerate(device.lanes):
        _lane(axes, place, lane, canvas)
    axes.set_yticks(range(len(device.lanes)))
    axes.set_yticklabels([f"job {short(lane.name)}" for lane in device.lanes])
    axes.set_ylim(len(device.lanes) - 0.4, -0.6)
    axes.tick_params(axis="both", length=0, labelbottom=False)
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_visible(False)
    axes.set_title(_title(device), loc="left", fontsize=9, fontweight="bold")


def short(name: str) -> str:
    """A name that leaves room for the picture."""
    return name if len(name) <= NAME else name[: NAME - 1] + "…"


def _title(device: DeviceSpans) -> str:
    count = len(device.handoffs)
    words = f"{count} handoff{'' if count == 1 else 's'}"
    took = f", {device.handoff_ns / 1e9:.1f} s in all" if count else ""
    return f"GPU {device.index}: {words}{took}"


def _lane(axes: Any, place: int, lane: Lane, canvas: Canvas) -> None:
    look, (fill, hatch) = canvas.look, canvas.styles[lane.job]
    kinds: dict[str, dict[str, Any]] = {
        WAITS: {"facecolor": "none", "edgecolor": fill, "lw": 0.8},
        HOLDS: {"facecolor": fill, "edgecolor": look.paper, "hatch": hatch, "lw": 0},
        COMES: {"facecolor": look.ink, "edgecolor": look.ink, "lw": 0},
        LEAVES: {"facecolor": fill, "edgecolor": look.ink, "hatch": "//////", "lw": 0},
    }
    for kind, style in kinds.items():
        bars = [
            (span.since / canvas.unit, (span.until - span.since) / canvas.unit)
            for span in lane.spans
            if span.kind == kind
        ]
        half = 0.12 if kind == WAITS else 0.36
        if bars:
            extent = (place - half, 2 * half)
            axes.broken_barh(bars, extent, gid=f"{kind}-{lane.job}", **style)


# -- memory ------------------------------------------------------------------------------


def _memory(axes: Any, device: DeviceSpans, canvas: Canvas) -> None:
    look = canvas.look
    changes = {at for lane in device.lanes for at, _ in lane.memory}
    times = sorted({0, canvas.length} | {at for at in changes if at <= canvas.length})
    tops = [0] * len(times)
    scale, name = _scale(device)
    many = len(device.lanes) > MANY
    for lane in device.lanes:
        bottoms, tops = tops, [low + _at(lane.memory, at) for low, at in zip(tops, times)]
        fill, hatch = canvas.styles[lane.job]
        axes.fill_between(
            [when / canvas.unit for when in times],
            *([amount / scale for amount in amounts] for amounts in (bottoms, tops)),
            **{"step": "post", "facecolor": fill, "edgecolor": look.paper, "alpha": 0.55},
            **({} if many else {"hatch": hatch}),
            **{"lw": 0 if many else 0.4, "gid": f"memory-{lane.job}"},
        )
    _line(axes, device.resident, scale, canvas, color=look.ink, lw=1.0, gid="resident")
    _line(axes, device.capacity, scale, canvas, color=look.limit, lw=1.6, ls="--", gid="capacity")
    room = device.capacity[-1][1] if device.capacity else 0
    axes.set_ylim(0, 1.2 * max([1, *tops, room]) / scale)
    axes.set_ylabel(f"memory, {name}")
    axes.text(
        *(0.995, 0.97, f"room for {size(room)}"), color=look.limit, transform=axes.transAxes,
        ha="right", va="top", bbox={"facecolor": look.paper, "edgecolor": "none", "pad": 1},
    )  # fmt: skip
    axes.grid(axis="x", color=look.faint, lw=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelbottom=True)


def _scale(device: DeviceSpans) -> tuple[int, str]:
    """The unit of its memory, in bytes, and its name."""
    most = max((amount for _, amount in device.capacity), default=0)
    return next((unit for unit in UNITS if most >= unit[0]), UNITS[-1])


def _line(axes: Any, series: Series, scale: int, canvas: Canvas, **style: Any) -> None:
    if series:
        at, sizes = zip(*series, (canvas.length, series[-1][1]))
        axes.step(
            *([when / canvas.unit for when in at], [amount / scale for amount in sizes]),
            where="post",
            **style,
        )


def _at(series: Series, when: int) -> int:
    """The value at that time."""
    return next((amount for at, amount in reversed(series) if at <= when), 0)


def _legend(figure: Any, look: Look) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    grey = look.handoff
    entries: Sequence[Any] = [
        Patch(facecolor=grey, label="holds the GPU"),
        Patch(facecolor="none", edgecolor=grey, label="waits"),
        Patch(facecolor=look.ink, label="restores memory"),
        Patch(facecolor=grey, edgecolor=look.ink, hatch="//////", lw=0, label="finishes its work"),
        Patch(facecolor=grey, alpha=0.25, label="handoff"),
        Line2D([], [], color=look.ink, lw=1.0, label="jobs' memory on the GPU"),
        Line2D([], [], color=look.limit, lw=1.6, ls="--", label="room"),
    ]
    figure.legend(
        handles=entries, loc="outside lower center", ncols=len(entries), frameon=False,
        fontsize=7.5, handlelength=1.4, columnspacing=1.2,
    )  # fmt: skip
