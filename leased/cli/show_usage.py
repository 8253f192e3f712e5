"""What a job had of the GPUs, as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from leased.base.words import size
from leased.usage.usage import BYTES, COUNT, ENERGY, FIGURES, MEAN, NS

TIMES = ("time_s", "lease_s", "wait_s", "busy_s")
HEAD = ("time", "lease", "wait", "busy", "handoffs", "peak")


def seconds(value: float) -> str:
    return f"{value:.1f} s"


# How a figure of usage is shown, by its unit.
AS_TEXT: dict[str, Callable[[Any], str]] = {
    NS: seconds,
    BYTES: size,
    COUNT: str,
    MEAN: size,
    ENERGY: lambda joules: f"{joules:.0f} J",
}


def usage(answer: Mapping[str, Any]) -> RenderableType:
    """A job's usage, and that of its steps where it has any."""
    whole = of_job(answer)
    return Group(whole, steps(answer["steps"], answer["job"])) if answer.get("steps") else whole


def steps(told: Mapping[str, Any], job: str) -> Table:
    """A row for each step and device."""
    table = Table("step", "GPU", *HEAD)
    for column in table.columns[2:]:
        column.justify = "right"
    for name, step in told.items():
        for uuid, used in step["gpus"].items():
            times = [seconds(used.get(key, 0.0)) for key in TIMES]
            peak = size(used.get("peak_bytes", 0))
            table.add_row(f"{job}.{name}", uuid[:12], *times, str(used.get("handoffs", 0)), peak)
    return table


def of_job(answer: Mapping[str, Any]) -> Table:
    """A job's usage: a row for each figure, a column for each device."""
    by_device = answer["usage"]
    table = Table("", *by_device)
    for column in table.columns[1:]:
        column.justify = "right"
    for figure in FIGURES:
        if any(figure.key in used for used in by_device.values()):
            words = [AS_TEXT[figure.unit](used.get(figure.key, 0)) for used in by_device.values()]
            table.add_row(figure.label, *words)
    return table
