"""Processes of a job whose device work waits for each other's are never torn apart by a revoke."""

from __future__ import annotations

from leased.cli.ctl import ask
from tests.conftest import Start
from tests.shim.test_interposer import SET_UP, line, output
from tests.slurm.leased import Leased

# A collective, as far as a device is concerned: work in a stream that ends only
# when the work of the other rank is there too. Here it is a host function that
# meets its like over a socket; NCCL's kernels spin on memory instead.
RANK = (
    SET_UP
    + """
import socket, time
meeting = socket.socket(fileno=int(sys.argv[1]))
slow = sys.argv[2] == "1"
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def meet(_):
    meeting.send(b"x"); assert meeting.recv(1) == b"x"
lib = ctypes.CDLL("libcuda.so.1")
for step in range(120):
    for _ in range(3):
        ok(spin(2_000_000))
    if slow:  # the other one's work is there long before
        time.sleep(0.01)
    assert lib.cuLaunchHostFunc(None, meet, None) == 0
    if step % 4 == 3:  # not all of it is submitted ahead
        ok(d.cuCtxSynchronize())
"""
)

JOB = f"""
import socket, subprocess, sys
ends = socket.socketpair()
ranks = [subprocess.Popen([sys.executable, "-c", {RANK!r}, str(end.fileno()), str(n)],
                          pass_fds=[end.fileno()]) for n, end in enumerate(ends)]
print("started", flush=True)
assert [rank.wait() for rank in ranks] == [0, 0]
"""

RIVAL = (
    SET_UP
    + """
say("starts")
for _ in range(150):
    ok(spin(2_000_000))
ok(d.cuCtxSynchronize())
"""
)


def test_ranks_that_wait_for_each_other_on_the_device_pass_a_revoke(
    tenant: Start, leased: Leased
) -> None:
    job = tenant(1, "tq:100ms,lock:on", "-c", JOB)
    assert line(job) == "started"
    rivals = [tenant(n, "tq:100ms,lock:on", "-c", RIVAL) for n in (2, 3)]
    output(job)
    for rival in rivals:
        output(rival)
    used = next(iter(ask(leased.admin_socket, {"op": "usage", "job_id": 1})["usage"].values()))
    assert used["handoffs"] >= 2, "it was revoked in between"
    assert used["overruns"] == 0
