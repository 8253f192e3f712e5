"""Handoffs of memory:swap: real bytes on the emulated GPU are evicted and restored."""

from __future__ import annotations

from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import (
    KNOWN,
    MIB,
    Program,
    client_of,
    finish,
    free_bytes,
    in_bytes,
    out_bytes,
    revoked,
)


def test_bytes_survive_and_addresses_stay(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
sizes = [100 * MIB, 3 * MIB + 512, 4096, 512, 40 * MIB]
held = [(ok(d.cuMemAlloc(size)), size, n) for n, size in enumerate(sizes)]
for one in held: fill(*one)
ok(d.cuCtxSynchronize())
for turn in range(3):
    say("ready"); wait()
    for one in held: check_all(*one)
    say("checked"); wait()
"""
    )
    client = client_of(daemon, job)
    before, size = free_bytes(emulated_gpu), (100 + 4 + 2 + 40) * MIB
    for _ in range(3):
        assert line(job) == "ready"
        client.until("memory on the device", lambda: client.memory[uuid] == (size, 0, size))
        daemon.auto = False
        client.revoke()
        client.evict({uuid: size})
        # A block stays for what is tried when kernels are stopped.
        assert free_bytes(emulated_gpu) >= before - MIB
        tell(job)
        client.grant()
        assert line(job) == "checked"
        tell(job)
    finish(job)


def test_preloaded_memory_is_there_before_the_gate_opens(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
p, q = ok(d.cuMemAlloc(100 * MIB)), ok(d.cuMemAlloc(40 * MIB))
fill(p, 100 * MIB, 1); fill(q, 40 * MIB, 2); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 100 * MIB, 1); check_all(q, 40 * MIB, 2)
say("checked")
"""
    )
    client = revoked(daemon, job)
    client.evict({uuid: 140 * MIB})
    tell(job)
    calls, before = client.calls(), in_bytes(emulated_gpu)
    client.send(daemon_messages.preload({uuid: 60 * MIB}))
    client.until("a part", lambda: client.resident(uuid) >= 40 * MIB)
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    client.until("all of it", lambda: client.resident(uuid) == 140 * MIB)
    # It is there as soon as it has room; its bytes follow.
    wait_until("its bytes", lambda: in_bytes(emulated_gpu) - before >= 140 * MIB)
    assert client.calls() == calls, "who waits at the gate goes on waiting"
    # Nobody can have touched it, so it leaves again without a copy, and comes again.
    moved = out_bytes(emulated_gpu)
    client.evict({uuid: 100 * MIB})
    assert out_bytes(emulated_gpu) == moved
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    wait_until("its bytes", lambda: in_bytes(emulated_gpu) - before >= 240 * MIB)
    before = in_bytes(emulated_gpu)
    client.grant()
    assert line(job) == "checked"
    assert in_bytes(emulated_gpu) == before, "all had come"
    finish(job)


def test_preloading_follows_an_eviction_and_ends_with_the_next(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(140 * MIB)); fill(p, 140 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(p, 140 * MIB, 1)
say("checked")
"""
    )
    client = revoked(daemon, job)
    client.send(daemon_messages.evict({uuid: 140 * MIB}))
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    client.until("what has left", lambda: client.resident(uuid) < 70 * MIB)
    client.until("its return", lambda: client.resident(uuid) == 140 * MIB)
    client.send(daemon_messages.preload({uuid: 140 * MIB}))
    client.evict({uuid: 140 * MIB})
    tell(job)
    client.grant()
    assert line(job) == "checked"
    finish(job)


def test_the_oldest_leave_first_and_only_as_many_as_must(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
a, b = (ok(d.cuMemAlloc(70 * MIB)) for _ in "ab")
fill(a, 70 * MIB, 1); fill(b, 70 * MIB, 2); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(a, 70 * MIB, 1); check_all(b, 70 * MIB, 2)
say("checked"); wait()
ok(d.cuMemFree(a)); say("freed"); wait()
check_all(b, 70 * MIB, 2)
"""
    )
    client = client_of(daemon, job)
    daemon.auto = False
    client.grant()
    assert line(job) == "ready"
    client.revoke()
    moved_in, moved_out = in_bytes(emulated_gpu), out_bytes(emulated_gpu)
    client.evict({uuid: 20 * MIB})
    left = 4 * 6 * MIB  # pieces are a 32nd of what the job sees, in units of 2 MiB
    assert client.resident(uuid) == 140 * MIB - left
    assert out_bytes(emulated_gpu) - moved_out == left
    client.grant()
    tell(job)
    assert line(job) == "checked"
    assert client.resident(uuid) == 140 * MIB
    assert in_bytes(emulated_gpu) - moved_in == left + KNOWN, "only what had left"
    client.revoke()
    client.evict({uuid: 70 * MIB})
    tell(job)
    assert line(job) == "freed"
    client.until("free", lambda: client.memory[uuid].evictable == 70 * MIB)
    assert client.resident(uuid) == 70 * MIB, "it was the younger that stayed"
    tell(job)
    client.grant()
    finish(job)


def test_untouched_memory_is_not_copied_again(
    program: Program, daemon: FakeDaemon, uuid: str, emulated_gpu: EmulatedGpu
) -> None:
    job = program(
        """
never = ok(d.cuMemAlloc(30 * MIB))  # no lease yet, and nothing in it
say("has"); wait()
p = ok(d.cuMemAlloc(60 * MIB)); fill(p, 60 * MIB, 1); ok(d.cuCtxSynchronize())
say("ready"); wait()
check(p, 60 * MIB, 1); say("checked"); wait()
"""
    )
    client = client_of(daemon, job)
    daemon.auto = False
    assert line(job) == "has"
    client.until("report", lambda: client.memory.get(uuid, DeviceBytes()).evictable == 30 * MIB)
    assert client.resident(uuid) == 0
    client.grant()
    client.until("memory", lambda: client.resident(uuid) == 30 * MIB)
    client.revoke()
    client.evict({uuid: 1 << 40})
    assert out_bytes(emulated_gpu) == in_bytes(emulated_gpu) == 0, "there was nothing to copy"
    client.grant()
    tell(job)
    assert line(job) == "ready"
    client.revoke()
    client.evict({uuid: 1 << 40})
    copied = out_bytes(emulated_gpu)
    assert copied == 90 * MIB
    for _ in range(3):
        client.grant()
        client.until("return", lambda: client.resident(uuid) == 90 * MIB)
        client.revoke()
        client.evict({uuid: 1 << 40})
        assert out_bytes(emulated_gpu) == copied
    client.grant()
    tell(job)
    assert line(job) == "checked"  # calls that only read, as the device finds
    copied = out_bytes(emulated_gpu)
    client.revoke()
    client.evict({uuid: 1 << 40})
    assert out_bytes(emulated_gpu) == copied
    tell(job)
    client.grant()
    finish(job)
