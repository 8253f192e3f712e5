"""memory:swap on two GPUs of one process: what moves on one waits for nothing on the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.wire import daemon_messages
from tests.emugpu.server import EmulatedGpu
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import MIB, Program, finish, revoked

LARGE, SMALL = 50 * MIB, 4 * MIB

BOTH = f"""
other = ok(d.cuDevicePrimaryCtxRetain(1))
large = ok(d.cuMemAlloc({LARGE})); fill(large, {LARGE}, 1); ok(d.cuCtxSynchronize())
ok(d.cuCtxSetCurrent(other))
small = ok(d.cuMemAlloc({SMALL})); ok(d.cuMemcpyHtoD(small, b"7" * {SMALL}, {SMALL}))
say("ready"); wait()
host = bytearray({SMALL}); ok(d.cuMemcpyDtoH(host, small, {SMALL})); assert host == b"7" * {SMALL}
ok(d.cuCtxSetCurrent(ctx))
check_all(large, {LARGE}, 1)
say("checked")
"""


pytestmark = pytest.mark.emulated(model="emu-h200-peers", devices=2)


@pytest.fixture
def uuids(emulated_gpu: EmulatedGpu) -> list[str]:
    return [str(device["uuid"]) for device in emulated_gpu.stats()["devices"]]


@pytest.fixture
def daemon(short_dir: Path, uuids: list[str]) -> Iterator[FakeDaemon]:
    with FakeDaemon(short_dir / "tenant.sock", dict.fromkeys(uuids, 60 * MIB)) as fake:
        yield fake


def test_a_preload_comes_while_the_other_gpu_evicts(
    program: Program, daemon: FakeDaemon, uuids: list[str]
) -> None:
    job = program(BOTH)
    client = revoked(daemon, job)
    one, other = uuids
    client.evict({other: SMALL})
    so_far = len(client.memories)
    # 25 segments, of which the link takes three at once: the order of the other GPU is heard
    # before the last of them.
    client.send(daemon_messages.evict({one: LARGE}))
    client.send(daemon_messages.preload({other: SMALL}))
    client.until("both", lambda: client.resident(one) == 0 and client.resident(other) == SMALL)
    came = next(m for m in client.memories[so_far:] if m[other].resident == SMALL)
    assert came[one].resident > 0, "it came before the other GPU's memory had left"
    tell(job)
    client.grant()
    assert line(job) == "checked"
    finish(job)
