"""Components of a chain under MPS have the parts of the multiprocessors that the daemon tries."""

from __future__ import annotations

import pytest

from gpu_lease.chain import AFFINITY, GREEN
from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, line
from tests.support.chain import LIBRARY

# What the daemon tries, it tries soon.
HURRIED = tuple(
    f"leased.{one}"
    for one in (
        *("chains.optimiser.SETTLES_S=0.1", "chains.optimiser.FIRST_S=0.1"),
        *("chains.optimiser.WINDOWS=1", "chains.optimiser.ENOUGH=5"),
        "monitors.device_monitor.LOOK_S=0.05",
    )
)
# It says its part whenever that is another one.
WORKS = (
    IMPORTS
    + """
from gpu_lease.chain import Chain
from tests.emugpu.program_api import load
setup()
chain, said, loaded = Chain(), None, {}
while True:
    part = chain.part(int(sys.argv[1]))
    if part.context not in loaded:
        loaded[part.context] = load()
    functions.update(loaded[part.context])
    ok(launch("spin", 5_000_000, stream=part.stream)); ok(d.cuStreamSynchronize(part.stream))
    if part[:2] != said:
        said = part[:2]; say(*said)
"""
)


@pytest.mark.daemon(hurried=HURRIED)
@pytest.mark.parametrize(("how", "half"), [(GREEN, 72), (AFFINITY, 66)])
def test_components_change_their_parts_while_they_run(tenant: Start, how: int, half: int) -> None:
    """Half of 132 multiprocessors: green contexts have multiples of 8."""
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    for one in [tenant(job, "chain:c", "-c", WORKS, str(how), env=env) for job in (1, 2)]:
        assert [line(one) for _ in range(3)] == ["100 132", f"50 {half}", "100 132"]
