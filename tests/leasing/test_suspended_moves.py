"""Jobs that are suspended while their memory comes back, and resumed when the device is full."""

from __future__ import annotations

import os
import signal

from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.leasing.test_park import MIB, PROGRAM, free, job_of
from tests.leasing.test_suspended_restart import announced
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output, tell

OPTIONS = "tq:100ms,lock:on,memory:swap"
EACH = "160"  # MiB; the device has 256

# Before its memory leaves a second time it hangs in the driver until it is told to go on.
HANGS = PROGRAM.replace(
    'say("filled")',
    """
cuda = ctypes.CDLL("libcuda.so.1")
cuda.emugpu_hold(b"cuMemUnmap", 0)
say("filled")
assert cuda.emugpu_held()
say("hangs"); sys.stdin.readline()
cuda.emugpu_let()
""",
)


def resident(leased: Leased, job: int) -> int:
    return int(sum(job_of(leased, job)["resident_bytes"].values()))


def test_suspended_while_its_memory_comes_back_all_leaves(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    job = tenant(1, OPTIONS, "-c", PROGRAM, EACH, "2")
    pid = int(line(job))
    other = tenant(2, OPTIONS, "-c", HANGS, EACH, "2")
    assert int(line(other))
    empty = free(emulated_gpu)
    for each in (job, other):
        tell(each)
        assert line(each) == "filled"
    tell(job)
    assert line(other) == "hangs"
    wait_until("what fits to come", lambda: free(emulated_gpu) < 16 * MIB)
    assert job_of(leased, 1)["state"] == "holds"
    with announced(pid):
        wait_until("it to be parked", lambda: job_of(leased, 1)["state"] == "parked")
    wait_until("all of it to leave", lambda: free(emulated_gpu) >= empty - 161 * MIB)
    wait_until("a report that nothing is left", lambda: resident(leased, 1) == 0)
    os.kill(pid, signal.SIGSTOP)
    tell(other)
    tell(other)
    assert line(other) == "worked 8"
    assert free(emulated_gpu) < empty - 159 * MIB, "the other has the room that the job needs"
    os.kill(pid, signal.SIGCONT)
    assert line(job) == "worked 8"
    tell(other)
    assert line(other) == "worked 9"
    tell(job)
    assert line(job) == "worked 9"
    for each in (job, other):
        output(each)
