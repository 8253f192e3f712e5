"""The emulated GPU, through NVIDIA's own unmodified cuda-bindings and nvidia-ml-py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.emugpu.server import KERNELS, EmulatedGpu

SET_UP = f"""
import ctypes, os, sys
import numpy as np
from cuda.bindings import driver as d
E = d.CUresult
def ok(r):
    assert r[0] == E.CUDA_SUCCESS, r[0]
    return r[1] if len(r) == 2 else r[1:]
ok(d.cuInit(0))
ctx = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuCtxSetCurrent(ctx))
module = ok(d.cuModuleLoadData(open({str(KERNELS)!r}, "rb").read() + b"\\0"))
def launch(name, values, types, stream=0):
    f = ok(d.cuModuleGetFunction(module, name.encode()))
    return d.cuLaunchKernel(f, 8, 1, 1, 64, 1, 1, 0, stream, (values, types), 0)
U64, U32 = ctypes.c_uint64, ctypes.c_uint32
def fill(p, n, v, stream=0):
    return launch("fill", (int(p), n, v), (U64, U64, U32), stream)
def spin(ns, stream=0):
    return launch("spin", (ns,), (U64,), stream)
def words(p, n):
    out = np.zeros(n, dtype=np.uint32)
    ok(d.cuMemcpyDtoH(out.ctypes.data, p, 4 * n))
    return out
MIB = 1 << 20
"""


@pytest.fixture
def gpus(short_dir: Path) -> Iterator[EmulatedGpu]:
    """Two small devices."""
    with EmulatedGpu(short_dir / "gpu", model="emu-a100-tiny", devices=2) as gpu:
        yield gpu


def start(gpu: EmulatedGpu, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SET_UP + code],
        cwd=ROOT,
        env=os.environ | gpu.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(gpu: EmulatedGpu, code: str) -> str:
    process = start(gpu, code)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


def test_it_says_that_it_is_emulated(gpus: EmulatedGpu) -> None:
    code = "print(ok(d.cuDeviceGetName(64, 0)).decode())"
    assert run(gpus, code).startswith("Emulated")
    assert gpus.stats()["emulated"] is True


def test_kernels_compute(gpus: EmulatedGpu) -> None:
    run(
        gpus,
        """
n = 300_000
p = ok(d.cuMemAlloc(4 * n))
ok(fill(p, n, 5))
ok(launch("add", (int(p), n, 7, 3), (U64, U64, U32, U32)))
i = np.arange(n, dtype=np.uint64)
want = ((i * 2654435761 + 26) & 0xFFFFFFFF).astype(np.uint32)
assert (words(p, n) == want).all()
out = ok(d.cuMemAlloc(8))
ok(d.cuMemsetD8(out, 0, 8))
ok(launch("checksum", (int(p), n, int(out)), (U64, U64, U64)))
got = words(out, 2).view(np.uint64)[0]
assert got == (want * (i % 65521 + 1)).sum(dtype=np.uint64)
ok(d.cuMemsetD32(p, 9, 10)); assert (words(p, 10) == 9).all()
data = np.arange(1000, dtype=np.uint32)
ok(d.cuMemcpyHtoD(p, data.ctypes.data, 4000))
q = ok(d.cuMemAlloc(4000)); ok(d.cuMemcpyDtoD(q, p, 4000))
assert (words(q, 1000) == data).all()
""",
    )


def test_plain_memory_runs_out_and_managed_does_not(gpus: EmulatedGpu) -> None:
    run(
        gpus,
        """
free, total = ok(d.cuMemGetInfo())
assert total == 64 * MIB
a = ok(d.cuMemAlloc(free - 4 * MIB))
assert d.cuMemAlloc(8 * MIB)[0] == E.CUDA_ERROR_OUT_OF_MEMORY
ok(d.cuMemFree(a))
m = ok(d.cuMemAllocManaged(100 * MIB, 1))
ok(fill(m, 25 * MIB, 3))
assert words(int(m) + 96 * MIB, 1)[0] == (24 * MIB * 2654435761 + 3) % (1 << 32)
assert words(m, 1)[0] == 3
""",
    )
    stats = gpus.stats()["processes"][0]
    assert stats["moved_out"] >= 36 << 20, "what did not fit was paged out"


def test_two_processes_evict_each_other_and_lose_nothing(gpus: EmulatedGpu) -> None:
    code = """
p = ok(d.cuMemAllocManaged(50 * MIB, 1)); n = 50 * MIB // 4
ok(fill(p, n, os.getpid())); ok(d.cuCtxSynchronize())
print("filled", flush=True); sys.stdin.readline()
for _ in range(3):
    ok(launch("add", (int(p), n, 1, 1), (U64, U64, U32, U32)))
i = np.arange(n, dtype=np.uint64)
assert (words(p, n) == ((i * 2654435761 + os.getpid() + 3) & 0xFFFFFFFF)).all()
"""
    pair = [start(gpus, code) for _ in range(2)]
    for process in pair:
        assert process.stdout is not None
        assert process.stdout.readline() == "filled\n"
    for process in pair:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in pair:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    moved = [p for p in gpus.stats()["processes"] if p["pid"] in {q.pid for q in pair}]
    assert sum(p["faulted_in"] for p in moved) >= 36 << 20
    assert sum(p["moved_out"] for p in moved) >= 36 << 20


def test_a_killed_process_frees_everything(gpus: EmulatedGpu) -> None:
    code = """
p = ok(d.cuMemAlloc(40 * MIB)); ok(spin(60_000_000_000))
print("up", flush=True); sys.stdin.readline()
"""
    process = start(gpus, code)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.kill()
    process.communicate()
    run(
        gpus,
        "while ok(d.cuMemGetInfo())[0] < 60 * MIB: pass\nok(spin(1000)); ok(d.cuCtxSynchronize())",
    )


def test_streams_events_and_order(gpus: EmulatedGpu) -> None:
    run(
        gpus,
        """
s, t = ok(d.cuStreamCreate(1)), ok(d.cuStreamCreate(1))
e, f = ok(d.cuEventCreate(0)), ok(d.cuEventCreate(0))
p = ok(d.cuMemAlloc(4096))
ok(d.cuEventRecord(e, s)); ok(spin(30_000_000, s)); ok(d.cuEventRecord(f, s))
assert d.cuEventQuery(f)[0] == E.CUDA_ERROR_NOT_READY
assert d.cuStreamQuery(s)[0] == E.CUDA_ERROR_NOT_READY
ok(d.cuStreamWaitEvent(t, f, 0)); ok(d.cuMemsetD32Async(p, 1, 4, t))
ok(d.cuStreamSynchronize(t)); ok(d.cuEventQuery(f))
assert ok(d.cuEventElapsedTime(e, f)) >= 30
whole = ok(d.cuEventCreate(0))
ok(spin(5_000_000, s)); ok(d.cuCtxRecordEvent(ctx, whole))
assert d.cuEventQuery(whole)[0] == E.CUDA_ERROR_NOT_READY
ok(d.cuEventSynchronize(whole)); ok(d.cuStreamQuery(s))
""",
    )


def test_traps_of_stream_capture(gpus: EmulatedGpu) -> None:
    run(
        gpus,
        """
M = d.CUstreamCaptureMode
s = ok(d.cuStreamCreate(1))
p = ok(d.cuMemAlloc(4096))
ok(d.cuStreamBeginCapture(s, M.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(fill(p, 1024, 7, s))
g = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(s)), 0))
assert (words(p, 2) == 0).all(), "what is captured does not run"
ok(d.cuGraphLaunch(g, s)); ok(d.cuStreamSynchronize(s))
assert words(p, 1)[0] == 7
for mode in (M.CU_STREAM_CAPTURE_MODE_GLOBAL, M.CU_STREAM_CAPTURE_MODE_RELAXED):
    ok(d.cuStreamBeginCapture(s, mode))
    assert d.cuCtxSynchronize()[0] == E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert d.cuStreamEndCapture(s)[0] == E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
ok(d.cuStreamBeginCapture(s, M.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(d.cuThreadExchangeStreamCaptureMode(M.CU_STREAM_CAPTURE_MODE_RELAXED))
e = ok(d.cuEventCreate(0)); ok(d.cuEventQuery(e)); ok(d.cuMemFree(ok(d.cuMemAlloc(64))))
ok(d.cuStreamEndCapture(s))
""",
    )


def test_addresses_by_version_and_flags(gpus: EmulatedGpu) -> None:
    run(
        gpus,
        """
lib = ctypes.CDLL("libcuda.so.1")
def get(name, version, flags):
    out, status = ctypes.c_void_p(), ctypes.c_int(-1)
    r = lib.cuGetProcAddress_v2(name, ctypes.byref(out), version, U64(flags), ctypes.byref(status))
    return r, out.value, status.value
def at(name):
    return ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
assert get(b"cuMemAlloc", 12000, 0) == (0, at("cuMemAlloc_v2"), 0)
assert get(b"cuLaunchKernel", 12000, 2) == (0, at("cuLaunchKernel_ptsz"), 0)
assert get(b"cuCtxCreate", 11000, 0)[1] == at("cuCtxCreate_v2")
assert get(b"cuCtxCreate", 12000, 0)[1] == at("cuCtxCreate_v3")
assert get(b"cuCtxCreate", 13000, 0)[1] == at("cuCtxCreate_v4")
assert get(b"cuLibraryLoadData", 11000, 0) == (0, None, 2)
assert get(b"cuNoSuchThing", 13000, 0) == (0, None, 1)
""",
    )


def test_unknown_kernels_and_addresses_are_errors_that_stay(gpus: EmulatedGpu) -> None:
    run(
        gpus,
        """
ptx = b".version 7.0\\n.target sm_50\\n.address_size 64\\n.visible .entry mine() { ret; }\\0"
assert d.cuModuleLoadData(ptx)[0] == E.CUDA_ERROR_INVALID_PTX
ok(fill(12345678 * 4, 10, 1))
assert d.cuCtxSynchronize()[0] == E.CUDA_ERROR_ILLEGAL_ADDRESS
assert d.cuMemAlloc(64)[0] == E.CUDA_ERROR_ILLEGAL_ADDRESS
""",
    )


NVML = """
import pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(1)
"""


def nvml(gpu: EmulatedGpu, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", NVML + code],
        check=False,
        env=os.environ | gpu.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nvml_agrees_with_the_driver(gpus: EmulatedGpu) -> None:
    code = """
p = ok(d.cuMemAlloc(10 * MIB)); ok(spin(20_000_000)); ok(d.cuCtxSynchronize())
print(bytes(ok(d.cuDeviceGetUuid(0)).bytes).hex(), flush=True); sys.stdin.readline()
"""
    process = start(gpus, code)
    assert process.stdout is not None
    uuid = process.stdout.readline().strip()
    out = nvml(
        gpus,
        f"""
import json
h = n.nvmlDeviceGetHandleByIndex(0)
m, m2 = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)
[p] = n.nvmlDeviceGetComputeRunningProcesses(h)
assert n.nvmlDeviceGetUUID(h).replace("-", "") == "GPU" + {uuid!r}
assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h))) == 0
assert n.nvmlDeviceGetMinorNumber(h) == 0 and n.nvmlDeviceGetCount() == 2
assert n.nvmlDeviceGetPciInfo(h).bus == 1 and n.nvmlSystemGetDriverVersion() == "0.emulated"
assert 0 <= n.nvmlDeviceGetUtilizationRates(h).gpu <= 100
assert (m.total, m.free, m.used) == (m2.total, m2.free, m2.used)
print(json.dumps([p.pid, p.usedGpuMemory, m.used, m.total]))
""",
    )
    pid, used_by, used, total = json.loads(out)
    assert pid == process.pid
    assert used_by == used == (10 << 20) + (512 << 10)
    assert total == 64 << 20
    process.communicate("\n", timeout=30)


def test_a_lost_device_stays_lost_and_others_go_on(gpus: EmulatedGpu) -> None:
    code = """
print("up", flush=True); sys.stdin.readline()
assert d.cuCtxSynchronize()[0] == E.CUDA_ERROR_LAUNCH_FAILED
assert d.cuMemAlloc(64)[0] == E.CUDA_ERROR_LAUNCH_FAILED
ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(1)))); ok(spin(1000)); ok(d.cuCtxSynchronize())
"""
    process = start(gpus, code)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    gpus.fail(0, "lost")
    _, err = process.communicate("\n", timeout=30)
    assert process.returncode == 0, err
    nvml(
        gpus,
        """
try:
    n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0))
except n.NVMLError_GpuIsLost:
    n.nvmlDeviceGetMemoryInfo(h)
else:
    raise SystemExit("not lost")
""",
    )


def test_out_of_memory_once(gpus: EmulatedGpu) -> None:
    gpus.fail(1, "oom")
    run(
        gpus,
        """
c = d.cuDevicePrimaryCtxRetain(1)
assert c[0] == E.CUDA_ERROR_OUT_OF_MEMORY
ok(d.cuDevicePrimaryCtxRetain(1))
""",
    )


def test_without_a_server_there_is_no_device(short_dir: Path) -> None:
    env = os.environ | EmulatedGpu(short_dir).env
    code = "from cuda.bindings import driver as d; print(d.cuInit(0)[0].name)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, env=env, capture_output=True, text=True
    )
    assert done.stdout.strip() == "CUDA_ERROR_NO_DEVICE"
    assert "no emugpud answers" in done.stderr
