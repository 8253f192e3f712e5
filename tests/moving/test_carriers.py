"""Memory that leaves for the other GPU by a carrier, and comes back there: a real daemon, real
processes, two emulated GPUs that are peers."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.base import children
from leased.cli.subcommand import ExitStatus
from leased.moving.carriers import CHILD
from leased.wire.device_bytes import uuid_bytes
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu, model_of
from tests.moving.asker import carriers
from tests.moving.test_moves import PAIR, PROGRAM, asked, begin_move, begins, move, works
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, tell

pytestmark = pytest.mark.emulated(model="emu-h200-linked", devices=2)
MIB = 1 << 20
SIZE = 32  # of 1,024 MiB
OF_JOB = SIZE * MIB


def by_link(gpu: EmulatedGpu) -> int:
    """Bytes that went to the devices or came from them."""
    return sum(device["in_bytes"] + device["out_bytes"] for device in gpu.stats()["devices"])


def free(gpu: EmulatedGpu) -> list[int]:
    return [device["free"] for device in gpu.stats()["devices"]]


def at_rest(gpu: EmulatedGpu, *sizes: int) -> list[int]:
    """So much is free where the first GPU has processes with so many MiB each. Their threads make
    some memory more, a block for trials of copies, when the program may be ready already."""
    model = model_of("emu-h200-linked")
    own = model["context_mib"] * MIB + model["block_kib"] * 1024
    left = model["memory_mib"] * MIB - sum(size * MIB + own for size in sizes)
    wait_until("their memory to be there", lambda: free(gpu)[0] == left)
    return free(gpu)


def has_left(leased: Leased, gpu: EmulatedGpu, left: list[int]) -> None:
    """The carrier, whose contexts are gone a moment after it; so much is free then."""
    wait_until("the carrier to end", lambda: not carriers(leased))
    wait_until("its memory to be free", lambda: free(gpu) == left)


def ended(leased: Leased) -> str:
    wait_until("the end", lambda: asked(leased, op="moved", job_id=1)["state"] != "moving")
    return str(asked(leased, op="moved", job_id=1)["state"])


def test_memory_does_not_go_by_the_host(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    job = begins(tenant, PROGRAM, str(SIZE))
    assert works(job) == "00"
    at_first = at_rest(emulated_gpu, SIZE)
    for gpu in (1, 0):
        before = by_link(emulated_gpu)
        assert move(leased, 1, gpu) == ExitStatus.DONE
        assert works(job) == f"0{gpu}"
        assert by_link(emulated_gpu) - before < OF_JOB * 3 // 2  # it looks at all of it itself
        assert not any(process["registered"] for process in emulated_gpu.stats()["processes"])
        has_left(leased, emulated_gpu, at_first if gpu == 0 else at_first[::-1])
    # And where the program has done nothing since it came back.
    assert [move(leased, 1, gpu) for gpu in (1, 0)] == [ExitStatus.DONE] * 2
    assert works(job) == "00"
    output(job)


def test_it_comes_back_to_a_program_that_does_nothing(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """Nobody else may have the room, and no carrier waits for the program."""
    job = begins(tenant, PROGRAM, str(SIZE))
    at_first = at_rest(emulated_gpu, SIZE)
    assert move(leased, 1, 1) == ExitStatus.DONE
    has_left(leased, emulated_gpu, at_first[::-1])
    assert works(job) == "01"
    output(job)


@pytest.mark.emulated(model="emu-h200-peers", devices=2)
def test_it_goes_by_the_host_where_not_all_has_room(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    most = 36  # of 64 MiB
    job = tenant(1, "tq:1,memory:swap", "-c", PROGRAM, str(most))
    beside = tenant(
        *(2, "tq:1,memory:swap", "-c", PROGRAM, str(most)),
        gpus="1",
        env={"CUDA_VISIBLE_DEVICES": "1"},
    )
    assert [line(job), line(beside)] == ["ready", "ready"]
    before = by_link(emulated_gpu)
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01"
    assert by_link(emulated_gpu) - before >= most * MIB
    assert works(beside) == "01"
    output(job)
    output(beside)


def test_a_job_that_is_parked_has_nothing_on_the_new_gpu(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    empty = free(emulated_gpu)[1]
    job = begins(tenant, PROGRAM, str(SIZE))

    def is_away() -> bool:
        return all(left > empty - OF_JOB // 2 for left in free(emulated_gpu))

    asked(leased, op="park", job_id=1)
    wait_until("its memory to leave", is_away)
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert is_away()
    assert works(job) == "01"
    output(job)


@pytest.mark.parametrize("at", ["away", "all away"])
def test_a_carrier_that_is_killed_loses_nothing(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, at: str
) -> None:
    """What is not away goes by the host, and another carrier brings back what is."""
    job = begins(tenant, PAIR, PROGRAM, "48")
    assert works(job) == "00 00"
    at_first = at_rest(emulated_gpu, 48, 48)
    asked(leased, op="move", job_id=1, gpu="1")
    if at == "away":
        wait_until("a carrier", lambda: bool(carriers(leased)))
        (carrier,) = carriers(leased)
        os.kill(carrier, signal.SIGSTOP)
    else:
        wait_until("the driver's part to begin", (leased.prefix / "state" / "moving").exists)
        (carrier,) = carriers(leased)
    os.kill(carrier, signal.SIGKILL)
    assert ended(leased) == "moved"
    assert works(job) == "01 01"
    has_left(leased, emulated_gpu, at_first[::-1])
    assert move(leased, 1, 0) == ExitStatus.DONE
    assert works(job) == "00 00"
    output(job)


@pytest.mark.parametrize("works_meanwhile", [True, False])
def test_a_daemon_that_dies_while_all_is_away_leaves_nothing_away(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, works_meanwhile: bool
) -> None:
    job = begins(tenant, PAIR, PROGRAM, "48")
    at_first = at_rest(emulated_gpu, 48, 48)
    mark = begin_move(leased)
    leased.kill()
    leased.start()
    if works_meanwhile:
        assert works(job) == "00 00"
    wait_until("all to be back", lambda: free(emulated_gpu) == at_first)
    assert works(job) == "00 00"
    wait_until("the mark to be removed", lambda: not mark.exists())
    assert move(leased, 1, 1) == ExitStatus.DONE
    assert works(job) == "01 01"
    output(job)


@pytest.mark.parametrize("call", ["checkpoint", "restore"])
def test_a_move_that_fails_brings_it_back_where_it_was(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, call: str
) -> None:
    job = begins(tenant, PAIR, PROGRAM, "48")
    at_first = at_rest(emulated_gpu, 48, 48)
    emulated_gpu.fail(0, call, 2)
    assert move(leased, 1, 1) == ExitStatus.REFUSED
    has_left(leased, emulated_gpu, at_first)
    assert works(job) == "00 00"
    output(job)


def test_a_job_that_is_killed_while_all_is_away_leaves_nothing(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    at_first = free(emulated_gpu)
    job = begins(tenant, PAIR, PROGRAM, "48")
    begin_move(leased)
    os.killpg(job.pid, signal.SIGKILL)
    wait_until("the memory to be free", lambda: free(emulated_gpu) == at_first)
    wait_until("the carrier to end", lambda: not carriers(leased))


# -- a carrier and a process that asks it for what it likes -----------------------------------

ASKS = (
    SET_UP
    + """
import os, socket
end = socket.socket(fileno=int(sys.argv[1]))
prop = d.CUmemAllocationProp()
prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type, prop.location.id = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
prop.requestedHandleTypes = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
handle = ok(d.cuMemCreate(4 << 20, prop, 0))
memory = ok(d.cuMemExportToShareableHandle(handle, prop.requestedHandleTypes, 0))
nothing = os.open("/dev/null", os.O_RDWR)
say("ready")
for order in sys.stdin:
    data, files = eval(order, {"memory": memory, "nothing": nothing})
    try:
        socket.send_fds(end, [bytes.fromhex(data)], files)
        answer, got, _, _ = socket.recv_fds(end, 100, 4)
        for file in got:
            os.close(file)
    except OSError:
        answer, got = b"", []
    say(answer.hex(), len(got))
"""
)
AWAY, BACK = lib.GL_CARRY_AWAY, lib.GL_CARRY_BACK


def request(what: int, size: int) -> str:
    return bytes(ffi.buffer(ffi.new("struct gl_carry *", {"what": what, "bytes": size}))).hex()


def answer(failed: int) -> str:
    return bytes(ffi.buffer(ffi.new("struct gl_carried *", {"failed": failed}))).hex()


Lent = tuple[subprocess.Popen[str], list[socket.socket]]


def paired(least: int) -> tuple[socket.socket, socket.socket]:
    """least: of the second one's number."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, least)
    return ours, socket.socket(fileno=number)


@contextmanager
def lent(gpu: EmulatedGpu, most: int, least: int = 0) -> Iterator[Lent]:
    """A carrier with two sockets; it takes so many bytes away. least: of their numbers."""
    pairs = [paired(least) for _ in range(2)]
    uuids = ",".join(uuid_bytes(device["uuid"]).hex() for device in gpu.stats()["devices"])
    numbers = [theirs.fileno() for _, theirs in pairs]
    child = subprocess.Popen(
        children.python(CHILD, str(most), uuids, *map(str, numbers)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | gpu.env,
        pass_fds=numbers,
    )
    with child:
        for _, theirs in pairs:
            theirs.close()
        yield child, [ours for ours, _ in pairs]
        for ours, _ in pairs:
            ours.close()
        assert child.wait() == 0


@contextmanager
def asking(gpu: EmulatedGpu, end: socket.socket) -> Iterator[subprocess.Popen[str]]:
    """A process that asks a carrier at that end."""
    asks = subprocess.Popen(
        [sys.executable, "-c", ASKS, str(end.fileno())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | gpu.env,
        pass_fds=[end.fileno()],
        cwd=Path(__file__).parents[2],
    )
    with asks:
        assert line(asks) == "ready"
        yield asks
        output(asks)


TAKES = f'("{request(AWAY, 4 * MIB)}", [memory])'


def test_a_daemon_with_many_files_can_lend_one(emulated_gpu: EmulatedGpu) -> None:
    """A carrier has the numbers that the daemon had."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
    try:
        with lent(emulated_gpu, 16 * MIB, least=1024) as (carrier, (end, _)):
            assert line(carrier) == "ready"
            with asking(emulated_gpu, end) as asks:
                for _ in range(2):
                    tell(asks, TAKES)
                    assert line(asks) == f"{answer(0)} 1"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_nothing_is_taken_away_once_the_move_is_over(emulated_gpu: EmulatedGpu) -> None:
    """What a process keeps of it counts for nobody."""
    with lent(emulated_gpu, 16 * MIB) as (carrier, (end, _)):
        assert line(carrier) == "ready"
        with asking(emulated_gpu, end) as asks:
            tell(asks, TAKES)
            assert line(asks) == f"{answer(0)} 1"
            tell(carrier, "over")
            tell(carrier, "?")
            assert line(carrier) == "works"
            tell(asks, TAKES)
            assert line(asks) == f"{answer(1)} 0"
            tell(asks, f'("{request(BACK, 4 * MIB)}", [memory, memory])')
            assert line(asks) == f"{answer(0)} 0"


@pytest.mark.parametrize(
    ("data", "files", "answered"),
    [
        (request(AWAY, 4 * MIB), "[memory]", f"{answer(0)} 1"),
        (request(AWAY, 8 * MIB), "[memory]", " 0"),  # it is not so large
        (request(AWAY, 32 * MIB), "[memory]", f"{answer(1)} 0"),  # more than may go
        (request(AWAY, 1 << 62), "[memory]", f"{answer(1)} 0"),
        (request(AWAY, 0), "[memory]", " 0"),
        (request(AWAY, 4 * MIB), "[nothing]", " 0"),
        (request(AWAY, 4 * MIB), "[]", " 0"),
        (request(BACK, 4 * MIB), "[memory]", " 0"),
        (request(BACK, 4 * MIB), "[memory, nothing]", " 0"),
        (request(BACK, 4 * MIB), "[memory, memory]", f"{answer(0)} 0"),
        (request(7, 4 * MIB), "[memory]", " 0"),
        ("00", "[memory]", " 0"),
    ],
)
def test_a_carrier_serves_the_others_whatever_a_process_asks(
    emulated_gpu: EmulatedGpu, data: str, files: str, answered: str
) -> None:
    with lent(emulated_gpu, 16 * MIB) as (carrier, (end, good)):
        assert line(carrier) == "ready"
        for one, order, expected in (
            (end, f'("{data}", {files})', answered),
            (good, TAKES, f"{answer(0)} 1"),
        ):
            with asking(emulated_gpu, one) as asks:
                tell(asks, order)
                assert line(asks) == expected.strip()
