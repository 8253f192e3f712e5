"""Programs that do something odd while their work is stopped in mid-kernel: odd_stops.c."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from _gpulease import lib

from tests.emugpu.server import BUILD, EmulatedGpu
from tests.shim.channels.handoffs import compute_groups, controlled
from tests.slurm.leased import CHECKED
from tests.slurm.processes import wait_until
from tests.support import swap_programs as swap
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import Process, line, output, programs, tell

FOLDER = BUILD.parent / "shim" / "channels"
ALL = 1 << 40  # bytes
HANDOFFS = 20

Odd = Callable[..., Process]


@pytest.fixture
def odd(emulated_gpu: EmulatedGpu, short_dir: Path) -> Iterator[Odd]:
    """Start a scenario of odd_stops.c; killed at the end if it still runs."""
    with programs(emulated_gpu, GPU_LEASE_DEBUG="1") as all_of_them:

        def start(scenario: str, **env: str) -> Process:
            all_of_them.env |= env
            return all_of_them.start(
                str(FOLDER / "odd_stops"), scenario, socket=short_dir / "tenant.sock"
            )

        yield start


def running(odd: Odd, daemon: FakeDaemon, scenario: str, **env: str) -> tuple[Process, Client]:
    """A process in mid-kernel, whose lease is the test's."""
    job = odd(scenario, **env)
    client = daemon.client(job.pid)
    assert line(job) == "runs"
    client.until("word of its channel groups", lambda: client.channels)
    daemon.auto = False
    return job, client


def goes_on(client: Client, gpu: EmulatedGpu) -> None:
    """With its lease, until a kernel of it runs or waits to."""
    client.grant()
    wait_until("work", lambda: any(group["queued"] for group in compute_groups(gpu)))


def ends_right(job: Process, gpu: EmulatedGpu) -> None:
    """It has been told to end. Its kernels have been there for long enough."""
    gpu.end_spins()
    assert output(job) == "right\n"


def stop(client: Client, uuid: str, gpu: EmulatedGpu) -> None:
    """In mid-kernel; all of its memory leaves. A busy machine may need more than one handoff."""
    controlled(client)
    for _ in range(HANDOFFS):
        if client.revoke().stopped:
            break
        goes_on(client, gpu)
    assert client.released[-1].stopped
    client.evict({uuid: ALL})


def stops_of(client: Client, gpu: EmulatedGpu, least: int, leaves: Mapping[str, int]) -> int:
    """How many of its handoffs, of at least so many, have stopped it; more are made while none
    has. leaves: by device, bytes that it evicts in each."""
    controlled(client)
    stops = handoffs = 0
    while handoffs < least or (not stops and handoffs < HANDOFFS):
        stops += client.revoke().stopped
        if leaves:
            client.evict(leaves)
        goes_on(client, gpu)
        handoffs += 1
    return stops


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        ("hidden subdevices", "does not say which GPU a channel group is of"),
        ("hidden groups", "makes no channel groups in this process"),
    ],
)
def test_groups_that_are_not_known_are_drained(
    odd: Odd, daemon: FakeDaemon, emulated_gpu: EmulatedGpu, scenario: str, why: str
) -> None:
    """A library that speaks in another way with its kernel's module, or not by ioctl."""
    job, client = running(odd, daemon, scenario)
    client.until(
        "refusal",
        lambda: client.channels and client.channels.state == lib.GL_CHANNELS_REFUSED,
    )
    assert client.channels is not None
    assert why in client.channels.reason
    assert not client.revoke().stopped
    client.grant()
    tell(job)
    ends_right(job, emulated_gpu)


@pytest.mark.parametrize("refusal", ["EPERM", "ENOSYS"])
def test_a_process_that_has_shut_itself_in_is_drained(
    odd: Odd, daemon: FakeDaemon, emulated_gpu: EmulatedGpu, refusal: str
) -> None:
    """A filter of system calls (seccomp) refuses all threads to control anything."""
    job = odd(f"shut in, {refusal}")
    client = daemon.client(job.pid)
    assert line(job) == "there"
    controlled(client)
    daemon.auto = False
    tell(job)
    assert line(job) == "runs"

    def refused() -> bool:
        return client.channels is not None and client.channels.state == lib.GL_CHANNELS_REFUSED

    for _ in range(HANDOFFS):
        assert not client.revoke().stopped
        goes_on(client, emulated_gpu)
        client.calls()  # what it had to say it has said
        if refused():
            break
    assert client.channels is not None
    number = getattr(errno, refusal)
    assert client.channels.reason == (
        f"the system refuses to take channels off the GPU (errno {number})"
    )
    assert not client.revoke().stopped
    client.grant()
    tell(job)
    ends_right(job, emulated_gpu)


@pytest.mark.parametrize(
    "scenario", ["plain", "wrapped later", "second namespace", "bound deeply", "resets another"]
)
def test_what_is_odd_is_no_hindrance(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, scenario: str
) -> None:
    job, client = running(odd, daemon, scenario)
    stop(client, uuid, emulated_gpu)
    tell(job)
    client.grant()
    ends_right(job, emulated_gpu)


def test_a_tracer_between_the_library_and_the_kernel(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = running(odd, daemon, "plain", LD_AUDIT=str(FOLDER / "libaudit.so"))
    stop(client, uuid, emulated_gpu)
    tell(job)
    client.grant()
    ends_right(job, emulated_gpu)


def test_children_leave_the_stop_alone(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = running(odd, daemon, "forks")
    stop(client, uuid, emulated_gpu)
    tell(job)
    assert line(job) == "forked"
    assert all(group["stopped"] for group in compute_groups(emulated_gpu))
    client.grant()
    ends_right(job, emulated_gpu)


def test_a_program_is_replaced_while_it_is_stopped(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = running(odd, daemon, "executes")
    stop(client, uuid, emulated_gpu)
    daemon.auto = True
    tell(job)
    client.until_gone()
    assert line(job) == "runs"
    daemon.auto = False
    stop(daemon.client(job.pid), uuid, emulated_gpu)
    tell(job)
    daemon.client(job.pid).grant()
    ends_right(job, emulated_gpu)


def test_the_thread_that_has_submitted_it_ends(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = running(odd, daemon, "thread ends")
    stop(client, uuid, emulated_gpu)
    tell(job)
    client.grant()
    ends_right(job, emulated_gpu)


def test_its_context_is_destroyed_meanwhile(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = running(odd, daemon, "destroys its own")
    stop(client, uuid, emulated_gpu)
    tell(job)
    client.grant()
    emulated_gpu.end_spins()
    assert line(job) == "destroyed"
    assert output(job) == "right\n"


@pytest.mark.parametrize("scenario", ["captures", "loads", "frees", "copies"])
def test_threads_call_the_driver_meanwhile(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, scenario: str
) -> None:
    """It is stopped, or given up and drained; what it computes is right either way."""
    job, client = running(odd, daemon, scenario)
    assert stops_of(client, emulated_gpu, 8, {uuid: ALL})
    tell(job)
    ends_right(job, emulated_gpu)


@pytest.mark.parametrize("memory", ["swap", "managed"])
def test_clocks_leap(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, memory: str
) -> None:
    """Stops may end early, but nothing hangs, and results are right."""
    job, client = running(
        odd, daemon, "plain", LD_PRELOAD=f"{FOLDER / 'libstepping_clocks.so'}:{CHECKED}"
    )
    assert stops_of(client, emulated_gpu, 4, {uuid: ALL} if memory == "swap" else {})
    tell(job)
    ends_right(job, emulated_gpu)


# -- signals ---------------------------------------------------------------------------------------


def hanging(odd: Odd, daemon: FakeDaemon, gpu: EmulatedGpu) -> tuple[Process, Client]:
    """A process in mid-stop: its call does not return."""
    job, client = running(odd, daemon, "plain")
    controlled(client)
    gpu.fail(0, "stop-hangs")
    client.send_revoke()
    return job, client


def test_it_is_killed_in_mid_stop(odd: Odd, daemon: FakeDaemon, emulated_gpu: EmulatedGpu) -> None:
    free = swap.free_bytes(emulated_gpu)
    job, _ = hanging(odd, daemon, emulated_gpu)
    os.kill(job.pid, signal.SIGKILL)
    job.wait(60)
    emulated_gpu.fail(0, "controls-work")
    wait_until("it is gone", lambda: swap.free_bytes(emulated_gpu) >= free)
    daemon.auto = True
    other = odd("plain")
    assert line(other) == "runs"
    tell(other)
    ends_right(other, emulated_gpu)


def test_it_is_halted_in_mid_stop(
    odd: Odd, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = hanging(odd, daemon, emulated_gpu)
    os.kill(job.pid, signal.SIGSTOP)
    emulated_gpu.fail(0, "controls-work")
    os.kill(job.pid, signal.SIGCONT)
    client.until("release", lambda: client.released)
    client.evict({uuid: ALL})
    client.grant()
    tell(job)
    ends_right(job, emulated_gpu)
