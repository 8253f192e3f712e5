"""How fast the machine is just now at pure Python, so that figures of two days can be compared."""

from __future__ import annotations

import heapq
import time

STEPS, REPETITIONS = 20_000, 20


class _Part:
    """Something with two numbers, as the arbiter's objects have."""

    __slots__ = ("first", "second")

    def __init__(self, first: int):
        self.first, self.second = first, 0

    def step(self, by: int) -> int:
        self.first = (self.first * 31 + by) & 0xFFFF
        self.second = max(self.second, self.first)
        return self.first


def _work() -> int:
    """Always the same: calls, numbers, dictionaries and a heap, as the arbiter uses them."""
    parts = [_Part(n) for n in range(64)]
    seen: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    for n in range(STEPS):
        value = parts[n & 63].step(n)
        seen[value] = seen.get(value, 0) + 1
        if n % 4 == 0:
            heapq.heappush(heap, (value, n))
        if n % 8 == 0:
            heapq.heappop(heap)
    return len(seen)


def calibrate() -> float:
    """Milliseconds of processor time that a fixed piece of work takes, the best of several."""
    took = []
    for _ in range(REPETITIONS):
        start = time.process_time_ns()
        _work()
        took.append(time.process_time_ns() - start)
    return round(min(took) / 1e6, 2)
