"""Equal time for equal demands, whatever else is different; and as few moves as that needs."""

from __future__ import annotations

import pytest

from tests.bench.fair import CASES, Measured, busy_idle_s, f9, mixes, table2
from tests.core.adversary import run

SHORT = 4  # times as short as in the benchmark


@pytest.mark.parametrize("case", sorted(set(CASES) - {"pauses", "quanta_60_and_1"}))
def test_equal_demands_have_equal_time(case: str) -> None:
    jobs, seconds, gib_s = CASES[case]
    shares = Measured(list(jobs), seconds, "fair", gib_s).shares().values()
    assert max(shares) <= 1.05 * min(shares), shares


@pytest.mark.long
def test_a_tenant_that_pauses_has_no_less_than_one_that_never_does() -> None:
    """But for the quantum that is under way, and a burst of each of those who pause."""
    jobs, seconds, gib_s = CASES["pauses"]
    seconds //= SHORT
    had = Measured(list(jobs), seconds, "fair", gib_s).lease_ns.values()
    bursts = sum(job.busy + job.pause for job in jobs[1:])
    assert max(had) - min(had) <= (jobs[0].quantum + bursts) * 1_000_000


@pytest.mark.long
def test_memory_is_exchanged_now_and_then() -> None:
    assert f9("fair")["moved_gib"] <= f9("fcfs")["moved_gib"] / 20


@pytest.mark.long
def test_nothing_else_becomes_slower() -> None:
    mixes_of_fcfs = mixes("fcfs")
    assert busy_idle_s("fair") <= busy_idle_s("fcfs")
    assert table2("fair") <= table2("fcfs")
    slower = {mix: s for mix, s in mixes("fair").items() if s > mixes_of_fcfs[mix]}
    assert not slower


@pytest.mark.parametrize(
    ("name", "seed"), [("fair", 500011), ("fair", 500056), ("fair", 500154), ("fcfs", 500033)]
)
def test_a_waiter_put_behind_another_again_has_a_new_gap_before_its_turn(
    name: str, seed: int
) -> None:
    """In these runs a waiter was about to have its turn, and another one came before it, by the
    policy or by the site's lock: until that one ends, others may have what is free."""
    assert run(seed, name).fault is None
