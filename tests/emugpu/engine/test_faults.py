"""Devices that fail while programs run, and come back; and devices that a program does not see."""

from __future__ import annotations

import pytest

from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu

pytestmark = pytest.mark.emulated(model="emu-h200-tiny", devices=3)


RUNS_ON = """
setup({device})
p = ok(d.cuMemAlloc(MIB))
ok(launch("fill", p, 1000, 3))
ok(d.cuCtxSynchronize())
"""
GOES_ON = """
ok(launch("add", p, 1000, 1, 1))
ok(d.cuCtxSynchronize())
"""
BUSY = """
setup({device})
ok(launch("spin", 3_600_000_000_000))
say("up")
say(error(d.cuCtxSynchronize()))
launch("empty")
say(error(d.cuCtxSynchronize()))
"""
NVML = """
import pynvml as n
n.nvmlInit()
def state(i):
    try:
        n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(i))
    except n.NVMLError as fault:
        return type(fault).__name__
    return "well"
"""


@pytest.mark.parametrize(
    ("fault", "result"), [("lost", "LAUNCH_FAILED"), ("ecc", "ECC_UNCORRECTABLE")]
)
def test_a_fault_ends_what_runs_on_that_device_alone(
    emulated_gpu: EmulatedGpu, fault: str, result: str
) -> None:
    other = RUNS_ON.format(device=2) + 'say("up"); wait()' + GOES_ON
    with (
        program(emulated_gpu, BUSY.format(device=1)) as hit,
        program(emulated_gpu, other) as spared,
    ):
        assert line(hit) == line(spared) == "up"
        emulated_gpu.fail(1, fault)
        assert [line(hit), line(hit)] == [result, result], "and the fault stays"
        go_on(spared)
        finish(spared)


def test_an_ecc_error_spares_what_comes_later(emulated_gpu: EmulatedGpu) -> None:
    emulated_gpu.fail(1, "ecc")
    run(emulated_gpu, RUNS_ON.format(device=1))


def test_a_lost_device_is_lost_for_nvml_until_it_is_repaired(emulated_gpu: EmulatedGpu) -> None:
    watch = NVML + "h = n.nvmlDeviceGetHandleByIndex(1)\n"
    watch += 'say("up"); wait(); say([state(i) for i in range(n.nvmlDeviceGetCount())])\n'
    watch += "try:\n n.nvmlDeviceGetComputeRunningProcesses(h)\n"
    watch += "except n.NVMLError_GpuIsLost: say('lost')\n"
    states = NVML + "say([state(i) for i in range(n.nvmlDeviceGetCount())])"
    with program(emulated_gpu, watch) as before:
        assert line(before) == "up"
        emulated_gpu.fail(1, "lost")
        go_on(before)
        want = str(["well", "NVMLError_GpuIsLost", "well"])
        assert [line(before), line(before)] == [want, "lost"]
        assert run(emulated_gpu, states).strip() == want, "who starts later sees the same"
    emulated_gpu.fail(1, "repaired")
    assert run(emulated_gpu, states).strip() == str(["well"] * 3)
    run(emulated_gpu, RUNS_ON.format(device=1))


def test_contexts_of_a_lost_device_stay_broken_when_it_is_back(emulated_gpu: EmulatedGpu) -> None:
    code = RUNS_ON.format(device=0) + 'say("up"); wait(); say(error(d.cuCtxSynchronize()))'
    with program(emulated_gpu, code) as process:
        assert line(process) == "up"
        emulated_gpu.fail(0, "lost")
        emulated_gpu.fail(0, "repaired")
        go_on(process)
        assert line(process) == "LAUNCH_FAILED"


VISIBLE = """
os.environ["CUDA_VISIBLE_DEVICES"] = {visible!r}
say(error(d.cuInit(0)))
count = d.cuDeviceGetCount()[1] or 0
say([ok(d.cuDeviceGetUuid(i)).bytes[15] for i in range(count)])
"""


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0,7,1", [0]),  # what follows a bad word is ignored
        ("{uuid}", [1]),
        ("{uuid},0", [1, 0]),
        ("1,1", []),
        ("", []),
        ("-1", []),
    ],
)
def test_visible_devices(emulated_gpu: EmulatedGpu, visible: str, devices: list[int]) -> None:
    uuid = emulated_gpu.stats()["devices"][1]["uuid"]
    code = VISIBLE.format(visible=visible.format(uuid=uuid))
    assert run(emulated_gpu, code).splitlines() == [
        "CUDA_SUCCESS" if devices else "NO_DEVICE",
        str(devices),
    ]


def test_work_goes_to_the_device_that_is_seen(emulated_gpu: EmulatedGpu) -> None:
    code = 'os.environ["CUDA_VISIBLE_DEVICES"] = "2"\n' + RUNS_ON.format(device=0)
    code += "assert ok(d.cuPointerGetAttribute("
    code += "d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p)) == 0\n"
    code += "assert ok(d.cuDeviceGetPCIBusId(32, 0)).startswith(b'0000:03:')\n"
    run(emulated_gpu, code)
    assert [device["busy_ns"] > 0 for device in emulated_gpu.stats()["devices"]] == [
        False,
        False,
        True,
    ]
