"""A job's usage as Slurm's accounting has it: a sentence for people, then JSON for programs.

    gpu-lease: GPU 0: 41 s of 62 s, waited 19 s, 12 handoffs {"v":2,...}

It is in SystemComment, beside what others have written there, which stays as it is.
docs/accounting.md describes the JSON; a reader of any release tells its own versions from others.
A job on several nodes has such a part of each node, which its daemon writes.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leased.base.errors import Refused
from leased.base.requests import shown
from leased.base.words import count
from leased.slurm import step_record
from leased.slurm.step_record import NAME_LONGEST, StepRun
from leased.usage.step_usage import StepUsage
from leased.usage.usage import FIGURES, Usage, figures, summed

MARK = "gpu-lease: "
VERSION = 2
LONGEST = 65_535  # Slurm keeps so many bytes and cuts the rest without a word
GPUS_NAMED = 4  # in the sentence
INDEX = "gpu"  # beside the figures of a device: its index
NODE = "node"  # of a part of a job on several nodes
NODE_LONGEST = 256
BETWEEN = "; "  # our part and others'
OURS = re.compile(r'gpu-lease: (?:(?!gpu-lease: )[^{}])*(?=\{"v":)')  # what precedes the JSON


class Damaged(ValueError):
    """The text is not a record, or of a version that this release does not know; in a sentence."""


@dataclass(frozen=True)
class Run:
    """What the record says of a run. gpus: by device UUID. indices: Slurm's indices, by UUID.
    nodes: of a job on several nodes, the node of each device, by UUID.

    since, until: seconds since 1970. cut: how many devices have no figures of their own, as there
    was no room for them: then total has what all had together. steps: by their names; none where
    there was no room for them.
    """

    lock: str
    gpus: Mapping[str, Mapping[str, float]]
    indices: Mapping[str, int]
    since: float
    until: float
    total: Mapping[str, float] = field(default_factory=dict)
    cut: int = 0
    steps: Mapping[str, StepRun] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)

    def and_also(self, other: Run) -> Run:
        """What two nodes say of one run."""
        both = [self, other]
        steps = {name: step for run in both for name, step in run.steps.items()}
        for name in self.steps.keys() & other.steps.keys():
            steps[name] = self.steps[name].and_also(other.steps[name])
        return Run(
            self.lock,
            {**self.gpus, **other.gpus},
            {**self.indices, **other.indices},
            min(run.since for run in both),
            max(run.until for run in both),
            _added(self.total, other.total),
            self.cut + other.cut,
            steps,
            {**self.nodes, **other.nodes},
        )


class Parts(NamedTuple):
    """A comment: others' text before ours, ours (its JSON), and others' text behind it."""

    before: str
    ours: str
    behind: str


# -- writing ---------------------------------------------------------------------------


def sentence(usage: Mapping[str, Usage], indices: Mapping[str, int], node: str = "") -> str:
    """The sentence for people who read sacct. node: where the job was, if it was on several."""
    words = [
        f"{_name(uuid, indices)}: {_time(used.lease_ns)} of {_time(used.time_ns)}, "
        f"waited {_time(used.wait_ns)}, {count(used.handoffs, 'handoff')}"
        for uuid, used in list(usage.items())[:GPUS_NAMED]
    ]
    more = len(usage) - GPUS_NAMED
    where = f"{node}: " if node else ""
    return where + BETWEEN.join(words) + (f"; and {count(more, 'GPU')} more" if more > 0 else "")


def record(
    usage: Mapping[str, Usage],
    lock: str,
    since: float,
    until: float,
    indices: Mapping[str, int],
    *,
    steps: Mapping[str, StepUsage] | None = None,
    job_class: str = "none",
    node: str = "",
    room: int = LONGEST,
) -> str:
    """Our part of a comment, in at most so many bytes where that can be: first the steps are left
    out, then the figures of each of many devices, and their sums stay.

    usage: by device UUID. since, until: seconds since 1970. node: where this was, if the job was on
    several.
    """
    head = {"v": VERSION, "lock": lock, "from": round(since, 1), "to": round(until, 1)}
    head |= {"class": job_class} if job_class != "none" else {}
    head |= {NODE: node} if node else {}
    place = {uuid: {INDEX: indices[uuid]} if uuid in indices else {} for uuid in usage}
    whole = head | {"gpus": {uuid: place[uuid] | figures(used) for uuid, used in usage.items()}}
    text = _line(usage, indices, whole)
    if len(text.encode()) <= room:
        left = room - len(text.encode()) - len(',"steps":')
        told = step_record.said(steps or {}, min(step_record.LONGEST, left))
        return _line(usage, indices, whole | {"steps": told}) if told else text
    total = figures(summed(usage.values()))
    return _line(usage, indices, head | {"cut": len(usage), "total": total})


def _line(usage: Mapping[str, Usage], indices: Mapping[str, int], said: Mapping[str, Any]) -> str:
    words = sentence(usage, indices, said.get(NODE, ""))
    return f"{MARK}{words} {json.dumps(said, separators=(',', ':'))}"


def _name(uuid: str, indices: Mapping[str, int]) -> str:
    return f"GPU {indices[uuid]}" if uuid in indices else uuid[:12]


def _time(ns: int) -> str:
    seconds = ns / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 6000 else f"{seconds / 3600:.1f} h"


# -- beside others ---------------------------------------------------------------------


def _records(comment: str) -> Iterator[tuple[int, int, int]]:
    """Our parts of a comment: where each begins, where its JSON does, and where it ends. A damaged
    one ends where the next one begins, or with the comment."""
    found = OURS.search(comment)
    while found is not None:
        following = OURS.search(comment, found.end())
        try:
            _, end = json.JSONDecoder().raw_decode(comment, found.end())
        except (ValueError, RecursionError):
            end = following.start() if following else len(comment)
        yield found.start(), found.end(), end
        found = OURS.search(comment, end)


def split(comment: str, node: str = "") -> Parts:
    """The parts of a comment. node: whose part is ours, of a job on several nodes; those of its
    other nodes are others'. All that follows the beginning of a damaged record counts as ours."""
    for begin, data, end in _records(comment):
        if not node or node_of(comment[data:end]) == node:
            return Parts(comment[:begin], comment[data:end], comment[end:])
    return Parts(comment, "", "")


def node_of(ours: str) -> str:
    """The node that a part names; "": none."""
    try:
        return str(json.loads(ours).get(NODE, ""))
    except (ValueError, RecursionError):
        return ""


def nodes(comment: str) -> set[str]:
    """The nodes that have written their parts."""
    return {node_of(comment[data:end]) for _, data, end in _records(comment)}


def others(comment: str, node: str = "") -> str:
    """The part of a comment that others have written."""
    parts = split(comment, node)
    theirs = (parts.before.rstrip().removesuffix(";"), parts.behind.lstrip().removeprefix(";"))
    return BETWEEN.join(text for part in theirs if (text := part.strip()))


def merged(comment: str, ours: str, node: str = "") -> str:
    """The comment to be stored: others' text first, then ours. Refused: it is too long."""
    theirs = others(comment, node)
    text = f"{theirs}{BETWEEN}{ours}" if theirs else ours
    size = _size(text)
    if size > LONGEST:
        raise Refused(f"the comment has {size} bytes, and Slurm keeps only {LONGEST}")
    return text


def room(comment: str, node: str = "") -> int:
    """Bytes that others' text leaves for ours."""
    theirs = others(comment, node)
    return LONGEST - (_size(theirs + BETWEEN) if theirs else 0)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogateescape"))


# -- reading ---------------------------------------------------------------------------


def json_of(comment: str) -> dict[str, Any]:
    """The JSON of our part of a comment; {}: there is no such part. Damaged: it is not JSON."""
    ours = split(comment).ours
    try:
        return dict(json.loads(ours)) if ours else {}
    except (ValueError, RecursionError):
        raise Damaged(f"its record is damaged: {shown(ours[:60])} is not JSON") from None


def read(comment: str) -> Run | None:
    """The record in a comment, of all nodes together; None: there is none. Damaged: it cannot be
    read."""
    runs = [_read(comment[data:end]) for _, data, end in _records(comment)]
    return functools.reduce(Run.and_also, runs) if runs else None


def _read(ours: str) -> Run:
    found = json_of(MARK + ours)
    version = found.get("v")
    if version != VERSION:
        raise Damaged(
            f"its record is of version {shown(version)}, and this release knows {VERSION}; update "
            "gpu-lease here"
        )
    try:
        return _run(found)
    except (ValueError, TypeError, KeyError, AttributeError) as fault:
        raise Damaged(f"its record is damaged: {fault!r:.100}") from None


def _run(found: Mapping[str, Any]) -> Run:
    gpus = {str(uuid): _figures(each) for uuid, each in found.get("gpus", {}).items()}
    indices = {
        uuid: int(each[INDEX]) for uuid, each in found.get("gpus", {}).items() if INDEX in each
    }
    since, until = _amount(found["from"]), _amount(found["to"])
    cut = int(found.get("cut", 0))
    total = _figures(found["total"]) if cut else {}
    lock = str(found.get("lock", ""))
    steps = {str(name)[:NAME_LONGEST]: _step(s) for name, s in found.get("steps", {}).items()}
    where = dict.fromkeys(gpus, str(found[NODE])[:NODE_LONGEST]) if NODE in found else {}
    return Run(lock, gpus, indices, since, until, total, cut, steps, where)


def _step(found: Mapping[str, Any]) -> StepRun:
    gpus = {str(uuid): _figures(each) for uuid, each in found["gpus"].items()}
    return StepRun(_amount(found["from"]), _amount(found["to"]), gpus)


def _added(*totals: Mapping[str, float]) -> dict[str, float]:
    """The figures of several devices, taken together."""
    there = [figure for figure in FIGURES if any(figure.key in each for each in totals)]
    values = {one.key: [each[one.key] for each in totals if one.key in each] for one in there}
    return {f.key: max(values[f.key]) if f.largest else sum(values[f.key]) for f in there}


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    """Those that this release knows; a newer one of the same version may have added some."""
    return {figure.key: _amount(found[figure.key]) for figure in FIGURES if figure.key in found}


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e21:
        raise ValueError(f"{shown(value)} is not an amount")
    amount: float = value
    return amount
