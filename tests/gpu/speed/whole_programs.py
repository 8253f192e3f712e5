"""The most that calls cost a whole program, from a run in which they were counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.gpu.speed.calls import added_by
from tests.gpu.speed.counting import Counted


@dataclass(frozen=True)
class ByCalls:
    """At most so many times the bare time; None: it is not known, and `why` says why.

    span: of the time from the first call of the driver to the last one; whole: of the process.
    unknown: functions whose cost is not measured, and which neither has, with their calls.
    """

    span: float | None = None
    whole: float | None = None
    added_ms: float = 0.0
    span_s: float = 0.0
    calls: int = 0
    processes: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    by_function: dict[str, int] = field(default_factory=dict)
    why: str = ""

    def words(self) -> str:
        if self.span is None:
            return f"not known ({self.why})"
        missing = ", ".join(f"{name} ({n})" for name, n in self.unknown.items())
        words = f"at most {self.span:.5f}" + (f" without {missing}" if missing else "")
        return words + (f"; {self.why}" if self.why else "")

    def report(self) -> dict[str, Any]:
        return asdict(self)


def bound(counted: Counted, counted_s: float, bare_s: float, costs: Mapping[str, float]) -> ByCalls:
    """counted_s: of the whole run that was counted. costs: ns of each kind of call.

    Counting slows calls down, but not what is before the first and after the last one: what
    remains of a bare run without that is the time of its calls.
    """
    if not costs:
        return ByCalls(why="what a call costs was not measured")
    added = added_by(counted.calls, costs)
    span_s = min(bare_s, max(0.0, bare_s - (counted_s - counted.span_s)))
    why = f"{counted.unfinished} processes did not end by exit()" if counted.unfinished else ""
    return ByCalls(
        span=1 + added.us / 1e6 / span_s if span_s else None,
        whole=1 + added.us / 1e6 / bare_s,
        added_ms=added.us / 1e3,
        span_s=span_s,
        calls=sum(counted.calls.values()),
        processes=counted.processes,
        unknown=added.unknown,
        by_function=dict(sorted(counted.calls.items(), key=lambda item: -item[1])),
        why=why if span_s else "the counted run was slower than its calls explain",
    )
