"""Every tenant's usage is saved once in each round, whoever comes and goes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.node.checkpoint import QUIET_NS, SAVE_AT_ONCE, Checkpoint
from leased.wire.client_messages import Hello, Released
from tests.support.fake_client import FakeClient
from tests.support.given import given

TURNS = 3


def test_no_tenant_is_left_out_while_others_end() -> None:
    """One that opened earlier ends between any two turns, so all others move up in the list."""
    tenants = dict.fromkeys(range(TURNS * SAVE_AT_ONCE))
    leases: Any = SimpleNamespace(tenants=tenants)
    checkpoint = Checkpoint(leases, SimpleNamespace())  # type: ignore[arg-type]
    stay = set(tenants) - set(range(4 * TURNS))
    for first in (0, TURNS, 2 * TURNS):
        saved: list[int] = []
        for job in range(first, first + TURNS):
            saved += checkpoint.next_jobs()
            del tenants[job]
        assert stay <= set(saved)
        assert len(saved) == len(set(saved))


def test_beats_are_more_frequent_with_more_tenants_but_never_more_than_four_a_second() -> None:
    def pause(tenants: int) -> float:
        leases: Any = SimpleNamespace(tenants=range(tenants))
        return Checkpoint(leases, SimpleNamespace()).pause()  # type: ignore[arg-type]

    assert [pause(n) for n in (0, 1, 16, 17, 32, 33, 256)] == [1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_new_tenants_are_in_the_next_round_and_an_empty_node_has_none() -> None:
    tenants: dict[int, None] = {}
    leases: Any = SimpleNamespace(tenants=tenants)
    checkpoint = Checkpoint(leases, SimpleNamespace())  # type: ignore[arg-type]
    assert checkpoint.next_jobs() == []
    tenants[7] = None
    assert checkpoint.next_jobs() == [7]
    tenants[8] = None
    assert checkpoint.next_jobs() == [7, 8]


def test_who_neither_has_nor_wants_a_lease_is_saved_seldom() -> None:
    now, uuid = 0, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    leases = Leases([Gpu(0, uuid, "fake", 1 << 34, 1 << 34, 0)], lambda: now)
    checkpoint = Checkpoint(leases, SimpleNamespace())  # type: ignore[arg-type]
    processes = {job: FakeClient(job) for job in (1, 2, 3)}
    for job, process in processes.items():
        leases.tenants.open(Tenant(job, 1000, given("on", 10**9), {uuid: 1 << 30}))
        leases.clients.attach(leases.tenants[job], process, Hello(0, False, {}))

    def saved() -> list[int]:
        return checkpoint.stirred(checkpoint.next_jobs())

    def asks(job: int) -> None:
        leases.clients.request(leases.tenants[job], processes[job])

    def releases(job: int) -> None:
        said = Released(processes[job].held, 0, 0)
        leases.clients.released(leases.tenants[job], processes[job], said)

    assert saved() == [1, 2, 3]
    asks(1)
    asks(2)
    assert saved() == saved() == [1, 2], "one has it, one waits"
    releases(1)
    releases(2)
    assert saved() == [1, 2], "what they had since the last time"
    assert saved() == []
    asks(3)
    releases(3)
    assert saved() == [3], "it had it between two looks"
    now = QUIET_NS
    assert saved() == [1, 2, 3], "their time goes on"
    assert saved() == []
