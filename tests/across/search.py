"""All interleavings of a small cluster: every world that can be reached is looked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leased.across.bounds import Bounds
from tests.across.world import SMALL, Budget, Jobs, Place, World, steps

MINUTES = 7  # by which the clocks of two nodes differ, in a unit that is as good as any


def clocks(jobs: Jobs, apart: int = MINUTES * 60_000) -> dict[str, int]:
    """A clock for each node, far from the others'."""
    nodes = sorted({node for of in jobs.values() for node in of})
    return {node: 1000 + n * apart for n, node in enumerate(nodes)}


def explore(
    jobs: Jobs,
    budget: Budget,
    *,
    bounds: Bounds = SMALL,
    finish_each: int = 1,
    most: int = 1 << 40,
    starts: Mapping[str, int] | None = None,
    absent: Iterable[Place] = (),
) -> int:
    """Look at every world that can be reached, or at `most`. Returns how many were looked at.

    Fault: one of them is not as it must be, or a job waits for ever though from there on nothing
    goes wrong any more (this is tried from each finish_each-th world). Where nothing has gone wrong
    before either, it may not need any time.
    """
    first = World(jobs, starts or clocks(jobs), budget, bounds, absent)
    first.begin()
    known = {first.key()}
    todo = [first]
    looked = 0
    while todo and looked < most:
        world = todo.pop()
        looked += 1
        world.check()
        if looked % finish_each == 0:
            world.copy().finish(0 if world.is_untroubled() else 40 * bounds.hold_ns)
        for following in steps(world):
            key = following.key()
            if key not in known:
                known.add(key)
                todo.append(following)
    return looked


def wander(jobs: Jobs, budget: Budget, choose: Callable[[int], int], length: int) -> World:
    """One way through the worlds. choose: one of so many. Fault: see explore()."""
    world = World(jobs, clocks(jobs), budget, SMALL)
    world.begin()
    for _ in range(length):
        following = list(steps(world))
        if not following:
            break
        world = following[choose(len(following))]
        world.check()
    world.copy().finish(40 * SMALL.hold_ns)
    return world
