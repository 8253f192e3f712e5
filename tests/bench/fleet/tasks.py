"""The tasks of a day, made of the trace's.

Assumed, since no trace has all of it:

- All online tasks are services that are there all day. Each has the day of one of the pods of
  v2026-GenAI, drawn at random: its GPU's duty cycle and its memory, on each of its GPUs.
- As the public part of gpu-v2023 has its offline tasks over 37 days and few at a time (some 100
  GPUs if they all came on one day), each comes at its own time of the day, and is submitted again
  so often, by others, that offline tasks bring `load` times the work that the GPUs without an
  online task can do in a day (tasks are drawn for that with replacement, as the trace's authors
  do). One that takes longer than LONGEST_S is cut there.
- What a task does with its GPU is one of the programs of leased/matching/pairs.json, drawn at
  random: a server for an online task, a training for an offline one.
- All GPUs are alike, as the card of pairs.json, with MEMORY bytes: what some of the trace's models
  are is not public. An offline task has OFFLINE_MEMORY of that, the paper's cap, times the part of
  a GPU that it asks for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.fleet.trace import DAY_S, Asked, Trace

GIB = 1 << 30
MEMORY = 80 * GIB
OFFLINE_MEMORY = 0.4
LONGEST_S = 12 * 3600
SHORTEST_S = 1


@dataclass(frozen=True)
class Online:
    """pod: a row of Days. program: of pairs.json."""

    gpus: int
    part: float
    pod: int
    program: str


@dataclass(frozen=True)
class Offline:
    """comes: s of the day. work: s, on a GPU for itself. memory: bytes."""

    part: float
    comes: float
    work: float
    memory: int
    program: str


@dataclass(frozen=True)
class Day:
    """offline: in the order in which they come."""

    online: tuple[Online, ...]
    offline: tuple[Offline, ...]


def make(
    trace: Trace, servers: Sequence[str], others: Sequence[str], load: float, seed: int = 7
) -> Day:
    """servers, others: programs for online and for offline tasks."""
    chance = random.Random(seed)
    online = tuple(
        Online(task.gpus, task.part, chance.randrange(trace.days.pods), chance.choice(servers))
        for task in trace.tasks
        if task.online
    )
    free = max(0, sum(trace.nodes) - sum(task.gpus for task in online))
    offline = list(_offline(trace.tasks, others, load * free * DAY_S, chance))
    return Day(online, tuple(sorted(offline, key=lambda task: task.comes)))


def _offline(
    tasks: Sequence[Asked], programs: Sequence[str], work: float, chance: random.Random
) -> Iterator[Offline]:
    """Each once, and then any of them, until there is so much work (s)."""
    ours = [task for task in tasks if not task.online]
    order = list(ours)
    while order and work > 0:
        for asked in order:
            takes = float(min(LONGEST_S, max(SHORTEST_S, asked.takes)))
            memory = round(MEMORY * OFFLINE_MEMORY * asked.part)
            comes = float(asked.comes % DAY_S)
            yield Offline(asked.part, comes, takes, memory, chance.choice(programs))
            work -= takes
            if work <= 0:
                return
        order = chance.choices(ours, k=len(ours))
