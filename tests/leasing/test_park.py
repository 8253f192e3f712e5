"""Parked jobs, end to end: a real daemon, real processes, an emulated GPU that counts bytes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.cli import ctl
from leased.cli.subcommand import ExitStatus
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import CHECK, SET_UP, line, output, tell

MIB = 1 << 20

# Fills so many MiB, then, so many times when it is told to, looks at it and writes it anew.
PROGRAM = (
    SET_UP
    + CHECK
    + """
mib = int(sys.argv[1]); n = mib << 18
say(os.getpid()); sys.stdin.readline()
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 7, n)); ok(d.cuCtxSynchronize())
say("filled")
turn = 7
for _ in range(int(sys.argv[2])):
    sys.stdin.readline()
    check(p, n, turn)
    turn += 1
    ok(d.cuMemsetD32(p, turn, n)); ok(d.cuCtxSynchronize())
    say("worked", turn)
"""
)


def free(gpu: EmulatedGpu) -> int:
    return int(gpu.stats()["devices"][0]["free"])


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def job_of(leased: Leased, job: int) -> dict[str, Any]:
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    found: dict[str, Any] = next(t for t in tenants if t["job_id"] == job)
    return found


def park(leased: Leased, job: int, op: str = "park") -> dict[str, Any]:
    answer = ask(leased.admin_socket.with_name("tenant.sock"), {"op": op, "job_id": job})
    found: dict[str, Any] = answer["jobs"][0]
    return found


@pytest.mark.parametrize("memory", ["swap", "managed"])
def test_all_data_leaves_and_the_next_launch_brings_it_back(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, memory: str
) -> None:
    job = tenant(1, f"tq:1,memory:{memory}", "-c", PROGRAM, "100", "2")
    assert int(line(job))
    before = free(emulated_gpu)
    tell(job)
    assert line(job) == "filled"
    assert free(emulated_gpu) <= before - 100 * MIB
    for turn in (8, 9):
        park(leased, 1)
        wait_until("all to leave", lambda: free(emulated_gpu) >= before - MIB)
        wait_until("the daemon to know", lambda: job_of(leased, 1)["state"] == "parked")
        assert job_of(leased, 1)["parked"]["by"] == f"user {os.getuid()}"
        tell(job)
        assert line(job) == f"worked {turn}"
        assert job_of(leased, 1)["parked"] is None
    output(job)


def test_a_job_that_works_gives_all_up_once_and_goes_on(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """Its next launch waits at the gate already: it is served when all has left."""
    code = (
        SET_UP
        + CHECK
        + """
n = 100 << 18
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 7, n)); ok(d.cuCtxSynchronize())
say("filled")
import threading
asked = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), asked.set()), daemon=True).start()
while not asked.is_set():
    ok(spin(1_000_000)); ok(d.cuCtxSynchronize())
check(p, n, 7)
"""
    )
    job = tenant(1, "tq:1,memory:swap", "-c", code)
    assert line(job) == "filled"
    moved = emulated_gpu.stats()["devices"][0]["in_bytes"]
    park(leased, 1)

    def is_back() -> bool:
        came = emulated_gpu.stats()["devices"][0]["in_bytes"] - moved
        return bool(came >= 100 * MIB and job_of(leased, 1)["state"] == "holds")

    wait_until("it to leave and come back", is_back)
    assert job_of(leased, 1)["parked"] is None
    tell(job)
    output(job)


def test_only_its_user_and_root_park_a_job(
    leased: Leased, tenant: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tenant(1, "tq:1,memory:swap", "-c", PROGRAM, "10", "0")
    assert int(line(job))
    with pytest.raises(Refused, match="job 2 is not a job of yours that shares a GPU"):
        park(leased, 2)
    socket = str(leased.admin_socket.with_name("tenant.sock"))
    assert ctl.main(["--socket", socket, "park", "2"]) == ExitStatus.REFUSED
    assert "job 2 is not a job of yours that shares a GPU" in capsys.readouterr().err
    with as_user(65534), pytest.raises(Refused, match="job 1 is not a job of yours that shares"):
        park(leased, 1)
    assert park(leased, 1)["state"] == "parked"
    tell(job)
    assert line(job) == "filled"
    output(job)


def test_parked_and_killed_it_leaves_nothing_behind(tenant: Start, leased: Leased) -> None:
    job = tenant(1, "tq:1,memory:swap", "-c", PROGRAM, "100", "1")
    pid = int(line(job))
    tell(job)
    assert line(job) == "filled"
    park(leased, 1)
    wait_until("the daemon to know", lambda: job_of(leased, 1)["state"] == "parked")
    os.kill(pid, 9)
    wait_until("its end", lambda: job_of(leased, 1)["clients"] == 0)
    other = tenant(2, "tq:1,memory:swap", "-c", PROGRAM, "200", "1")
    assert int(line(other))
    tell(other)
    assert line(other) == "filled", "all of the device is its own"
    tell(other)
    assert line(other) == "worked 8"
    output(other)


def test_parked_during_a_capture_it_gives_all_up_and_stays_parked(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    code = (
        SET_UP
        + CHECK
        + """
n = 100 << 18
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 7, n)); ok(d.cuCtxSynchronize())
stream = ok(d.cuStreamCreate(1))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(d.cuMemsetD32Async(p, 8, n, stream))
say("captures"); sys.stdin.readline()
graph = ok(d.cuStreamEndCapture(stream))
say("captured"); sys.stdin.readline()
# The driver looks at the graph's addresses, so this brings the memory back as a launch does.
run = ok(d.cuGraphInstantiate(graph, 0))
say("has a graph"); sys.stdin.readline()
ok(d.cuGraphLaunch(run, stream)); ok(d.cuStreamSynchronize(stream))
check(p, n, 8)
"""
    )
    job = tenant(1, "tq:1,memory:swap", "-c", code)
    assert line(job) == "captures"
    full = free(emulated_gpu)
    park(leased, 1)
    wait_until("all to leave", lambda: free(emulated_gpu) >= full + 99 * MIB)
    wait_until("the daemon to know", lambda: job_of(leased, 1)["state"] == "parked")
    tell(job)
    assert line(job) == "captured"
    assert job_of(leased, 1)["parked"] is not None
    assert free(emulated_gpu) >= full + 99 * MIB
    tell(job)
    assert line(job) == "has a graph"
    assert job_of(leased, 1)["parked"] is None
    tell(job)
    output(job)
