"""Stops that cannot be done: work is waited for, and that is counted and said."""

from __future__ import annotations

import pytest
from _gpulease import lib

from leased.wire import daemon_messages
from tests.emugpu.server import EmulatedGpu
from tests.shim.channels.handoffs import begun, compute_groups, controlled, held
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import MIB, Program, client_of, finish

# One kernel for each line that it is told.
KERNELS = """
ok(d.cuMemAlloc(MIB)); stream = ok(d.cuStreamCreate(1)); ok(d.cuCtxSynchronize()); spin(1)
ok(d.cuCtxSynchronize()); say("ready")
while sys.stdin.readline().strip() != "end":
    spin(400_000_000, stream); say("runs")
ok(d.cuStreamSynchronize(stream)); say("right")
"""


def given_up(client: Client) -> int:
    return client.channels.given_up if client.channels else 0


def test_a_call_that_never_returns_costs_no_more_than_three_handoffs(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    job = program(KERNELS)
    client = held(daemon, job, "ready")
    emulated_gpu.fail(0, "stop-hangs")
    for n in (1, 2, 3):
        tell(job)
        assert line(job) == "runs"
        assert not client.revoke().stopped
        client.until("the count", lambda n=n: given_up(client) == n)  # type: ignore[misc]
        assert client.channels is not None
        assert (client.channels.state == lib.GL_CHANNELS_REFUSED) == (n == 3)
        assert n < 3 or "does not return" in client.channels.reason
        client.grant()
    tell(job)
    assert line(job) == "runs"
    client.revoke()
    client.calls()  # what it had to say it has said
    assert given_up(client) == 3
    emulated_gpu.fail(0, "controls-work")
    client.grant()
    tell(job, "end")
    assert line(job) == "right"
    finish(job)


def test_calls_that_return_late_are_not_held_against_the_driver(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    job = program(KERNELS)
    client = held(daemon, job, "ready")
    for n in (1, 2, 3, 4):
        emulated_gpu.fail(0, "stop-hangs")
        tell(job)
        assert line(job) == "runs"
        assert not client.revoke().stopped
        client.until("the count", lambda n=n: given_up(client) == n)  # type: ignore[misc]
        emulated_gpu.fail(0, "controls-work")
        client.grant()
        tell(job)
        assert line(job) == "runs"
        assert client.revoke().stopped  # so the call has returned
        client.grant()
    controlled(client)
    tell(job, "end")
    assert line(job) == "right"
    finish(job)


def test_all_goes_on_while_our_own_thread_is_in_the_driver(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    """It may wait there for a thread of the program, and that one for kernels or copies."""
    job = program(
        """
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 4)
stream = ok(d.cuStreamCreate(1)); spin(1); ok(d.cuCtxSynchronize())
lib = ctypes.CDLL("libcuda.so.1"); lib.emugpu_hold(b"cuMemcpyDtoHAsync_v2", 0)
spin(3_000_000_000, stream); say("runs"); assert lib.emugpu_held(); say("held")
wait(); lib.emugpu_let(); ok(d.cuStreamSynchronize(stream)); check_all(p, 40 * MIB, 4); say("right")
"""
    )
    client = held(daemon, job)
    client.send_revoke()
    assert line(job) == "held"
    wait_until(
        "all to go on",
        lambda: not any(group["stopped"] for group in emulated_gpu.stats()["groups"]),
        timeout=30,  # it is held for a minute
    )
    tell(job)
    emulated_gpu.end_spins()
    client.until("release", lambda: client.released)
    client.grant()
    assert line(job) == "right"
    finish(job)


def test_a_duty_of_nothing_does_not_keep_our_own_thread_in_the_driver(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """A thread of the program that waits there for the GPU may hold what it waits for, so that it
    would not hear that the duty ends."""
    job = program(
        """
stream = ok(d.cuStreamCreate(1)); spin(1); ok(d.cuCtxSynchronize())
lib = ctypes.CDLL("libcuda.so.1"); say("there"); wait()
lib.emugpu_hold(b"cuCtxRecordEvent", 0); spin(10_000_000, stream); assert lib.emugpu_held()
ok(d.cuStreamSynchronize(stream)); say("done"); wait()
lib.emugpu_let(); say("right"); wait()
"""
    )
    client = begun(daemon, job, "there")
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 0))
    wait_until("a stop", lambda: compute_groups(emulated_gpu)[0]["stopped"] == 8)
    tell(job)
    assert line(job) == "done"
    tell(job)
    assert line(job) == "right"
    tell(job)
    finish(job)


@pytest.mark.parametrize(
    ("symbol", "call"),
    [
        ("cuMemHostUnregister", "cuMemHostUnregister(ctypes.addressof(host))"),
        ("cuMemcpyHtoD_v2", "cuMemcpyHtoD(p, host, MIB)"),
    ],
)
def test_a_thread_that_is_in_the_driver_is_waited_for_and_counted(
    program: Program, daemon: FakeDaemon, symbol: str, call: str
) -> None:
    job = program(
        f"""
import threading
p = ok(d.cuMemAlloc(MIB)); stream = ok(d.cuStreamCreate(1)); spin(1); ok(d.cuCtxSynchronize())
host = (ctypes.c_char * MIB)(); ok(d.cuMemHostRegister(ctypes.addressof(host), MIB, 0))
lib = ctypes.CDLL("libcuda.so.1"); lib.emugpu_hold(b"{symbol}", 0)
def call(): ok(d.cuCtxSetCurrent(ctx)); ok(d.{call})
thread = threading.Thread(target=call); thread.start()
assert lib.emugpu_held(); spin(300_000_000, stream); say("held")
wait(); lib.emugpu_let(); thread.join(); ok(d.cuCtxSynchronize()); say("right"); wait()
"""
    )
    client = held(daemon, job, "held")
    client.send_revoke()
    client.until("the count", lambda: given_up(client) == 1)
    assert client.channels is not None
    assert client.channels.state == lib.GL_CHANNELS_CONTROLLED
    assert client.channels.reason == "a thread of the program was in a call of the driver"
    tell(job)
    client.until("release", lambda: client.released)
    assert not client.released[-1].stopped
    client.grant()
    assert line(job) == "right"
    tell(job)
    finish(job)


def test_a_thread_that_frees_is_no_hindrance(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """It waits for the kernel, as with the driver alone, but not where a stop would wait for it."""
    job = program(
        """
import threading, time
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 4); q = ok(d.cuMemAlloc(40 * MIB))
stream = ok(d.cuStreamCreate(1)); ok(d.cuCtxSynchronize()); spin(1_500_000_000, stream)
def free(): ok(d.cuCtxSetCurrent(ctx)); say("frees"); ok(d.cuMemFree(q)); say("freed")
thread = threading.Thread(target=free); thread.start(); time.sleep(0.1); say("runs")
thread.join(); assert d.cuStreamQuery(stream)[0] == 0
check_all(p, 40 * MIB, 4); say("right")
"""
    )
    client = client_of(daemon, job)
    assert [line(job), line(job)] == ["frees", "runs"]
    controlled(client)
    daemon.auto = False
    assert client.revoke().stopped
    client.evict({uuid: 80 * MIB})
    client.grant()
    emulated_gpu.end_spins()
    assert [line(job), line(job)] == ["freed", "right"]
    finish(job)
