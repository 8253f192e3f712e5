"""Memory of jobs under MPS that does not fit together leaves and comes back while they work."""

from __future__ import annotations

from tests.bench.handoff import moved
from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, finish, go_on, line
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until

MIB = 160  # of 256
# It adds 1 to all words, one pass after the other, until it is told to end; then it looks at some.
WORKS = (
    IMPORTS
    + f"""
import select
setup()
n = {MIB} * MIB // 4
p = ok(d.cuMemAlloc(4 * n)); ok(launch("fill", p, n, 7, grid=1024)); ok(d.cuCtxSynchronize())
say("ready"); wait()
passes = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    ok(launch("add", p, n, 1, 1, grid=1024)); ok(d.cuCtxSynchronize()); passes += 1
wrong = sum(words(int(p) + 4 * i, 1) != [word(7 + passes, i)] for i in range(0, n, 65537))
say("wrong", wrong)
"""
)


def test_memory_moves_while_jobs_work(tenant: Start, emulated_gpu: EmulatedGpu) -> None:
    jobs = [tenant(job, "space:mps,memory:swap,tq:100ms", "-c", WORKS) for job in (1, 2)]
    for job in jobs:
        assert line(job) == "ready"
    before, _ = moved(emulated_gpu)
    for job in jobs:
        go_on(job)
    wait_until(
        "each to have lost memory to the other twice",
        lambda: moved(emulated_gpu)[0] >= before + 4 * (2 * MIB - 256) * 2**20,
    )
    for job in jobs:
        go_on(job)
        assert finish(job).split()[-2:] == ["wrong", "0"]
