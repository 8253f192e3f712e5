"""The emulated NVML through unmodified nvidia-ml-py, whose own structs must agree with ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.emugpu.programs import finish, go_on, line, program
from tests.emugpu.server import EmulatedGpu

# In a process of its own: the library is loaded once a process, from the environment's path.
SET_UP = """
import ctypes, json
import pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
def error(call, *arguments):
    try:
        call(*arguments)
    except n.NVMLError as fault:
        return type(fault).__name__.removeprefix("NVMLError_")
"""


def ask(gpu: EmulatedGpu, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SET_UP + code],
        check=False,
        env=os.environ | gpu.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_process_is_listed_with_its_own_memory(emulated_gpu: EmulatedGpu) -> None:
    code = """
import sys
setup()
ok(d.cuMemAlloc({mib} * MIB))
say(os.getpid()); wait()
"""
    with (
        program(emulated_gpu, code.format(mib=10)) as one,
        program(emulated_gpu, code.format(mib=30)) as two,
    ):
        want = {int(line(one)): 11 << 20, int(line(two)): 31 << 20}  # with a MiB of context
        out = ask(
            emulated_gpu,
            """
class Old(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong)]
new = {p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)}
assert new == {p.pid: p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses_v2(h)}
lib = ctypes.CDLL("libnvidia-ml.so.1")
room, count = (Old * 8)(), ctypes.c_uint(1)
assert lib.nvmlDeviceGetComputeRunningProcesses(h, ctypes.byref(count), room) == 7  # too small
assert count.value == 2
assert lib.nvmlDeviceGetComputeRunningProcesses(h, ctypes.byref(count), room) == 0
assert new == {room[i].pid: room[i].used for i in range(2)}
assert sum(new.values()) == n.nvmlDeviceGetMemoryInfo(h).used
print(json.dumps(new))
""",
        )
        assert {int(pid): used for pid, used in json.loads(out).items()} == want
        go_on(one)
        finish(one)
        # Its memory is back once the server has seen the end of its last connection.
        while len(json.loads(ask(emulated_gpu, PIDS))) == 2:
            pass
        [left] = json.loads(ask(emulated_gpu, PIDS))
        assert left == two.pid


def test_managed_memory_is_in_nobodys_figure(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
ok(d.cuMemAlloc(10 * MIB))
m = ok(d.cuMemAllocManaged(64 * MIB, 1))
ok(launch("fill", m, 16 * MIB, 1)); ok(d.cuCtxSynchronize())
say("up"); wait()
"""
    with program(emulated_gpu, code) as process:
        assert line(process) == "up"
        ask(
            emulated_gpu,
            """
[process] = n.nvmlDeviceGetComputeRunningProcesses(h)
assert process.usedGpuMemory == 11 << 20  # with a MiB of context
assert n.nvmlDeviceGetMemoryInfo(h).used == 75 << 20
""",
        )


@pytest.mark.emulated(model="emu-h200-medium")
def test_all_that_a_process_holds_is_in_its_figure(emulated_gpu: EmulatedGpu) -> None:
    # What is made, and how many MiB of plain memory it is; a context takes 4.
    kinds = {
        "d.cuMemAlloc(3 * MIB)": 3,
        "d.cuMemAllocManaged(64 * MIB, 1)": 0,
        "d.cuMemAllocAsync(5 * MIB, 0)": 5,
        "d.cuMemCreate(6 * MIB, prop, 0)": 6,
        "d.cuArray3DCreate(desc)": 8,
        "d.cuCtxCreate(None, 0, 0)": 4,
        "d.cuMemHostAlloc(16 * MIB, 0)": 0,
    }
    code = f"""
setup()
prop = d.CUmemAllocationProp()
prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
desc = d.CUDA_ARRAY3D_DESCRIPTOR()
desc.Width, desc.Height, desc.NumChannels = 1024, 2048, 4
desc.Format = d.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
made = []
say(os.getpid()); wait()
for make in {list(kinds)}:
    made.append(ok(eval(make)))
    say(make); wait()
"""
    with program(emulated_gpu, code) as one, program(emulated_gpu, code) as other:
        mib = {int(line(process)): 4 for process in (one, other)}
        assert figures(emulated_gpu) == mib
        for kind, more in kinds.items():
            go_on(one)
            assert line(one) == kind
            mib[one.pid] += more
            assert figures(emulated_gpu) == mib, kind


def figures(gpu: EmulatedGpu) -> dict[int, int]:
    """MiB of each process; what NVML says of the whole device agrees."""
    out = ask(
        gpu,
        """
used = {p.pid: p.usedGpuMemory >> 20 for p in n.nvmlDeviceGetComputeRunningProcesses_v3(h)}
old, new = n.nvmlDeviceGetMemoryInfo(h), n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2)
assert (old.used, old.free, old.total) == (new.used, new.free, new.total)
assert old.used + old.free == old.total == 1024 << 20
assert old.used >> 20 == sum(used.values())
assert error(n.nvmlDeviceGetMemoryInfo, h, 0x0200001) == "ArgumentVersionMismatch"
print(json.dumps(used))
""",
    )
    return {int(pid): mib for pid, mib in json.loads(out).items()}


PIDS = "print(json.dumps([p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(h)]))"


def test_busy_time_and_traffic_show_after_the_first_question(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
p = ok(d.cuMemAlloc(8 * MIB))
say("up"); wait()
ok(launch("spin", 50_000_000))
ok(d.cuMemcpyHtoD(p, bytes(8 * MIB), 8 * MIB))
ok(d.cuMemcpyDtoH(bytearray(4 * MIB), p, 4 * MIB))
ok(d.cuCtxSynchronize())
say("worked"); wait()
"""
    with program(emulated_gpu, code) as process:
        assert line(process) == "up"
        questions = subprocess.Popen(
            [sys.executable, "-u", "-c", SET_UP + QUESTIONS],
            env=os.environ | emulated_gpu.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert line(questions) == "0 0 0 {}"
        go_on(process)
        assert line(process) == "worked"
        go_on(questions)
        said, _, work = line(questions).partition(" {")
        busy, sent, received = (int(word) for word in said.split())
        assert 0 < busy <= 100
        [(pid, share)] = json.loads("{" + work).items()
        assert int(pid) == process.pid
        assert 0 < share <= 100
        assert 0 < sent < received, "4 MiB went out, 8 came in"
        go_on(questions)
        finish(questions)


QUESTIONS = """
def work():
    try:
        return {s.pid: s.smUtil for s in n.nvmlDeviceGetProcessUtilization(h, 0)}
    except n.NVMLError_NotFound:
        return {}
for _ in range(2):
    busy = n.nvmlDeviceGetUtilizationRates(h).gpu
    sent = n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_TX_BYTES)
    received = n.nvmlDeviceGetPcieThroughput(h, n.NVML_PCIE_UTIL_RX_BYTES)
    print(busy, sent, received, json.dumps(work()))
    input()
assert work() == {}, "nobody has worked since"
"""


SAMPLES = """
for _ in range(5):
    try:
        samples = {s.pid: s.smUtil for s in n.nvmlDeviceGetProcessUtilization(h, 0)}
    except n.NVMLError_NotFound:
        samples = {}
    say(json.dumps(samples)); wait()
"""


def test_samples_mislead_where_several_have_worked(emulated_gpu: EmulatedGpu) -> None:
    """As on a card: nearly all for one of them, or an even part of each."""
    code = """
setup(); say(os.getpid())
while True:
    wait(); ok(launch("spin", {ns})); ok(d.cuCtxSynchronize()); say("worked")
"""
    seen = []
    with (
        program(emulated_gpu, code.format(ns=100_000_000)) as one,
        program(emulated_gpu, code.format(ns=300_000_000)) as two,
        program(emulated_gpu, "wait()" + SET_UP + SAMPLES) as questions,
    ):
        pids = [int(line(process)) for process in (one, two)]
        go_on(questions)
        assert line(questions) == "{}"
        for _ in range(4):
            for process in (one, two):
                go_on(process)
                assert line(process) == "worked"
            go_on(questions)
            samples = json.loads(line(questions))
            seen.append([samples[str(pid)] for pid in pids])
    first, even, second, again = seen
    assert even[0] == even[1] > 0
    assert again[0] == again[1] > 0
    assert min(first) == min(second) == 0
    assert first.index(0) != second.index(0)


def test_names_and_errors(emulated_gpu: EmulatedGpu) -> None:
    ask(
        emulated_gpu,
        """
assert n.nvmlDeviceGetName(h).startswith("Emulated ")
assert n.nvmlDeviceGetCudaComputeCapability(h) == (9, 0)
bus = n.nvmlDeviceGetPciInfo(h).busId
assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(bus)) == 0
assert error(n.nvmlDeviceGetHandleByIndex, 1) == "InvalidArgument"
assert error(n.nvmlDeviceGetHandleByUUID, "GPU-none") == "NotFound"
assert error(n.nvmlDeviceGetFanSpeed, h) == "FunctionNotFound"  # it is not there, and says so
[short] = [ctypes.create_string_buffer(4)]
lib = ctypes.CDLL("libnvidia-ml.so.1")
assert lib.nvmlDeviceGetName(h, short, 4) == 7  # NVML_ERROR_INSUFFICIENT_SIZE
n.nvmlShutdown()
assert error(n.nvmlDeviceGetCount) == "Uninitialized"
assert error(n.nvmlShutdown) == "Uninitialized"
n.nvmlInit()
assert n.nvmlDeviceGetCount() == 1
""",
    )
