"""The interposer's lease: which messages of the daemon are meant for the lease that it has."""

from __future__ import annotations

import pytest

from leased.wire import daemon_messages
from tests.slurm.processes import wait_until
from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell

MS = 10**6

PAUSES = """
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("again"); wait()
"""


def test_displaced_memory_is_restored_for_the_lease_that_the_process_holds(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    job = program(PAUSES)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    client.restore()
    tell(job)
    assert line(job) == "again"
    assert client.wants == 1, "the gate was open all the time"
    tell(job)
    swap.finish(job)


def test_a_restore_that_crosses_a_release_opens_nothing(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    """The daemon has not heard of the release yet, but will; then others have the device."""
    job = program(PAUSES)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    daemon.auto = False
    client.send(daemon_messages.contended(client.epoch, 10 * MS, 0))
    client.until("a release", lambda: client.released)
    client.restore()
    tell(job)
    client.until("a request", lambda: client.wants > 1)
    client.grant()
    assert line(job) == "again"
    tell(job)
    swap.finish(job)


@pytest.mark.parametrize("between", ["nothing", "a request of its own"])
def test_its_job_may_get_the_same_lease_again(
    program: swap.Program, daemon: FakeDaemon, between: str
) -> None:
    """Another process of the job has it still, so the epoch has not changed."""
    job = program(PAUSES)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    daemon.auto = False
    client.send(daemon_messages.contended(client.epoch, 10 * MS, 0))
    client.until("a release", lambda: client.released)
    tell(job)
    if between != "nothing":
        client.until("a request", lambda: client.wants > 1)
    client.send(daemon_messages.grant(client.epoch, {}))
    assert line(job) == "again"
    tell(job)
    swap.finish(job)


def test_it_says_when_it_rests_and_when_it_works_again(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    job = program(
        """
import time
say("begins")
while True:
    ok(spin(60_000_000)); ok(d.cuCtxSynchronize()); time.sleep(0.06)
"""
    )
    client = swap.client_of(daemon, job)
    assert line(job) == "begins"

    def has_said_both() -> bool:
        client.watch()
        return client.rests[:2] == [True, False]

    wait_until("RESTS, and then WORKS", has_said_both)
    job.kill()


@pytest.mark.usefixtures("daemon")
def test_the_daemon_is_where_the_environment_said_at_the_start(program: swap.Program) -> None:
    """The program may change its environment, from any thread, and so nobody reads it later."""
    job = program(
        """
os.environ["GPU_LEASE_SOCKET"] = "/nowhere"
ok(d.cuMemAlloc(MIB))
"""
    )
    swap.finish(job)
