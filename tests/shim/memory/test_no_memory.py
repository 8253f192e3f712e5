"""A job that may have nothing of its device: nothing is not "as much as there is"."""

from __future__ import annotations

import pytest
from _gpulease import lib

from tests.shim.memory.test_reported_memory import NVML
from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell

NOTHING = (
    NVML
    + """
assert ok(d.cuMemGetInfo()) == (0, 0), ok(d.cuMemGetInfo())
assert ok(d.cuDeviceTotalMem(0)) == 0
assert nvml() == (0, 0)
for ask in (1, 2 << 20, 64 << 20):
    for result, *_ in (d.cuMemAlloc(ask), d.cuMemAllocManaged(ask, 1), d.cuMemAllocAsync(ask, 0)):
        assert result == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY, (ask, result)
say("ready"); wait()
"""
)


@pytest.mark.parametrize("flags", [0, lib.GL_WELCOME_SWAP])
def test_a_total_of_0_is_no_memory(program: swap.Program, daemon: FakeDaemon, flags: int) -> None:
    daemon.welcome.flags = flags
    daemon.welcome.devices[0].bytes = 0
    job = program(NOTHING)
    swap.client_of(daemon, job)
    assert line(job) == "ready"
    tell(job)
    swap.finish(job)
