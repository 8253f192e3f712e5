"""A daemon that ends while a process is stopped in mid-kernel, in each phase, and the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.emugpu.server import EmulatedGpu
from tests.shim.channels.handoffs import compute_groups, controlled
from tests.shim.channels.test_odd_stop_programs import ALL, FOLDER
from tests.slurm.processes import wait_until
from tests.support import swap_programs as swap
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import Process, line, output, programs, tell


class Daemons:
    """One after the other, on one socket."""

    def __init__(self, path: Path, uuid: str) -> None:
        self.path, self.uuid, self.now = path, uuid, ExitStack()

    def start(self) -> FakeDaemon:
        """One that grants nobody by itself, after the last one has ended."""
        self.end()
        self.path.unlink(missing_ok=True)
        totals = {self.uuid: swap.TOTAL}
        return self.now.enter_context(FakeDaemon(self.path, totals, auto=False))

    def end(self) -> None:
        self.now.close()


@pytest.fixture
def daemons(short_dir: Path, uuid: str) -> Iterator[Daemons]:
    of_test = Daemons(short_dir / "tenant.sock", uuid)
    yield of_test
    of_test.end()


@pytest.fixture
def job(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Process]:
    with programs(emulated_gpu, GPU_LEASE_DEBUG="1") as all_of_them:
        yield all_of_them.start(
            str(FOLDER / "odd_stops"), "plain", socket=short_dir / "tenant.sock"
        )


def running(daemon: FakeDaemon, job: Process) -> Client:
    client = daemon.client(job.pid)
    client.until("request", lambda: client.wants)
    client.grant()
    assert line(job) == "runs"
    controlled(client)
    return client


def stopped(gpu: EmulatedGpu) -> bool:
    return all(group["stopped"] for group in compute_groups(gpu))


def ends_right(daemon: FakeDaemon, job: Process, uuid: str, gpu: EmulatedGpu) -> None:
    """Under a new daemon, which first has its memory leave. Its kernels have been there for long
    enough."""
    client = daemon.client(job.pid)
    client.until("greeting", lambda: client.memory)
    client.until("release", lambda: client.released or not client.held)
    client.evict({uuid: ALL})
    client.grant()
    tell(job)
    gpu.end_spins()
    assert output(job) == "right\n"


def test_it_ends_while_the_stop_is_asked_for(
    daemons: Daemons, job: Process, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    daemon = daemons.start()
    client = running(daemon, job)
    emulated_gpu.fail(0, "stop-hangs")
    client.send_revoke()
    daemon = daemons.start()
    emulated_gpu.fail(0, "controls-work")
    ends_right(daemon, job, uuid, emulated_gpu)


def test_it_does_not_come_back(
    daemons: Daemons, job: Process, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Work goes on by itself. The next daemon finds it stopped again, and may move its memory."""
    client = running(daemons.start(), job)
    assert client.revoke().stopped
    daemons.end()
    wait_until("work goes on", lambda: not stopped(emulated_gpu), timeout=60)
    daemon = daemons.start()
    ends_right(daemon, job, uuid, emulated_gpu)


def test_it_ends_while_memory_is_away(
    daemons: Daemons, job: Process, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    client = running(daemons.start(), job)
    assert client.revoke().stopped
    client.evict({uuid: ALL})
    daemon = daemons.start()
    again = daemon.client(job.pid)
    again.until("greeting", lambda: again.wants)
    assert stopped(emulated_gpu)
    ends_right(daemon, job, uuid, emulated_gpu)


def test_it_ends_while_memory_comes_back(
    daemons: Daemons, job: Process, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """The process has its lease, and needs no daemon to go on."""
    client = running(daemons.start(), job)
    assert client.revoke().stopped
    client.evict({uuid: ALL})
    client.grant()
    daemons.end()
    tell(job)
    emulated_gpu.end_spins()
    assert output(job) == "right\n"
