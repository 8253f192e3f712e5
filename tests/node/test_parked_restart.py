"""A job that is parked while the daemon ends is parked when the next one has begun."""

from __future__ import annotations

import pytest

from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.leasing.test_park import MIB, PROGRAM, free, job_of, park
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output, tell


@pytest.mark.parametrize("memory", ["swap", "managed"])
def test_a_parked_job_stays_parked_until_its_next_launch(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, memory: str
) -> None:
    job = tenant(1, f"tq:1,memory:{memory}", "-c", PROGRAM, "100", "2")
    assert int(line(job))
    before = free(emulated_gpu)
    tell(job)
    assert line(job) == "filled"
    by = park(leased, 1)["parked"]["by"]
    leased.kill()
    leased.start()
    assert job_of(leased, 1)["parked"]["by"] == by
    wait_until("it to be back", lambda: job_of(leased, 1)["clients"] == 1)
    wait_until("all to leave", lambda: free(emulated_gpu) >= before - MIB)
    assert job_of(leased, 1)["state"] == "parked"
    tell(job)
    assert line(job) == "worked 8"
    assert job_of(leased, 1)["parked"] is None
    leased.stop()  # and not killed: within a second it would not have been written
    leased.start()
    assert job_of(leased, 1)["parked"] is None, "its launch has ended that"
    tell(job)
    assert line(job) == "worked 9"
    output(job)
