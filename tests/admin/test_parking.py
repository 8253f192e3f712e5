"""Parking and unparking a job that Slurm has suspended."""

from __future__ import annotations

import pytest

from leased.admin import parking
from leased.base.errors import Refused
from leased.core.events import Parked
from leased.processes.identity import Peer
from tests.monitors.test_suspended_jobs import Node

USER = Peer(20, 1000, 1000)


def test_only_scontrol_lets_a_suspended_job_go_on() -> None:
    node = Node()
    node.job(1, 10)
    node.leases.run(Parked(1, "Slurm", suspended=True))
    with pytest.raises(Refused, match="job 1 is suspended") as refused:
        parking.unpark(node.leases, {"job_id": 1}, USER)
    assert "use scontrol resume" in refused.value.sentence()
    (parked,) = parking.park(node.leases, {"job_id": 1}, USER)
    shown = parking.shown(node.leases, parked)
    assert shown is not None
    assert shown["by"] == "Slurm", "and it is suspended still"
