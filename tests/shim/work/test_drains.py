"""Drains that wait for the very threads which wait at the gate: each of these programs goes on."""

from __future__ import annotations

import pytest

from leased.wire import daemon_messages
from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell

EVER_NS = 10**12
SHORT_NS = 10**8

pytestmark = pytest.mark.usefixtures("uncontrolled")

CAPTURE = """
stream, other = ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1))
ok(spin(1000, other))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(spin(1000, stream))
"""

# Whether this has finished nobody can ask before the capture ends.
UNKNOWN = "ok(spin(1000, other))\n"

# The thread that captures submits work to a stream that does not, as NCCL does when it connects.
BESIDE = """
say("ready"); wait()
for _ in range(3):
    ok(spin(1000, other))
ok(d.cuStreamEndCapture(stream))
"""

# Another thread does so, and the one that captures waits for it.
OTHER_THREAD = """
import threading
def work():
    ok(d.cuCtxSetCurrent(ctx))
    ok(spin(1000, other))
say("ready"); wait()
thread = threading.Thread(target=work); thread.start(); thread.join()
ok(d.cuStreamEndCapture(stream))
"""

# The program has not seen that its capture has failed.
INVALIDATED = """
INVALIDATED = d.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
assert d.cuStreamSynchronize(stream)[0] != d.CUresult.CUDA_SUCCESS
say("ready"); wait()
assert spin(1000, stream)[0] == INVALIDATED
assert d.cuStreamEndCapture(stream)[0] == INVALIDATED
"""

STAY = "wait()\n"


def revoke(program: swap.Program, daemon: FakeDaemon, code: str, deadline_ns: int) -> None:
    """Revoke the program's lease when it is ready, and let it go on when it is being waited for. It
    stays until it has released."""
    job = program(code + STAY)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    client.send(daemon_messages.revoke(client.epoch, deadline_ns))
    client.until("a word that it is stuck", lambda: client.stuck)
    tell(job)
    client.until("a release", lambda: client.released)
    tell(job)
    swap.finish(job)


def test_a_capture_behind_finished_work_holds_up_no_drain(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    """The other work came before the capture, and calls that are captured execute nothing."""
    job = program(CAPTURE + 'say("ready"); wait(); ok(d.cuStreamEndCapture(stream))\n' + STAY)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    client.send(daemon_messages.revoke(client.epoch, EVER_NS))
    client.until("a release", lambda: client.released)
    assert not client.stuck
    assert not client.released[-1].wants
    tell(job)
    tell(job)
    swap.finish(job)


@pytest.mark.parametrize("code", [BESIDE, OTHER_THREAD, INVALIDATED])
def test_a_capture_whose_thread_waits_at_the_gate_comes_to_its_end(
    program: swap.Program, daemon: FakeDaemon, code: str
) -> None:
    revoke(program, daemon, CAPTURE + UNKNOWN + code, EVER_NS)


def test_an_invalidated_capture_says_so_at_a_shut_gate(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    """At once, as the driver does: no call is let in for it."""
    job = program(CAPTURE + UNKNOWN + INVALIDATED + STAY)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    calls = client.calls()
    client.send(daemon_messages.revoke(client.epoch, EVER_NS))
    client.until("a word that it is stuck", lambda: client.stuck)
    tell(job)
    client.until("a release", lambda: client.released)
    assert not client.released[-1].wants
    assert client.calls() == calls
    tell(job)
    swap.finish(job)


def test_a_stream_that_waits_for_what_another_thread_submits_goes_on(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    """Once the daemon waits no longer: until then it could be work that only takes long."""
    code = """
read, write = os.pipe()
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def until_told(_): os.read(read, 1)
other = ok(d.cuStreamCreate(1))
assert ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(None, until_told, None) == 0
say("ready"); wait()
ok(spin(1000, other))
os.write(write, b"x")
ok(d.cuCtxSynchronize())
"""
    revoke(program, daemon, code, SHORT_NS)
