"""A judge for runs of the adversary that another test looks at."""

from __future__ import annotations

from leased.core.events import Event
from tests.core.judge import Judge


class Silent(Judge):
    """Looks at nothing, which takes a third of the time. test_adversary.py and
    tests/policy/test_every_policy.py judge runs of every policy."""

    def look(self) -> None:
        pass

    def saw(self, event: Event, actions: object) -> None:
        pass

    def nothing_left(self) -> None:
        pass
