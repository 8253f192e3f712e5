"""libgpulease.so in real processes, on the emulated GPU, under the real daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import JOB, Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, state, tell
from tests.support.together import pairwise


def test_memory_is_managed_and_truthful(tenant: Start) -> None:
    code = (
        SET_UP
        + """
free, total = ok(d.cuMemGetInfo())
assert total == ok(d.cuDeviceTotalMem(0)) < 256 << 20, total
p = ok(d.cuMemAlloc(64 << 20))
assert ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, p))
assert ok(d.cuMemGetInfo()) == (free - (64 << 20), total)
assert d.cuMemAlloc(total)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
ok(d.cuMemFree(p))
assert ok(d.cuMemGetInfo()) == (free, total)
"""
    )
    output(tenant(1, "", "-c", code))


def test_cap_of_a_job_counts_all_its_processes(tenant: Start) -> None:
    child = (
        SET_UP
        + """
p = ok(d.cuMemAlloc(40 << 20))
say("have"); sys.stdin.readline()
"""
    )
    code = (
        SET_UP
        + f"""
import subprocess
total = ok(d.cuMemGetInfo())[1]
assert total == 64 << 20, total
other = subprocess.Popen([sys.executable, "-c", {child!r}], stdin=-1, stdout=-1, text=True)
assert other.stdout.readline() == "have\\n"
while ok(d.cuMemGetInfo())[0] != 24 << 20:
    pass
assert d.cuMemAlloc(32 << 20)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
ok(d.cuMemAlloc(8 << 20))
other.communicate("\\n")
while ok(d.cuMemGetInfo())[0] != 56 << 20:
    pass
ok(d.cuMemAlloc(56 << 20))
"""
    )
    output(tenant(1, "mem:64MiB", "-c", code))


def test_a_launch_waits_for_the_lease_and_work_never_overlaps(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    code = (
        SET_UP
        + """
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("first", os.getpid()); input()
for _ in range(40):
    for _ in range(5):
        ok(spin(2_000_000))
    ok(d.cuCtxSynchronize())
"""
    )
    jobs = [tenant(n, "tq:100ms,lock:on", "-c", code) for n in (1, 2)]
    pids = {int(line(job).split()[1]) for job in jobs}
    for job in jobs:
        tell(job)
    for job in jobs:
        output(job)
    slices = [(pid, start, end) for _, pid, start, end in emulated_gpu.trace() if pid in pids]
    turns = sum(a[0] != b[0] for a, b in pairwise(slices))
    assert turns >= 2, "both had the GPU by turns"
    usage = [ask(leased.admin_socket, {"op": "usage", "job_id": n})["usage"] for n in (1, 2)]
    handoffs = sum(next(iter(u.values()))["handoffs"] for u in usage)
    # By the driver's own time slices there would be a change every millisecond.
    assert turns <= handoffs + 2


def test_the_client_thread_alone_wakes_in_time(tenant: Start) -> None:
    """Pauses of 50 us in a drain take twice that with the kernel's default."""
    code = (
        SET_UP
        + """
before = set(os.listdir("/proc/self/task"))
slack = lambda thread: int(open(f"/proc/{thread}/timerslack_ns").read())
usual = {thread: slack(thread) for thread in before}
ok(spin(1000)); ok(d.cuCtxSynchronize())
ours = set(os.listdir("/proc/self/task")) - before
assert 1 in map(slack, ours), [(thread, slack(thread)) for thread in ours]
assert {thread: slack(thread) for thread in before} == usual
"""
    )
    output(tenant(1, "lock:on", "-c", code))


def test_data_survives_being_paged_out(tenant: Start, tmp_path: Path) -> None:
    arguments = ["--bytes", str(200 << 20), "--steps", "3", "--sweeps", "2", "--pause-ms", "50"]
    jobs = [
        tenant(n, "tq:200ms", str(JOB), *arguments, "--result", str(tmp_path / f"{n}"))
        for n in (1, 2)
    ]
    for job in jobs:
        output(job)
    for n in (1, 2):
        assert json.loads((tmp_path / f"{n}").read_text())["checksum_ok"]


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.usefixtures("uncontrolled")  # else its work is stopped, and the capture goes on
def test_a_capture_survives_a_revoke(tenant: Start, leased: Leased, beside: bool) -> None:
    """beside: it has submitted what is not captured meanwhile, so its end is waited for."""
    code = (
        SET_UP
        + f"""
s, other = ok(d.cuStreamCreate(0)), ok(d.cuStreamCreate(1))
ok(spin(1000, s)); ok(d.cuStreamSynchronize(s))
ok(d.cuStreamBeginCapture(s, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(spin(1000, s))
if {beside}: ok(spin(1000, other))
say("capturing"); sys.stdin.readline()
ok(spin(2000, s))  # the gate is closed by now: captured all the same
graph = ok(d.cuStreamEndCapture(s))
run = ok(d.cuGraphInstantiate(graph, 0))
ok(d.cuGraphLaunch(run, s))
ok(d.cuStreamSynchronize(s))
say("done")
"""
    )
    other = SET_UP + "say('ready'); ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran')"
    holder = tenant(1, "tq:100ms,lock:on", "-c", code)
    assert line(holder) == "capturing"
    waiter = tenant(2, "tq:100ms,lock:on", "-c", other)
    assert line(waiter) == "ready"
    if beside:
        wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")
        tell(holder)
    assert line(waiter) == "ran"
    if not beside:
        tell(holder)
    assert line(holder) == "done"


# The stream waits for a word of ours, so the process is not idle until it is told.
NOT_IDLE = """
told, tell = os.pipe()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(told, 1))
ok(d.cuLaunchHostFunc(0, ctypes.cast(wait, ctypes.c_void_p).value, 0))
"""
NO_LONGER = 'os.write(tell, b"x"); ok(d.cuCtxSynchronize())\n'


def test_daemon_vanishes_and_comes_back(tenant: Start, leased: Leased) -> None:
    code = (
        SET_UP
        + """
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("holds"); sys.stdin.readline()
ok(spin(1000)); ok(d.cuCtxSynchronize())
"""
        + NOT_IDLE
        + 'say("went on"); sys.stdin.readline()\n'
        + NO_LONGER
    )
    other = SET_UP + "say('asks'); ok(spin(1000)); ok(d.cuCtxSynchronize()); say('ran')"
    holder = tenant(1, "tq:200ms,lock:on", "-c", code)
    assert line(holder) == "holds"
    before = ask(leased.admin_socket, {"op": "status"})["tenants"][0]
    waiter = tenant(2, "tq:10m,lock:on", "-c", other)
    leased.kill()
    tell(holder)
    assert line(holder) == "went on"
    leased.start()
    wait_until("job 1 to be the holder again", lambda: state(leased, 1) == "holds")
    after = ask(leased.admin_socket, {"op": "status"})["tenants"][0]
    assert after["epoch"] == before["epoch"]
    for uuid, used in before["gpus"].items():
        assert after["gpus"][uuid]["peak_bytes"] >= used["peak_bytes"]
    tell(holder)
    output(holder)
    waiter.kill()  # it may have registered before the crash or not; it is not the question


def test_holder_and_waiter_are_what_they_were_after_a_restart(
    tenant: Start, leased: Leased
) -> None:
    busy = SET_UP + NOT_IDLE + 'say("holds"); sys.stdin.readline()\n' + NO_LONGER
    holder = tenant(1, "tq:10m,lock:on", "-c", busy)
    assert line(holder) == "holds"
    asks = SET_UP + "say('asks'); ok(spin(1000)); say('ran')"
    waiter = tenant(2, "tq:10m,lock:on", "-c", asks)
    assert line(waiter) == "asks"
    wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")

    def waited() -> float:
        used = ask(leased.admin_socket, {"op": "usage", "job_id": 2})["usage"]
        return float(next(iter(used.values()))["wait_s"])

    wait_until("its waiting to be on disk", lambda: waited() > 1.5)
    leased.kill()
    leased.start()
    wait_until(
        "both to be back", lambda: (state(leased, 1), state(leased, 2)) == ("holds", "waits")
    )
    assert waited() > 0.2, "what was counted before the crash is kept, to the last second"
    tell(holder)
    output(holder)
    assert output(waiter) == "ran\n"


def test_waiter_dies_of_sigterm_at_once(tenant: Start, leased: Leased) -> None:
    hold = SET_UP + "ok(spin(1000)); say('holds'); sys.stdin.readline()"
    wait = SET_UP + "say(os.getpid()); ok(spin(1000))"
    holder = tenant(1, "tq:10m,lock:on", "-c", hold)
    assert line(holder) == "holds"
    ask(leased.admin_socket, {"op": "status"})
    # Keep it busy, or it would yield: it is asked for nothing, so it holds.
    waiter = tenant(2, "tq:10m,lock:on", "-c", wait)
    pid = int(line(waiter))
    os.kill(pid, 15)
    waiter.communicate(timeout=60)
    assert waiter.returncode != 0
    tell(holder)
    output(holder)


def test_process_of_no_job_is_refused_with_a_sentence(
    leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    code = SET_UP + "print(spin(1000)[0].name)"
    env = leased.env | {
        "LD_PRELOAD": str(CHECKED),
        "GPU_LEASE_SOCKET": str(leased.run_dir / "tenant.sock"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "CUDA_ERROR_NOT_PERMITTED"
    assert "belongs to no job that shares a GPU" in done.stderr
    assert emulated_gpu.stats()["processes"][0]["kernels"] == 0


def test_a_process_that_outlives_its_job_computes_no_more(tenant: Start, leased: Leased) -> None:
    code = (
        SET_UP
        + """
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("holds"); sys.stdin.readline()
say(spin(1000)[0].name)
"""
    )
    waits = SET_UP + "say('asks'); say(spin(1000)[0].name)"
    holder = tenant(1, "tq:10m,lock:on", "-c", code)
    assert line(holder) == "holds"
    ask(leased.admin_socket, {"op": "drain", "device": "0"})
    waiter = tenant(2, "tq:10m,lock:on", "-c", waits)
    assert line(waiter) == "asks"
    wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")
    for job in (1, 2):
        ask(leased.admin_socket, {"op": "job_end", "job_id": job})
    assert line(waiter) == "CUDA_ERROR_NOT_PERMITTED"
    wait_until("the word to be said", lambda: "has ended" in said(holder))
    tell(holder)
    assert line(holder) == "CUDA_ERROR_NOT_PERMITTED"


def said(process: subprocess.Popen[str]) -> str:
    """What it has written to its standard error so far."""
    assert process.stderr is not None
    os.set_blocking(process.stderr.fileno(), False)
    return process.stderr.read() or ""


def test_a_program_without_cuda_gets_nothing_of_us() -> None:
    code = """
import os
print(len(os.listdir("/proc/self/task")), "libcuda" in open("/proc/self/maps").read(),
      sum("socket" in os.readlink(f"/proc/self/fd/{f}") for f in os.listdir("/proc/self/fd")
          if os.path.exists(f"/proc/self/fd/{f}")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=os.environ | {"LD_PRELOAD": str(CHECKED)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["1", "False", "0"]
    assert done.stderr == ""


def test_lookups_return_wrappers_of_the_right_form(tenant: Start) -> None:
    code = (
        SET_UP
        + """
own = ctypes.CDLL(None)
lib = ctypes.CDLL("libcuda.so.1")
get = lib.cuGetProcAddress_v2
def address(name, flags):
    out = ctypes.c_void_p()
    status = ctypes.c_int()
    assert get(name, ctypes.byref(out), 13000, ctypes.c_uint64(flags), ctypes.byref(status)) == 0
    return out.value
def symbol(handle, name):
    return ctypes.cast(getattr(handle, name), ctypes.c_void_p).value
for name in ("cuLaunchKernel", "cuGraphLaunch"):
    assert address(name.encode(), 0) == symbol(own, name) == symbol(lib, name)
    assert address(name.encode(), 2) == symbol(own, name + "_ptsz")
assert address(b"cuMemcpyHtoD", 0) == symbol(own, "cuMemcpyHtoD_v2")
assert address(b"cuMemcpyHtoD", 2) == symbol(own, "cuMemcpyHtoD_v2_ptds")
assert address(b"cuDeviceGetCount", 0) == symbol(lib, "cuDeviceGetCount")
"""
    )
    output(tenant(1, "", "-c", code))


def test_fork_before_cuda_starts(tenant: Start) -> None:
    code = (
        """
import os
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
"""
        + SET_UP
        + """
p = ok(d.cuMemAlloc(1 << 20)); ok(spin(1000)); ok(d.cuCtxSynchronize())
"""
    )
    output(tenant(1, "", "-c", code))
