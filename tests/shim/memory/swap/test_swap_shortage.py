"""memory:swap where memory is short, on the device or on the host."""

from __future__ import annotations

import os
from pathlib import Path

from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import Client, FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import (
    MIB,
    TOTAL,
    TWO,
    Program,
    client_of,
    end,
    finish,
    revoked,
    two_full,
)


def test_one_job_restores_while_the_other_evicts(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    (one, two), (a, b) = two_full(program, daemon, uuid)
    tell(one)
    a.grant()
    a.until("what fits", lambda: a.resident(uuid) >= 84 * MIB)
    for _ in range(3):
        was = a.resident(uuid)
        assert was < 160 * MIB
        b.evict({uuid: 14 * MIB})
        a.until("another piece", lambda was=was: a.resident(uuid) > was)  # type: ignore[misc]
    b.evict({uuid: 1 << 40})
    assert line(one) == "checked"
    # And the other way round, both at once.
    a.revoke()
    tell(two)
    b.grant()
    a.send(daemon_messages.evict({uuid: 1 << 40}))
    assert line(two) == "checked"
    b.revoke()
    b.send(daemon_messages.evict({uuid: 1 << 40}))
    for job, client in ((one, a), (two, b)):
        client.grant()
        end(job)
        finish(job)


def test_a_revoke_ends_a_restore_that_finds_no_room(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    (one, two), (a, b) = two_full(program, daemon, uuid)
    tell(one)
    a.grant()
    a.until("what fits", lambda: a.resident(uuid) >= 84 * MIB)
    a.revoke()
    a.evict({uuid: 1 << 40})
    b.grant()
    tell(two)
    assert line(two) == "checked"
    b.revoke()
    b.evict({uuid: 1 << 40})
    a.grant()
    assert line(one) == "checked"
    end(one)
    finish(one)
    b.grant()
    end(two)
    finish(two)


def test_an_allocation_waits_until_others_have_left(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    daemon.auto = False
    one = program(TWO.replace("VALUE", "1"))
    a = client_of(daemon, one)
    assert line(one) == "has"
    a.grant()
    tell(one)
    assert line(one) == "filled"
    a.revoke()
    two = program(
        """
ok(spin(1000)); ok(d.cuCtxSynchronize())
p = ok(d.cuMemAlloc(160 * MIB)); fill(p, 160 * MIB, 2); check(p, 160 * MIB, 2)
say("has"); wait()
assert d.cuMemAlloc(70 * MIB)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
check(p, 160 * MIB, 2)
say(ok(d.cuMemGetInfo())[0] // MIB)
"""
    )
    b = client_of(daemon, two)
    b.grant()
    b.until("a report", lambda: b.memory.get(uuid, DeviceBytes()).evictable == 160 * MIB)
    b.until("what fits", lambda: b.resident(uuid) >= 84 * MIB)
    assert b.resident(uuid) < 160 * MIB
    a.evict({uuid: 80 * MIB})
    assert line(two) == "has"
    tell(two)  # within its limit there is room for 70 more, and nobody makes it
    assert line(two) == "80"
    finish(two)
    a.grant()
    tell(one)
    assert line(one) == "checked"
    end(one)
    finish(one)


def test_without_host_memory_nothing_is_lost(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
import resource
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 7); ok(d.cuCtxSynchronize())
pages = int(open("/proc/self/statm").read().split()[0])
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + 40 * MIB, before[1]))
say("ready"); wait()
check(p, 100 * MIB, 7)
resource.setrlimit(resource.RLIMIT_AS, before)
say("checked"); wait()
check_all(p, 100 * MIB, 7)
"""
    )
    client = revoked(daemon, job)
    client.send(daemon_messages.evict({uuid: 100 * MIB}))
    client.until("that it stays", lambda: client.memory[uuid].resident == 0)
    has = client.memory[uuid]
    assert has.evictable + has.fixed == 100 * MIB
    assert 60 * MIB <= has.fixed < 100 * MIB, "some was there for a copy, not for all"
    client.grant()
    client.until("return", lambda: client.resident(uuid) == has.evictable)
    assert client.memory[uuid].fixed == has.fixed, "there is no more room than before"
    tell(job)
    assert line(job) == "checked"
    client.revoke()
    client.evict({uuid: 100 * MIB})
    assert client.memory[uuid] == (100 * MIB, 0, 0)
    client.grant()
    tell(job)
    assert finish(job).count("there is no host memory") == 1


def test_oversubscription_stays_managed(program: Program, short_dir: Path, uuid: str) -> None:
    with FakeDaemon(short_dir / "tenant.sock", {uuid: TOTAL}, oversub=True) as daemon:
        job = program(
            """
p = ok(d.cuMemAlloc(300 * MIB)); fill(p, 300 * MIB, 5); check(p, 300 * MIB, 5)
assert ok(d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED, p))
"""
        )
        daemon.client(int(line(job)))
        finish(job)


def test_devices_of_a_gang_move_together(short_dir: Path, program: Program) -> None:
    with EmulatedGpu(short_dir / "two", devices=2) as gpu:
        uuids = [str(device["uuid"]) for device in gpu.stats()["devices"]]
        with FakeDaemon(short_dir / "tenant.sock", dict.fromkeys(uuids, TOTAL)) as daemon:
            job = program(
                """
other = ok(d.cuDevicePrimaryCtxRetain(1))
ok(d.cuCtxSetCurrent(other))
q = ok(d.cuMemAlloc(60 * MIB)); ok(d.cuMemsetD32(q, 3, 15 * MIB)); ok(d.cuCtxSynchronize())
ok(d.cuCtxSetCurrent(ctx))
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 40 * MIB, 5)
ok(d.cuMemcpyPeer(int(p), ctx, int(q) + 30 * MIB, other, 30 * MIB))
host = bytearray(30 * MIB); ok(d.cuMemcpyDtoH(host, p, len(host)))
assert set(memoryview(host).cast("I")) == {3}
""",
                env=gpu.env,
            )
            client = client_of(daemon, job)
            assert line(job) == "ready"
            client.revoke()
            client.evict(dict.fromkeys(uuids, 1 << 40))
            assert [client.memory[u] for u in uuids] == [(40 * MIB, 0, 0), (60 * MIB, 0, 0)]
            tell(job)
            finish(job)


def address_space(client: Client) -> int:
    """Bytes that the process has mapped."""
    return int(Path(f"/proc/{client.pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")


def test_host_memory_goes_back_when_the_program_has_freed_as_much(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(100 * MIB)); fill(p, 100 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
check(p, 100 * MIB, 5)
say("checked"); wait()
ok(d.cuMemFree(p)); say("freed"); wait()
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    before = address_space(client)
    client.revoke()
    client.evict({uuid: 100 * MIB})
    assert address_space(client) >= before + 90 * MIB
    tell(job)
    assert line(job) == "checked"
    assert address_space(client) >= before + 90 * MIB, "kept for the next time"
    tell(job)
    assert line(job) == "freed"
    wait_until("it to go back", lambda: address_space(client) < before + 40 * MIB)
    tell(job)
    finish(job)


def test_small_allocations_share_memory_and_never_bytes(
    program: Program, daemon: FakeDaemon
) -> None:
    job = program(
        """
import bisect, random
chance, have = random.Random(1), []  # (address, size), sorted
free, total = ok(d.cuMemGetInfo())
for n in range(4000):
    if have and (n > 3000 or chance.random() < 0.4):
        ok(d.cuMemFree(have.pop(chance.randrange(len(have)))[0]))
        continue
    size = chance.choice((1, 511, 513, 8192, chance.randrange(1, 200_000)))
    p = int(ok(d.cuMemAlloc(size)))
    i = bisect.bisect(have, (p, size))
    assert p % 512 == 0
    assert not i or sum(have[i - 1]) <= p, "over the one before"
    assert i == len(have) or p + size <= have[i][0], "over the one behind"
    have.insert(i, (p, size))
    taken = total - ok(d.cuMemGetInfo())[0]
    assert taken >= sum(one[1] for one in have)
for p, _ in have: ok(d.cuMemFree(p))
assert ok(d.cuMemGetInfo())[0] == total
"""
    )
    client_of(daemon, job)
    finish(job)
