"""Programs that are clients of an emulated MPS server: parts of a device, faults that spread."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.emugpu.mps_control import install
from tests.emugpu.programs import finish, go_on, line, program
from tests.emugpu.server import BUILD, EmulatedGpu


@pytest.fixture
def gpu(short_dir: Path, request: pytest.FixtureRequest) -> Iterator[EmulatedGpu]:
    model = getattr(request, "param", "emu-h200-tiny")
    with EmulatedGpu(short_dir / "gpu", model=model, trace=True) as made:
        yield made


@pytest.fixture
def slow_gpu(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedGpu]:
    """Whenever its server has read the clock, other programs have the processor for 3 ms."""
    monkeypatch.setenv("LD_PRELOAD", str(BUILD / "libslow_clock.so"))
    with EmulatedGpu(short_dir / "gpu", model="emu-h200-tiny") as made:
        monkeypatch.undo()
        yield made


@pytest.fixture
def mps(short_dir: Path) -> Iterator[dict[str, str]]:
    """The environment of clients of a control program that runs."""
    with control(short_dir) as env:
        yield env


@contextmanager
def control(folder: Path) -> Iterator[dict[str, str]]:
    pipes, logs = folder / "pipes", folder / "logs"
    for place in (pipes, logs):
        place.mkdir()
    command = install(folder)
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
    subprocess.run([command, "-d"], env=os.environ | env, check=True, stdin=subprocess.DEVNULL)
    try:
        yield env
    finally:
        subprocess.run(
            [command], input="quit\n", text=True, env=os.environ | env, check=True, timeout=60
        )


@contextmanager
def client(
    gpu: EmulatedGpu, env: dict[str, str], code: str, percent: int = 100
) -> Iterator[subprocess.Popen[str]]:
    told = env | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
    set_up = "import os\n" + "".join(f"os.environ[{k!r}] = {v!r}\n" for k, v in told.items())
    with program(gpu, set_up + code) as started:
        yield started


RUNS = """
setup()
say("up")
wait()
ok(launch("spin", {ns}))
say(error(d.cuCtxSynchronize()))
"""
ILLEGAL = """
setup()
say("up")
wait()
launch("fill", 12345 * MIB, 1000, 1)
say(error(d.cuCtxSynchronize()))
wait()
"""
WAITS = """
setup()
ok(launch("spin", 3_600_000_000_000))
say("up")
say(error(d.cuCtxSynchronize()))
wait()
"""
BEGINS = """
say(error(d.cuInit(0)))
"""
ENDS_IN_A_COPY = """
import os
setup()
n = 16 * MIB
p, host = ok(d.cuMemAlloc(n)), ok(d.cuMemHostAlloc(8 * n, 0))
streams = [ok(d.cuStreamCreate(1)) for _ in range(2)]
for _ in range(20):
    ok(d.cuMemcpyDtoHAsync(host, p, n, streams[0])); ok(d.cuMemcpyHtoDAsync(p, host, n, streams[1]))
os._exit(0)
"""


def test_a_fault_of_one_client_ends_the_work_of_all(gpu: EmulatedGpu, mps: dict[str, str]) -> None:
    with (
        client(gpu, mps, WAITS) as neighbour,
        client(gpu, mps, ILLEGAL) as guilty,
        program(gpu, RUNS.format(ns=1000)) as apart,
    ):
        assert {line(one) for one in (neighbour, guilty, apart)} == {"up"}
        go_on(guilty)
        assert line(guilty) == line(neighbour) == "ILLEGAL_ADDRESS"
        with client(gpu, mps, BEGINS) as early:
            assert line(early) == "MPS_SERVER_NOT_READY"
        go_on(apart)
        assert finish(apart) == "CUDA_SUCCESS\n", "it is no client of the server"
        for one in (guilty, neighbour):
            go_on(one)
            finish(one)
    with client(gpu, mps, BEGINS) as later:
        assert line(later) == "CUDA_SUCCESS"
    assert (Path(mps["CUDA_MPS_LOG_DIRECTORY"]) / "server.log").read_text().count("fatal") == 1


def test_the_end_of_a_client_in_a_copy_does_no_harm(gpu: EmulatedGpu, mps: dict[str, str]) -> None:
    """As on a card: what the device works on stays until it has stopped."""
    with client(gpu, mps, RUNS.format(ns=1000)) as neighbour:
        assert line(neighbour) == "up"
        for _ in range(4):
            with client(gpu, mps, ENDS_IN_A_COPY) as one:
                finish(one)
        go_on(neighbour)
        assert finish(neighbour) == "CUDA_SUCCESS\n"


def test_a_part_of_the_multiprocessors_slows_kernels_in_proportion(
    gpu: EmulatedGpu, mps: dict[str, str]
) -> None:
    """By the clock of the device: between the slices of its kernel it rests."""
    with client(gpu, mps, RUNS.format(ns=400_000_000), percent=25) as slow:
        assert line(slow) == "up"
        go_on(slow)
        finish(slow)
        slices = [(start, end) for _, pid, start, end in gpu.trace() if pid == slow.pid]
    busy = sum(end - start for start, end in slices)
    assert slices[-1][1] - slices[0][0] > 3 * busy


def test_a_kernel_goes_on_though_its_rest_has_ended_while_the_device_looked(
    slow_gpu: EmulatedGpu, mps: dict[str, str]
) -> None:
    """After each of its slices it rests for nine times as long."""
    with client(slow_gpu, mps, RUNS.format(ns=50_000_000), percent=10) as slow:
        assert line(slow) == "up"
        go_on(slow)
        assert finish(slow) == "CUDA_SUCCESS\n"


def test_without_a_control_program_a_program_runs_as_always(
    gpu: EmulatedGpu, short_dir: Path
) -> None:
    with client(gpu, {"CUDA_MPS_PIPE_DIRECTORY": str(short_dir)}, BEGINS) as alone:
        assert line(alone) == "CUDA_SUCCESS"


# A context with a part of the multiprocessors, and a stream of it.
WHOLE = "stream = 0"
GREEN = """
SM = d.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
parts, n, rest = ok(d.cuDevSmResourceSplitByCount(1, ok(d.cuDeviceGetDevResource(0, SM)), 0, 32))
green = ok(d.cuGreenCtxCreate(ok(d.cuDevResourceGenerateDesc([parts[0]], 1)), 0, 1))
stream = ok(d.cuGreenCtxStreamCreate(green, 1, 0))
"""
AFFINITY = """
from tests.emugpu.program_api import load
SM = d.CUexecAffinityType.CU_EXEC_AFFINITY_TYPE_SM_COUNT
wanted = d.CUexecAffinityParam()
wanted.type = SM
wanted.param.smCount.val = 31
made = d.CUctxCreateParams()
made.execAffinityParams, made.numExecAffinityParams = [wanted], 1
created = d.cuCtxCreate(made, 0, 0)
if error(created) != "CUDA_SUCCESS":
    say(error(created)); sys.exit()
assert ok(d.cuCtxGetExecAffinity(SM)).param.smCount.val == 32
functions.update(load())
stream = 0
"""
KERNEL = """
p = ok(d.cuMemAlloc(MIB))
ok(launch(KERNEL, stream=stream)); ok(d.cuStreamSynchronize(stream))
say("done")
"""
SPINS, STREAMS = '"spin", 100_000_000', '"add", p, MIB // 4, 1, 400'


def times(gpu: EmulatedGpu, env: dict[str, str], code: str, kernel: str) -> tuple[int, int]:
    """How long the device has worked for a kernel, and from its begin to its end; ns."""
    told = "setup()\n" + code + KERNEL.replace("KERNEL", kernel)
    with client(gpu, env, told) as one:
        assert line(one) == "done"
        slices = [(start, end) for _, pid, start, end in gpu.trace() if pid == one.pid]
    return sum(end - start for start, end in slices), slices[-1][1] - slices[0][0]


@pytest.mark.parametrize("gpu", ["emu-h200-mps"], indirect=True)
@pytest.mark.parametrize("code", [GREEN, AFFINITY])
def test_a_context_has_its_part_of_the_multiprocessors(
    gpu: EmulatedGpu, mps: dict[str, str], code: str
) -> None:
    """32 of 132: a kernel that computes is slower in proportion, and one that passes over memory
    has all its speed from 0.57 of them on; both leave the rest of the device to others."""
    part, knee = 32 / 132, 0.57
    for kernel, costs in ((SPINS, 1.0), (STREAMS, knee)):
        whole, _ = times(gpu, mps, WHOLE, kernel)
        busy, took = times(gpu, mps, code, kernel)
        assert busy == pytest.approx(costs * whole, rel=0.02)
        assert took > 0.8 * busy / part


def test_without_mps_a_green_context_is_slower_and_there_is_no_affinity(gpu: EmulatedGpu) -> None:
    whole, _ = times(gpu, {}, WHOLE, SPINS)
    busy, _ = times(gpu, {}, GREEN, SPINS)
    assert busy == pytest.approx(whole * 132 / 32, rel=0.02)
    with client(gpu, {}, "setup()\n" + AFFINITY) as one:
        assert line(one) == "UNSUPPORTED_EXEC_AFFINITY"
