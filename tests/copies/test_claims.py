"""What copies may need of the host, as it is claimed when device memory is allocated."""

from __future__ import annotations

from leased.copies.claims import Claims, DeviceUse
from leased.copies.pool import Key, Pool
from leased.processes.identity import ProcessId

GIB = 1 << 30
PIECE = 3 * GIB // 32  # less than the largest


def needs(
    movable: dict[int, int],
    fixed: dict[int, int] | None = None,
    claimed: dict[int, int] | None = None,
    *,
    managed: tuple[int, ...] = (),
    processes: int = 1,
    most: int = 3,
) -> dict[int, int]:
    """In GiB, of a device of 3 GiB; less the piece that each needs besides. processes: of each job,
    which claim the same. most: what a job may have."""
    use = DeviceUse(
        3 * GIB,
        {job: size * GIB for job, size in movable.items()},
        {job: size * GIB for job, size in (fixed or {}).items()},
    )
    claims = Claims(lambda: {"d0": use}, lambda job: job not in managed, lambda *_: most * GIB)
    for job, size in (claimed or {}).items():
        for process in range(processes):
            claims.set((job, process), job, "d0", size * GIB)
    found = claims.needs()
    assert all((size - PIECE) % GIB == 0 for size in found.values())
    return {job: (size - PIECE) // GIB for job, size in found.items()}


def test_nothing_can_leave_while_all_fits() -> None:
    assert needs({1: 3}) == {}
    assert needs({1: 1, 2: 2}) == {}


def test_of_each_no_more_may_leave_than_is_too_much_in_all() -> None:
    assert needs({1: 2, 2: 2}) == {1: 1, 2: 1}
    assert needs({1: 3, 2: 3}) == {1: 3, 2: 3}
    assert needs({1: 1, 2: 3, 3: 3}) == {1: 1, 2: 3, 3: 3}


def test_fixed_memory_takes_room_and_needs_no_copy() -> None:
    assert needs({1: 2}, {2: 2}) == {1: 1}


def test_managed_memory_takes_room_and_needs_none_of_ours() -> None:
    assert needs({1: 2, 2: 2}, managed=(2,)) == {1: 1}


def test_a_claim_counts_before_it_is_memory_and_once() -> None:
    assert needs({1: 2}, claimed={2: 2}) == {1: 1, 2: 1}
    assert needs({1: 2, 2: 1}, claimed={2: 2}) == {1: 1, 2: 1}
    assert needs({1: 2, 2: 3}, claimed={2: 2}) == {1: 2, 2: 2}


def test_a_claim_is_also_for_what_cannot_be_moved_which_counts_once() -> None:
    assert needs({1: 1}, {1: 2}, claimed={1: 3}) == {}
    assert needs({1: 1, 2: 1}, {1: 2}, claimed={1: 3}) == {1: 1, 2: 1}


def test_many_processes_claim_no_more_than_their_job_may_have() -> None:
    assert needs({1: 2}, claimed={2: 1}, processes=10) == {1: 2, 2: 2}
    assert needs({1: 2}, claimed={2: 1}, processes=10, most=2) == {1: 1, 2: 1}


def test_what_a_process_claims_counts_until_it_is_forgotten() -> None:
    use = DeviceUse(GIB, {}, {9: GIB})
    claims = Claims(lambda: {"d0": use}, lambda _: True, lambda *_: 9 * GIB)
    for process, size in ((1, 1), (2, 2), (1, 3)):
        claims.set(process, 7, "d0", size * GIB)
    assert claims.needs()[7] // GIB == 5
    claims.forget(2)
    assert claims.needs()[7] // GIB == 3
    claims.forget(1)
    assert not claims.needs()
    assert not claims.claimed


def test_names_of_the_keepers_files_say_whose_they_are() -> None:
    key = Key(7, ProcessId(123, 456), (9 << 32) + 1)
    assert Key.of(key.name) == key
    for name in ("", "1.2.3", "1.2.3.x", "1.2.3.4.5", "-1.2.3.4"):
        assert Key.of(name) is None


def test_a_pool_forgets_what_it_is_told_to() -> None:
    pool = Pool()
    first, second = (Key(7, ProcessId(1, 1), (9 << 32) + n) for n in (1, 2))
    other = Key(7, ProcessId(1, 1), (8 << 32) + 1)
    for key in (first, second, other):
        pool.add(key, 10)
    assert set(pool.of_other_programs(first)) == {other}
    assert pool.total == pool.of_job[7] == 30
    assert [pool.remove(key) for key in (first, second, other, first)] == [True, True, True, False]
    assert pool.total == 0
    assert not pool.of_job
    assert not pool.of_process
