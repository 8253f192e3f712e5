"""What two threads of a program do at one moment; the emulated driver holds one of them there."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.wire import daemon_messages
from tests.emugpu.server import BUILD, EmulatedGpu
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, output, programs, tell

RACES = BUILD.parent / "shim" / "hooks" / "shim_races"
MIB = 1 << 20

Race = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def race(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Race]:
    """Start a scenario of shim_races.c; killed at the end if it still runs."""
    with programs(emulated_gpu, GPU_LEASE_DEBUG="1", EMUGPU_STRICT="1") as all_of_them:
        socket = short_dir / "tenant.sock"
        yield lambda scenario: all_of_them.start(str(RACES), scenario, socket=socket)


def test_a_thread_that_is_cancelled_while_it_waits_holds_up_nobody(
    race: Race, short_dir: Path, uuid: str
) -> None:
    job = race("cancelled while it waits")
    assert line(job) == "cancelled"
    with FakeDaemon(short_dir / "tenant.sock", {uuid: 100 * MIB}):
        assert output(job) == "done\n"


@pytest.fixture
def small(short_dir: Path, uuid: str) -> Iterator[Callable[[bool], FakeDaemon]]:
    """A job that may have 64 MiB, swapped or managed."""
    with contextlib.ExitStack() as stack:

        def start(swaps: bool) -> FakeDaemon:
            path = short_dir / "tenant.sock"
            return stack.enter_context(FakeDaemon(path, {uuid: 64 * MIB}, swaps=swaps))

        yield start


@pytest.mark.parametrize(
    ("what", "swaps"),
    [
        ("plain", False),
        ("ordered", False),
        ("physical", False),
        ("arrays", False),
        ("swapped", True),
        ("physical", True),
    ],
)
def test_threads_do_not_pass_the_limit_together(
    race: Race, small: Callable[[bool], FakeDaemon], what: str, swaps: bool
) -> None:
    small(swaps)
    assert output(race(f"{what} at once")) == "done\n"


@pytest.mark.parametrize("when", ["before", "as"])
def test_no_memory_is_brought_back_in_a_context_that_ends(
    race: Race, small: Callable[[bool], FakeDaemon], uuid: str, when: str
) -> None:
    daemon = small(False)
    job = race(f"ends {when} memory comes")
    assert line(job) == "ready"
    client = daemon.client(job.pid)
    client.restore({uuid: MIB})
    assert line(job) == "destroyed"
    client.calls()  # its client thread has come back
    tell(job)
    assert output(job) == "done\n"


def test_the_process_ends_after_its_client_thread_has_left_the_driver(
    race: Race, daemon: FakeDaemon
) -> None:
    job = race("exits while it drains")
    assert line(job) == "ready"
    client = daemon.client(job.pid)
    client.send(daemon_messages.revoke(client.epoch, 10**10))
    assert output(job) == "done\n"


@pytest.mark.parametrize("what", ["begins", "ends"])
def test_a_threads_capture_mode_is_its_own_afterwards(
    race: Race, small: Callable[[bool], FakeDaemon], what: str
) -> None:
    small(False)
    assert output(race(f"a capture {what} meanwhile")) == "done\n"


def test_a_release_that_is_not_the_last_leaves_the_context_as_it_is(
    race: Race, daemon: FakeDaemon, uuid: str
) -> None:
    job = race("released, not for the last time")
    daemon.auto = False
    client = daemon.client(job.pid)
    client.until("a request", lambda: client.wants)
    client.grant()
    for said in ("ready", "released"):
        assert line(job) == said
        client.revoke()
        client.evict({uuid: 8 * MIB})
        client.grant()
        tell(job)
    assert output(job) == "done\n"


def test_no_thread_takes_a_step_in_a_busy_context(race: Race, daemon: FakeDaemon) -> None:
    """Else those who wait at the gate are let in one after another, and the drain never ends."""
    job = race("drains a crowd")
    client = daemon.client(job.pid)
    assert line(job) == "busy"
    daemon.auto = False
    client.send(daemon_messages.revoke(client.epoch, 10**12))
    client.until("a word that it is stuck", lambda: client.stuck)
    calls = client.calls()
    tell(job)
    assert line(job) == "waits"
    assert {client.calls() for _ in range(300)} == {calls}
    tell(job)
    client.until("a release", lambda: client.released)
    client.grant()
    tell(job)
    assert output(job) == "done\n"
