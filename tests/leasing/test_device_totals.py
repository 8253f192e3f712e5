"""What all jobs have had of a device never falls, whoever ends, and begins at 0 with a daemon."""

from __future__ import annotations

from leased.leasing.device_totals import DeviceTotals
from leased.usage.usage import Usage


def used(lease_ns: int) -> Usage:
    return Usage(lease_ns=lease_ns, moved_bytes=2 * lease_ns, peak_bytes=9)


def test_jobs_that_run_and_those_that_have_ended_are_added() -> None:
    totals = DeviceTotals()
    totals.ends(1, {"d0": used(5), "d1": used(7)})
    now = totals.now({2: {"d0": used(30)}, 3: {"d1": used(100)}})
    assert now == {
        "d0": Usage(lease_ns=35, moved_bytes=70),
        "d1": Usage(lease_ns=107, moved_bytes=214),
    }


def test_the_end_of_a_job_changes_nothing() -> None:
    totals = DeviceTotals()
    before = totals.now({1: {"d0": used(5)}})
    totals.ends(1, {"d0": used(5)})
    assert totals.now({}) == before


def test_usage_from_a_previous_daemon_is_not_counted_again() -> None:
    totals = DeviceTotals()
    totals.goes_on(1, {"d0": used(1000)})
    assert totals.now({1: {"d0": used(1000)}}) == {"d0": Usage()}
    assert totals.now({1: {"d0": used(1003)}})["d0"].lease_ns == 3
    totals.ends(1, {"d0": used(1004)})
    assert totals.now({})["d0"].lease_ns == 4
    totals.ends(1, {"d0": used(10)})  # another run of it, of which there was nothing before
    assert totals.now({})["d0"].lease_ns == 14
