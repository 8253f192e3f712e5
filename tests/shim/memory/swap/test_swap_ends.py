"""What ends or fails while memory is swapped: programs, contexts, devices and daemons."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from leased.wire import daemon_messages
from tests.emugpu.server import BUILD, EmulatedGpu
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import (
    MIB,
    TOTAL,
    TWO,
    Program,
    client_of,
    end,
    finish,
    free_bytes,
    revoked,
    two_full,
)


def test_a_kill_while_memory_moves_frees_the_device(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    all_of_it = free_bytes(emulated_gpu)
    (_, two), (a, b) = two_full(program, daemon, uuid)
    b.send(daemon_messages.evict({uuid: 1 << 40}))
    b.until("the first to leave", lambda: b.resident(uuid) < 160 * MIB)
    os.kill(b.pid, signal.SIGKILL)
    two.wait()
    a.grant()
    a.until("all to be there", lambda: a.resident(uuid) == 160 * MIB)
    os.kill(a.pid, signal.SIGKILL)
    wait_until("an empty device", lambda: free_bytes(emulated_gpu) == all_of_it)


def test_a_context_that_ends_takes_its_memory(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
own = ok(d.cuCtxCreate(None, 0, 0))
a, small = ok(d.cuMemAlloc(50 * MIB)), ok(d.cuMemAlloc(10))
ok(d.cuMemsetD32(a, 7, 50 * MIB // 4)); ok(d.cuCtxSynchronize())
ok(d.cuCtxSetCurrent(ctx))
b = ok(d.cuMemAlloc(30 * MIB)); fill(b, 30 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(d.cuCtxDestroy(own))
say("destroyed"); wait()
check_all(b, 30 * MIB, 1)
say("checked"); wait()
ok(d.cuDevicePrimaryCtxReset(0)); ok(d.cuDevicePrimaryCtxRetain(0)); ok(d.cuCtxSetCurrent(ctx))
free, total = ok(d.cuMemGetInfo())
assert free == total, (free, total)
c = ok(d.cuMemAlloc(30 * MIB)); ok(d.cuMemsetD32(c, 7, 4)); ok(d.cuCtxSynchronize())
"""
    )
    client = revoked(daemon, job)
    client.send(daemon_messages.evict({uuid: 1 << 40}))
    tell(job)  # the context ends while its memory is on its way
    assert line(job) == "destroyed"
    client.until("the rest", lambda: client.memory[uuid] == (30 * MIB, 0, 0))
    client.grant()
    tell(job)
    assert line(job) == "checked"
    tell(job)
    finish(job)


def test_an_exit_or_a_fork_while_memory_moves(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
say("forked"); wait()
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    client.send(daemon_messages.evict({uuid: 50 * MIB}))
    tell(job)
    assert line(job) == "forked"
    client.until("half to be away", lambda: client.resident(uuid) <= 50 * MIB)
    client.send(daemon_messages.evict({uuid: 50 * MIB}))
    tell(job)
    finish(job)


def test_a_waiting_process_survives_the_end_of_its_daemon(
    program: Program, short_dir: Path, uuid: str
) -> None:
    path = short_dir / "tenant.sock"
    with FakeDaemon(path, {uuid: TOTAL}, auto=False) as daemon:
        job = program(TWO.replace("VALUE", "1"))
        client = client_of(daemon, job)
        assert line(job) == "has"
        client.grant()
        tell(job)
        assert line(job) == "filled"
        client.revoke()
        client.send(daemon_messages.evict({uuid: 1 << 40}))
        client.until("the first to leave", lambda: client.resident(uuid) < 160 * MIB)
        pid = client.pid
    path.unlink()
    tell(job)
    with FakeDaemon(path, {uuid: TOTAL}) as daemon:
        daemon.client(pid)
        assert line(job) == "checked"
        end(job)
        finish(job)


def test_a_broken_context_does_not_hang(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 5); ok(d.cuCtxSynchronize())
fill(int(p) + 29 * MIB, 2 * MIB, 5)
assert d.cuCtxSynchronize()[0] == d.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
say("broken"); wait()
say(d.cuMemsetD8(p, 0, 1)[0].name)
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "broken"
    daemon.auto = False
    client.revoke()
    client.send(daemon_messages.evict({uuid: 1 << 40}))
    client.until("that it stays", lambda: client.memory[uuid] == (0, 30 * MIB, 0))
    client.grant()
    tell(job)
    assert line(job) == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert "the context is broken" in finish(job)


def test_a_lost_device_is_heard_of_by_the_program(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
assert d.cuMemsetD8(p, 0, 1)[0] != d.CUresult.CUDA_SUCCESS
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    client.evict({uuid: 1 << 40})
    emulated_gpu.fail(0, "lost")
    tell(job)
    assert "swapped memory cannot be restored to the GPU" in finish(job)


def test_a_driver_that_cannot_map_memory_gets_managed_memory(
    program: Program, daemon: FakeDaemon, short_dir: Path, emulated_gpu: EmulatedGpu
) -> None:
    name = b"\0cuMemAddressReserve\0"
    binary = (BUILD / "libcuda.so.1").read_bytes()
    assert binary.count(name) >= 1
    old = short_dir / "driver"
    old.mkdir()
    (old / "libcuda.so.1").write_bytes(binary.replace(name, b"\0cuMemAddressReservX\0"))
    path = f"{old}:{emulated_gpu.env['LD_LIBRARY_PATH']}"
    job = program(
        """
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 5); check(p, 30 * MIB, 5)
s = ok(d.cuStreamCreate(1)); q = ok(d.cuMemAllocAsync(MIB, s))
for m in (p, q):
    assert ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, m))
ok(d.cuMemFree(p)); ok(d.cuMemFreeAsync(q, s))
""",
        env={"LD_LIBRARY_PATH": path},
    )
    client_of(daemon, job)
    assert finish(job).count("memory:swap has no effect on device") == 1


def test_a_move_of_a_daemon_that_has_ended_is_over(
    program: Program, short_dir: Path, uuid: str
) -> None:
    """Host memory stays registered at handoffs again."""
    socket = short_dir / "tenant.sock"
    with FakeDaemon(socket, {uuid: TOTAL}) as first:
        job = program(
            """
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 100 * MIB, 7)
"""
        )
        client = client_of(first, job)
        assert line(job) == "ready"
        client.send(daemon_messages.MOVES)
        client.calls()
    socket.unlink()
    with FakeDaemon(socket, {uuid: TOTAL}, auto=False) as second:
        client = second.client(client.pid)
        client.until("hello", lambda: client.held)
        client.epoch = client.held
        client.revoke()
        client.evict({uuid: 100 * MIB})
        client.send(daemon_messages.expect({}, tells=True))
        client.until("word that nothing is left to be done", lambda: client.ready)
        client.grant()
        tell(job)
        assert "is unregistered" not in finish(job)
