"""Records of the adversary's runs: one for each daemon of a run, in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased import policy
from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.events import Event
from leased.record import lines, snapshot
from leased.record.lines import Header, Outcome, Start
from tests.core.draws import random_scenario
from tests.core.silent import Silent
from tests.core.world import World

RELEASE = "0.0"


def header_of(arbiter: Arbiter, *, begins: bool = False) -> bytes:
    """Of a record that begins with the arbiter as it is; begins: with a new one."""
    state = None if begins else snapshot.take(arbiter)
    return lines.header_line(Header(RELEASE, 0.0, Start.of(arbiter), state))


@dataclass
class Records:
    """of: by run of an arbiter its lines; ends: the arbiters, as they are at last."""

    of: list[list[bytes]] = field(default_factory=list)
    ends: list[Arbiter] = field(default_factory=list)

    def began(self, arbiter: Arbiter) -> None:
        self.of.append([header_of(arbiter, begins=True)])
        self.ends.append(arbiter)

    def handled(self, now: int, event: Event, actions: list[Action]) -> None:
        self.of[-1].append(lines.entry_line(now, event, Outcome(tuple(actions))))


def record(seed: int, events: int = 1500, policy_name: str = policy.DEFAULT) -> Records:
    records = Records()
    World(
        *(random_scenario(seed), events, records.began, records.handled, policy_name),
        judge=Silent,
    ).run()
    return records
