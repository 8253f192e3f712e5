"""Jobs move to another GPU, end to end: a real daemon, real processes, two emulated GPUs."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.cli import ctl
from leased.cli.subcommand import ExitStatus
from leased.metrics import job_mapping
from leased.moving.plan import TRIES
from leased.saving.still import StillJob, take
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.moving.asker import askers, kill_the_asker
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import CHECK, SET_UP, line, output, programs, tell

pytestmark = pytest.mark.emulated(model="emu-h200-medium", devices=2)
# Of two jobs with HALF of a device and more, one has room there: the less, the sooner they change.
TAKES_TURNS = pytest.mark.emulated(model="emu-a100-tiny", devices=2)
HALF = "40"  # of 64 MiB
MIB = 1 << 20
SIZE = 32

# Swapped memory, memory of a pool, a stream, an event and a graph; told to, it changes everything
# and checks it. It says on which GPU it is.
PROGRAM = (
    SET_UP
    + CHECK
    + """
n = int(sys.argv[1]) << 18
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 7, n)); ok(d.cuCtxSynchronize())
stream, event = ok(d.cuStreamCreate(1)), ok(d.cuEventCreate(0))
values = ((int(p), n, 1, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
ok(d.cuLaunchKernel(kernel["add"], 64, 1, 1, 64, 1, 1, 0, stream, values, 0))
graph = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(stream)), 0))
turn = 7
say("ready")
for order in sys.stdin:
    for _ in range(int(order)):
        ok(d.cuGraphLaunch(graph, stream)); turn += 1
        ok(d.cuEventRecord(event, stream)); ok(d.cuEventSynchronize(event))
    check(p, n, turn)
    say(bytes(ok(d.cuDeviceGetUuid(0)).bytes).hex()[-2:])
"""
)
# Two such processes, which get each order and answer it.
PAIR = """
import subprocess, sys
command, pipe = [sys.executable, "-c", *sys.argv[1:]], subprocess.PIPE
both = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
def answer():
    print(" ".join(process.stdout.readline().strip() for process in both), flush=True)
answer()
for order in sys.stdin:
    for process in both:
        process.stdin.write(order); process.stdin.flush()
    answer()
for process in both:
    process.stdin.close(); assert process.wait() == 0
"""
# Its kernels take longer than a quantum; each adds to all of its memory, which it checks at last.
LONG = (
    SET_UP
    + CHECK
    + """
import select
n = int(sys.argv[1]) << 18
p = ok(d.cuMemAlloc(4 * n)); ok(d.cuMemsetD32(p, 0, n)); ok(d.cuCtxSynchronize())
values = ((int(p), n, 1, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32))
turn = 0
say("ready")
while not select.select([sys.stdin], [], [], 0)[0]:
    ok(spin(400_000_000))
    ok(d.cuLaunchKernel(kernel["add"], 64, 1, 1, 64, 1, 1, 0, 0, values, 0)); turn += 1
    ok(d.cuCtxSynchronize())
check(p, n, turn)
say(bytes(ok(d.cuDeviceGetUuid(0)).bytes).hex()[-2:], turn)
"""
)
BY_USERS, OFF = (
    pytest.mark.daemon(extra=f'[limits]\nmove = "{word}"\n') for word in ("users", "off")
)


def move(leased: Leased, job: int, gpu: int) -> ExitStatus:
    tenant = str(leased.admin_socket.with_name("tenant.sock"))
    return ExitStatus(ctl.main(["--socket", tenant, "move", str(job), "--to", str(gpu)]))


def asked(leased: Leased, **request: Any) -> dict[str, Any]:
    return ask(leased.admin_socket.with_name("tenant.sock"), request)


def begins(tenant: Start, *program: str, job: int = 1) -> subprocess.Popen[str]:
    """A job with swapped memory; the program is PROGRAM, or PAIR of it, with its size in MiB."""
    process = tenant(job, "tq:1,memory:swap", "-c", *program)
    assert line(process) == ("ready ready" if program[0] == PAIR else "ready")
    return process


def take_turns(
    tenant: Start, options: str, program: str, **env: str
) -> list[subprocess.Popen[str]]:
    """Two jobs that do not fit on one GPU."""
    jobs = [tenant(n, f"memory:swap,{options}", "-c", program, HALF, env=env) for n in (1, 2)]
    for job in jobs:
        assert line(job) == "ready"
    return jobs


def begin_move(leased: Leased, gpu: int = 1) -> Path:
    """Move the first job to a GPU, until the driver's part has begun; returns the mark."""
    asked(leased, op="move", job_id=1, gpu=str(gpu))
    mark = leased.prefix / "state" / "moving"
    wait_until("the driver's part to begin", mark.exists)
    return mark


def works(job: subprocess.Popen[str], turns: int = 3) -> str:
    """Let it work; returns the end of its GPU's UUID."""
    tell(job, str(turns))
    return line(job)


def test_a_job_goes_on_on_the_other_gpu_and_comes_back(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    job = begins(tenant, PROGRAM, str(SIZE))
    assert works(job) == "00"
    free = [device["free"] for device in emulated_gpu.stats()["devices"]]
    for gpu in (1, 0):
        assert move(leased, 1, gpu) == ExitStatus.DONE
        assert f"has moved from GPU {1 - gpu} to GPU {gpu}" in capsys.readouterr().out
        # The driver's checkpoint takes longer by all host memory that is registered.
        assert not any(process["registered"] for process in emulated_gpu.stats()["processes"])
        assert works(job) == f"0{gpu}"
        left = [device["free"] for device in emulated_gpu.stats()["devices"]]
        assert left == (free if gpu == 0 else free[::-1])
        (shown,) = asked(leased, op="mine", job_id=1)["jobs"][0]["gpus"]
        assert shown["index"] == gpu
    assert len(job_usage(leased, 1)) == 2
    # Whoever hears that it has moved may move it again at once.
    assert [move(leased, 1, gpu) for gpu in (1, 0)] == [ExitStatus.DONE] * 2
    assert works(job) == "00"
    output(job)


@pytest.mark.parametrize("first", ["move", "save"])
def test_one_job_is_not_moved_and_saved_at_once(tenant: Start, leased: Leased, first: str) -> None:
    """Each parks it, and lets it go on when it is done itself."""
    job = begins(tenant, PROGRAM, str(SIZE))
    moves: dict[str, Any] = {"op": "move", "job_id": 1, "gpu": "1"}
    saves: dict[str, Any] = {"op": "save", "job_id": 1}
    asked(leased, **(moves if first == "move" else saves))
    for further in (moves, saves):
        with pytest.raises(Refused, match="is being moved"):
            asked(leased, **further)
    state = {"op": "moved" if first == "move" else "saving", "job_id": 1}
    if first == "save":
        asked(leased, op="saved", job_id=1)
    wait_until("its end", lambda: asked(leased, **state)["state"] in ("moved", "over"))
    job.kill()


def test_a_job_may_be_saved_again_as_soon_as_it_need_not_be_still(
    tenant: Start, leased: Leased
) -> None:
    job = begins(tenant, PROGRAM, "16")
    for _ in range(3):
        with StillJob(leased.run_dir / "tenant.sock", 1) as still:
            take(still.processes, lambda *_: None)
    assert works(job) == "00"
    output(job)


def test_all_commands_and_the_files_for_dcgm_say_where_a_moved_job_is(
    tenant: Start, leased: Leased, capsys: pytest.CaptureFixture[str]
) -> None:
    job = begins(tenant, PROGRAM, "16")
    assert works(job) == "00"
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01"
    capsys.readouterr()
    status: Any = ask(leased.admin_socket, {"op": "status"})
    assert job_mapping.wanted(status) == {"1": "1\n"}
    assert ctl.main(["--socket", str(leased.admin_socket), "status"]) == ExitStatus.DONE
    rows = [row.split() for row in capsys.readouterr().out.splitlines()]
    (shown,) = (row for row in rows if row[:1] == ["1"] and "swap" in row)
    assert shown[:3] == ["1", "root", "1"]
    output(job)


def job_usage(leased: Leased, job: int) -> dict[str, Any]:
    """By UUID."""
    usage: dict[str, Any] = ask(leased.admin_socket, {"op": "usage", "job_id": job})["usage"]
    return usage


@TAKES_TURNS
def test_what_the_host_has_already_is_unregistered_before_a_job_is_parked(
    tenant: Start, leased: Leased
) -> None:
    """Of gigabytes that takes seconds, in which the job may have its turn."""
    jobs = take_turns(tenant, "tq:1,lock:on", PROGRAM, GPU_LEASE_DEBUG="1")
    assert works(jobs[0]) == "00"
    assert move(leased, 2, 1) == ExitStatus.DONE
    assert works(jobs[1]) == "01"
    said = [job.communicate()[1] for job in jobs][1]
    leaves = said.find("hears LEAVE")
    assert 0 < said.find("hears MOVES") < said.rfind("hears EXPECT", 0, leaves), said
    assert 0 < said.find("is unregistered") < leaves, said


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
@pytest.mark.parametrize("which", [1, 2])
def test_whatever_fails_both_processes_go_on_where_they_were(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, call: str, which: int
) -> None:
    """A call fails for the first process, or the second one; then nothing fails, and they move."""
    job = begins(tenant, PAIR, PROGRAM, "16")
    assert works(job) == "00 00"
    free = [device["free"] for device in emulated_gpu.stats()["devices"]]
    emulated_gpu.fail(1 if call == "unlock" else 0, call, which)
    assert move(leased, 1, 1) == ExitStatus.REFUSED
    ended = asked(leased, op="moved", job_id=1)
    assert (ended["state"], ended["from"]) == ("stayed", 0)
    assert "OPERATING_SYSTEM" in ended["why"]
    assert works(job) == "00 00"
    assert [device["free"] for device in emulated_gpu.stats()["devices"]] == free
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01 01"
    output(job)


@TAKES_TURNS
def test_a_job_that_does_not_fit_beside_another_moves_while_both_work(
    tenant: Start, leased: Leased
) -> None:
    """Their kernels are stopped at each change of hands, in mid-kernel; none is when it moves."""
    jobs = take_turns(tenant, "tq:200ms,lock:on", LONG)
    wait_until(
        "a change of hands",
        lambda: all(u["handoffs"] > 1 for n in (1, 2) for u in job_usage(leased, n).values()),
    )
    assert move(leased, 2, 1) == ExitStatus.DONE
    for job in jobs:
        tell(job)
    (at_first, turns), (moved, more) = (line(job).split() for job in jobs)
    assert (at_first, moved) == ("00", "01")
    assert int(turns) > 0
    assert int(more) > 0
    for job in jobs:
        output(job)


@TAKES_TURNS
@pytest.mark.daemon(extra="", hurried=["leased.moving.drain.DRAIN_S=15"])
def test_a_job_that_stands_still_does_not_wait_for_anothers_quantum(
    tenant: Start, leased: Leased
) -> None:
    """Its kernel has to end before it can move, so it has a short turn."""
    jobs = [tenant(1, "tq:200ms,memory:swap,lock:on", "-c", LONG, HALF)]
    assert line(jobs[0]) == "ready"
    jobs.append(tenant(2, "tq:2m,memory:swap,lock:on", "-c", LONG, HALF))
    assert line(jobs[1]) == "ready"
    assert move(leased, 1, 1) == ExitStatus.DONE
    for job, gpu in zip(jobs, ("01", "00")):
        tell(job)
        assert line(job).split()[0] == gpu
        output(job)


def test_where_the_asker_dies_in_the_middle_another_one_brings_the_job_back(
    tenant: Start, leased: Leased
) -> None:
    job = begins(tenant, PAIR, PROGRAM, "16")
    begin_move(leased)
    kill_the_asker(leased)
    wait_until("the end", lambda: asked(leased, op="moved", job_id=1)["state"] != "moving")
    assert "has ended" in asked(leased, op="moved", job_id=1)["why"]
    assert works(job) == "00 00"
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01 01"
    output(job)


@pytest.mark.daemon(hurried=["leased.moving.steps.LOCK_S=0.5"])
def test_a_job_whose_askers_all_die_for_a_while_is_not_given_up(
    tenant: Start, leased: Leased
) -> None:
    job = begins(tenant, PAIR, PROGRAM, "16")
    mark = begin_move(leased)
    killed: set[int] = set()

    def all_are_dead() -> bool:
        """The first one, and those that were to say what became of its step."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
            for child in {*askers(leased)} - killed:
                os.kill(child, signal.SIGKILL)
                killed.add(child)
        return len(killed) == 1 + TRIES

    wait_until("them to be killed", all_are_dead, step=0.01)
    wait_until("the end", lambda: asked(leased, op="moved", job_id=1)["state"] != "moving")
    assert (
        asked(leased, op="moved", job_id=1)["why"] == "the process that asks the driver has ended"
    )
    assert not mark.exists()
    assert works(job) == "00 00"
    assert move(leased, 1, 1) == ExitStatus.DONE
    output(job)


def test_a_job_that_is_killed_in_the_middle_leaves_nothing(tenant: Start, leased: Leased) -> None:
    job = begins(tenant, PAIR, PROGRAM, "16")
    beside = begins(tenant, PROGRAM, "16", job=2)
    mark = begin_move(leased)
    os.killpg(job.pid, signal.SIGKILL)
    wait_until("the mark to be removed", lambda: not mark.exists())
    assert "does not bring back" not in leased.log.read_text()
    assert move(leased, 2, 1) == ExitStatus.DONE
    assert works(beside) == "01"
    output(beside)


def test_a_daemon_that_is_stopped_ends_the_move_first(tenant: Start, leased: Leased) -> None:
    job = begins(tenant, PAIR, PROGRAM, "16")
    mark = begin_move(leased)
    leased.stop()
    assert not mark.exists()
    leased.start()
    assert works(job) in ("00 00", "01 01")
    output(job)


def stored_devices(leased: Leased) -> int:
    """Of how many devices the store has what jobs had."""
    with sqlite3.connect(leased.prefix / "state" / "usage.db") as db:
        return int(db.execute("SELECT count(*) FROM usage").fetchone()[0])


def test_a_moved_job_stays_moved_over_a_restart(tenant: Start, leased: Leased) -> None:
    job = begins(tenant, PROGRAM, "16")
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01"
    wait_until("what it has had to be stored", lambda: stored_devices(leased) == 2)
    leased.kill()
    leased.start()
    assert works(job) == "01"
    (shown,) = asked(leased, op="mine", job_id=1)["jobs"][0]["gpus"]
    assert shown["index"] == 1
    assert len(job_usage(leased, 1)) == 2
    output(job)


# One of them, and another one at the order "more".
MORE = PAIR.replace("range(2)", "range(1)").replace(
    "for order in sys.stdin:",
    """
for order in sys.stdin:
    if order == "more\\n":
        both.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        print(both[-1].stdout.readline().strip(), flush=True)
        continue""",
)


def gpus_of(leased: Leased, job: int) -> list[int]:
    return sorted(gpu["index"] for gpu in asked(leased, op="mine", job_id=job)["jobs"][0]["gpus"])


def test_a_process_that_begins_later_is_on_the_old_gpu_and_the_job_leases_both(
    tenant: Start, leased: Leased
) -> None:
    job = tenant(1, "tq:1,memory:swap", "-c", MORE, PROGRAM, "16")
    assert line(job) == "ready"
    assert move(leased, 1, 1) == ExitStatus.DONE
    tell(job, "more")
    assert line(job) == "ready"
    assert works(job) == "01 00"
    assert gpus_of(leased, 1) == [0, 1]
    with pytest.raises(Refused, match="has 2 GPUs"):
        asked(leased, op="move", job_id=1, gpu="0")
    output(job)


@pytest.mark.parametrize("moves", [True, False])
def test_a_process_may_begin_on_the_old_gpu_while_the_job_crosses(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, *, moves: bool
) -> None:
    """Or while it does not, as the driver's last step fails."""
    job = tenant(1, "tq:1,memory:swap", "-c", MORE, PROGRAM, "16")
    assert line(job) == "ready"
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01"
    if not moves:
        emulated_gpu.fail(0, "unlock", 1)
    begin_move(leased, 0)
    (asker,) = askers(leased)
    os.kill(asker, signal.SIGSTOP)
    tell(job, "more")
    wait_until("it to begin", lambda: gpus_of(leased, 1) == [0, 1])
    os.kill(asker, signal.SIGCONT)
    wait_until("the end", lambda: asked(leased, op="moved", job_id=1)["state"] != "moving")
    assert line(job) == "ready"
    assert works(job) == ("00 00" if moves else "01 00")
    assert gpus_of(leased, 1) == ([0] if moves else [0, 1])
    output(job)


# Two words of its memory can be opened by others.
EXPORTS = SET_UP + "p = ok(d.cuMemAlloc(1 << 21)); ok(d.cuIpcGetMemHandle(p)); say(0); input()"
HAS = SET_UP + "p = ok(d.cuMemAlloc(1 << 21)); ok(d.cuMemsetD32(p, 1, 9)); say(0); input()"


@pytest.mark.parametrize(
    ("program", "gpu", "why"),
    [
        (("memory:swap", HAS), "0", "is on GPU 0 already"),
        (("memory:swap", HAS), "7", "no GPU 7"),
        (("memory:managed", HAS), "1", "has managed memory"),
        (("memory:swap", EXPORTS), "1", "to which others may refer"),
        (("memory:swap,chain:a", HAS), "1", "is of chain:a"),
        (("memory:swap", "print(0, flush=True); input()"), "1", "no process of job 1 uses"),
    ],
)
def test_what_cannot_move_is_refused_and_not_touched(
    tenant: Start, leased: Leased, program: tuple[str, str], gpu: str, why: str
) -> None:
    options, code = program
    job = tenant(1, options, "-c", code)
    assert line(job) == "0"

    def over() -> bool:
        return bool(asked(leased, op="moved", job_id=1)["state"] != "moving")

    said = ""
    try:
        asked(leased, op="move", job_id=1, gpu=gpu)
        wait_until("the end of the move", over)  # what it has is told a moment later
        said = asked(leased, op="moved", job_id=1)["why"]
    except Refused as fault:
        said = str(fault)
    assert why in said
    tell(job)
    output(job)


def test_a_gpu_where_no_job_may_begin_takes_none_that_moves(tenant: Start, leased: Leased) -> None:
    job = tenant(1, "memory:swap,anti-affinity:a", "-c", HAS)
    beside = tenant(2, "memory:swap,anti-affinity:a", "-c", HAS, gpus="1")
    assert line(job) == line(beside) == "0"
    with pytest.raises(Refused, match="anti-affinity:a"):
        asked(leased, op="move", job_id=1, gpu="1")
    tell(beside)
    output(beside)
    ask(leased.admin_socket, {"op": "job_end", "job_id": 2})
    ask(leased.admin_socket, {"op": "drain", "device": "1"})
    with pytest.raises(Refused, match="is drained"):
        asked(leased, op="move", job_id=1, gpu="1")
    tell(job)
    output(job)


def test_a_process_of_no_job_on_the_new_gpu_keeps_the_job_where_it_is(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    job = begins(tenant, PROGRAM, "16")
    command = [sys.executable, "-c", HAS]
    with programs(emulated_gpu, LD_PRELOAD="", CUDA_VISIBLE_DEVICES="1") as others:
        stranger = others.start(*command, socket="")
        assert line(stranger) == "0"
        assert move(leased, 1, 1) == ExitStatus.REFUSED
        assert f"process {stranger.pid}" in asked(leased, op="moved", job_id=1)["why"]
        tell(stranger)
    assert works(job) == "00"
    output(job)


# A kernel of so many seconds for each line, unless the test ends it.
SLOW = (
    SET_UP
    + CHECK
    + """
p = ok(d.cuMemAlloc(4096)); ok(d.cuMemsetD32(p, 7, 1024)); ok(d.cuCtxSynchronize())
say("ready")
for order in sys.stdin:
    ok(spin(int(order) * 1_000_000_000)); say("works")
    ok(d.cuCtxSynchronize()); check(p, 1024, 7); say("right")
"""
)


@pytest.mark.parametrize("by", ["drained", "of no sharing job"])
def test_what_the_new_gpu_becomes_while_the_job_finishes_its_work_counts(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, by: str
) -> None:
    """That may take minutes. The job stays, and works on."""
    job = tenant(1, "memory:swap", "-c", SLOW)
    assert line(job) == "ready"
    tell(job, "60")
    assert line(job) == "works"
    assert asked(leased, op="move", job_id=1, gpu="1")["state"] == "moving"

    def parked() -> bool:
        (shown,) = ask(leased.admin_socket, {"op": "status"})["tenants"]
        return bool(shown["parked"])

    def stayed() -> bool:
        return bool(asked(leased, op="moved", job_id=1)["state"] == "stayed")

    wait_until("it to drain", parked)
    with programs(emulated_gpu, LD_PRELOAD="", CUDA_VISIBLE_DEVICES="1") as others:
        if by == "drained":
            ask(leased.admin_socket, {"op": "drain", "device": "1"})
        else:
            assert line(others.start(sys.executable, "-c", HAS, socket="")) == "0"
        emulated_gpu.end_spins()
        wait_until("the end", stayed)
        assert by in asked(leased, op="moved", job_id=1)["why"]
    assert line(job) == "right"
    tell(job, "0")
    assert (line(job), line(job)) == ("works", "right")
    output(job)


def who_may(leased: Leased, uid: int) -> str:
    os.seteuid(uid)
    try:
        asked(leased, op="move", job_id=1, gpu="0")
    except Refused as fault:
        return str(fault)
    finally:
        os.seteuid(0)
    raise AssertionError("it moves")


@pytest.mark.parametrize(
    ("user", "root"),
    [
        pytest.param("only root", "already", marks=pytest.mark.daemon(extra="")),
        pytest.param("already", "already", marks=BY_USERS),
        pytest.param("no jobs", "no jobs", marks=OFF),
    ],
)
def test_who_may_move_a_job(tenant: Start, leased: Leased, user: str, root: str) -> None:
    job = tenant(1, "memory:swap", "-c", HAS, env={"JOB_UID": "1000"})
    assert line(job) == "0"
    assert user in who_may(leased, 1000)
    assert root in who_may(leased, 0)
    assert "not a job of yours" in who_may(leased, 1001)
    tell(job)
    output(job)


BY_ITSELF = pytest.mark.daemon(
    extra="[limits]\nmove_idle = true\n",
    hurried=["leased.moving.choice.DRIVER_S=0.1"],
)


def come_apart(leased: Leased, jobs: list[subprocess.Popen[str]]) -> None:
    """Wait until one has moved; both are right at their ends."""

    def places() -> set[int]:
        told = [asked(leased, op="mine", job_id=n)["jobs"][0]["gpus"] for n in (1, 2)]
        return {gpu["index"] for gpus in told for gpu in gpus}

    wait_until("one to move", lambda: places() == {0, 1})
    for job in jobs:
        tell(job)
    assert {line(job).split()[0] for job in jobs} == {"00", "01"}
    for job in jobs:
        output(job)


@BY_ITSELF
@TAKES_TURNS
@pytest.mark.parametrize("fails", ["nothing", "restore"])
def test_of_two_jobs_that_take_turns_one_goes_to_the_idle_gpu(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, fails: str
) -> None:
    """Where the move of the one fails, it stays, and the other one moves."""
    if fails != "nothing":
        emulated_gpu.fail(0, fails)
    come_apart(leased, take_turns(tenant, "tq:200ms", LONG))
    assert ("stays on GPU 0" in leased.log.read_text()) == (fails != "nothing")


@BY_ITSELF
@TAKES_TURNS
def test_a_gpu_that_others_have_is_used_as_soon_as_they_have_left_it(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """A job with a GPU of its own is none of the daemon's, which sees its processes alone."""
    with programs(emulated_gpu, LD_PRELOAD="", CUDA_VISIBLE_DEVICES="1") as others:
        whole = others.start(sys.executable, "-c", HAS, socket="")
        assert line(whole) == "0"
        jobs = take_turns(tenant, "tq:200ms", LONG)
        hindered = f"could move, but process {whole.pid}, which is of no sharing job"
        for n in (1, 2):
            said = f"job {n} takes turns and {hindered}"
            wait_until(said, lambda said=said: said in leased.log.read_text())  # type: ignore[misc]
        tell(whole)
    come_apart(leased, jobs)
