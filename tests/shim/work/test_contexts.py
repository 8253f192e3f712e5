"""Contexts that end, are reset or let go: what ends with them, and what does not."""

from __future__ import annotations

import pytest

from leased.wire import daemon_messages
from tests.emugpu.server import KERNELS
from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell

MIB = 1 << 20
EVER_NS = 10**12

pytestmark = pytest.mark.usefixtures("uncontrolled")

OTHER_CONTEXT = """
def create(): return ok(d.cuCtxCreate(None, 0, 0))
"""


# A host function that ends when it is told: until then its context is busy.
BUSY = """
import threading
read, write = os.pipe()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def until_told(_): os.read(read, 1)
def occupy(): assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(None, until_told, None) == 0
"""


def test_memory_of_other_contexts_outlives_the_primary_one(
    program: swap.Program, daemon: FakeDaemon, uuid: str
) -> None:
    """One that was created before, and memory in it, while a library uses the primary one."""
    job = program(
        OTHER_CONTEXT
        + """
ok(d.cuDevicePrimaryCtxRelease(0))
own = create()
module = ok(d.cuModuleLoadData(open(KERNELS, "rb").read() + b"\\0"))
kernel["fill"] = ok(d.cuModuleGetFunction(module, b"fill"))
p = ok(d.cuMemAlloc(20 * MIB)); fill(p, 20 * MIB, 1); ok(d.cuCtxSynchronize())
library = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuDevicePrimaryCtxRelease(0))
free, total = ok(d.cuMemGetInfo())
assert total - free == 20 * MIB, (free, total)
check_all(p, 20 * MIB, 1)
say("ready"); wait()
check_all(p, 20 * MIB, 1)
ok(d.cuMemFree(p))
""".replace("KERNELS", repr(str(KERNELS)))
    )
    client = swap.revoked(daemon, job)
    client.evict({uuid: 20 * MIB})
    tell(job)
    client.grant()
    swap.finish(job)


def test_a_context_that_could_not_be_destroyed_is_waited_for(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    job = program(
        BUSY
        + """
assert d.cuCtxDestroy(ctx)[0] == d.CUresult.CUDA_ERROR_INVALID_CONTEXT
occupy()
say("busy"); wait()
os.write(write, b"x")
"""
    )
    client = swap.client_of(daemon, job)
    assert line(job) == "busy"
    client.send(daemon_messages.revoke(client.epoch, EVER_NS))
    client.until("a word that it is stuck", lambda: client.stuck)
    tell(job)
    swap.finish(job)


def test_a_capture_ends_with_its_context(program: swap.Program, daemon: FakeDaemon) -> None:
    job = program(
        """
stream = ok(d.cuStreamCreate(1))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(d.cuDevicePrimaryCtxReset(0))
ctx = ok(d.cuDevicePrimaryCtxRetain(0)); ok(d.cuCtxSetCurrent(ctx))
p = ok(d.cuMemAlloc(MIB)); ok(d.cuMemsetD8(p, 1, MIB))
say("ready"); wait()
"""
    )
    swap.revoked(daemon, job)
    tell(job)
    swap.finish(job)


def test_a_capture_ends_when_the_wrong_thread_ends_it(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    job = program(
        """
import threading
stream = ok(d.cuStreamCreate(1))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
def end():
    ok(d.cuCtxSetCurrent(ctx))
    assert "WRONG_THREAD" in d.cuStreamEndCapture(stream)[0].name
thread = threading.Thread(target=end); thread.start(); thread.join()
p = ok(d.cuMemAlloc(MIB)); ok(d.cuMemsetD8(p, 1, MIB))
say("ready"); wait()
"""
    )
    swap.revoked(daemon, job)
    tell(job)
    swap.finish(job)


def test_a_context_that_was_busy_once_takes_its_steps_when_others_are_gone(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    """It took the place of one that was destroyed while it was waited for."""
    job = program(
        OTHER_CONTEXT
        + BUSY
        + """
ok(d.cuDevicePrimaryCtxRelease(0))
first, second = create(), create()
p = ok(d.cuMemAlloc(MIB)); ok(d.cuMemsetD8(p, 1, MIB)); ok(d.cuCtxSynchronize())
occupy()
say("busy"); wait()
ok(d.cuCtxDestroy(first)); ok(d.cuCtxSetCurrent(second))
os.write(write, b"x")
say("alone"); wait()
ok(d.cuMemsetD8(p, 2, MIB)); ok(d.cuCtxSynchronize())
say("stepped"); wait()
"""
    )
    client = swap.client_of(daemon, job)
    assert line(job) == "busy"
    daemon.auto = False
    client.send(daemon_messages.revoke(client.epoch, EVER_NS))
    client.until("a word that it is stuck", lambda: client.stuck)
    tell(job)
    assert line(job) == "alone"
    client.until("a release", lambda: client.released)
    tell(job)
    client.until("a request", lambda: client.wants > 1)
    client.step()
    client.until("a release after one call", lambda: client.released[-1].epoch == client.epoch)
    assert line(job) == "stepped"
    tell(job)
    swap.finish(job)


def test_a_step_that_no_thread_takes_ends_with_the_daemon_that_allowed_it(
    program: swap.Program, daemon: FakeDaemon, uuid: str
) -> None:
    """Nobody is left whom it could help, and its memory may leave."""
    job = program(
        """
p = ok(d.cuMemAlloc(20 * MIB)); fill(p, 20 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 20 * MIB, 1)
"""
    )
    client = swap.revoked(daemon, job)
    client.step()
    client.calls()
    del daemon.clients[client.pid]
    client.close()
    again = daemon.client(client.pid)
    again.until("its memory", lambda: again.resident(uuid))
    again.until("a release", lambda: not again.held or again.released)
    again.evict({uuid: 20 * MIB})
    again.grant()
    tell(job)
    swap.finish(job)
