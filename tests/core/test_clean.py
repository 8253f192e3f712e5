"""What leaves without being copied counts for nobody as moved."""

from __future__ import annotations

from leased import policy
from leased.core.arbiter import Arbiter
from leased.core.events import LeftUncopied, MemoryChanged, Opened, Parked, Released, Requested

ROOM, HAS = 100, 80


def handed_over() -> Arbiter:
    """Two jobs that swap; the first has brought its memory in, and loses it to the second."""
    arbiter = Arbiter({"d0": ROOM}, policy.make)
    for job in (1, 2):
        arbiter.handle(Opened(job, ("d0",), "auto", 1), 0)
        arbiter.handle(MemoryChanged(job, "d0", HAS, 0, 0), 0)
    for job in (1, 2):
        arbiter.handle(Requested(job), 0)
        arbiter.handle(MemoryChanged(job, "d0", HAS, 0, HAS), 0)
        arbiter.handle(Released(job, arbiter.tenants[job].granted), 0)
    return arbiter


def moved(arbiter: Arbiter, job: int) -> int:
    return arbiter.usage(job, 10)["d0"].moved_bytes


def out(arbiter: Arbiter, job: int) -> int:
    return arbiter.usage(job, 10)["d0"].moved_out_bytes


def clean(arbiter: Arbiter, job: int) -> int:
    return arbiter.usage(job, 10)["d0"].clean_bytes


def test_clean_memory_is_not_moved() -> None:
    arbiter = handed_over()
    before = moved(arbiter, 2)
    assert before >= HAS + HAS - ROOM, "what the first lost is counted for who needed the room"
    arbiter.handle(LeftUncopied(1, "d0", 40), 1)
    assert (moved(arbiter, 2), clean(arbiter, 1)) == (before - 40, 40)
    assert clean(arbiter, 2) == 0


def test_which_way_bytes_have_moved() -> None:
    """Each brought its own in; the second had the first's moved out, of which 40 were clean."""
    arbiter = handed_over()
    into = [moved(arbiter, job) - out(arbiter, job) for job in (1, 2)]
    assert [out(arbiter, job) for job in (1, 2)] == [0, HAS + HAS - ROOM]
    assert into == [0, 0], "both said that it was there"
    arbiter.handle(LeftUncopied(1, "d0", 40), 1)
    assert out(arbiter, 2) == HAS + HAS - ROOM - 40
    arbiter.handle(Parked(2, "user 1"), 2)
    assert out(arbiter, 2) == HAS + HAS - ROOM - 40 + HAS
    arbiter.handle(Requested(1), 3)
    assert moved(arbiter, 1) - out(arbiter, 1) == HAS + HAS - ROOM, "what it had lost comes back"


def test_no_more_is_taken_off_than_was_counted() -> None:
    """A process says what it likes; the other job's figure is as it would be without it."""
    arbiter = handed_over()
    before = moved(arbiter, 2)
    for _ in range(3):
        arbiter.handle(LeftUncopied(1, "d0", 1 << 40), 1)
    assert moved(arbiter, 2) == before - (HAS + HAS - ROOM)
    arbiter.handle(LeftUncopied(2, "d0", 1 << 40), 1)
    assert moved(arbiter, 2) == before - (HAS + HAS - ROOM)


def test_clean_memory_of_a_parked_job_is_not_moved_either() -> None:
    arbiter = handed_over()
    before = moved(arbiter, 2)
    arbiter.handle(Parked(2, "user 1"), 2)
    assert moved(arbiter, 2) == before + HAS
    arbiter.handle(LeftUncopied(2, "d0", HAS), 3)
    assert (moved(arbiter, 2), clean(arbiter, 2)) == (before, HAS)


def test_a_job_that_has_ended_is_left_alone() -> None:
    arbiter = handed_over()
    arbiter.handle(LeftUncopied(1, "d1", 5), 1)
    assert clean(arbiter, 1) == 0
