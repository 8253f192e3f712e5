"""Online jobs beside offline ones on the emulated GPU: whatever these do, and while the daemon is
gone, the online job works on, and its data is right."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.shim.channels.handoffs import slices
from tests.slurm.leased import LOOKS_OFTEN, Leased
from tests.slurm.processes import wait_until
from tests.support.programs import Process, line, tell
from tests.support.swap_programs import PROGRAM
from tests.support.tenant import register

ONLINE, OFFLINE = 1, 2  # jobs
LONG_US, SHORT_US = 20_000, 50
ROUNDS = 3
# Of a device of 64 MiB: both fit, or only one.
FITS, NOT = 14, 40
OFTEN = (*LOOKS_OFTEN, "leased.monitors.class_health.LOOK_S=0.1")
CONFIG = '[classes]\nmay_online = ["all"]\n'

# A round of work on its memory whenever it is told to.
SERVES = """
size = int(sys.argv[1]) * MIB
p = ok(d.cuMemAlloc(size)); fill(p, size, 3); ok(d.cuCtxSynchronize()); say("there")
for n, _ in enumerate(sys.stdin):
    check_all(p, size, 3 + n); spin(2_000_000); fill(p, size, 4 + n); ok(d.cuCtxSynchronize())
    check_all(p, size, 4 + n); say("right")
"""
# Has its memory on the device, and then does something.
DOES = """
size = int(sys.argv[1]) * MIB
p = ok(d.cuMemAlloc(size)); fill(p, size, 7); ok(d.cuCtxSynchronize())
"""
ENDLESS = "spin(1 << 50); say('in a kernel')"
DEEDS = {
    "an illegal address": """
say('does it')
values = ((0x1000, 1 << 20, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
d.cuLaunchKernel(kernel["fill"], 4, 1, 1, 64, 1, 1, 0, 0, values, 0)
assert d.cuCtxSynchronize()[0] != d.CUresult.CUDA_SUCCESS
""",
    "an endless kernel": f"{ENDLESS}; ok(d.cuCtxSynchronize())",
    "an end in mid-kernel": f"{ENDLESS}; os._exit(3)",
    "killed in mid-kernel": f"{ENDLESS}; ok(d.cuCtxSynchronize())",
    "all memory that it gets": """
say('does it')
while d.cuMemAlloc(8 * MIB)[0] == d.CUresult.CUDA_SUCCESS: pass
fill(p, size, 8); ok(d.cuCtxSynchronize())
""",
}


pytestmark = [
    pytest.mark.daemon(extra=CONFIG, activated=True),
    pytest.mark.emulated(model="emu-a100-tiny"),
]


def status(leased: Leased) -> Any:
    return ask(leased.admin_socket, {"op": "status"})


def serve(tenant: Start, mib: int) -> Process:
    """An online job, whose first round is over."""
    job = tenant(ONLINE, "class:online,memory:swap", "-c", PROGRAM + SERVES, str(mib))
    assert line(job).isdigit()
    assert line(job) == "there"
    works(job)
    return job


def works(job: Process, rounds: int = 1) -> None:
    for _ in range(rounds):
        tell(job)
        assert line(job) == "right"


def begin(tenant: Start, deed: str, mib: int) -> tuple[Process, int]:
    """An offline job that is about to do something; and its process's number."""
    options = "class:offline,memory:swap,tq:5m"
    job = tenant(OFFLINE, options, "-c", PROGRAM + DOES + deed, str(mib))
    pid = int(line(job))
    return job, pid


@pytest.mark.parametrize(
    ("deed", "mib"),
    [
        *((deed, FITS) for deed in DEEDS if deed != "all memory that it gets"),
        # Where one's memory leaves for the other's.
        *((deed, NOT) for deed in ("an endless kernel", "killed in mid-kernel")),
        ("all memory that it gets", NOT),
    ],
)
def test_whatever_an_offline_job_does_the_online_one_works_on(
    tenant: Start, leased: Leased, deed: str, mib: int
) -> None:
    online = serve(tenant, mib)
    offline, pid = begin(tenant, DEEDS[deed], mib)
    assert line(offline) in {"in a kernel", "does it"}
    if deed == "killed in mid-kernel":
        os.kill(pid, signal.SIGKILL)
    works(online, ROUNDS)
    states = {t["job_id"]: t["state"] for t in status(leased)["tenants"]}
    # Where not both fit it lends the GPU to the other one as soon as it has left it idle.
    assert states[ONLINE] == "holds" or (mib == NOT and states[ONLINE] == "idle")
    if deed == "an endless kernel":
        assert offline.poll() is None, "it is only stopped"


def test_an_online_job_that_dies_leaves_the_gpu(tenant: Start) -> None:
    online = serve(tenant, NOT)
    offline, _ = begin(tenant, "say('has it')", NOT)
    os.killpg(online.pid, signal.SIGKILL)
    assert line(offline) == "has it"


def test_the_last_of_two_online_jobs_waits_for_a_quantum_and_not_for_ever(tenant: Start) -> None:
    first = serve(tenant, NOT)
    options = "class:online,memory:swap,tq:100ms"
    second = tenant(OFFLINE, options, "-c", PROGRAM + SERVES, str(NOT))
    assert line(second).isdigit()
    assert line(second) == "there"
    for job in (first, second, first, second):
        works(job)


def test_slices_stay_while_the_daemon_is_killed_and_comes_back(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """Until it has looked at the jobs again, and from then on."""
    online = serve(tenant, FITS)
    offline, _ = begin(tenant, DEEDS["an endless kernel"], FITS)
    assert line(offline) == "in a kernel"
    both = [SHORT_US, LONG_US]
    wait_until("the slices of both", lambda: sorted(slices(emulated_gpu)) == both)
    leased.kill()
    seen = []
    for _ in range(ROUNDS):
        works(online)
        seen.append(sorted(slices(emulated_gpu)))
    leased.start()

    def chosen_again() -> bool:
        seen.append(sorted(slices(emulated_gpu)))
        found = [slice for t in status(leased)["tenants"] for slice in t["slices"].values()]
        return sorted(one["slice_s"] or 0 for one in found) == [SHORT_US / 1e6, LONG_US / 1e6]

    wait_until("the new daemon to choose", chosen_again)
    works(online)
    seen.append(sorted(slices(emulated_gpu)))
    assert seen == [both] * len(seen)


def test_where_groups_cannot_be_controlled_the_jobs_say_so_and_run(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    emulated_gpu.fail(0, "controls-unknown")
    online = serve(tenant, FITS)
    offline, _ = begin(tenant, "say('has it'); wait()", FITS)
    assert line(offline) == "has it"
    works(online, ROUNDS)
    assert {t["channels"]["state"] for t in status(leased)["tenants"]} == {"refused"}


@pytest.mark.daemon(extra=CONFIG + 'unhealthy = "refuse"\n', activated=True, hurried=OFTEN)
@pytest.mark.parametrize(
    ("fault", "how"),
    [("", "Xid 79"), ("lost", "GPU is lost"), ("rows", "bad rows"), ("ecc", "not corrected")],
)
def test_a_gpu_that_breaks_takes_no_offline_job_and_those_there_work_on(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, fault: str, how: str
) -> None:
    """As long as the driver lets them."""
    online = serve(tenant, FITS)
    offline, _ = begin(tenant, DEEDS["an endless kernel"], FITS)
    assert line(offline) == "in a kernel"
    wait_until("NVML", lambda: sorted(slices(emulated_gpu)) == [SHORT_US, LONG_US])

    def health() -> Any:
        return status(leased)["devices"][0]["offline_health"]

    # With its first answer NVML begins to keep Xids.
    wait_until("NVML", lambda: status(leased)["devices"][0]["busy_percent"] is not None)
    if fault:
        emulated_gpu.nvml({0: fault})
    else:
        emulated_gpu.xid(0, 13)
        emulated_gpu.xid(0, 79)
    wait_until("it to be disabled", lambda: health() and health()["state"] == "disabled")
    assert how in health()["why"]
    works(online, ROUNDS)
    assert {t["job_id"] for t in status(leased)["tenants"]} == {ONLINE, OFFLINE}
    with pytest.raises(Refused, match=f"GPU 0 .*{how}"):
        register(leased.admin_socket, 3, "class:offline")
