"""Who gives up memory for whom with memory:swap: a model of processes that really move it."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased import policy
from leased.core.actions import Action, Evict, Grant, Preload, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import (
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Restored,
    RoomChanged,
)

S = 1_000_000_000
ROOM = 100


@dataclass
class Process:
    """One that swaps: what it has, what of that is on the device, what it was told to give up."""

    size: int = 0
    resident: int = 0
    leaving: int = 0
    coming: int = 0  # what it was told to bring in before its turn
    epoch: int = 0  # of the lease it holds
    revoked: bool = False


@dataclass
class World:
    a: Arbiter = field(default_factory=lambda: Arbiter({"d0": ROOM}, policy.make))
    now: int = 0
    jobs: dict[int, Process] = field(default_factory=dict)

    def do(self, event: object) -> list[Action]:
        actions = self.a.handle(event, self.now)  # type: ignore[arg-type]
        for action in actions:
            job = self.jobs[action.tenant]
            if isinstance(action, Grant):
                job.epoch, job.revoked = action.epoch, False
                job.leaving = job.coming = 0
            elif isinstance(action, Revoke):
                job.revoked = True
            elif isinstance(action, Evict):
                job.leaving, job.coming = job.leaving + action.bytes, 0
            elif isinstance(action, Preload):
                assert not job.epoch
                # What was freed meanwhile counts as left; a process makes room first.
                job.coming = 0 if job.leaving else action.bytes
        for grant in [a for a in actions if isinstance(a, Grant)]:
            self.tell_restored(grant.tenant)
        return actions

    def open(self, job: int, size: int, lock: str = "on") -> None:
        self.jobs[job] = Process()
        self.do(Opened(job, ("d0",), lock, S, swaps=True))
        self.resize(job, size)

    def tell_restored(self, job: int) -> None:
        p = self.jobs[job]
        if p.epoch and p.resident == p.size:
            self.do(Restored(job, p.epoch))

    def report(self, job: int) -> None:
        p = self.jobs[job]
        self.do(MemoryChanged(job, "d0", p.size, 0, p.resident))

    def free(self) -> int:
        return ROOM - sum(p.resident for p in self.jobs.values())

    def move(self, job: int, most: int) -> bool:
        """One step of what the process has to do with its memory; False: nothing to do."""
        p = self.jobs[job]
        if p.epoch and not p.revoked:
            step = min(most, p.size - p.resident, self.free())
            p.resident += step
        elif not p.epoch and p.leaving:
            step = min(most, p.leaving, p.resident)
            p.leaving = p.leaving - step if p.resident > step else 0
            p.resident -= step
        elif not p.epoch and p.coming:
            step = min(most, p.coming, p.size - p.resident, self.free())
            p.coming -= step
            p.resident += step
        else:
            return False
        if step:
            self.report(job)
            self.tell_restored(job)
        return step > 0

    def release(self, job: int) -> None:
        p = self.jobs[job]
        epoch, p.epoch, p.revoked = p.epoch, 0, False
        self.do(Released(job, epoch))

    def resize(self, job: int, size: int) -> None:
        p = self.jobs[job]
        p.size = size
        p.resident = min(p.resident, size)
        self.report(job)


def test_only_as_much_leaves_as_the_comer_lacks_and_the_oldest_first() -> None:
    world = World()
    for job, size in ((1, 40), (2, 40), (3, 50)):
        world.open(job, size)
    for job in (1, 2):
        world.do(Requested(job))
        assert world.move(job, ROOM)
        world.release(job)
    assert [a for a in world.do(Requested(3)) if isinstance(a, Evict)] == [Evict(1, "d0", 30)]
    # While it leaves in steps and the other comes in, nothing is asked for twice.
    while any(world.move(job, 10) for job in (1, 3)):
        pass
    assert [p.resident for p in world.jobs.values()] == [10, 40, 50]


def test_nothing_leaves_while_all_fits() -> None:
    world = World()
    for job in (1, 2):
        world.open(job, 50, lock="auto")
        assert not [a for a in world.do(Requested(job)) if isinstance(a, Evict)]
        assert world.move(job, ROOM)
    assert all(p.epoch for p in world.jobs.values()), "side by side"


def three_by_turns() -> World:
    """Jobs of 45, of which two fit into 100; each has worked, and 1 works again."""
    world = World()
    for job in (1, 2, 3):
        world.open(job, 45, lock="auto")
    for job in (1, 2, 3):
        world.do(Requested(job))
    for job in (1, 2, 3):
        turn(world, job)
    return world


def turn(world: World, job: int) -> None:
    """The job that holds works, with all of its memory, and asks again."""
    settle(world)
    assert world.jobs[job].epoch
    assert world.jobs[job].resident == 45
    world.release(job)
    world.do(Requested(job))


def settle(world: World) -> None:
    while any(world.move(job, 10) for job in world.jobs):
        pass


def test_the_next_tenant_loses_memory_last() -> None:
    world = three_by_turns()
    # 3 pushed out 2, which has just worked, and not 1, whose turn it is now.
    assert world.jobs[1].epoch
    assert world.jobs[1].resident == 45


def test_the_next_tenants_memory_is_restored_before_its_turn() -> None:
    world = three_by_turns()
    settle(world)
    assert [bool(p.epoch) for p in world.jobs.values()] == [True, False, False]
    assert [p.resident for p in world.jobs.values()] == [45, 45, 10]
    # So a handoff moves nothing any more, and what it will take next comes beside the work.
    world.release(1)
    assert world.jobs[2].epoch
    assert world.jobs[2].resident == 45


def test_nothing_is_brought_in_for_a_turn_while_memory_comes_back() -> None:
    world = World()
    for job, size in ((1, 50), (2, 60), (3, 40)):
        world.open(job, size, lock="auto")
    for job in (1, 2, 3):
        world.do(Requested(job))
        settle(world)
        world.release(job)
    settle(world)
    assert [p.resident for p in world.jobs.values()] == [0, 60, 40]
    assert [a for a in world.do(Requested(1)) if isinstance(a, Grant)]
    assert not [a for a in world.do(Requested(2)) if isinstance(a, Preload)]
    settle(world)
    # 2 was the older of the two and made room; it comes before 3, which does not wait.
    assert [p.resident for p in world.jobs.values()] == [50, 50, 0]


def test_a_tenant_without_room_for_all_its_memory_waits_and_delays_no_other() -> None:
    """With memory:swap all must be there; what others have fixed cannot make room for it."""
    world = World()
    for job, size in ((1, 0), (2, 60)):
        world.open(job, size)
    world.do(MemoryChanged(1, "d0", 10, 50, 10))
    assert not world.do(Requested(2))
    assert [a.tenant for a in world.do(Requested(1)) if isinstance(a, Grant)] == [1]
    assert world.a.next_deadline() is None, "nobody waits for whom it should end"
    # It can be moved after all: now the other is waited for.
    world.do(MemoryChanged(1, "d0", 60, 0, 60))
    assert world.a.next_deadline() is not None
    world.release(1)
    assert world.jobs[2].epoch


def test_a_restore_for_which_others_cannot_make_room_ends_at_once() -> None:
    """There was no host memory for what was to leave; that is known only after the grant."""
    world = World()
    for job in (1, 2):
        world.open(job, 60)
    world.do(Requested(1))
    settle(world)
    world.do(Requested(2))
    world.release(1)
    assert world.jobs[2].epoch
    world.do(Requested(1))
    ended = world.do(MemoryChanged(1, "d0", 10, 50, 10))
    assert [a.tenant for a in ended if isinstance(a, Revoke)] == [2]
    world.release(2)
    assert world.jobs[1].epoch


def test_where_room_is_taken_those_who_do_not_work_make_some() -> None:
    world = World()
    for job in (1, 2):
        world.open(job, 50)
        world.do(Requested(job))
        settle(world)
        world.release(job)
    world.do(Requested(2))
    assert [p.resident for p in world.jobs.values()] == [50, 50]
    # The driver took 20 for a context.
    lost = world.do(RoomChanged("d0", ROOM - 20))
    assert [a for a in lost if isinstance(a, Evict)] == [Evict(1, "d0", 20)]
    settle(world)
    assert [p.resident for p in world.jobs.values()] == [30, 50]
    # A process needs 30 for its own.
    lost = world.do(MemoryChanged(1, "d0", 50, 30, 30))
    assert [a for a in lost if isinstance(a, Evict)] == [Evict(1, "d0", 30)]
