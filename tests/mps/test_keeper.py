"""The keeper of a chain under MPS, where one process' fault ends the work of all."""

from __future__ import annotations

from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, line
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.chain import Components

FAULTS = (
    IMPORTS
    + """
setup()
ok(launch("fill", 1 << 50, 1000, 1))
say(error(d.cuCtxSynchronize()))
"""
)


def test_a_fault_of_another_process_ends_the_keeper(leased: Leased, tenant: Start) -> None:
    """The server takes no process before those have ended that had the fault. The keeper would
    stay for its component, and for a minute for the handle that is on its way."""
    with Components(leased) as component:
        one = component()
        one("alloc", 4096)
        one("put", 0)
        assert line(tenant(2, "", "-c", FAULTS)) == "ILLEGAL_ADDRESS"
        ended = "EndedError: the chain's keeper"
        wait_until("its end", lambda: one("alloc", 8 << 20).startswith(ended), timeout=20)
