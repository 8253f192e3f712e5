"""Stops in mid-kernel of programs that do odd things, and where the driver fails meanwhile."""

from __future__ import annotations

import pytest
from _gpulease import lib

from leased.wire import daemon_messages
from tests.emugpu.server import KERNELS, EmulatedGpu
from tests.shim.channels.handoffs import (
    SHORT_NS,
    busy,
    compute_groups,
    controlled,
    goes_on_right,
    held,
    slices,
)
from tests.slurm.leased import IMPATIENT
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import MIB, Program, client_of, finish

# Kernels that write all of p without pause, until the test has had its handoff.
WRITES = f"""
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7)
stream = ok(d.cuStreamCreate(1)); ok(d.cuCtxSynchronize()); spin({SHORT_NS}, stream)
values = ((int(p), 25 * MIB, 5, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32,
    ctypes.c_uint32))
ok(d.cuLaunchKernel(kernel["add"], 4, 1, 1, 64, 1, 1, 0, stream, values, 0))
"""
ENDS = """
ok(d.cuStreamSynchronize(stream)); check_all(p, 100 * MIB, 7 + 5); say("right")
"""


def refused(client: Client, why: str) -> None:
    """It says that its groups cannot be controlled."""
    client.until(
        "refusal", lambda: client.channels and client.channels.state == lib.GL_CHANNELS_REFUSED
    )
    assert client.channels is not None
    assert client.channels.reason == why


def test_a_call_that_fails_while_memory_is_away_lets_nothing_run(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """A context is made now, whose channels cannot be taken off at first. The others stay off."""
    job = program(
        WRITES + "say('runs'); wait()\n"
        "late = ctypes.CDLL('libcuda.so.1').emugpu_late_context\n"
        "assert late(ctypes.byref(ctypes.c_void_p()), 0) == 0; say('made'); wait()" + ENDS
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    emulated_gpu.fail(0, "control-once")
    tell(job)
    assert line(job) == "made"

    def both_are_off() -> bool:
        off = [bool(group["stopped"]) for group in compute_groups(emulated_gpu)]
        assert any(off), "that of the work is, all the time"
        return off == [True, True]

    wait_until("the later one to be off", both_are_off)
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_what_cannot_be_put_back_is_put_back_later(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    job, client = busy(program, daemon)
    assert client.revoke().stopped
    emulated_gpu.fail(0, "controls-unknown")
    client.grant()
    assert client.calls()  # it answers, and goes on
    client.until("a failure", lambda: client.channels and client.channels.reason)
    emulated_gpu.fail(0, "controls-work")
    goes_on_right(job, emulated_gpu)


def test_memory_of_later_than_the_first_work_can_leave_under_a_stop(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        "spin(1); ok(d.cuCtxSynchronize()); wait()" + WRITES + "say('runs'); wait()" + ENDS
    )
    client = client_of(daemon, job)
    controlled(client)
    tell(job)
    assert line(job) == "runs"
    daemon.auto = False
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_forty_contexts(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """Work of the last one is stopped, after the first ones have ended."""
    job = program(
        "contexts = [ok(d.cuCtxCreate(None, 0, 0)) for _ in range(39)]\n"
        "for c in contexts[:3]: ok(d.cuCtxDestroy(c))\n"
        "ok(d.cuDevicePrimaryCtxReset(0)); ok(d.cuCtxSetCurrent(contexts[-1]))\n"
        "contexts += [ok(d.cuCtxCreate(None, 0, 0)) for _ in range(4)]\n"
        "ok(d.cuCtxSetCurrent(contexts[-5]))\n"
        "module = ok(d.cuModuleLoadData(open(KERNELS, 'rb').read() + b'\\0'))\n"
        "kernel = {n: ok(d.cuModuleGetFunction(module, n.encode())) for n in kernel}\n".replace(
            "KERNELS", repr(str(KERNELS))
        )
        + WRITES
        + "say('runs'); wait()"
        + ENDS
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_more_contexts_than_are_known_are_drained(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    """A stop would leave those out that have no place."""
    job = program(
        "spin(1)\n"
        "for _ in range(64): ok(d.cuCtxCreate(None, 0, 0)); ok(d.cuCtxPopCurrent())"
        + WRITES
        + "say('runs'); wait()"
        + ENDS
    )
    client = client_of(daemon, job)
    assert line(job) == "runs"
    refused(client, "the process has too many contexts (more than 64)")
    daemon.auto = False
    assert not client.revoke().stopped
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_a_driver_that_answers_otherwise_is_left_alone(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    """The same call may mean something else to another release of it."""
    emulated_gpu.fail(0, "own-slice", 30000)
    job = program("ok(d.cuMemAlloc(MIB)); say('there'); wait(); say('right')")
    client = client_of(daemon, job)
    assert line(job) == "there"
    refused(client, "the driver tells other time slices than its library has set")
    goes_on_right(job, emulated_gpu)


def test_slices_that_the_program_sets_are_set_back_and_told_of(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = busy(program, daemon)
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, 50))
    wait_until("the slice", lambda: slices(emulated_gpu) == [50])
    emulated_gpu.fail(0, "own-slice", 30000)
    assert slices(emulated_gpu) == [30000]
    emulated_gpu.fail(0, "controls-work")

    def are_set_back() -> bool:
        client.calls()  # a daemon asks again and again
        return slices(emulated_gpu) == [50]

    wait_until("the slice", are_set_back)
    controlled(client)
    emulated_gpu.fail(0, "own-slice", 30000)

    def is_told() -> bool:
        client.calls()
        return client.channels is not None and client.channels.state == lib.GL_CHANNELS_REFUSED

    wait_until("it to be told", is_told)
    refused(client, "the program sets its time slices itself")
    goes_on_right(job, emulated_gpu)


@pytest.mark.parametrize("channels", [33, 64])
def test_many_channels(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, channels: int
) -> None:
    emulated_gpu.fail(0, "channels", channels)
    job = program(WRITES + "say('runs'); wait()" + ENDS)
    client = held(daemon, job)
    assert client.revoke().stopped
    assert compute_groups(emulated_gpu)[0]["stopped"] == channels
    client.evict({uuid: 100 * MIB})
    client.grant()
    goes_on_right(job, emulated_gpu)


def test_a_slice_that_could_not_be_set_is_set_later(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job, client = busy(program, daemon)
    emulated_gpu.fail(0, "control-once")
    client.send(daemon_messages.run(uuid, lib.GL_RUN_SLICE, 50))
    wait_until("the slice", lambda: compute_groups(emulated_gpu)[0]["slice_us"] == 50, timeout=20)
    goes_on_right(job, emulated_gpu)


GREEN = """
resource = ok(d.cuDeviceGetDevResource(0, d.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
green = ok(d.cuGreenCtxCreate(ok(d.cuDevResourceGenerateDesc([resource], 1)), 0, 1))
"""


@pytest.mark.parametrize(
    "call", ["cuGreenCtxDestroy(green)", "cuCtxCreate(None, 0, 0)", "cuDevicePrimaryCtxRetain(0)"]
)
def test_contexts_come_and_go_after_a_stop(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu, call: str
) -> None:
    """The driver works on the device for it, with its locks held."""
    job = program(
        GREEN + WRITES + f"say('runs'); wait(); say('calls'); ok(d.{call}); say('returns')\n"
        "ok(d.cuCtxSetCurrent(ctx))" + ENDS,
        {"LD_PRELOAD": str(IMPATIENT)},
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    tell(job)
    assert line(job) == "calls"
    waits = client.asked
    client.until("question why it waits", lambda: client.asked > waits)
    client.grant()
    emulated_gpu.end_spins()
    assert line(job) == "returns"
    assert line(job) == "right"
    finish(job)


def test_a_release_does_not_wait_for_a_call_that_waits_for_nothing(
    program: Program, daemon: FakeDaemon, emulated_gpu: EmulatedGpu
) -> None:
    """As a module that is compiled for a minute: nothing is in flight, so nothing is stopped."""
    job = program(
        """
import threading
p = ok(d.cuMemAlloc(MIB)); fill(p, MIB, 3); ok(d.cuCtxSynchronize())
host = (ctypes.c_char * MIB)(); ok(d.cuMemHostRegister(ctypes.addressof(host), MIB, 0))
lib = ctypes.CDLL("libcuda.so.1"); lib.emugpu_hold(b"cuMemHostUnregister", 0)
def call(): ok(d.cuCtxSetCurrent(ctx)); ok(d.cuMemHostUnregister(ctypes.addressof(host)))
thread = threading.Thread(target=call); thread.start()
assert lib.emugpu_held(); say("held"); wait(); lib.emugpu_let(); thread.join(); say("right")
"""
    )
    client = held(daemon, job, "held")
    client.revoke()
    goes_on_right(job, emulated_gpu)


@pytest.mark.parametrize("end", ["sys.exit()", "os._exit(0)", "os.kill(os.getpid(), 15)"])
def test_who_is_refused_while_stopped_ends(
    program: Program, daemon: FakeDaemon, uuid: str, end: str
) -> None:
    """A thread that waits for the stopped kernel does not keep the process."""
    job = program(
        "import threading\n"
        + WRITES
        + f"""
def waits(): ok(d.cuCtxSetCurrent(ctx)); d.cuStreamSynchronize(stream)
threading.Thread(target=waits, daemon=True).start()
say("runs"); wait(); {end}
"""
    )
    client = held(daemon, job)
    assert client.revoke().stopped
    client.evict({uuid: 100 * MIB})
    client.send(daemon_messages.refused(lib.GL_REFUSED_NO_TENANT, "its job has ended"))
    tell(job)
    job.wait(30)
