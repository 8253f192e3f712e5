"""What the steps of a job have had, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from leased.base.words import size
from leased.cli import show

TIMES = ("time_s", "lease_s", "wait_s", "busy_s")
HEAD = ("time", "lease", "wait", "busy", "handoffs", "peak")


def usage(answer: Mapping[str, Any]) -> RenderableType:
    """A job's usage, and that of its steps where it has any."""
    whole = show.usage(answer)
    return Group(whole, steps(answer["steps"], answer["job"])) if answer.get("steps") else whole


def steps(told: Mapping[str, Any], job: str) -> Table:
    """A row for each step and device."""
    table = Table("step", "GPU", *HEAD)
    for column in table.columns[2:]:
        column.justify = "right"
    for name, step in told.items():
        for uuid, used in step["gpus"].items():
            times = [show.seconds(used.get(key, 0.0)) for key in TIMES]
            peak = size(used.get("peak_bytes", 0))
            table.add_row(f"{job}.{name}", uuid[:12], *times, str(used.get("handoffs", 0)), peak)
    return table
