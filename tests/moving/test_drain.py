"""Before a job is drained for a move there is host memory for what will leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from _gpulease import lib

from leased.core.events import Event, Parked, Signalled
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.moving.drain import POLL_S, READY_S, Drain, Stays
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given

GB = 1 << 30
UUID = "GPU-00000000-0000-0000-0000-000000000000"


class Scene:
    """A job with two processes; the time passes while somebody waits."""

    def __init__(self) -> None:
        self.now = 0
        self.leases = Leases([Gpu(0, UUID, "card", 8 * GB, 8 * GB)], lambda: self.now)
        self.tenant = Tenant(1, 1000, given(swaps=True), {UUID: 8 * GB})
        self.leases.tenants.open(self.tenant)
        self.processes = [self.begins(pid) for pid in (11, 12)]

    def begins(self, pid: int) -> FakeClient:
        process = FakeClient(pid)
        hello = client_messages.Hello(0, False, {UUID: DeviceBytes(GB, 0, GB)}, moves=True)
        self.leases.clients.attach(self.tenant, process, hello)
        return process

    async def waits(self, then: Callable[[], None], tick_ns: int) -> bool:
        """Whether it waits until something has happened, and no longer."""
        drain = Drain(self.leases, "a test")
        drain.prepare(self.tenant)
        waiting = asyncio.ensure_future(drain.until_ready(self.tenant))
        for _ in range(3):
            await asyncio.sleep(0)
        waited = not waiting.done()
        then()
        while not waiting.done():
            self.now += tick_ns
            await asyncio.sleep(0)
        await waiting
        return waited


@pytest.mark.parametrize("what", ["all say so", "one has ended", "it takes too long"])
async def test_host_memory_is_waited_for_while_the_job_works(what: str) -> None:
    scene = Scene()
    first, second = scene.processes

    def then() -> None:
        first.ready = True
        if what == "all say so":
            second.ready = True
        elif what == "one has ended":
            scene.leases.clients.detach(scene.tenant, second)

    late = what == "it takes too long"
    assert await scene.waits(then, int(READY_S * 1e8) if late else 0)
    assert (scene.now > READY_S * 1e9) == late
    assert all(lib.GL_EXPECT in process.told for process in scene.processes)
    assert not any(kind in (lib.GL_MOVES, lib.GL_REVOKE) for kind in first.told)


async def test_a_process_that_begins_meanwhile_is_not_waited_for() -> None:
    """Nobody has told it to say READY."""
    scene = Scene()
    drain = Drain(scene.leases, "a test")
    drain.begin_rest(scene.tenant)
    scene.begins(13)
    for says in (False, True):
        for process in scene.processes:
            process.ready = says
        waiting = asyncio.ensure_future(drain.until_ready(scene.tenant))
        for _ in range(3):
            await asyncio.sleep(0)
        assert waiting.done() == says
        waiting.cancel()
    assert all(lib.GL_MOVES in process.told for process in scene.processes)


@pytest.mark.parametrize("still", [False, True])
async def test_a_job_whose_work_stands_still_has_its_turn_soon(still: bool) -> None:
    """It waits for that turn, and is parked in it; any other is parked at once."""
    scene = Scene()
    said: list[type[Event]] = []
    run = scene.leases.run

    def told(*events: Event) -> None:
        said.extend(type(event) for event in events)
        run(*events)

    scene.leases.run = told  # type: ignore[method-assign]
    scene.processes[1].stopped = still
    parking = asyncio.ensure_future(Drain(scene.leases, "a test").park(scene.tenant))
    for _ in range(3):
        await asyncio.sleep(POLL_S)
    parking.cancel()
    assert said == [Signalled if still else Parked]


async def test_who_is_parked_by_somebody_else_is_not_taken_for_still() -> None:
    """Suspended just now, for example: whoever has parked it lets it go on at any time."""
    scene = Scene()
    scene.leases.run(Parked(scene.tenant.job_id, "Slurm", suspended=True))
    with pytest.raises(Stays, match="it is parked by Slurm"):
        await Drain(scene.leases, "a test").park(scene.tenant)


async def test_a_job_that_was_requeued_is_not_parked_for_its_former_run() -> None:
    """Nobody would let it go on."""
    scene = Scene()
    scene.leases.tenants.close(1)
    scene.leases.tenants.open(Tenant(1, 1000, given(swaps=True), {UUID: 8 * GB}))
    with pytest.raises(Stays, match="it has ended"):
        await Drain(scene.leases, "a test").park(scene.tenant)
    assert scene.leases.view.parked_by(1) is None
