"""Jobs on several GPUs have all of them or none; ranks and steps of a job are one tenant."""

from __future__ import annotations

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.server import KERNELS, EmulatedGpu
from tests.slurm.leased import Leased
from tests.support.programs import SET_UP, line, output, tell
from tests.support.together import pairwise

DEVICES = 3


pytestmark = pytest.mark.emulated(devices=DEVICES)


# Each round needs all the job's devices: none of them gets far ahead of the others.
WORK = (
    SET_UP
    + """
contexts = []
for n in map(int, sys.argv[1].split(",")):
    contexts.append(ok(d.cuDevicePrimaryCtxRetain(n)))
    ok(d.cuCtxSetCurrent(contexts[-1]))
    module = ok(d.cuModuleLoadData(open(sys.argv[2], "rb").read() + b"\\0"))
    contexts[-1] = (contexts[-1], ok(d.cuModuleGetFunction(module, b"spin")))
say(os.getpid()); sys.stdin.readline()
for _ in range(30):
    for context, kernel["spin"] in contexts:
        ok(d.cuCtxSetCurrent(context))
        for _ in range(3):
            ok(spin(2_000_000))
    for context, _ in contexts:
        ok(d.cuCtxSetCurrent(context)); ok(d.cuCtxSynchronize())
"""
)


def test_gangs_that_cross_each_other_all_finish_and_never_share(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    gangs = ["0,1", "1,2", "0,1,2", "0", "1", "2"]
    jobs = [
        tenant(
            n, "tq:100ms,lock:on", "-c", WORK, gang, str(KERNELS), gpus=gang
        )  # each process sees all three
        for n, gang in enumerate(gangs, 1)
    ]
    job_of = {int(line(job)): n for n, job in enumerate(jobs, 1)}
    for job in jobs:
        tell(job)
    for job in jobs:
        output(job, timeout=120)
    answer = ask(leased.admin_socket, {"op": "status"})
    by_device: dict[int, list[tuple[int, int, int]]] = {}
    for device, pid, start, end in emulated_gpu.trace():
        by_device.setdefault(device, []).append((start, end, job_of[pid]))
    assert set(by_device) == set(range(DEVICES))
    handoffs = [
        sum(t["gpus"].get(d["uuid"], {"handoffs": 0})["handoffs"] for t in answer["tenants"])
        for d in answer["devices"]
    ]
    for device, slices in by_device.items():
        slices.sort()
        turns = sum(a[2] != b[2] for a, b in pairwise(slices))
        # By the driver's own time slices hands would change every millisecond.
        assert turns <= handoffs[device] + len(gangs)
        assert {job for _, _, job in slices} == {
            n for n, gang in enumerate(gangs, 1) if str(device) in gang.split(",")
        }


def test_processes_and_steps_of_a_job_are_one_tenant(tenant: Start, leased: Leased) -> None:
    """Two steps register, each with a process: both run at once under one lease."""
    code = SET_UP + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('has it'); sys.stdin.readline()"
    steps = [tenant(7, "tq:10m,lock:on", "-c", code) for _ in range(2)]
    assert [line(step) for step in steps] == ["has it", "has it"]
    (found,) = ask(leased.admin_socket, {"op": "status"})["tenants"]
    assert (found["clients"], found["state"]) == (2, "holds")
    for step in steps:
        tell(step)
        output(step)


def test_a_later_step_on_another_gpu_widens_the_gang(tenant: Start, leased: Leased) -> None:
    code = "ok(d.cuCtxSetCurrent(ok(d.cuDevicePrimaryCtxRetain(int(sys.argv[1])))))\n"
    spin = (
        'module = ok(d.cuModuleLoadData(open(sys.argv[2], "rb").read() + b"\\0"))\n'
        'kernel["spin"] = ok(d.cuModuleGetFunction(module, b"spin"))\n'
        "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('has it'); sys.stdin.readline()\n"
        "ok(spin(1000)); ok(d.cuCtxSynchronize())\n"
    )
    steps = []
    for gpu in ("0", "1"):
        words = ("-c", SET_UP + code + spin, gpu, str(KERNELS))
        steps.append(tenant(7, "tq:10m,lock:on", *words, gpus=gpu))
        assert line(steps[-1]) == "has it"
    answer = ask(leased.admin_socket, {"op": "status"})
    assert [d["holders"] for d in answer["devices"]] == [[7], [7], []]
    leased.kill()
    leased.start()
    assert len(ask(leased.admin_socket, {"op": "status"})["tenants"][0]["gpus"]) == 2
    for step in steps:
        tell(step)
        output(step)
