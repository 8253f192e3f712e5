"""What a job has claimed of the node's host memory goes along to another GPU."""

from __future__ import annotations

import pytest

from leased.cli.subcommand import ExitStatus
from tests.conftest import Start
from tests.copies.node import status
from tests.moving.test_moves import PROGRAM, move, works
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output


def needed(leased: Leased) -> int:
    """Bytes that are claimed, and that no copies take yet."""
    copies = status(leased)["copies"]
    return int(copies["budget_bytes"] - copies["taken_bytes"] - copies["left_bytes"])


@pytest.mark.emulated(model="emu-a100-tiny", devices=2)
@pytest.mark.parametrize("leased", ['swap_host = "256MiB"'], indirect=True)
def test_nothing_may_have_to_leave_once_one_of_two_jobs_has_moved(
    tenant: Start, leased: Leased
) -> None:
    """Each has more than half of the first GPU, until it has one for itself. Others are told what
    is left, and may allocate."""
    jobs = [tenant(n, "tq:1,memory:swap,lock:on", "-c", PROGRAM, "40") for n in (1, 2)]
    assert [line(job) for job in jobs] == ["ready", "ready"]
    assert needed(leased)
    assert move(leased, 2, 1) == ExitStatus.DONE
    assert [works(job) for job in jobs] == ["00", "01"]
    wait_until("nothing to be needed", lambda: not needed(leased))
    third = tenant(3, "tq:1,memory:swap,lock:on", "-c", PROGRAM, "16")
    assert line(third) == "ready"
    for job in (*jobs, third):
        output(job)
    assert "Traceback" not in leased.log.read_text()
