"""Calls of programs whose memory is swapped: pointers, streams, graphs, captures and steps."""

from __future__ import annotations

from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell
from tests.support.swap_programs import Program, client_of, finish, revoked


def test_pointers_are_known_wherever_the_bytes_are(
    program: Program, daemon: FakeDaemon, uuid: str
) -> None:
    job = program(
        """
A = d.CUpointer_attribute
def attribute(name, p):
    return ok(d.cuPointerGetAttribute(getattr(A, "CU_POINTER_ATTRIBUTE_" + name), p))
held = [(int(ok(d.cuMemAlloc(size))), size) for size in (50 * MIB + 4, 100, 600, MIB - 1)]
ok(spin(1000)); ok(d.cuCtxSynchronize())
def look():
    ids = set()
    for p, size in held:
        for at in (p, p + size - 1):
            base, n = ok(d.cuMemGetAddressRange(at))
            assert (int(base), n) == (p, size), (hex(at), base, n)
            assert int(attribute("RANGE_START_ADDR", at)) == p
            assert int(attribute("RANGE_SIZE", at)) == size
            assert int(attribute("DEVICE_POINTER", at)) == at
            assert attribute("MEMORY_TYPE", at) == d.CUmemorytype.CU_MEMORYTYPE_DEVICE
            assert not attribute("IS_MANAGED", at) and attribute("DEVICE_ORDINAL", at) == 0
            ids.add(attribute("BUFFER_ID", at))
        names = (A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, A.CU_POINTER_ATTRIBUTE_IS_MANAGED,
                 A.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        found = ok(d.cuPointerGetAttributes(3, list(names), p))
        assert (int(found[0]), bool(found[1]), found[2]) == (2, False, 0), found
        assert attribute("IS_LEGACY_CUDA_IPC_CAPABLE", p)
        assert d.cuMemRetainAllocationHandle(p)[0] == d.CUresult.CUDA_ERROR_INVALID_VALUE
        assert d.cuMemUnmap(p, 2 * MIB)[0] == d.CUresult.CUDA_ERROR_INVALID_VALUE
    assert len(ids) == len(held)
look(); say("looked"); wait()
look(); say("looked"); wait()
for p, _ in held: ok(d.cuMemFree(p))
for p, _ in held: assert d.cuMemGetAddressRange(p)[0] != d.CUresult.CUDA_SUCCESS
free, total = ok(d.cuMemGetInfo())
assert free == total
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "looked"
    daemon.auto = False
    client.revoke()
    client.evict({uuid: 1 << 40})
    tell(job)
    assert line(job) == "looked"
    tell(job)  # and they are freed while they are away
    finish(job)


def test_stream_ordered_memory(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    job = program(
        """
s = ok(d.cuStreamCreate(1))
a = ok(d.cuMemAllocAsync(30 * MIB, s)); b = ok(d.cuMemAllocAsync(1000, s))
MANAGED = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
assert not ok(d.cuPointerGetAttribute(MANAGED, a))
ok(d.cuStreamSynchronize(s)); fill(a, 30 * MIB, 3); fill(b, 1000, 4); ok(d.cuCtxSynchronize())
say("ready"); wait()
check_all(a, 30 * MIB, 3); check(b, 1000, 4)
ok(d.cuMemFreeAsync(a, s)); ok(d.cuStreamSynchronize(s))
assert int(ok(d.cuMemAllocAsync(30 * MIB, s))) == int(a)  # kept for the next one
ok(d.cuMemFree(a)); ok(d.cuMemFreeAsync(b, s)); ok(d.cuStreamSynchronize(s))
ok(d.cuMemPoolTrimTo(ok(d.cuDeviceGetMemPool(0)), 0))
free, total = ok(d.cuMemGetInfo())
assert free == total, (free, total)
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    client.evict({uuid: 1 << 40})
    tell(job)
    finish(job)


def test_graphs_outlive_an_eviction(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    """What was captured runs afterwards; what is captured while memory is away waits for it."""
    job = program(
        """
RELAXED = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
GLOBAL = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
s = ok(d.cuStreamCreate(1))
p, q = (ok(d.cuMemAlloc(20 * MIB)) for _ in "pq")
fill(p, 20 * MIB, 5); ok(d.cuCtxSynchronize())
def capture(mode):
    ok(d.cuStreamBeginCapture(s, mode))
    ok(d.cuMemcpyDtoDAsync(q, p, 20 * MIB, s))
    ok(d.cuMemsetD32Async(p, 9, 4, s))
    graph = ok(d.cuStreamEndCapture(s))
    return ok(d.cuGraphInstantiate(graph, 0))
run = capture(GLOBAL)
say("captured"); wait()
ok(d.cuGraphLaunch(run, s)); ok(d.cuStreamSynchronize(s))
check_all(q, 20 * MIB, 5)
fill(p, 20 * MIB, 6); ok(d.cuMemsetD8(q, 0, 20 * MIB)); ok(d.cuCtxSynchronize())
say("ran"); wait()
run = capture(GLOBAL)
ok(d.cuGraphLaunch(run, s)); ok(d.cuStreamSynchronize(s))
check_all(q, 20 * MIB, 6)
"""
    )
    client = client_of(daemon, job)
    daemon.auto = False
    client.grant()
    for said in ("captured", "ran"):
        assert line(job) == said
        client.revoke()
        client.evict({uuid: 1 << 40})
        wants = client.wants
        tell(job)
        client.until("a call that waits", lambda wants=wants: client.wants > wants)  # type: ignore[misc]
        client.grant()
    finish(job)


def test_memory_moves_beside_a_capture(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    """A capture that begins while memory leaves or comes is not harmed, and frees nothing early."""
    job = program(
        """
GLOBAL = d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
s = ok(d.cuStreamCreate(1))
p = ok(d.cuMemAlloc(60 * MIB)); small = ok(d.cuMemAlloc(100))
fill(p, 60 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(d.cuStreamBeginCapture(s, GLOBAL))
say("captures"); wait()
ok(d.cuMemsetD32Async(p, 9, 4, s))
ok(d.cuMemFree(small))  # waits for nothing now
graph = ok(d.cuStreamEndCapture(s))
run = ok(d.cuGraphInstantiate(graph, 0)); ok(d.cuGraphLaunch(run, s)); ok(d.cuStreamSynchronize(s))
host = bytearray(4); ok(d.cuMemcpyDtoH(host, p, 4)); assert host[0] == 9
ok(d.cuMemFree(p))
free, total = ok(d.cuMemGetInfo())
assert free == total, (free, total)
"""
    )
    client = client_of(daemon, job)
    assert line(job) == "ready"
    client.revoke()
    tell(job)
    assert line(job) == "captures"
    client.evict({uuid: 1 << 40})
    tell(job)
    finish(job)


def test_a_step_brings_memory_back_first(program: Program, daemon: FakeDaemon, uuid: str) -> None:
    job = program(
        """
p = ok(d.cuMemAlloc(40 * MIB)); fill(p, 40 * MIB, 5); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(d.cuMemsetD8(p, 1, 4)); say("stepped")
check(int(p) + 4, 4, word(5, 1)); say("checked")
"""
    )
    client = revoked(daemon, job)
    client.evict({uuid: 1 << 40})
    wants = client.wants
    tell(job)
    # On a busy machine its work was still stopped, and then it wants the lease for that already.
    client.until("a call that waits", lambda: client.released[-1].stopped or client.wants > wants)
    client.step()
    assert line(job) == "stepped"
    client.until("release", lambda: client.released[-1].epoch == client.epoch)
    client.evict({uuid: 1 << 40})
    client.grant()
    assert line(job) == "checked"
    finish(job)
