"""Copies in memory that is the node's: the daemon, its keeper, the interposer, jobs that check."""

from __future__ import annotations

import os
import resource
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.copies.keeper import Keeper
from tests.copies.node import JOB, MIB, SWAP, copies_of, end, kept, started, status, taken, turn
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.cgroups import memory_cgroup
from tests.support.programs import line, tell
from tests.support.swap_programs import PROGRAM
from tests.support.tenant import register


def test_copies_are_charged_to_nobody_of_the_job(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    with memory_cgroup(60) as group:
        first, pid = started(tenant, 1)
        (group / "cgroup.procs").write_text(str(pid))
        second, _ = started(tenant, 2)
        assert copies_of(leased, 1) >= 64 * MIB
        assert kept(keeper) == taken(leased)
        assert [turn(job) for job in (first, second, first, second)] == [1, 1, 2, 2]
        end(first, second, keeper=keeper)
    assert taken(leased) == 0


def test_a_process_killed_while_its_memory_is_away_leaves_nothing(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    (_, pid), (second, _) = started(tenant, 1), started(tenant, 2)
    assert copies_of(leased, 1)
    os.kill(pid, signal.SIGKILL)
    wait_until("its memory to be given back", lambda: not copies_of(leased, 1))
    wait_until("its pages to be free", lambda: kept(keeper) == taken(leased))
    assert turn(second) == 1
    end(second)


EXECS = (
    JOB.partition("for turn in")[0]
    + """
sys.stdin.readline()
os.execvp("cat", ["cat"])
"""
)


def test_a_process_that_becomes_another_program_leaves_nothing(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    """One that does not use the GPU, so it does not connect."""
    first = tenant(1, SWAP, "-c", EXECS)
    line(first)
    assert line(first) == "has it"
    second, _ = started(tenant, 2)
    assert copies_of(leased, 1)
    tell(first)
    wait_until("its memory to be given back", lambda: not copies_of(leased, 1))
    tell(first, "it runs on")
    assert line(first) == "it runs on"
    end(first)
    assert turn(second) == 1
    end(second, keeper=keeper)


@pytest.mark.parametrize("how", ["kill", "stop", "lost"])
def test_a_restart_of_the_daemon_loses_and_leaks_nothing(
    tenant: Start, leased: Leased, keeper: Keeper, how: str
) -> None:
    """Also where the daemon's store is lost meanwhile."""
    (first, _), (second, _) = started(tenant, 1), started(tenant, 2)
    before = taken(leased)
    leased.stop() if how == "stop" else leased.kill()
    for file in (leased.prefix / "state").glob("usage.db*") if how == "lost" else ():
        file.unlink()
    assert kept(keeper) == before
    leased.start()
    assert taken(leased) == before
    assert [turn(job) for job in (first, second)] == [1, 1]
    end(first, second, keeper=keeper)


def test_a_process_that_ends_while_there_is_no_daemon_leaves_nothing(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    (first, pid), (second, _) = started(tenant, 1), started(tenant, 2)
    leased.kill()
    os.kill(pid, signal.SIGKILL)
    first.wait()
    leased.start()
    wait_until("its pages to be free", lambda: kept(keeper) == taken(leased))
    assert not copies_of(leased, 1)
    assert turn(second) == 1
    end(second)


@pytest.mark.daemon(hurried=["leased.copies.keeper_link.PATIENCE_S=0.5"])
def test_a_keeper_that_ends_takes_no_copy_with_it(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    (first, _), (second, _) = started(tenant, 1), started(tenant, 2)
    before = taken(leased)
    keeper.kill()
    wait_until("the daemon to notice", lambda: not status(leased)["copies"]["kept"])
    assert turn(first) == 1
    keeper.start()
    wait_until("the daemon to notice", lambda: status(leased)["copies"]["kept"])
    assert taken(leased) >= before, "it is there still, and counts"
    assert [turn(job) for job in (second, first)] == [1, 2]
    end(first, second)
    wait_until("all of it to be given back", lambda: not taken(leased))


def test_a_restart_while_the_keeper_is_slow_loses_and_leaks_nothing(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    """What the daemon before has asked for is made when nobody waits for it any more, and the
    processes ask the next one again before the keeper has said what it has."""
    first, _ = started(tenant, 1)
    os.kill(keeper.pid, signal.SIGSTOP)
    second = tenant(2, SWAP, "-c", JOB)
    line(second)
    wait_until("requests of the first", lambda: copies_of(leased, 1) > 0)
    leased.kill()
    leased.start()
    os.kill(keeper.pid, signal.SIGCONT)
    assert line(second) == "has it"
    assert [turn(job) for job in (first, second, first)] == [1, 1, 2]
    wait_until("both to count the same", lambda: kept(keeper) == taken(leased))
    end(first, second, keeper=keeper)
    wait_until("both to count the same", lambda: taken(leased) == 0)


@pytest.mark.parametrize("leased", ['swap_host = "300MiB"'], indirect=True)
def test_where_the_nodes_memory_is_used_up_the_jobs_own_serves(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    job = tenant(1, f"{SWAP},mem:180MiB", "-c", JOB)
    first = job, int(line(job))
    assert line(job) == "has it"
    leased.config.write_text(leased.config.read_text().replace("300MiB", "32MiB"))
    ask(leased.admin_socket, {"op": "reload"})
    second = tenant(2, "tq:100ms,memory:managed", "-c", JOB)
    line(second)
    assert line(second) == "has it"
    wait_until("a handoff", lambda: sum(tenant_of(leased, 1)["resident_bytes"].values()) < 96 * MIB)
    assert 0 < copies_of(leased, 1) <= 32 * MIB
    assert not tenant_of(leased, 1)["fixed"], "nothing stays for lack of host memory"
    assert turn(first[0]) == 1
    end(first[0], second, keeper=keeper)


def test_where_no_file_can_be_made_the_jobs_own_memory_serves(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE, (MIB, MIB))
    (first, _), (second, _) = started(tenant, 1), started(tenant, 2)
    assert kept(keeper) == taken(leased) == 0
    assert [turn(job) for job in (first, second)] == [1, 1]
    end(first, second)
    assert "no memory for copies" in leased.log.read_text()


def test_memory_that_found_no_host_memory_leaves_as_soon_as_there_is_some(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    """Also where its job does nothing meanwhile."""
    first, pid = started(tenant, 1)
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    unlimited = resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGESIZE"), unlimited))
    resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE, (MIB, unlimited))
    second = tenant(2, SWAP, "-c", JOB)
    line(second)
    wait_until("the second to be kept out", lambda: status(leased)["tenants"][1]["kept_out"])
    (stays,) = status(leased)["tenants"][0]["fixed"].values()
    assert stays["unhosted"] > 100 * MIB
    resource.prlimit(keeper.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
    resource.prlimit(pid, resource.RLIMIT_AS, (unlimited, unlimited))
    assert line(second) == "has it"
    assert [turn(job) for job in (first, second)] == [1, 1]
    end(first, second, keeper=keeper)


def limit_files(pid: int) -> None:
    """The process can open no more files than it has open."""
    files = {int(file.name) for file in Path(f"/proc/{pid}/fd").iterdir()}
    free = min(set(range(len(files) + 1)) - files)
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, hard))


@pytest.mark.parametrize("who", ["keeper", "daemon"])
def test_who_has_no_descriptors_left_loses_and_leaks_nothing(
    tenant: Start, leased: Leased, keeper: Keeper, who: str
) -> None:
    """In mid-handoff: the second has to make room for the first, and its own memory serves."""
    (first, _), (second, _) = started(tenant, 1), started(tenant, 2)
    assert leased.daemon
    limited = keeper.pid if who == "keeper" else leased.daemon.process.pid
    before = resource.prlimit(limited, resource.RLIMIT_NOFILE)
    limit_files(limited)
    assert turn(first) == 1
    resource.prlimit(limited, resource.RLIMIT_NOFILE, before)
    assert copies_of(leased, 2) == 0
    wait_until("both to count the same", lambda: kept(keeper) == taken(leased))
    assert [turn(job) for job in (second, first, second)] == [1, 2, 2]
    end(first, second, keeper=keeper)
    wait_until("both to count the same", lambda: taken(leased) == 0)


# A program of a job that speaks for itself: it asks for memory, and gives the descriptor away.
ESCAPE = """
import socket, sys, os, mmap
from _gpulease import ffi, lib
from tests.support.wire_client import message
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(os.environ["GPU_LEASE_SOCKET"])
s.send(message(lib.GL_HELLO))
assert s.recv(1024)
s.send(message(lib.GL_HOST_TAKE, number=1, bytes=8 << 20))
data, descriptors, _, _ = socket.recv_fds(s, 1024, 1)
out = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
out.connect(sys.argv[1])
memory = mmap.mmap(descriptors[0], 8 << 20)
memory[:6] = b"secret"
for size in (0, 9 << 20):
    try: os.ftruncate(descriptors[0], size)
    except PermissionError: pass
    else: raise SystemExit("it is not sealed")
socket.send_fds(out, [b"x"], descriptors)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


def test_a_descriptor_given_away_is_empty_when_its_job_has_ended(
    tenant: Start, leased: Leased, keeper: Keeper, short_dir: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(short_dir / "out"))
        listening.listen()
        job = tenant(1, SWAP, "-c", ESCAPE, str(short_dir / "out"))
        with listening.accept()[0] as sent:
            _, (descriptor,), _, _ = socket.recv_fds(sent, 1, 1)
    try:
        assert os.pread(descriptor, 6, 0) == b"secret"
        assert taken(leased) == kept(keeper) == 8 * MIB
        tell(job)
        job.wait()
        wait_until("its pages to be free", lambda: os.fstat(descriptor).st_blocks == 0)
        assert os.pread(descriptor, 6, 0) == bytes(6)
        assert taken(leased) == 0
    finally:
        os.close(descriptor)


# It asks for all that it can get, and gives nothing back.
GREEDY = (
    ESCAPE.partition("s.send(message(lib.GL_HOST_TAKE")[0]
    + """
got = 0
for n in range(1, 100):
    s.send(message(lib.GL_HOST_TAKE, number=n, bytes=8 << 20))
    answer = ffi.from_buffer("struct gl_host_answer *", s.recv(1024))
    got += answer.bytes if answer.code == lib.GL_HOST_TAKEN else 0
print(got, flush=True)
sys.stdin.readline()
"""
)


@pytest.mark.parametrize("leased", ['swap_host = "600MiB"'], indirect=True)
def test_a_process_cannot_take_more_memory_than_its_job_may_have(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    greedy = tenant(1, f"{SWAP},mem:64MiB", "-c", GREEDY)
    got = int(line(greedy))
    assert kept(keeper) == taken(leased) == got == 64 * MIB
    tell(greedy)
    greedy.wait()
    wait_until("all of it to be taken back", lambda: kept(keeper) == taken(leased) == 0)


def tenant_of(leased: Leased, job: int) -> dict[str, Any]:
    (found,) = (one for one in status(leased)["tenants"] if one["job_id"] == job)
    return dict(found)


def refused_for_memory(tenant: Start, job: int) -> str:
    """What a job hears whose allocation is refused."""
    process = tenant(job, SWAP, "-c", JOB)
    line(process)
    assert process.wait(60) == 1
    return process.communicate()[1]


@pytest.mark.parametrize("leased", ['swap_host = "100MiB"'], indirect=True)
def test_an_allocation_without_room_for_a_copy_is_refused(tenant: Start, leased: Leased) -> None:
    first, _ = started(tenant, 1)
    assert status(leased)["copies"]["left_bytes"] == 100 * MIB, "it fits alone: nothing can leave"
    said = refused_for_memory(tenant, 2)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in said
    assert "larger limits.swap_host" in said
    assert turn(first) == 1
    assert status(leased)["copies"]["left_bytes"] == 100 * MIB
    end(first)


@pytest.mark.parametrize("leased", ['swap_host = "100MiB"\nswap_full = "wait"'], indirect=True)
@pytest.mark.parametrize("restarts", [False, True])
def test_or_it_waits_until_others_have_ended(tenant: Start, leased: Leased, restarts: bool) -> None:
    """Also where the daemon is another one by then."""
    first, _ = started(tenant, 1)
    second = tenant(2, SWAP, "-c", JOB)
    line(second)
    wait_until("the claim", lambda: status(leased)["copies"]["waiting"] == [2])
    if restarts:
        leased.kill()
        leased.start()
        wait_until("the claim again", lambda: status(leased)["copies"]["waiting"] == [2])
        wait_until("both", lambda: status(leased)["copies"]["left_bytes"] == 100 * MIB)
    tenant_socket = leased.admin_socket.with_name("tenant.sock")
    (own,) = ask(tenant_socket, {"op": "mine", "job_id": 2})["jobs"]
    assert "than the 100 MiB of host memory" in own["reason"]["text"]
    assert turn(first) == 1
    end(first)
    assert line(second) == "has it"
    assert turn(second) == 1
    end(second)
    assert second.returncode == 0


def test_claims_end_with_the_job_whatever_its_processes_do(tenant: Start, leased: Leased) -> None:
    """Its process is stopped, so it does not hear that, and its connection stays."""
    (first, pid), (second, _) = started(tenant, 1), started(tenant, 2)
    left = status(leased)["copies"]["left_bytes"]
    os.kill(pid, signal.SIGSTOP)
    ask(leased.admin_socket, {"op": "job_end", "job_id": 1})
    assert status(leased)["copies"]["left_bytes"] > left
    os.kill(pid, signal.SIGKILL)
    first.wait()
    third, _ = started(tenant, 3)
    assert [turn(job) for job in (second, third)] == [1, 1]
    end(second, third)


@pytest.mark.parametrize("leased", ['swap_host = "200MiB"'], indirect=True)
def test_claimed_memory_is_there_at_the_handoff(tenant: Start, leased: Leased) -> None:
    (first, _), (second, _) = started(tenant, 1), started(tenant, 2)
    left = status(leased)["copies"]["left_bytes"]
    assert 0 <= left < 100 * MIB
    assert [turn(job) for job in (first, second)] == [1, 1]
    assert min(copies_of(leased, 1), copies_of(leased, 2)) > 0
    end(first)
    wait_until("its part to be free", lambda: status(leased)["copies"]["left_bytes"] > left)
    end(second)


def test_without_a_keeper_nobody_gets_it_unasked(leased: Leased, keeper: Keeper) -> None:
    keeper.stop()
    wait_until("the daemon to notice", lambda: not status(leased)["copies"]["kept"])
    for job, options in ((1, ""), (2, "memory:auto")):
        register(leased.admin_socket, job, options)
    found = {one["job_id"]: one for one in status(leased)["tenants"]}
    assert (found[1]["memory"], found[2]["memory"]) == ("managed", "swap")
    assert found[1]["memory_why"].startswith("gpu-leased-copies does not run")


@pytest.mark.parametrize("leased", ["swap_huge_pages = true"], indirect=True)
def test_where_no_huge_pages_are_left_others_serve(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    (first, _), (second, _) = started(tenant, 1), started(tenant, 2)
    assert copies_of(leased, 1)
    assert [turn(job) for job in (first, second)] == [1, 1]
    end(first, second, keeper=keeper)


# An array cannot be moved; what is beside it can.
ARRAY = (
    PROGRAM
    + """
shape = d.CUDA_ARRAY_DESCRIPTOR()
shape.Width = shape.Height = 1024
shape.Format, shape.NumChannels = d.CUarray_format.CU_AD_FORMAT_FLOAT, 1
array = ok(d.cuArrayCreate(shape)); p = ok(d.cuMemAlloc(8 * MIB)); say("has it")
sys.stdin.readline()
ok(d.cuArrayDestroy(array)); say("has none")
sys.stdin.readline()
"""
)


def test_status_says_what_stays_and_why(tenant: Start, leased: Leased) -> None:
    def stays() -> dict[str, int]:
        ((found,),) = [one["fixed"].values() or ({},) for one in status(leased)["tenants"]]
        return dict(found)

    job = tenant(1, SWAP, "-c", ARRAY)
    line(job)
    assert line(job) == "has it"
    wait_until("word of the array", lambda: stays() == {"other": 4 * MIB})
    assert status(leased)["tenants"][0]["clean"]["state"] == "unknown"
    tell(job)
    assert line(job) == "has none"
    wait_until("word of its end", lambda: stays() == {})
    end(job)
