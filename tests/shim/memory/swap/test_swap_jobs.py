"""memory:swap from end to end: the daemon, the interposer, the emulated GPU, jobs that check."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import JOB, Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, tell
from tests.support.swap_programs import VMM

MIB = 1 << 20


def device(leased: Leased) -> dict[str, object]:
    found: dict[str, object] = ask(leased.admin_socket, {"op": "status"})["devices"][0]
    return found


def test_two_jobs_of_which_one_fits_compute_by_turns_and_lose_nothing(
    tenant: Start, leased: Leased, tmp_path: Path
) -> None:
    arguments = ["--bytes", str(200 * MIB), "--steps", "6", "--sweeps", "2", "--pause-ms", "50"]
    jobs = [
        tenant(n, "tq:200ms,memory:swap", str(JOB), *arguments, "--result", str(tmp_path / f"{n}"))
        for n in (1, 2)
    ]
    for job in jobs:
        output(job, timeout=120)
    for n in (1, 2):
        assert json.loads((tmp_path / f"{n}").read_text())["checksum_ok"]
    usage = [ask(leased.admin_socket, {"op": "usage", "job_id": n})["usage"] for n in (1, 2)]
    used = [next(iter(u.values())) for u in usage]
    assert sum(u["handoffs"] for u in used) >= 2
    # At each handoff 160 MiB leave and come, and the driver moves nothing by itself.
    assert all(u["moved_bytes"] >= 100 * MIB for u in used)


def test_nothing_moves_while_all_fits(tenant: Start, leased: Leased) -> None:
    code = (
        SET_UP
        + """
p = ok(d.cuMemAlloc(100 << 20)); ok(d.cuMemsetD32(p, 7, 25 << 20)); ok(d.cuCtxSynchronize())
say("has it"); sys.stdin.readline()
ok(spin(1000)); ok(d.cuCtxSynchronize())
"""
    )
    jobs = [tenant(n, "tq:1,memory:swap", "-c", code) for n in (1, 2)]
    for job in jobs:
        assert line(job) == "has it"
    assert len(device(leased)["holders"]) == 2  # type: ignore[arg-type]
    for job in jobs:
        tell(job)
        output(job)
    usage = [ask(leased.admin_socket, {"op": "usage", "job_id": n})["usage"] for n in (1, 2)]
    assert [next(iter(u.values()))["moved_bytes"] for u in usage] == [0, 0]


def test_killed_in_the_middle_of_moving_leaves_the_device_to_the_other(
    tenant: Start, emulated_gpu: EmulatedGpu
) -> None:
    code = (
        SET_UP
        + """
n = 200 << 18
p = ok(d.cuMemAlloc(4 * n))
say(os.getpid())
for turn in range(1, 1000):
    ok(d.cuMemsetD32(p, turn, n)); ok(d.cuCtxSynchronize())
    host = (ctypes.c_uint32 * 4)()
    ok(d.cuMemcpyDtoH(host, int(p) + 4 * (n - 4), 16))
    assert list(host) == [turn] * 4
    if turn % 5 == 0: say(turn)
    ok(spin(20_000_000))
"""
    )
    jobs = [tenant(n, "tq:100ms,memory:swap", "-c", code) for n in (1, 2)]
    pids = [int(line(job)) for job in jobs]
    assert (line(jobs[0]), line(jobs[1])) == ("5", "5")
    os.kill(pids[0], 9)
    for turn in ("10", "15", "20"):
        assert line(jobs[1]) == turn

    def alive() -> list[int]:
        return [p["pid"] for p in emulated_gpu.stats()["processes"] if p["alive"]]

    wait_until("the end of the killed one", lambda: alive() == [pids[1]])


# A job of 110 MiB that checks them at each line it reads, or works until the next one.
STEPWISE = (
    SET_UP
    + """
import select
n = 110 << 18
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, os.getpid(), n)); ok(d.cuCtxSynchronize())
say("ready")
for how in sys.stdin:
    if how == "work\\n":
        # Never idle, also where this process does not get a processor for a while.
        done, next_done = ok(d.cuEventCreate(2)), ok(d.cuEventCreate(2))
        ok(spin(2_000_000_000)); ok(d.cuEventRecord(done, 0)); say("works")
        while not select.select([sys.stdin], [], [], 0)[0]:
            ok(spin(2_000_000_000)); ok(d.cuEventRecord(next_done, 0))
            ok(d.cuEventSynchronize(done)); done, next_done = next_done, done
    host = (ctypes.c_uint32 * 4)()
    ok(d.cuMemcpyDtoH(host, int(p) + 4 * (n - 4), 16)); assert list(host) == [os.getpid()] * 4
    say("right")
"""
)


# A handoff is thought to take seconds: who holds does not yield for a short pause.
@pytest.mark.daemon(extra="[device]\nlink_gib_s = 0.02\n")
def test_a_waiting_job_restores_memory_while_others_work(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """Three jobs, of which two fit: the next one is there before its turn."""
    jobs = {n: tenant(n, "tq:10m,memory:swap,lock:on", "-c", STEPWISE) for n in (1, 2, 3)}
    for job in jobs.values():
        assert line(job) == "ready"

    def there(job: int) -> int:
        status = ask(leased.admin_socket, {"op": "status"})
        tenant = next(t for t in status["tenants"] if t["job_id"] == job)
        return sum(tenant["resident_bytes"].values())

    tell(jobs[1], "work")
    assert line(jobs[1]) == "works"
    away = min((2, 3), key=there)
    assert there(away) < 110 * MIB
    tell(jobs[away], "look")
    wait_until("its memory is there", lambda: there(away) >= 110 * MIB)
    assert device(leased)["holders"] == [1], "it was to come before its turn"
    tell(jobs[1], "look")
    emulated_gpu.end_spins()
    assert [line(jobs[1]), line(jobs[away])] == ["right", "right"]


# What the driver allocates as plain memory: the program's own pieces, and arrays.
PLAIN = {
    "cuMemCreate": VMM + "handles = [ok(d.cuMemCreate(20 << 20, prop, 0)) for _ in range(6)]\n",
    "cuArrayCreate": """
a = d.CUDA_ARRAY_DESCRIPTOR()
a.Width, a.Height, a.Format, a.NumChannels = 4096, 7680, d.CUarray_format.CU_AD_FORMAT_FLOAT, 1
array = ok(d.cuArrayCreate(a))
""",
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("memory", ["managed", "swap"])
def test_plain_memory_gets_room_from_who_swaps(
    tenant: Start, leased: Leased, kind: str, memory: str
) -> None:
    """Another job's swapped memory fills the device: it leaves, and comes again."""
    full = tenant(1, "memory:swap,lock:on", "-c", STEPWISE.replace("110", "200"))
    assert line(full) == "ready"
    code = SET_UP + PLAIN[kind] + "ok(spin(1000)); ok(d.cuCtxSynchronize()); say('has it')"
    plain = tenant(2, f"memory:{memory},lock:on", "-c", code + "; sys.stdin.readline()")
    assert line(plain) == "has it"
    usage = ask(leased.admin_socket, {"op": "usage", "job_id": 2})["usage"]
    assert next(iter(usage.values()))["peak_bytes"] >= 120 * MIB
    tell(plain)
    output(plain)
    tell(full, "look")
    assert line(full) == "right"


# Pieces of 20 MiB side by side, as PyTorch's expandable segments are.
SEGMENT = (
    VMM
    + """
piece = 20 << 20
def segment(size):
    at = reserve(size)
    for done in range(0, size, piece): put(at + done, ok(d.cuMemCreate(piece, prop, 0)), piece)
    return at
"""
)


def test_memory_that_programs_map_themselves_need_not_fit_together(tenant: Start) -> None:
    code = STEPWISE.replace("n = 110 << 18", SEGMENT + "n = 160 << 18")
    code = code.replace("d.cuMemAlloc(4 * n)", "(0, segment(4 * n))")
    assert code.count("segment(4 * n)") == 1
    jobs = [tenant(n, "tq:100ms,memory:swap", "-c", code) for n in (1, 2)]
    for job in jobs:
        assert line(job) == "ready"
    for _ in range(2):
        for job in jobs:
            tell(job, "look")
            assert line(job) == "right"
