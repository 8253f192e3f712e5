"""Jobs that say what is not so, as the adversary plays them, and scenarios that have some.

A lie comes at any time, in the middle of what the job's process does by the protocol. What it
says of its memory it may put right after a while.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from leased.core.events import (
    Adopted,
    Event,
    LeftUncopied,
    MemoryChanged,
    Released,
    Requested,
    Restored,
    SpeedMeasured,
)
from tests.core.client import MS, Client
from tests.core.mixes import any_scenario
from tests.core.scenario import LIE, Poke, Scenario

if TYPE_CHECKING:
    from tests.core.world import World

AMOUNTS = (0, 1, 7, 45, 60, 90, 100, 101, 1000, 1 << 44, (1 << 63) - 1, 1 << 63)
FIXED = (0, 0, 0, 5, 101, 1 << 63)
TIMES = (0, 1, 300 * MS, 20_000 * MS, 1 << 63)
PUT_RIGHT = (None, 0, 300 * MS, 20_000 * MS)  # after so long; None: never
MOST = 1 << 32


def lying_scenario(seed: int) -> Scenario:
    """As any_scenario draws it; and some jobs, or all, lie seldom or often."""
    scenario = any_scenario(seed)
    r = random.Random(f"lies of {seed}")
    liars = r.sample(range(len(scenario.jobs)), r.randint(1, len(scenario.jobs)))
    latest = r.choice((60, scenario.seconds)) * 1000
    lies = [
        Poke(r.randint(0, latest), LIE, r.choice(liars), r.randrange(MOST))
        for _ in range(r.choice((3, 10, 40, 200)))
    ]
    pokes = sorted((*scenario.pokes, *lies), key=lambda p: p.at)
    return replace(scenario, pokes=tuple(pokes))


def half_lying(seed: int) -> Scenario:
    """Jobs that lie are in every other scenario."""
    return lying_scenario(seed) if seed % 2 else any_scenario(seed)


def liars(scenario: Scenario) -> set[int]:
    return {poke.who for poke in scenario.pokes if poke.what == LIE}


def lie(world: World, client: Client, amount: int) -> None:
    """The amount says which, once or several times."""
    r = random.Random(amount)
    for event in some_lies(world, client, r):
        world.do(event)
    after = r.choice(PUT_RIGHT)
    if after is not None:
        world.timeline.after(after, lambda: put_right(world, client))


def some_lies(world: World, client: Client, r: random.Random) -> Iterator[Event]:
    kind = r.choice((_memory, _memory, _released, _restored, _adopted, _requested, _measured))
    for _ in range(r.choice((1, 1, 2))):
        if client.tenant in world.a.tenants:
            yield kind(world, client.tenant, r)


def put_right(world: World, client: Client) -> None:
    """It says of its memory what is so."""
    if world.entry(client) is not None and client.alive:
        for d, amounts in client.memory().items():
            world.do(MemoryChanged(client.tenant, f"d{d}", *amounts))


def _epoch(world: World, tenant: int, r: random.Random) -> int:
    """One that it has, or had, or another one has, or nobody."""
    granted = world.a.tenants[tenant].granted
    return r.choice(
        (0, 1, granted, granted, granted + 1, world.a.epoch - 1, world.a.epoch, 1 << 63)
    )


def _memory(world: World, tenant: int, r: random.Random) -> Event:
    known = world.a.tenants[tenant]
    resident = r.choice(AMOUNTS) if known.swaps else None
    device = r.choice(known.gang)
    return MemoryChanged(tenant, device, r.choice(AMOUNTS), r.choice(FIXED), resident)


def _released(world: World, tenant: int, r: random.Random) -> Event:
    return Released(tenant, _epoch(world, tenant, r))


def _restored(world: World, tenant: int, r: random.Random) -> Event:
    return Restored(tenant, _epoch(world, tenant, r))


def _adopted(world: World, tenant: int, r: random.Random) -> Event:
    return Adopted(tenant, _epoch(world, tenant, r))


def _requested(_: World, tenant: int, __: random.Random) -> Event:
    return Requested(tenant)


def _measured(world: World, tenant: int, r: random.Random) -> Event:
    """How fast its memory came, or that it left without being copied."""
    device = r.choice(world.a.tenants[tenant].gang)
    if r.random() < 0.5:
        return LeftUncopied(tenant, device, r.choice(AMOUNTS))
    return SpeedMeasured(tenant, device, r.choice(AMOUNTS), r.choice(TIMES))
