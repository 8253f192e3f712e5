"""How long a promise lasts. All are durations on the clock of one node, in ns: clocks of two nodes
are never compared, so it does not matter what time they show."""

from __future__ import annotations

from dataclasses import dataclass

S = 1_000_000_000


@dataclass(frozen=True)
class Bounds:
    """resend_ns: after how long an unanswered message is sent again.

    round_ns: within how long of its start all votes of a round must be there. run_ns: how long a
    member runs on one vote. drain_ns: how long it takes at most from there until it has stopped, or
    its node has taken its GPUs from it (twice limits.drain). gather_ns: how long a job tries to get
    all its GPUs before it lets others have them for as long.
    """

    resend_ns: int = S // 2
    round_ns: int = S
    run_ns: int = 4 * S
    drain_ns: int = 20 * S
    gather_ns: int = 30 * S

    @property
    def hold_ns(self) -> int:
        """How long a member keeps its GPUs on one vote.

        Votes of a complete round are sent within round_ns of each other, so when this is over for
        one member no other one still runs on a vote of that round.
        """
        return self.round_ns + self.run_ns + self.drain_ns
