"""Chains of real processes on the emulated GPU: who their components are, and what is counted."""

from __future__ import annotations

from typing import Any

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.programs import IMPORTS
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line

WORKS = (
    IMPORTS
    + """
setup()
say(os.getpid())
while True:
    ok(launch("spin", 1_000_000)); ok(d.cuCtxSynchronize())
"""
)


def chain(leased: Leased) -> Any:
    return ask(leased.admin_socket, {"op": "status"})["devices"][0]["chain"]


def components(leased: Leased) -> list[tuple[str, int]]:
    found = chain(leased)
    return [(one["job"], one["pid"]) for one in found["components"]] if found else []


def test_jobs_of_a_chain_are_its_components_until_another_job_comes(
    leased: Leased, tenant: Start
) -> None:
    later = tenant(2, "chain:c", "-c", WORKS)
    second = int(line(later))
    first = int(line(tenant(1, "chain:c", "-c", WORKS)))
    wait_until("both components", lambda: components(leased) == [("1", first), ("2", second)])
    wait_until("their throughput", lambda: (chain(leased) or {"calls_s": 0})["calls_s"])
    line(tenant(3, "", "-c", WORKS))
    wait_until("it not to be alone", lambda: chain(leased) is None)
