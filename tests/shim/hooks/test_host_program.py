"""Nothing changes for the host program: lookups, forks, signals, threads, exits, streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, state, tell
from tests.support.together import pairwise

NULL_DRIVER = Path(__file__).resolve().parents[3] / "build" / "meson" / "tests" / "bench"
LOCKED = "tq:10m,lock:on"
HOLD = SET_UP + "ok(spin(1000)); say('holds'); input()"


def test_dlvsym_and_the_default_scope_find_the_wrappers() -> None:
    code = """
import ctypes
own, lib, libc = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libc.so.6")
own.dlvsym.restype = own.dlsym.restype = ctypes.c_void_p
def at(handle, name):
    return ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
ours = at(own, "cuLaunchKernel")
for version in (b"GLIBC_2.2.5", b"CUDA_ANY"):
    assert own.dlvsym(ctypes.c_void_p(lib._handle), b"cuLaunchKernel", version) == ours
assert own.dlsym(None, b"cuLaunchKernel") == ours
# What the driver does not have, a program does not find, though we export it.
assert own.dlsym(None, b"cuFabricCpyBatchAsync") is None
# Other names, and the rest of the C library, are as ever.
assert own.dlvsym(ctypes.c_void_p(libc._handle), b"memcpy", b"GLIBC_2.14")
assert own.dlvsym(ctypes.c_void_p(libc._handle), b"memcpy", b"NONE_1") is None
assert own.dlsym(ctypes.c_void_p(libc._handle), b"no_such_name") is None
"""
    env = {"LD_PRELOAD": str(CHECKED), "LD_LIBRARY_PATH": str(NULL_DRIVER)}
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | env)


def test_a_child_of_a_program_with_cuda_hears_what_the_driver_says(tenant: Start) -> None:
    code = (
        SET_UP
        + """
p = ok(d.cuMemAlloc(1 << 20)); ok(spin(1000)); ok(d.cuCtxSynchronize())
pid = os.fork()
if not pid:
    said = [spin(1000)[0], d.cuMemAlloc(1 << 20)[0], d.cuMemsetD8(p, 1, 4)[0]]
    os._exit(0 if all(r != d.CUresult.CUDA_SUCCESS for r in said) else 1)
assert os.waitpid(pid, 0)[1] == 0
ok(spin(1000)); ok(d.cuCtxSynchronize())  # the parent goes on
assert ok(d.cuMemGetInfo())[1] - ok(d.cuMemGetInfo())[0] == 1 << 20
"""
    )
    output(tenant(1, "", "-c", code))


def test_exec_begins_anew(tenant: Start) -> None:
    again = SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('again')"
    code = SET_UP + (
        f"ok(spin(1000)); ok(d.cuCtxSynchronize())\n"
        f"os.execv(sys.executable, [sys.executable, '-c', {again!r}])"
    )
    assert output(tenant(1, LOCKED, "-c", code)) == "again\n"


def test_sigterm_ends_a_holder_and_the_next_one_runs(tenant: Start, leased: Leased) -> None:
    holder = tenant(1, LOCKED, "-c", SET_UP + "ok(spin(1000)); say(os.getpid()); input()")
    pid = int(line(holder))
    waiter = tenant(2, LOCKED, "-c", SET_UP + "say('asks'); ok(spin(1000)); say('ran')")
    assert line(waiter) == "asks"
    os.kill(pid, signal.SIGTERM)
    holder.wait(60)
    assert holder.returncode == 256 - signal.SIGTERM  # as its parent passes it on
    assert output(waiter) == "ran\n"
    wait_until("job 1 to hold nothing", lambda: state(leased, 1) == "idle")


def test_threads_with_small_stacks_wait_and_run(tenant: Start) -> None:
    holder = tenant(1, "tq:200ms,lock:on", "-c", HOLD)
    assert line(holder) == "holds"
    code = (
        SET_UP
        + """
import threading
threading.stack_size(64 * 1024)
done = []
def work():
    ok(d.cuCtxSetCurrent(ctx)); ok(spin(1000)); done.append(1)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert len(done) == 8
"""
    )
    output(tenant(2, "tq:200ms,lock:on", "-c", code))
    tell(holder)
    output(holder)


def test_exit_inside_a_host_function(tenant: Start) -> None:
    code = (
        SET_UP
        + """
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def end(_):
    os._exit(7)
lib = ctypes.CDLL("libcuda.so.1")
ok(spin(1000))
lib.cuLaunchHostFunc(None, end, None)
ok(d.cuCtxSynchronize())
"""
    )
    process = tenant(1, "", "-c", code)
    process.communicate(timeout=60)
    assert process.returncode == 7


def test_a_stream_destroyed_in_its_capture_does_not_hold_up_a_drain(tenant: Start) -> None:
    code = (
        SET_UP
        + """
s = ok(d.cuStreamCreate(0))
ok(spin(1000, s)); ok(d.cuStreamSynchronize(s))
ok(d.cuStreamBeginCapture(s, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
ok(spin(1000, s))
ok(d.cuStreamDestroy(s))
say("destroyed"); input()
"""
    )
    holder = tenant(1, "tq:100ms,lock:on", "-c", code)
    assert line(holder) == "destroyed"
    output(tenant(2, "tq:100ms,lock:on", "-c", SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize())"))
    tell(holder)
    output(holder)


# Whenever it gets the lease (a starved holder looks idle) it yields it, and asks again.
WANTS_AGAIN = """
import time
say("asks")
while True:
    ok(spin(1000)); ok(d.cuCtxSynchronize()); time.sleep(0.02)
"""


@pytest.mark.usefixtures("uncontrolled")
def test_work_in_flight_is_bounded_while_somebody_waits(tenant: Start, leased: Leased) -> None:
    code = (
        SET_UP
        + """
def burst(n):
    # How many of n kernels of 5 ms have finished when the last one was submitted.
    marks = [ok(d.cuEventCreate(2)) for _ in range(n)]
    for mark in marks:
        ok(spin(5_000_000)); ok(d.cuEventRecord(mark, 0))
    done = sum(d.cuEventQuery(mark)[0] == d.CUresult.CUDA_SUCCESS for mark in marks)
    ok(d.cuCtxSynchronize())
    return done
import select, time
def stay_busy(until):
    while not until():  # never idle, never far ahead
        mark = ok(d.cuEventCreate(2))
        ok(spin(5_000_000)); ok(d.cuEventRecord(mark, 0)); ok(spin(5_000_000))
        ok(d.cuEventSynchronize(mark))
ok(spin(1000)); ok(d.cuCtxSynchronize())
say(burst(60))
stay_busy(lambda: select.select([sys.stdin], [], [], 0)[0])
for _ in range(8):  # a starved process looks idle: the other job is served, and asks again
    start = time.monotonic()
    stay_busy(lambda: time.monotonic() > start + 0.2)
    done = burst(200)
    if done >= 160:
        break
say(done)
"""
    )
    holder = tenant(1, LOCKED, "-c", code)
    assert int(line(holder)) < 50, "nobody waits: no bound"
    waiter = tenant(2, LOCKED, "-c", SET_UP + WANTS_AGAIN)
    assert line(waiter) == "asks"
    wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")
    tell(holder)
    # 100 ms are 20 kernels; twice that for what was let in before the rate was known.
    assert int(line(holder)) >= 200 - 40
    waiter.kill()


def test_green_contexts_are_drained_too(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    code = (
        SET_UP
        + """
sms = ok(d.cuDeviceGetDevResource(0, d.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM))
group = d.cuDevSmResourceSplitByCount(1, sms, 0, 8)[1][0]
green = ok(d.cuGreenCtxCreate(ok(d.cuDevResourceGenerateDesc([group], 1)), 0, 1))
s = ok(d.cuGreenCtxStreamCreate(green, 1, 0))
ok(spin(1000, s)); ok(d.cuStreamSynchronize(s))
say(os.getpid()); sys.stdin.readline()
for _ in range(20):  # 40 ms each, on 8 of 132 multiprocessors
    ok(spin(2_500_000, s))
ok(d.cuStreamSynchronize(s))
"""
    )
    holder = tenant(1, "tq:100ms,lock:on", "-c", code)
    pids = {int(line(holder))}
    other = tenant(
        2,
        "tq:100ms,lock:on",
        "-c",
        SET_UP
        + ("say(os.getpid())\nfor _ in range(20): ok(spin(5_000_000))\nok(d.cuCtxSynchronize())"),
    )
    pids.add(int(line(other)))
    tell(holder)
    output(holder)
    output(other)
    slices = [(pid, start, end) for _, pid, start, end in emulated_gpu.trace() if pid in pids]
    turns = sum(a[0] != b[0] for a, b in pairwise(slices))
    usage = [ask(leased.admin_socket, {"op": "usage", "job_id": n})["usage"] for n in (1, 2)]
    assert turns <= sum(next(iter(u.values()))["handoffs"] for u in usage) + 2


def test_a_broken_context_is_the_drivers_own_error_and_holds_up_nobody(tenant: Start) -> None:
    code = (
        SET_UP
        + """
def fill(address):
    values = ((address, 7, 4), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64))
    return d.cuLaunchKernel(kernel["fill"], 1, 1, 1, 1, 1, 1, 0, 0, values, 0)
ok(fill(0x10))
broken = d.cuCtxSynchronize()[0]
assert broken == d.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS, broken
assert spin(1000)[0] == broken and d.cuMemAlloc(1 << 20)[0] == broken, "as a program alone sees it"
say("broken"); sys.stdin.readline()
"""
    )
    holder = tenant(1, "tq:100ms,lock:on", "-c", code)
    assert line(holder) == "broken"
    output(tenant(2, "tq:100ms,lock:on", "-c", SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize())"))
    tell(holder)
    output(holder)


def test_a_lost_device_ends_in_errors_not_in_waiting(
    tenant: Start, emulated_gpu: EmulatedGpu
) -> None:
    lost = """
say("ready"); sys.stdin.readline()
r = spin(1000)[0]
r = r if r != d.CUresult.CUDA_SUCCESS else d.cuCtxSynchronize()[0]
assert r != d.CUresult.CUDA_SUCCESS
"""
    jobs = [tenant(n, "tq:100ms,lock:on", "-c", SET_UP + "ok(spin(1000))" + lost) for n in (1, 2)]
    for job in jobs:
        assert line(job) == "ready"
    emulated_gpu.fail(0, "lost")
    for job in jobs:
        tell(job)
    for job in jobs:
        output(job)


def test_errno_and_the_library_handle_are_the_programs_own(tenant: Start) -> None:
    code = (
        SET_UP
        + """
import _ctypes
p = int(ok(d.cuMemAlloc(1 << 20)))
own = ctypes.CDLL(None, use_errno=True)
ctypes.set_errno(77)
assert own.cuMemsetD8_v2(ctypes.c_uint64(p), 1, ctypes.c_size_t(4)) == 0  # waits for the lease
assert ctypes.get_errno() == 77
for _ in range(3):
    _ctypes.dlclose(ctypes.CDLL("libcuda.so.1")._handle)
ok(spin(1000)); ok(d.cuCtxSynchronize())
"""
    )
    output(tenant(1, LOCKED, "-c", code))
