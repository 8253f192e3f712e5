"""Whose work a device does is asked of NVML, and the lease time side by side is divided by it."""

from __future__ import annotations

from typing import Any

from leased.api.client import ask
from tests.conftest import Start
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, tell

# Both hold the GPU, since each has work there as long as nobody takes it: one has little.
IDLE = SET_UP + "ok(spin(1000)); say('has it'); sys.stdin.readline()\n"
BUSY = (
    SET_UP
    + """
import select
say("has it")
while not select.select([sys.stdin], [], [], 0)[0]:
    ok(spin(50_000_000)); ok(d.cuCtxSynchronize())
say("again")
"""
)


def figures(leased: Leased, job: int) -> dict[str, Any]:
    answer = ask(leased.admin_socket, {"op": "usage", "job_id": job})
    [(_, found)] = answer["usage"].items()
    return dict(found)


def test_the_process_that_works_has_the_lease_time(leased: Leased, tenant: Start) -> None:
    idle = tenant(1, "lock:off", "-c", IDLE)
    assert line(idle) == "has it"
    busy = tenant(2, "lock:off", "-c", BUSY)
    assert line(busy) == "has it"

    def divided() -> bool:
        """Evenly their parts beside each other would be the same."""
        one, other = figures(leased, 1), figures(leased, 2)
        beside = min(one["shared_s"], other["shared_s"])
        return bool(beside > 2 and other["lease_s"] > 0.75 * other["shared_s"])

    wait_until("the lease to be divided by the work", divided)
    one, other = figures(leased, 1), figures(leased, 2)
    assert one["busy_s"] < other["busy_s"]
    tell(busy)
    tell(idle)
    assert line(busy) == "again"
