"""After how much idleness a job's interposer gives up the GPU; the rule of shim/lease/idle.c.

A job whose pauses are not known yet yields when it has been idle for as long as a handoff takes.
If its pauses that lasted a certain time mostly went on for longer than a handoff takes, it yields
after that time already.
"""

from __future__ import annotations

FIRST_NS = 16_000_000
STEPS = 10
MEMORY = 8  # pauses; older ones count less and less


class Pauses:
    """How long one job's pauses have been."""

    def __init__(self) -> None:
        self._seen = [0] * STEPS
        self._regret = [0.0] * STEPS

    def note(self, pause_ns: int, handoff_ns: int) -> None:
        """A pause is over, in which a handoff would have taken so long."""
        for i in range(STEPS):
            rest = pause_ns - (FIRST_NS << i)
            if rest <= 0:
                return
            regret = rest / handoff_ns if rest < handoff_ns else 2.0
            self._seen[i] += 1
            self._regret[i] += (regret - self._regret[i]) / min(self._seen[i], MEMORY)

    def enough_ns(self, handoff_ns: int) -> int:
        """After how much of a pause the GPU is given up."""
        for i in range(STEPS):
            if FIRST_NS << i >= handoff_ns:
                break
            if self._seen[i] and self._regret[i] > 1:
                return FIRST_NS << i
        return handoff_ns
