"""Answers of the daemon as tables for people."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.text import Text

from leased.api.answers import Called, Device, Status, devices_of, jobs_on
from leased.base.requests import shown
from leased.base.words import count, jobs, named, size
from leased.cli import screen, show_gpus, show_jobs
from leased.cli.names import Names
from leased.cli.screen import View, cut, duration

WIDE = 160  # columns where there is no terminal to ask
MODES = {"shared": "shared, side by side", "exclusive": "shared, by turns"}
NO_JOB = "no job that shares a GPU is on this node"
MORE_FROM = 110  # columns that are enough for more than the usual
USER_MOST = 32  # characters of a user's name in a sentence; useradd makes none longer


def console() -> Console:
    """Standard output; where it is no terminal, it is wide enough for each row to be one line."""
    return Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)


def say(shown: Any) -> None:
    """Print what rich can print; where standard output is no terminal, without the blanks that fill
    up a line."""
    to = console()
    if sys.stdout.isatty():
        to.print(shown)
        return
    with to.capture() as taken:
        to.print(shown)
    print(*(line.rstrip(" ") for line in taken.get().splitlines()), sep="\n", flush=True)


def _choices(answer: Status) -> str:
    limits = answer["limits"]
    words = {True: "may", False: "may not"}
    return (
        f"users may choose a quantum of {limits['quantum_min_s']:g} s to "
        f"{limits['quantum_max_s']:g} s, {words[limits['user_lock_off']]} turn the lock off and "
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
    called = Called(answer["tenants"])

    def of_job(job_id: int | None, step: str | None) -> str:
        return "no job" if job_id is None else f"job {called[job_id]}.{step or 'unknown'}"

    lines = [
        f"no lease: process {s['pid']} ({shown(s['command'])}, "
        f"user {cut(str(s.get('user') or s['uid']), USER_MOST)}, "
        f"{of_job(s['job_id'], s['step'])}) "
        f"has {size(s['bytes'])} of GPU {index.get(s['device'], '?')}"
        for s in answer["strays"].get("now", [])
    ]
    more = answer["strays"].get("more", 0)
    return [*lines, f"and {more} more"] if more else lines


def _clusters(answer: Status) -> list[str]:
    """Other Slurm clusters of which steps were refused on this node."""
    cluster = answer.get("cluster", {})
    return [
        f"refused: {count(n, 'step')} of the Slurm cluster {name}; "
        f"this daemon serves {cluster['name']}"
        for name, n in cluster.get("refused", {}).items()
    ]


def _copies(answer: Status) -> list[str]:
    """The node's host memory for what is swapped."""
    found = answer.get("copies")
    if not found or not (found["kept"] or found["taken_bytes"]):
        return []
    waiting = _waiting(Called(answer["tenants"]).all(found["waiting"]))
    used, left = size(found["taken_bytes"]), size(max(0, found["left_bytes"]))
    ahead = found.get("ahead_bytes", 0)
    early = f", {size(ahead)} prepared ahead of handoffs" if ahead else ""
    unfreed = found.get("unfreed_bytes", 0)
    early += f", {size(unfreed)} given back and not free" if unfreed else ""
    words = f"{used} of {size(found['budget_bytes'])} in use{early}, {left} not claimed{waiting}"
    return [f"host memory for copies of swapped memory: {words}"]


def _waiting(found: list[str]) -> str:
    if not found:
        return ""
    who = f"job {found[0]} waits" if len(found) == 1 else f"jobs {jobs(found)} wait"
    return f"; {who} with an allocation that needs more than that"


def kept_out(answer: Status) -> list[str]:
    """Jobs with memory:swap for which others' memory that cannot be moved leaves no room."""
    devices = {d["uuid"]: d for d in answer["devices"]}
    called = Called(answer["tenants"])
    return [
        f"job {t['job']} cannot run on GPU {devices[uuid]['index']}: it needs "
        f"{size(why['needs_bytes'])} of {size(devices[uuid]['usable_bytes'])}, and "
        + ", ".join(
            f"{size(amount)} of job {called[int(job)]}" for job, amount in why["by"].items()
        )
        + (f" and more of {count(more, 'other')}" if (more := why["jobs"] - len(why["by"])) else "")
        + " cannot be moved"
        for t in answer["tenants"]
        for uuid, why in t.get("kept_out", {}).items()
        if uuid in devices
    ]


def moved(answer: Status) -> list[str]:
    """Jobs that were on another GPU before."""
    away = [t["job"] for t in answer["tenants"] if t["gpus"].keys() - devices_of(t)]
    alone = len(away) == 1
    words = "has moved; Slurm counts it" if alone else "have moved; Slurm counts them"
    return [f"{named(away)} {words} where {'it' if alone else 'they'} began"] if away else []


def notes(answer: Status) -> list[Text]:
    """Sentences about the GPUs and jobs; faults come first."""
    lines = [Text(answer["store_fault"], "bold red")] if answer["store_fault"] else []
    if answer.get("nvml_fault"):
        lines.append(Text(f"NVML: {answer['nvml_fault']}", "bold red"))
    lines += [Text(line, "red") for line in _strays(answer) + _clusters(answer)]
    if waiting := show_jobs.usage_waiting(answer):
        lines.append(Text(f"usage is not in Slurm's accounting yet: {waiting}", "yellow"))
    lines += _modes(answer)
    lines += [Text(line, "yellow") for line in kept_out(answer)]
    words = [*show_gpus.fences(answer), *show_gpus.kinds(answer), *show_gpus.fixed(answer)]
    words += show_gpus.clean(answer) + show_gpus.mps(answer) + show_jobs.shares(answer)
    words += show_jobs.classes(answer) + show_gpus.chains(answer) + show_jobs.time_slices(answer)
    words += show_jobs.nodes(answer) + moved(answer)
    return lines + [Text(line) for line in words + _settings(answer) + _copies(answer)]


def _modes(answer: Status) -> list[Text]:
    """How the GPUs are shared and why, a sentence for those of which it is the same."""
    alike: dict[tuple[str, str, bool], list[int]] = {}
    for d in answer["devices"]:
        if not _is_free(d, answer):
            said = (MODES.get(d["mode"], d["mode"]), d["why"], bool(d["fault"]))
            alike.setdefault(said, []).append(d["index"])
    return [
        Text(
            f"{'GPU' if len(found) == 1 else 'GPUs'} {screen.ranges(found)} "
            f"{'is' if len(found) == 1 else 'are'} {mode}: {why}",
            "bold red" if fault else "",
        )
        for (mode, why, fault), found in alike.items()
    ]


def _is_free(device: Device, answer: Status) -> bool:
    """No job is there to share it, and nobody has said how it is to be shared."""
    plain = device["mode"] == "shared" and device["lock"] is None
    return plain and not jobs_on(device, answer)


def usual_view(names: Names) -> View:
    """Of a single look, as wide as standard output."""
    return View(names, wide=console().width >= MORE_FROM)


def status(answer: Status, view: View) -> RenderableType:
    """Everything of one status answer, in 80 columns or, of a wide view, in more."""
    head = f"gpu-leased {answer['version']}, up {duration(answer['uptime_s'])}; {_choices(answer)}"
    view.names.learn(tenant["job_id"] for tenant in answer["tenants"])
    said = notes(answer)
    if said:
        said.append(Text())
    return Group(
        Text(head), Text(), screen.gpus(answer, view), Text(),
        *said, screen.jobs(answer, view) if answer["tenants"] else Text(NO_JOB),
    )  # fmt: skip
