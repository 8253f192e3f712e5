"""Answers of the daemon as tables for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from leased.api.answers import Status
from leased.base.requests import shown
from leased.base.words import jobs, size
from leased.cli import show_memory
from leased.core.usage import BYTES, COUNT, ENERGY, FIGURES, MEAN, NS

WIDE = 160  # columns where there is no terminal to ask
FIRST = {"holds": 0, "waits": 1}  # of the tenants; who is idle comes last


def console() -> Console:
    """Standard output, wide enough for a line a row where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)


def seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


# How a figure of usage is shown, by its unit.
AS_TEXT: dict[str, Callable[[Any], str]] = {
    NS: seconds,
    BYTES: size,
    COUNT: str,
    MEAN: size,
    ENERGY: lambda joules: f"{joules:.0f} J",
}


def devices(answer: Status, busy: Mapping[str, int | None] | None = None) -> Table:
    """A row a device. busy: percent by UUID, where a column for it is wanted."""
    table = Table("GPU", "name", "mode", "lock", "held by", "waiting", "quantum left")
    for title in ("usable", "wanted", "resident", *(["busy"] if busy is not None else [])):
        table.add_column(title, justify="right")
    for d in answer["devices"]:
        row = [str(d["index"]), d["name"], d["mode"], d["lock"] or "jobs'"]
        row += [jobs(d["holders"]), jobs(d["waiting"]), seconds(d["quantum_left_s"])]
        row += [size(d[k]) for k in ("usable_bytes", "tenant_bytes", "resident_bytes")]
        if busy is not None:
            percent = busy.get(d["uuid"])
            row.append("-" if percent is None else f"{percent} %")
        table.add_row(*map(Text, row))
    return table


def tenants(answer: Status, shares: Mapping[int, float] | None = None) -> Table:
    """A row a tenant. shares: of the last interval, by job, how much of it the lease was had."""
    table = Table("job", "uid", "state", "lock", "memory", "GPUs")
    titles = ["quantum", "processes", "resident", "lease", "wait", "handoffs"]
    for title in [*titles, *(["now"] if shares is not None else [])]:
        table.add_column(title, justify="right")
    index = {d["uuid"]: str(d["index"]) for d in answer["devices"]}
    for t in sorted(answer["tenants"], key=lambda t: (FIRST.get(t["state"], 2), t["job_id"])):
        used = t["gpus"].values()
        state = f"{t['state']}, stopped" if t.get("stopped") else t["state"]
        row = [str(t["job_id"]), str(t["uid"]), state, t["lock"], t.get("memory", "")]
        row += [",".join(index.get(uuid, "?") for uuid in t["gpus"]), f"{t['quantum_s']:g} s"]
        row += [str(t["clients"]), size(sum(t["resident_bytes"].values()))]
        row += [seconds(max(u[k] for u in used)) for k in ("lease_s", "wait_s")]
        row.append(str(max(u["handoffs"] for u in used)))
        if shares is not None:
            row.append(f"{shares.get(t['job_id'], 0.0):.0%}")
        table.add_row(*map(Text, row))
    return table


def _choices(answer: Status) -> str:
    limits = answer["limits"]
    words = {True: "may", False: "may not"}
    return (
        f"users may choose a quantum of {limits['quantum_min_s']:g} s to "
        f"{limits['quantum_max_s']:g} s, {words[limits['user_lock_off']]} turn the lock off, "
        f"{words[limits['user_oversub']]} have more than the device holds"
    )


def _settings(answer: Status) -> list[str]:
    index = {d["uuid"]: f"GPU {d['index']}" for d in answer["devices"]}
    return [
        f"set by the site: {index.get(s['device'], s['device'])}: {s['key']}={s['value']}"
        for s in answer["settings"]
    ]


def _strays(answer: Status) -> list[str]:
    """Processes that use a leased device without a lease. Their names are their own choice."""
    index = {d["uuid"]: d["index"] for d in answer["devices"]}
    lines = [
        f"no lease: process {s['pid']} ({shown(s['command'])}, user {s.get('user') or s['uid']}, "
        f"{'no job' if s['job_id'] is None else 'job ' + str(s['job_id'])}) "
        f"has {size(s['bytes'])} of GPU {index.get(s['device'], '?')}"
        for s in answer["strays"].get("now", [])
    ]
    more = answer["strays"].get("more", 0)
    return [*lines, f"and {more} more"] if more else lines


def _clusters(answer: Status) -> list[str]:
    """Other Slurm clusters whose jobs come to this node."""
    cluster = answer.get("cluster", {})
    return [
        f"refused: {n} steps of the Slurm cluster {name}; this daemon serves {cluster['name']}"
        for name, n in cluster.get("refused", {}).items()
    ]


def _copies(answer: Status) -> list[str]:
    """The node's host memory for what is swapped."""
    found = answer.get("copies")
    if not found or not (found["kept"] or found["taken_bytes"]):
        return []
    waiting = f"; jobs {jobs(found['waiting'])} wait for it" if found["waiting"] else ""
    used, left = size(found["taken_bytes"]), size(max(0, found["left_bytes"]))
    ahead = found.get("ahead_bytes", 0)
    early = f", {size(ahead)} made ahead of handoffs" if ahead else ""
    words = f"{used} in use of {size(found['budget_bytes'])}{early}, {left} not claimed{waiting}"
    return [f"host memory for swapped GPU memory: {words}"]


def kept_out(answer: Status) -> list[str]:
    """Jobs with memory:swap for which others' memory that cannot be moved leaves no room."""
    devices = {d["uuid"]: d for d in answer["devices"]}
    return [
        f"job {t['job_id']} cannot run on GPU {devices[uuid]['index']}: it needs "
        f"{size(why['needs_bytes'])} of {size(devices[uuid]['usable_bytes'])}, and "
        + ", ".join(f"{size(amount)} of job {job}" for job, amount in why["by"].items())
        + (f" and more of {more} others" if (more := why["jobs"] - len(why["by"])) else "")
        + " cannot be moved"
        for t in answer["tenants"]
        for uuid, why in t.get("kept_out", {}).items()
        if uuid in devices
    ]


def status(
    answer: Status,
    busy: Mapping[str, int | None] | None = None,
    shares: Mapping[int, float] | None = None,
) -> RenderableType:
    """Everything of one status answer. busy, shares: see devices() and tenants()."""
    head = f"gpu-leased {answer['version']}, up {answer['uptime_s']:.0f} s; {_choices(answer)}"
    parts: list[RenderableType] = [Text(head)]
    parts += [Text(line) for line in _settings(answer) + _copies(answer)]
    if answer["store_fault"]:
        parts.append(Text(answer["store_fault"], style="bold red"))
    parts += [Text(line, style="red") for line in _strays(answer) + _clusters(answer)]
    if answer.get("nvml_fault"):
        parts.append(Text(f"NVML: {answer['nvml_fault']}", style="bold red"))
    parts.append(devices(answer, busy))
    parts += [
        Text(f"GPU {d['index']} is {d['mode']}: {d['why']}", "bold red" if d["fault"] else "")
        for d in answer["devices"]
    ]
    parts += [Text(line, style="yellow") for line in kept_out(answer)]
    words = [*show_memory.kinds(answer), *show_memory.fixed(answer), *show_memory.clean(answer)]
    parts += [Text(line) for line in words]
    parts.append(tenants(answer, shares))
    return Group(*parts)


def usage(answer: Mapping[str, Any]) -> Table:
    """What a job had of each of its devices: a row a figure, a column a device."""
    by_device = answer["usage"]
    table = Table("", *by_device)
    for column in table.columns[1:]:
        column.justify = "right"
    for figure in FIGURES:
        if any(figure.key in used for used in by_device.values()):
            words = [AS_TEXT[figure.unit](used.get(figure.key, 0)) for used in by_device.values()]
            table.add_row(figure.label, *words)
    return table
