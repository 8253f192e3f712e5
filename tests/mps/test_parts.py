"""Components of a chain under MPS have the parts of the multiprocessors that the daemon tries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_lease.chain import AFFINITY, GREEN
from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, line
from tests.support.chain import COMPONENT, LIBRARY

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
    """Half of 132 multiprocessors: green contexts have multiples of 8. Where the first
    search goes from there depends on what it sees."""
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    for one in [tenant(job, "chain:c", "-c", WORKS, str(how), env=env) for job in (1, 2)]:
        assert [line(one) for _ in range(2)] == ["100 132", f"50 {half}"]
        assert 5 <= int(line(one).split()[0]) <= 100


# It says the part with which it began, and does not know that the daemon changes that.
FIXED = (
    IMPORTS
    + """
setup()
say(os.getppid(), os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"])
while True:
    ok(launch("spin", 5_000_000)); ok(d.cuCtxSynchronize())
"""
)
EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


MOST = 20  # beginnings


def beginnings(one: subprocess.Popen[str]) -> list[tuple[int, int]]:
    """Who has started the program, and its part, until it has begun with a smaller one and once
    more. On a busy machine the daemon may try the next part before the program has begun again."""
    said: list[tuple[int, int]] = []
    while len(said) < MOST and all(part == 100 for _, part in said[:-1]):
        by, part = map(int, line(one).split())
        said.append((by, part))
    return said


@pytest.mark.daemon(hurried=HURRIED)
def test_a_component_is_started_again_with_another_part(tenant: Start) -> None:
    """The same process starts it, so the chain's components stay the same."""
    fixed = (str(COMPONENT), sys.executable, "-c", FIXED)
    both = [tenant(job, "chain:c", "-c", EXEC, *fixed) for job in (1, 2)]
    for said, one in zip([beginnings(one) for one in both], both):
        ((by, first), *_) = said
        assert first == 100
        assert {again for again, _ in said} == {by}
        assert any(part < 100 for _, part in said)
        assert all(5 <= part <= 100 for _, part in said)
        os.kill(by, signal.SIGTERM)
        assert one.wait() == -signal.SIGTERM % 256, "as the component does"


# Another library of this name is found before the interposer's.
ASKS = """
static unsigned n;
void gpu_lease_chain_ask_part(unsigned *percent, unsigned *begins)
{
	*percent = 5 + 5 * (n % 19);
	*begins = (n++ * 37) % (1001 - 10 * *percent);
}
"""
CHANGES = (
    IMPORTS
    + """
from gpu_lease.chain import Chain
from tests.emugpu.program_api import load
setup()
chain, p = Chain(), ok(d.cuMemAlloc(MIB))
ok(launch("fill", p, 1, 0)); ok(d.cuCtxSynchronize())
for n in range(100):
    part = chain.part(int(sys.argv[1]))
    assert part.percent == 5 + 5 * (n % 19) <= 100 * part.multiprocessors / 132, part
    functions.update(load())
    ok(launch("add", p, 1, 1, 1, stream=part.stream)); ok(d.cuStreamSynchronize(part.stream))
say(words(p, 1))
"""
)


@pytest.mark.parametrize("how", [GREEN, AFFINITY])
def test_more_parts_than_are_kept_can_be_had_wherever_they_begin(
    tenant: Start, short_dir: Path, how: int
) -> None:
    asks = short_dir / "asks.so"
    build = ("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(asks))
    subprocess.run(build, input=ASKS, text=True, check=True)
    env = {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY), "LD_PRELOAD": str(asks)}
    assert line(tenant(1, "chain:c", "-c", CHANGES, str(how), env=env)) == "[100]"
