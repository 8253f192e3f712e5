"""Channel groups of a process under the interposer: slices, and handoffs in mid-kernel."""

from __future__ import annotations

import os
import signal

import pytest
from _gpulease import ffi, lib

from leased.wire import daemon_messages
from tests.emugpu.server import KERNELS, EmulatedGpu
from tests.shim.channels.handoffs import (
    BUSY,
    LONG_NS,
    SHORT_NS,
    begun,
    busy,
    compute_groups,
    controlled,
    goes_on_right,
    held,
    slices,
)
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import MIB, Program, client_of, finish, free_bytes


def test_a_kernel_is_stopped_and_its_memory_leaves(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """The release does not wait for the kernel, which goes on with the next lease."""
    free = free_bytes(emulated_gpu)
    job, client = busy(program, daemon)
    released = client.revoke()
    assert released.stopped
    assert released.wants
    client.evict({uuid: 100 * MIB})
    assert free_bytes(emulated_gpu) > free - 100 * MIB
    done = emulated_gpu.stats()["processes"][-1]["kernels"]
    tell(job)
    assert emulated_gpu.stats()["processes"][-1]["kernels"] == done  # nothing goes on meanwhile
    client.grant()
    emulated_gpu.end_spins()
    assert line(job) == "right"
    finish(job)


def test_it_is_stopped_in_each_of_several_handoffs(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = busy(program, daemon)
    for amount in (100 * MIB, 40 * MIB, 0, 100 * MIB):
        assert client.revoke().stopped
        client.evict({uuid: amount})
        client.grant()
        client.until("memory", lambda: client.resident(uuid) >= 100 * MIB)
    goes_on_right(job, emulated_gpu)


def test_the_daemon_is_heard_while_work_runs_and_host_memory_is_not_needed(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    """The driver waits for all work before it unregisters some."""
    job, client = busy(program, daemon, LONG_NS)
    client.send(daemon_messages.ahead({uuid: 100 * MIB}))
    client.send(daemon_messages.expect({uuid: 100 * MIB}, tells=True))
    client.until("host memory", lambda: client.ready)
    client.send(daemon_messages.ahead({uuid: 0}))
    for _ in range(3):  # the first one may be answered before it begins
        client.calls()
    assert client.revoke().stopped
    job.kill()


def test_what_it_wrote_after_a_stop_is_not_taken_for_unchanged(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Nothing is submitted after the stop, but the kernel that goes on changes memory."""
    job = program(
        f"""
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 3)
stream = ok(d.cuStreamCreate(1)); ok(d.cuCtxSynchronize())
spin({SHORT_NS}, stream)
values = ((int(p), 10 * MIB, 5, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32,
    ctypes.c_uint32))
ok(d.cuLaunchKernel(kernel["add"], 4, 1, 1, 64, 1, 1, 0, stream, values, 0))
say("runs"); wait()
ok(d.cuStreamSynchronize(stream)); say("done"); wait()
host = bytearray(40 * MIB)
ok(d.cuMemcpyDtoH(host, p, len(host)))
assert all(int.from_bytes(host[4 * i : 4 * i + 4], "little") == (word(3, i) + 5) % 2**32
    for i in range(0, 10 * MIB, 997))
say("right")
"""
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 40 * MIB})
    client.grant()
    emulated_gpu.end_spins()
    tell(job)
    assert line(job) == "done"
    assert not client.revoke().stopped
    client.evict({uuid: 40 * MIB})
    tell(job)
    client.grant()
    assert line(job) == "right"
    finish(job)


def test_copies_that_wait_for_the_kernel_are_no_hindrance(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        f"""
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 9)
host = ok(d.cuMemHostAlloc(MIB, 0))
stream, other = ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1)); ok(d.cuCtxSynchronize())
spin({SHORT_NS}, stream)
for _ in range(8):
    ok(d.cuMemcpyDtoHAsync(host, p, MIB, stream)); ok(d.cuMemcpyHtoDAsync(p, host, MIB, stream))
say("runs"); wait()
ok(d.cuCtxSynchronize()); check_all(p, 40 * MIB, 9); say("right")
"""
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 40 * MIB})
    client.grant()
    goes_on_right(job, emulated_gpu)


@pytest.mark.parametrize(
    "copy", ["cuMemcpyDtoH(host, p, MIB)", "cuMemcpyDtoHAsync(host, p, MIB, 0)"]
)
def test_a_copy_that_waits_for_the_kernel_is_no_hindrance(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, copy: str
) -> None:
    """As item() of a framework, it returns once the kernel and the copy have ended."""
    job = program(
        f"""
import threading
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 4); ok(d.cuCtxSynchronize())
host = bytearray(MIB); spin({SHORT_NS})
def copy():
    ok(d.cuCtxSetCurrent(ctx)); ok(d.{copy})
thread = threading.Thread(target=copy); thread.start()
say("runs"); wait()
thread.join(); ok(d.cuCtxSynchronize())
assert int.from_bytes(host[4096:4100], "little") == word(4, 1024)
check_all(p, 40 * MIB, 4); say("right")
"""
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 40 * MIB})
    client.grant()
    goes_on_right(job, emulated_gpu)


@pytest.mark.parametrize("call", ["cuMemFree(p)", "cuModuleUnload(module)", "cuCtxDestroy(ctx2)"])
def test_calls_that_would_wait_in_the_driver_wait_for_the_lease(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, call: str
) -> None:
    job = program(
        "ctx2 = ok(d.cuCtxCreate(None, 0, 0)); ok(d.cuCtxSetCurrent(ctx))\n"
        + BUSY.format(ns=SHORT_NS).replace(
            "wait()\n", f"wait(); say('calls'); ok(d.{call}); say('returns'); sys.exit()\n"
        )
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    tell(job)
    assert line(job) == "calls"
    wants = client.wants
    client.grant()
    emulated_gpu.end_spins()
    assert line(job) == "returns"
    assert wants
    job.wait(60)


@pytest.mark.parametrize("fault", ["controls-unknown", "stop-hangs", "control-once"])
def test_where_it_cannot_be_done_the_kernel_is_waited_for(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu, fault: str
) -> None:
    if fault == "controls-unknown":
        emulated_gpu.fail(0, fault)
    job = program(BUSY.format(ns=SHORT_NS // 3))
    client = client_of(daemon, job)
    assert line(job) == "runs"
    client.until("word of its channel groups", lambda: client.channels)
    if fault != "controls-unknown":
        emulated_gpu.fail(0, fault)
    daemon.auto = False
    assert not client.revoke().stopped
    emulated_gpu.fail(0, "controls-work")
    assert client.channels is not None
    refused = client.channels.state == lib.GL_CHANNELS_REFUSED
    assert refused == (fault == "controls-unknown")
    assert ("status 0x56" in client.channels.reason) == refused
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_nothing_stays_behind_a_process_that_is_killed_while_it_is_stopped(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    free = free_bytes(emulated_gpu)
    job, client = busy(program, daemon, LONG_NS)
    assert client.revoke().stopped
    os.kill(job.pid, signal.SIGKILL)
    job.wait(60)
    wait_until("its memory is freed", lambda: free_bytes(emulated_gpu) >= free)
    daemon.auto = True
    other, _ = busy(program, daemon, SHORT_NS // 10)
    tell(other)
    assert line(other) == "right"
    finish(other)


def test_a_waiter_stays_stopped_while_the_daemon_is_replaced(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = busy(program, daemon)
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    wants = client.wants
    client.send(daemon_messages.RESYNC)
    client.until("greeting", lambda: client.wants > wants)
    client.send(bytes(ffi.buffer(daemon.welcome)))
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_several_contexts_have_one_slice_together(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """It is divided among those that have work. One that has none keeps nothing of it."""
    job = program(
        """
second = ok(d.cuCtxCreate(None, 0, 0)); idle = ok(d.cuCtxCreate(None, 0, 0))
ok(d.cuCtxSetCurrent(second))
module = ok(d.cuModuleLoadData(KERNELS.read_bytes() + b"\\0"))
spins = {second: ok(d.cuModuleGetFunction(module, b"spin")), ctx: kernel["spin"]}
def work(contexts, ends):
    while not ends.is_set():
        for c in contexts:
            ok(d.cuCtxSetCurrent(c)); kernel["spin"] = spins[c]
            for _ in range(4): ok(spin(5_000_000))
        for c in contexts: ok(d.cuCtxSetCurrent(c)); ok(d.cuCtxSynchronize())
import threading
for contexts in ([ctx, second], [ctx]):
    ends = threading.Event(); thread = threading.Thread(target=work, args=(contexts, ends))
    thread.start(); say("works"); wait(); ends.set(); thread.join()
""".replace("KERNELS", f"__import__('pathlib').Path({str(KERNELS)!r})")
    )
    client = begun(daemon, job, "works")
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, 4000))
    for together in (2000, 4000):

        def has_a_part(us: int = together) -> bool:
            client.calls()  # a daemon asks again and again
            return slices(emulated_gpu) == [us] * 3

        wait_until("a part of the slice", has_a_part, timeout=60)
        tell(job)
    finish(job)


def test_slices_are_as_the_daemon_says(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Also those of later contexts, and until the daemon takes it back."""
    job = program(
        "p = ok(d.cuMemAlloc(MIB)); wait(); second = ok(d.cuCtxCreate(None, 0, 0)); say(0); wait()"
    )
    client = client_of(daemon, job)
    controlled(client)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, 50))
    tell(job)
    assert line(job) == "0"
    wait_until("short slices", lambda: slices(emulated_gpu) == [50, 50])
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, 0))
    wait_until("the driver's own", lambda: slices(emulated_gpu) == [2048, 2048])
    tell(job)
    finish(job)


def test_a_process_that_was_restored_has_its_slices_and_is_stopped(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Its groups have come again, with the same numbers below another client."""
    job = program(
        "p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7); stream = ok(d.cuStreamCreate(1)); "
        "ok(d.cuCtxSynchronize()); say('made'); wait(); "
        "ctypes.CDLL('libcuda.so.1').emugpu_restored(); "
        f"spin({SHORT_NS}, stream); say('runs'); wait(); "
        "ok(d.cuStreamSynchronize(stream)); check_all(p, 100 * MIB, 7); say('right')"
    )
    client = begun(daemon, job, "made")
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, 50))
    wait_until("short slices", lambda: slices(emulated_gpu) == [50])
    daemon.auto = False
    tell(job)
    assert line(job) == "runs"
    wait_until("short slices again", lambda: slices(emulated_gpu) == [50])
    assert client.revoke().stopped
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_a_process_with_a_duty_works_in_one_part_of_each_period(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = busy(program, daemon)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 500, begins=700))
    for _ in range(3):
        wait_until("a stop", lambda: compute_groups(emulated_gpu)[0]["stopped"] == 8)
        wait_until("its end", lambda: compute_groups(emulated_gpu)[0]["stopped"] == 0)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 1000))
    assert client.calls()  # it has heard that
    wait_until("its end", lambda: compute_groups(emulated_gpu)[0]["stopped"] == 0)
    goes_on_right(job, emulated_gpu)


def test_work_that_may_not_be_stopped_finishes_whatever_its_duty(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """A job that is to move has to drain."""
    job, client = busy(program, daemon)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 0))
    wait_until("a stop", lambda: compute_groups(emulated_gpu)[0]["stopped"] == 8)
    client.send(daemon_messages.MOVES)
    assert not client.revoke().stopped
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 1000))
    client.send(daemon_messages.moved(uuid, uuid))
    client.grant()
    goes_on_right(job, emulated_gpu)


# Copies to the device, one after the other.
COPIES = """
import select
p = ok(d.cuMemAlloc(MIB)); host = ok(d.cuMemAllocHost(MIB)); ok(d.cuCtxSynchronize())
say("there"); wait(); n = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    ok(d.cuMemcpyHtoDAsync(p, host, MIB, 0)); ok(d.cuCtxSynchronize()); n += 1
say("right" if n else "no copy")
"""


def off(gpu: EmulatedGpu) -> dict[str, int]:
    """How many channels of each engine are off the device."""
    return {group["engine"]: group["stopped"] for group in gpu.stats()["groups"]}


def copied_in(gpu: EmulatedGpu) -> int:
    return sum(device["in_bytes"] for device in gpu.stats()["devices"])


def test_copies_are_held_with_the_kernels_where_the_daemon_wants_that(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(COPIES)
    client = begun(daemon, job, "there")
    tell(job)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY_COPIES, 500))
    for _ in range(3):
        wait_until("a stop", lambda: off(emulated_gpu)["in"] == off(emulated_gpu)["out"] == 4)
        wait_until("its end", lambda: off(emulated_gpu)["in"] == 0)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY_COPIES, 0))
    wait_until("a stop", lambda: set(off(emulated_gpu).values()) == {4, 8})
    before = copied_in(emulated_gpu)
    assert client.calls()  # time passes
    assert copied_in(emulated_gpu) == before
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 0))
    wait_until("copies to go on beside stopped kernels", lambda: copied_in(emulated_gpu) > before)
    assert off(emulated_gpu)["compute"] == 8
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 1000))
    tell(job)
    assert line(job) == "right"
    finish(job)


def test_memory_leaves_and_comes_back_though_copies_are_held(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    """Somebody else waits for the room."""
    job = program(
        "p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7); ok(d.cuCtxSynchronize())\n"
        "say('there'); wait(); check_all(p, 100 * MIB, 7); say('right')"
    )
    client = held(daemon, job, "there")
    assert not client.revoke().stopped, "it has no work"
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY_COPIES, 0))
    client.evict({uuid: 100 * MIB})
    tell(job)
    client.grant()
    client.until("memory", lambda: client.resident(uuid) >= 100 * MIB)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_DUTY, 1000))
    assert line(job) == "right"
    finish(job)
