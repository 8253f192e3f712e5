"""Processes of a job whose device work waits for each other's are never torn apart by a revoke."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, tell

# A collective, as far as a device is concerned: work in a stream that ends only
# when the work of the other rank is there too. Here it is a host function that
# meets its like over a socket; NCCL's kernels spin on memory instead. The ranks go
# on until rank 0 finds the file that tells them to end, and end with the same step.
RANK = (
    SET_UP
    + """
import socket, time
meeting = socket.socket(fileno=int(sys.argv[1]))
rank, end = int(sys.argv[2]), sys.argv[3]
last = False
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def meet(_):
    global last
    mine = b"e" if rank == 0 and os.path.exists(end) else b"x"
    meeting.send(mine)
    last |= b"e" in (mine, meeting.recv(1))
lib = ctypes.CDLL("libcuda.so.1")
def step():
    for _ in range(3):
        ok(spin(2_000_000))
    if rank == 1:  # the other one's work is there long before
        time.sleep(0.01)
    assert lib.cuLaunchHostFunc(None, meet, None) == 0
step()
say("computes")
while not last:
    for _ in range(4):  # not all of it is submitted ahead
        step()
    ok(d.cuCtxSynchronize())
"""
)

# Rank 1 starts when it is told to; what the ranks say comes from here.
JOB = f"""
import socket, subprocess, sys
ends = socket.socketpair()
def start(rank):
    code = ["-c", {RANK!r}, str(ends[rank].fileno()), str(rank), sys.argv[1]]
    return subprocess.Popen([sys.executable, *code], pass_fds=[ends[rank].fileno()],
                            stdin=subprocess.DEVNULL)
ranks = [start(0)]
sys.stdin.readline()
ranks.append(start(1))
assert [rank.wait() for rank in ranks] == [0, 0]
"""

# Ranks that need nobody. Each kernel takes longer than a rank drains before it says that it
# is stuck.
LONG_RANK = (
    SET_UP
    + """
ok(spin(40_000_000))
say("computes")
while not os.path.exists(sys.argv[1]):
    ok(spin(40_000_000))
    ok(d.cuCtxSynchronize())
"""
)

LONG_JOB = f"""
import subprocess, sys
command = [sys.executable, "-c", {LONG_RANK!r}, sys.argv[1]]
ranks = [subprocess.Popen(command, stdin=subprocess.DEVNULL) for _ in range(3)]
assert [rank.wait() for rank in ranks] == [0, 0, 0]
"""

RIVAL = (
    SET_UP
    + """
say("ready"); sys.stdin.readline()
for _ in range(150):
    ok(spin(2_000_000))
ok(d.cuCtxSynchronize())
"""
)

# One that goes on until there is a file.
TIRELESS = (
    SET_UP
    + """
say("ready"); sys.stdin.readline()
while not os.path.exists(sys.argv[1]):
    for _ in range(10):
        ok(spin(2_000_000))
    ok(d.cuCtxSynchronize())
"""
)

OPTIONS = "tq:100ms,lock:on"


# So long may a drain take.
pytestmark = pytest.mark.daemon(extra='[limits]\ndrain = "10m"\n')


def used(leased: Leased, job: int) -> dict[str, int]:
    usage = ask(leased.admin_socket, {"op": "usage", "job_id": job})["usage"]
    return dict(next(iter(usage.values())))


def revoked(leased: Leased) -> bool:
    """Somebody waits, and the quantum of the holder is over."""
    device = ask(leased.admin_socket, {"op": "status"})["devices"][0]
    return bool(device["waiting"]) and device["quantum_left_s"] is None


def finish(job: subprocess.Popen[str], end: Path) -> None:
    end.touch()
    output(job)


@pytest.mark.parametrize("stops", [True, False])
def test_ranks_that_wait_for_each_other_on_the_device_pass_a_revoke(
    tenant: Start, leased: Leased, tmp_path: Path, emulated_gpu: EmulatedGpu, stops: bool
) -> None:
    """They are stopped in mid-kernel, or where they cannot be, let on one call at a time."""
    if not stops:
        emulated_gpu.fail(0, "controls-unknown")
    enough = tmp_path / "enough"
    rivals = [tenant(n, OPTIONS, "-c", TIRELESS, str(enough)) for n in (2, 3)]
    assert [line(rival) for rival in rivals] == ["ready", "ready"]
    job = tenant(1, OPTIONS, "-c", JOB, str(tmp_path / "end"))
    tell(job)
    assert [line(job), line(job)] == ["computes", "computes"]
    for rival in rivals:
        tell(rival)
    # However the three share the time: it is revoked, and goes on, and that again.
    wait_until("job 1 to be revoked twice", lambda: used(leased, 1)["handoffs"] >= 2)
    enough.touch()
    for rival in rivals:
        output(rival)
    finish(job, tmp_path / "end")
    assert used(leased, 1)["overruns"] == 0


@pytest.mark.usefixtures("uncontrolled")
def test_a_rank_that_comes_while_the_other_cannot_release_is_let_on(
    tenant: Start, leased: Leased, tmp_path: Path
) -> None:
    """What the first rank has submitted waits for it."""
    job = tenant(1, OPTIONS, "-c", JOB, str(tmp_path / "end"))
    assert line(job) == "computes"
    rival = tenant(2, OPTIONS, "-c", RIVAL)
    tell(rival)
    wait_until("job 1 to be revoked", lambda: revoked(leased))
    tell(job)
    assert line(job) == "computes"
    output(rival)
    finish(job, tmp_path / "end")
    assert used(leased, 1)["overruns"] == 0


@pytest.mark.usefixtures("uncontrolled")
def test_ranks_that_only_take_long_do_not_let_each_other_on_for_ever(
    tenant: Start, leased: Leased, tmp_path: Path
) -> None:
    job = tenant(1, OPTIONS, "-c", LONG_JOB, str(tmp_path / "end"))
    assert [line(job) for _ in range(3)] == ["computes"] * 3
    rival = tenant(2, OPTIONS, "-c", RIVAL)
    tell(rival)
    output(rival)
    finish(job, tmp_path / "end")
    assert used(leased, 1)["overruns"] == 0


@pytest.mark.usefixtures("uncontrolled")
@pytest.mark.daemon(extra='[limits]\ndrain = "300ms"\n')
class TestWithAShortDrain:
    def test_a_rank_that_comes_after_a_forfeit_has_its_turn(
        self, tenant: Start, leased: Leased, tmp_path: Path
    ) -> None:
        """Otherwise the job would hang for ever."""
        job = tenant(1, OPTIONS, "-c", JOB, str(tmp_path / "end"))
        assert line(job) == "computes"
        rival = tenant(2, OPTIONS, "-c", RIVAL)
        tell(rival)
        output(rival)  # the job had to be passed over for that
        assert used(leased, 1)["overruns"] == 1
        tell(job)
        assert line(job) == "computes"
        finish(job, tmp_path / "end")
