"""What a daemon has wanted of channel groups stays for a while when it is gone."""

from __future__ import annotations

import pytest
from _gpulease import lib

from leased.wire import daemon_messages
from tests.emugpu.server import EmulatedGpu
from tests.shim.channels.handoffs import begun, slices
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import tell
from tests.support.swap_programs import Program, finish

MADE_US, SHORT_US = 2048, 50
KEPT_S = 30.0  # as the interposer has it
WORKS = """
import select
p = ok(d.cuMemAlloc(MIB)); ok(d.cuCtxSynchronize()); say("there"); wait()
while not select.select([sys.stdin], [], [], 0)[0]:
    spin(1_000_000); ok(d.cuCtxSynchronize()); say("on")
"""


def kernels(gpu: EmulatedGpu) -> int:
    return sum(process["kernels"] for process in gpu.stats()["processes"])


def test_a_process_that_is_stopped_goes_on_and_keeps_its_short_slices(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """The daemon ends in the moment for which it has stopped an offline job."""
    job = program(WORKS)
    client = begun(daemon, job, "there")
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, SHORT_US))
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 0))
    wait_until("short slices", lambda: slices(emulated_gpu) == [SHORT_US])
    tell(job)
    before = kernels(emulated_gpu)
    daemon.clients.clear()
    client.close()
    daemon.client(job.pid)
    wait_until("it to go on", lambda: kernels(emulated_gpu) >= before + 5)
    assert slices(emulated_gpu) == [SHORT_US]
    tell(job)
    finish(job)


@pytest.mark.long
def test_all_is_as_the_driver_made_it_if_no_daemon_comes_back(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """One that is there and wants something else counts at once."""
    job = program(WORKS)
    client = begun(daemon, job, "there")
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, SHORT_US))
    wait_until("short slices", lambda: slices(emulated_gpu) == [SHORT_US])
    daemon.clients.clear()
    client.close()
    daemon.client(job.pid)
    wait_until("the driver's", lambda: slices(emulated_gpu) == [MADE_US], timeout=2 * KEPT_S)
    tell(job)
    tell(job)
    finish(job)
