"""Jobs that are parked, and jobs that Slurm suspends, as the daemon around the arbiter plays it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leased.core.events import Parked, Unparked
from tests.core.client import Client

if TYPE_CHECKING:
    from tests.core.world import Entry, World

S = 1_000_000_000
GRACE_NS = 2 * S  # of Slurm, between what it announces and the stop
MARGIN_NS = 3 * S  # after which a job that was not stopped is taken for none that is suspended
SLURM = "Slurm"


def park(world: World, tenant: int) -> None:
    world.do(Parked(tenant, "user 7"))


def unpark(world: World, tenant: int) -> None:
    """By its user, who cannot end what Slurm has begun."""
    parked = world.a.tenants[tenant].parked
    if parked is not None and not parked.suspended:
        world.do(Unparked(tenant))


def suspend(world: World, entry: Entry, amount: int) -> None:
    """For so many seconds. Of every ten such jobs one never goes on, and two are never stopped."""
    client = entry.client
    if client.suspended or client.frozen:
        return
    client.suspended = True
    world.do(Parked(client.tenant, SLURM, suspended=True))
    if amount % 10 in (3, 7):
        world.timeline.after(GRACE_NS + MARGIN_NS, lambda: go_on(world, client))
        return
    world.timeline.after(GRACE_NS, lambda: stop(world, client))
    if amount % 10:
        world.timeline.after(GRACE_NS + amount * S, lambda: resume(world, client, amount))


def stop(world: World, client: Client) -> None:
    if client.suspended and client.alive:
        client.frozen = True
        world.gates_changed(client.gang)
        world.timeline.after(world.sees_ns, lambda: world.see(client))


def resume(world: World, client: Client, amount: int) -> None:
    """What the daemon sees first, that it can act or that it is suspended no more, varies."""
    if not client.suspended or not client.alive:
        return
    client.thaw()
    world.timeline.after(world.sees_ns, lambda: world.see(client))
    world.timeline.after((amount % 3) * world.sees_ns, lambda: go_on(world, client))


def go_on(world: World, client: Client) -> None:
    if client.suspended and client.alive:
        client.suspended = False
        if world.entry(client) is not None:
            world.do(Unparked(client.tenant))


def found_again(world: World, client: Client) -> None:
    """A new daemon sees that the job is stopped below its slurmstepd."""
    if client.suspended and world.entry(client) is not None:
        world.do(Parked(client.tenant, SLURM, suspended=True))
