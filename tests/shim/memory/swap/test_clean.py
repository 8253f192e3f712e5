"""Memory that still is what its copy is leaves the emulated GPU without another copy."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emugpu.server import EmulatedGpu
from tests.support import swap_programs as swap
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell

MIB = 1 << 20
PIECE = 6 * MIB  # a 32nd of what the job sees, in units of 2 MiB


@pytest.fixture
def daemon(request: pytest.FixtureRequest, short_dir: Path, uuid: str) -> Iterator[FakeDaemon]:
    """Says that memory may be clean, unless the test says otherwise."""
    cleans = getattr(request, "param", True)
    with FakeDaemon(short_dir / "tenant.sock", {uuid: swap.TOTAL}, cleans=cleans) as fake:
        yield fake


def leave(client: Client, uuid: str, gpu: EmulatedGpu) -> int:
    """It gives up its lease and all its memory; returns the bytes that were copied."""
    before = swap.out_bytes(gpu)
    client.revoke()
    client.evict({uuid: 1 << 40})
    assert client.resident(uuid) == 0
    return swap.out_bytes(gpu) - before


# Weights that are only read, and what else a line of input says.
SERVER = """
weights = ok(d.cuMemAlloc(60 * MIB)); fill(weights, 60 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready")
for command in sys.stdin:
    if command.startswith("write"):
        ok(d.cuMemsetD8(int(weights) + int(command.split()[1]), 77, 1)); ok(d.cuCtxSynchronize())
    if command == "again\\n":
        ok(d.cuMemFree(weights))
        weights = ok(d.cuMemAlloc(60 * MIB)); fill(weights, 60 * MIB, 1)
        ok(d.cuCtxSynchronize())
    if command in ("read\\n", "again\\n"):
        check(weights, 60 * MIB, 1)
    say("did")
"""


def do(job: subprocess.Popen[str], client: Client, command: str) -> None:
    """The job has its lease, and does it."""
    assert job.stdin is not None
    client.grant()
    job.stdin.write(command + "\n")
    job.stdin.flush()
    assert line(job) == "did"


def test_weights_are_copied_once(
    program: swap.Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(SERVER)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    daemon.auto = False
    assert leave(client, uuid, emulated_gpu) == 60 * MIB
    for _ in range(3):
        do(job, client, "read")
        assert leave(client, uuid, emulated_gpu) == 0
    do(job, client, f"write {17 * MIB + 4321}")
    assert leave(client, uuid, emulated_gpu) == PIECE, "only what holds the changed byte"
    do(job, client, "again")
    assert leave(client, uuid, emulated_gpu) == 60 * MIB, "it is other memory"
    do(job, client, "read")
    assert leave(client, uuid, emulated_gpu) == 0
    client.grant()
    swap.finish(job)


@pytest.mark.parametrize("daemon", [False], indirect=True)
def test_a_site_that_does_not_want_it_has_all_copied(
    program: swap.Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(SERVER)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    daemon.auto = False
    for _ in range(2):
        assert leave(client, uuid, emulated_gpu) == 60 * MIB
        do(job, client, "read")
    swap.finish(job)


def test_each_context_of_a_process_may_look(
    program: swap.Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    """The one that looked has ended; the other one tries its own kernel first."""
    job = program(
        """
other = ok(d.cuCtxCreate(None, 0, 0)); ok(d.cuCtxSetCurrent(ctx))
p = ok(d.cuMemAlloc(30 * MIB)); fill(p, 30 * MIB, 3); ok(d.cuCtxSynchronize())
say("ready"); wait()
check(p, 30 * MIB, 3); say("read"); wait()
ok(d.cuDevicePrimaryCtxReset(0)); ok(d.cuCtxSetCurrent(other))
q = ok(d.cuMemAlloc(30 * MIB)); ok(d.cuMemsetD8(q, 9, 30 * MIB)); ok(d.cuCtxSynchronize())
say("other"); wait()
ok(d.cuMemsetD8(q, 9, 1)); ok(d.cuCtxSynchronize())
say("same"); wait()
"""
    )
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    daemon.auto = False
    assert leave(client, uuid, emulated_gpu) == 30 * MIB
    client.grant()
    tell(job)
    assert line(job) == "read"
    assert leave(client, uuid, emulated_gpu) == 0
    client.grant()
    tell(job)
    assert line(job) == "other"
    assert leave(client, uuid, emulated_gpu) == 30 * MIB
    client.grant()
    tell(job)
    assert line(job) == "same"
    assert leave(client, uuid, emulated_gpu) == 0
    client.grant()
    tell(job)
    swap.finish(job)


# The same bytes on two devices; each line says on which of them a byte changes.
TWO_DEVICES = """
other = ok(d.cuDevicePrimaryCtxRetain(1))
on = []
for context in (ctx, other):
    ok(d.cuCtxSetCurrent(context)); p = ok(d.cuMemAlloc(30 * MIB))
    ok(d.cuMemsetD8(p, 9, 30 * MIB)); ok(d.cuCtxSynchronize()); on.append((context, p))
say("ready")
for changed in sys.stdin:
    for n, (context, p) in enumerate(on):
        ok(d.cuCtxSetCurrent(context))
        ok(d.cuMemsetD8(p, 8 if str(n) in changed else 9, 1)); ok(d.cuCtxSynchronize())
    say("did")
"""


def test_each_of_two_devices_knows_its_own_memory(short_dir: Path, program: swap.Program) -> None:
    with EmulatedGpu(short_dir / "two", devices=2) as gpu:
        uuids = [str(device["uuid"]) for device in gpu.stats()["devices"]]
        with FakeDaemon(short_dir / "tenant.sock", dict.fromkeys(uuids, swap.TOTAL)) as daemon:
            job = program(TWO_DEVICES, env=gpu.env)
            client = swap.client_of(daemon, job)
            assert line(job) == "ready"
            daemon.auto = False

            def leave_both() -> list[int]:
                before = [swap.out_bytes(gpu, n) for n in (0, 1)]
                client.revoke()
                client.evict(dict.fromkeys(uuids, 1 << 40))
                assert [client.resident(uuid) for uuid in uuids] == [0, 0]
                return [swap.out_bytes(gpu, n) - before[n] for n in (0, 1)]

            assert leave_both() == [30 * MIB, 30 * MIB]
            copied = []
            for changed in ("none", "1", "1", "0 1", "0"):
                do(job, client, changed)
                copied.append(leave_both())
            assert copied == [[0, 0], [0, PIECE], [0, 0], [PIECE, 0], [0, PIECE]]
            client.grant()
            swap.finish(job)
