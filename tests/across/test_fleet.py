"""Many jobs on several nodes while links drop, daemons die and clocks differ."""

from __future__ import annotations

from tests.across.fleet import Fleet, S


def test_a_fleet_runs_whole_jobs_and_all_of_them() -> None:
    fleet = Fleet(seed=5, nodes=4, across=8, alone=6)
    fleet.run(
        lambda: fleet.now > 60 * S and min(fleet.deaths, fleet.drops, fleet.lost, fleet.grants) > 2
    )
    fleet.calm()
    assert fleet.stuck_after(300 * S) == 0
    assert fleet.half_gangs == 0
