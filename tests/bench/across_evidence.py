"""What the daemons and the processes did around each half gang or overlap that was counted.

Written as JSON: a list, of each what was counted; when all had the GPUs that are meant; what failed
meanwhile; and of each node that one of the two jobs is on what its daemon has recorded of its
arbiter's events, and logged of its jobs on several nodes. All times are ns of this machine's
monotonic clock; those that a node's daemon has noted are brought to it from the node's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.across_spans import Broken, Down, Had, Place
from tests.support.nodes import Node, Nodes

S = 1_000_000_000
BEFORE_NS, AFTER_NS = 8 * S, S  # a promise lasts 7 s
MOST = 5  # that are told of
LOGGED = re.compile(r"at (\d+) ns: (.*)")


class Trouble(NamedTuple):
    """What failed, from when to when."""

    node: str
    what: str
    begun: int
    ended: int


class Window(NamedTuple):
    begun: int
    ended: int

    def has(self, begun: int, ended: int) -> bool:
        return begun < self.ended and self.begun < ended


class Scene(NamedTuple):
    """All that is known when a run is over. clocks: by node, how many seconds it is ahead."""

    jobs: Mapping[int, Sequence[str]]
    all_had: Mapping[Place, Sequence[Had]]
    troubles: Sequence[Trouble]
    down: Mapping[str, Sequence[Down]]
    nodes: Nodes
    clocks: Mapping[str, int]


def write(path: Path, found: Sequence[Broken], scene: Scene) -> None:
    """One that is there of an earlier run is removed where nothing has been found."""
    if not found:
        path.unlink(missing_ok=True)
        return
    told = [_told(each, scene) for each in found[:MOST]]
    path.write_text(json.dumps(told, indent=1) + "\n")


def _told(each: Broken, scene: Scene) -> dict[str, Any]:
    both = max(each.had.granted, each.beside_had.granted)
    window = Window(both - BEFORE_NS, both + AFTER_NS)
    names = dict.fromkeys([*scene.jobs[each.job], *scene.jobs[each.beside]])
    return {
        "kind": "overlap" if each.is_overlap() else "half gang",
        "together_ms": (min(each.had.released, each.beside_had.released) - both) / 1e6,
        **each._asdict(),
        "nodes": {job: scene.jobs[job] for job in (each.job, each.beside)},
        "had": {
            f"{job} on {node}": found
            for (job, node), all_had in scene.all_had.items()
            if job in (each.job, each.beside)
            and (found := [had for had in all_had if window.has(had.granted, had.released)])
        },
        "troubles": [one for one in scene.troubles if window.has(one.begun, one.ended)],
        "down": {name: scene.down[name] for name in names if name in scene.down},
        "events": {
            name: sorted(_events(scene.nodes[name], scene.clocks[name], window)) for name in names
        },
    }


def _events(node: Node, ahead_s: int, window: Window) -> Iterator[tuple[int, str]]:
    for path in node.records():
        for line in path.read_text(errors="replace").splitlines():
            noted = _when(line)
            if noted is not None:
                at = noted - ahead_s * S
                if window.has(at, at + 1):
                    yield at, line
    for line in node.leased.log.read_text(errors="replace").splitlines():
        logged = LOGGED.search(line)
        if logged:
            at = int(logged[1]) - ahead_s * S
            if window.has(at, at + 1):
                yield at, logged[2]


def _when(line: str) -> int | None:
    """The time of an event that is recorded; None: the line is of something else, or cut off."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    found = entry.get("now") if isinstance(entry, dict) else None
    return found if isinstance(found, int) else None
