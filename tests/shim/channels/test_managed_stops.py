"""Stops in mid-kernel of programs with managed memory, which the driver moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.wire import daemon_messages
from tests.emugpu.server import EmulatedGpu
from tests.shim.channels.handoffs import (
    SHORT_NS,
    compute_groups,
    controlled,
    goes_on_right,
    held,
)
from tests.shim.channels.test_odd_stops import ENDS, WRITES
from tests.slurm.processes import wait_until
from tests.support import swap_programs as swap
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import Process, line, tell
from tests.support.swap_programs import MIB, TOTAL, Program, client_of, finish
from tests.support.together import zip_strict

# A kernel that the test outlasts, and one behind it that writes managed memory.
MANAGED = (
    WRITES.replace("d.cuMemAlloc(100 * MIB)", "d.cuMemAllocManaged(100 * MIB, 1)")
    + "say('runs'); wait()"
    + ENDS
)
# Kernels that change all of it, for as long as the test wants.
CHANGES = """
import threading
p = ok(d.cuMemAllocManaged(160 * MIB, 1)); fill(p, 160 * MIB, 7); ok(d.cuCtxSynchronize())
values = ((int(p), 40 * MIB, 1, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32,
    ctypes.c_uint32))
ends = threading.Event(); threading.Thread(target=lambda: (wait(), ends.set())).start()
say("runs"); n = 0
while not ends.is_set() or n % 8:
    ok(d.cuLaunchKernel(kernel["add"], 4, 1, 1, 64, 1, 1, 0, 0, values, 0)); n += 1
    if n % 8 == 0: ok(d.cuCtxSynchronize())
check_all(p, 160 * MIB, 7 + n); say("right", n)
"""


@pytest.fixture(params=["managed", "swap"])
def daemon(request: pytest.FixtureRequest, short_dir: Path, uuid: str) -> Iterator[FakeDaemon]:
    swaps = request.param == "swap"
    with FakeDaemon(short_dir / "tenant.sock", {uuid: TOTAL}, swaps=swaps) as fake:
        yield fake


def stopped(program: Program, daemon: FakeDaemon) -> tuple[Process, Client]:
    job = program(MANAGED)
    client = held(daemon, job)
    assert client.revoke().stopped
    return job, client


def test_what_its_neighbour_displaces_meanwhile_comes_back(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = stopped(program, daemon)
    daemon.auto = True
    out = swap.out_bytes(emulated_gpu)
    other = program(
        "p = ok(d.cuMemAlloc(220 * MIB)); fill(p, 220 * MIB, 3); ok(d.cuCtxSynchronize())\n"
        "say('full'); wait(); check_all(p, 220 * MIB, 3)"
    )
    client_of(daemon, other)
    assert line(other) == "full"
    assert swap.out_bytes(emulated_gpu) > out
    client.grant({uuid: 100 * MIB})
    goes_on_right(job, emulated_gpu)
    tell(other)
    finish(other)


def test_all_of_it_leaves_while_it_is_stopped(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """As of a job that is suspended."""
    job, client = stopped(program, daemon)
    free = swap.free_bytes(emulated_gpu)
    client.send(daemon_messages.LEAVE)
    wait_until("room", lambda: swap.free_bytes(emulated_gpu) >= free + 98 * MIB, timeout=60)
    assert all(group["stopped"] for group in compute_groups(emulated_gpu))
    client.grant({uuid: 100 * MIB})
    goes_on_right(job, emulated_gpu)


def test_a_revoke_comes_while_stopped_work_has_gone_on(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Its memory is still on its way then."""
    job, client = stopped(program, daemon)
    for _ in range(4):
        client.grant({uuid: 100 * MIB})
        assert client.revoke().stopped
    client.grant({uuid: 100 * MIB})
    goes_on_right(job, emulated_gpu)


def test_two_that_do_not_fit_take_turns(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    """Kernels are stopped while their pages come in."""
    jobs, clients = [], []
    for _ in range(2):
        daemon.auto = True
        jobs.append(program(CHANGES))
        clients.append(client_of(daemon, jobs[-1]))
        assert line(jobs[-1]) == "runs"
        controlled(clients[-1])
        daemon.auto = False
        clients[-1].revoke()
    stops, turns = 0, 0
    while turns < 12 or not stops:  # on a busy machine work may be over before it is to be stopped
        clients[turns % 2].grant({uuid: 160 * MIB})
        clients[turns % 2].calls()
        stops += clients[turns % 2].revoke().stopped
        turns += 1
    for job, client in zip_strict(jobs, clients):
        client.grant({uuid: 160 * MIB})
        tell(job)
        assert line(job).startswith("right")
        finish(job)


def test_a_holder_runs_at_full_speed_until_its_handoff(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    """While another job waits it submits as much ahead as it wants: all of that can be stopped."""
    job = program(
        f"""
stream = ok(d.cuStreamCreate(1)); spin(1); ok(d.cuCtxSynchronize()); say("ready"); wait()
for ns in ({SHORT_NS}, *[1000] * 100): ok(spin(ns, stream))
say(d.cuStreamQuery(stream)[0].name); wait(); ok(d.cuStreamSynchronize(stream)); say("right")
"""
    )
    client = held(daemon, job, "ready")
    client.send(daemon_messages.contended(client.epoch, 10**10, 10**6))
    client.calls()
    tell(job)
    assert line(job) == "CUDA_ERROR_NOT_READY"
    assert client.revoke().stopped
    client.grant()
    goes_on_right(job, emulated_gpu)
