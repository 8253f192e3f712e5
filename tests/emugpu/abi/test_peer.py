"""Devices that reach each other's memory: by kernels, by copies, and what each of them needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emugpu.programs import run
from tests.emugpu.server import EmulatedGpu


@pytest.fixture
def peers(short_dir: Path) -> Iterator[EmulatedGpu]:
    with EmulatedGpu(short_dir / "peers", model="emu-h200-peers", devices=2) as gpu:
        yield gpu


@pytest.fixture
def strangers(short_dir: Path) -> Iterator[EmulatedGpu]:
    """Two devices that are no peers."""
    with EmulatedGpu(short_dir / "strangers", devices=2) as gpu:
        yield gpu


SET_UP = """
from tests.emugpu.server import KERNELS
contexts, loaded = [], []
for n in (0, 1):
    contexts.append(setup(n)); loaded.append(dict(functions))
def on(n, context=None):
    ok(d.cuCtxSetCurrent(context or contexts[n])); functions.update(loaded[n])
def enable(n):
    on(n); ok(d.cuCtxEnablePeerAccess(contexts[1 - n], 0))
def disable(n):
    on(n); ok(d.cuCtxDisablePeerAccess(contexts[1 - n]))
PAGE = 2 * MIB
N = PAGE // 4
F = d.CUmemAccess_flags
NONE, READ, BOTH = (getattr(F, "CU_MEM_ACCESS_FLAGS_PROT_" + f)
                    for f in ("NONE", "READ", "READWRITE"))
def located(what, n):
    what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    what.location.id = n
    return what
def access(n, flags=BOTH):
    a = located(d.CUmemAccessDesc(), n)
    a.flags = flags
    return a
def allow(at, *devices, flags=BOTH, size=PAGE):
    return d.cuMemSetAccess(at, size, [access(n, flags) for n in devices], len(devices))
def allowed(at):
    return tuple(ok(d.cuMemGetAccess(access(n).location, at)) for n in (0, 1))
def create(n, size=PAGE):
    prop = located(d.CUmemAllocationProp(), n)
    prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    return ok(d.cuMemCreate(size, prop, 0))
def mapped(n, *devices):
    at = int(ok(d.cuMemAddressReserve(PAGE, 0, 0, 0)))
    handle = create(n)
    ok(d.cuMemMap(at, PAGE, 0, handle, 0)); ok(d.cuMemRelease(handle))
    if devices: ok(allow(at, *devices))
    return at
def plain(n):
    on(n); return int(ok(d.cuMemAlloc(PAGE)))
def pooled(n):
    on(n); p = int(ok(d.cuMemAllocAsync(PAGE, 0))); ok(d.cuCtxSynchronize()); return p
def fault(n, p, kernel="fill", *more):
    # What a kernel of a device comes to; calls in either context say the same from then on.
    on(n); ok(launch(kernel, p, N, *more or (5,)))
    ended = error(d.cuCtxSynchronize())
    for n in (1 - n, n):
        on(n); assert ended == error(d.cuCtxSynchronize()) == error(d.cuMemAlloc(4))
    return ended
def filled(p, value, n=N):
    # Words at both ends and around each seam of blocks.
    return all(words(p + 4 * at, 16) == [word(value, at + i) for i in range(16)]
               for at in (0, *range(N // 16 - 8, n - 8, N // 16), n - 16))
"""


def test_attributes_of_pairs_of_devices(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + """
can = {(a, b): ok(d.cuDeviceCanAccessPeer(a, b)) for a in (0, 1) for b in (0, 1)}
assert can == {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 0}
A = d.CUdevice_P2PAttribute
def attribute(name, a, b):
    return d.cuDeviceGetP2PAttribute(getattr(A, f"CU_DEVICE_P2P_ATTRIBUTE_{name}"), a, b)
for a, b in ((0, 1), (1, 0)):
    assert ok(attribute("ACCESS_SUPPORTED", a, b)) == 1
    assert ok(attribute("PERFORMANCE_RANK", a, b)) >= 0
    assert ok(attribute("NATIVE_ATOMIC_SUPPORTED", a, b)) in (0, 1)
    assert ok(attribute("CUDA_ARRAY_ACCESS_SUPPORTED", a, b)) in (0, 1)
for bad in (attribute("ACCESS_SUPPORTED", 0, 0), attribute("ACCESS_SUPPORTED", 0, 99),
            d.cuDeviceCanAccessPeer(0, 99), d.cuDeviceCanAccessPeer(-1, 0)):
    assert error(bad) == "INVALID_DEVICE"
""",
    )


def test_access_is_enabled_and_disabled_once(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + """
zero, one = contexts
also = ok(d.cuCtxCreate(None, 0, 0)); other = ok(d.cuCtxCreate(None, 0, 1))
E, X = d.cuCtxEnablePeerAccess, d.cuCtxDisablePeerAccess
on(0)
assert error(X(one)) == error(X(zero)) == "PEER_ACCESS_NOT_ENABLED"
assert error(E(one, 1)) == "INVALID_VALUE"
assert error(E(zero, 0)) == error(E(also, 0)) == "PEER_ACCESS_UNSUPPORTED"
assert error(E(0, 0)) == error(X(0)) == "INVALID_CONTEXT"
ok(E(one, 0))
assert error(E(one, 0)) == "PEER_ACCESS_ALREADY_ENABLED"
assert error(E(one, 1)) == "INVALID_VALUE"
ok(E(other, 0))                      # each context by itself, on either side
on(0, also); ok(E(one, 0))
on(0); ok(X(one))
assert error(X(one)) == "PEER_ACCESS_NOT_ENABLED"
ok(E(one, 0)); ok(X(one)); ok(X(other)); ok(E(other, 0))
on(0, also); ok(X(one))
on(1); ok(E(zero, 0)); ok(X(zero))   # one way says nothing of the other
# With a context its access ends.
ok(d.cuCtxDestroy(other)); on(0)
assert error(X(other)) == error(E(other, 0)) == "CONTEXT_IS_DESTROYED"
ok(E(one, 0)); ok(d.cuDevicePrimaryCtxReset(1))
one = ok(d.cuDevicePrimaryCtxRetain(1)); on(0)
ok(E(one, 0)); ok(X(one))
""",
    )


@pytest.mark.parametrize("first", ["enable", "allocate"])
def test_a_kernel_reaches_what_a_peer_has_allocated(peers: EmulatedGpu, first: str) -> None:
    run(
        peers,
        SET_UP
        + f"""
if {first!r} == "enable": enable(0)
p, q = plain(1), plain(0)
if {first!r} == "allocate": enable(0)
on(0)
ok(launch("fill", p, N, 7)); ok(launch("add", p, N, 2, 3)); ok(d.cuMemsetD8(q, 0, 8))
ok(launch("checksum", p, N, q)); ok(d.cuCtxSynchronize())
on(1); have = words(p, N); assert filled(p, 7 + 6)
on(0); low, high = words(q, 2)
assert low + (high << 32) == sum(w * (i % 65521 + 1) for i, w in enumerate(have)) % 2**64
# The result may lie there as well, and so may what a stream writes or sets.
ok(d.cuMemsetD32(p, 0, N)); ok(launch("fill", q, N, 3)); ok(launch("checksum", q, N, p))
ok(d.cuStreamWriteValue32(0, p + 8, 11, 0)); ok(d.cuCtxSynchronize())
assert words(p, 3)[2] == 11 and words(p, 2) != [0, 0]
# Any context of the device reaches it.
ok(d.cuCtxCreate(None, 0, 0))
module = ok(d.cuModuleLoadData(KERNELS.read_bytes() + b"\\0"))
functions["fill"] = ok(d.cuModuleGetFunction(module, b"fill"))
ok(launch("fill", p, N, 9)); ok(d.cuCtxSynchronize())
on(1); assert filled(p, 9)
disable(0); on(1); ok(launch("fill", p, N, 1)); assert filled(p, 1)
""",
    )


FAULTS = {
    "nothing was enabled": "p = plain(1)",
    "the other way was": "p = plain(1); enable(1)",
    "it was disabled again": "p = plain(1); enable(0); ok(launch('fill', p, N, 1)); "
    "ok(d.cuCtxSynchronize()); disable(0)",
    "the context there began anew": "enable(0); ok(d.cuDevicePrimaryCtxReset(1)); "
    "contexts[1] = ok(d.cuDevicePrimaryCtxRetain(1)); p = plain(1)",
    "of another context there": "enable(0); ok(d.cuCtxCreate(None, 0, 1)); "
    "p = int(ok(d.cuMemAlloc(PAGE)))",
    "mapped for its device": "p = mapped(1, 1)",
    "mapped for its device, contexts enabled": "p = mapped(1, 1); enable(0)",
    "no more mapped for it": "p = mapped(1, 1, 0); on(0); ok(launch('fill', p, N, 1)); "
    "ok(d.cuCtxSynchronize()); ok(allow(p, 0, flags=NONE))",
    "pooled": "p = pooled(1)",
    "pooled, contexts enabled": "enable(0); p = pooled(1)",
    "a pool that was closed": "pool = ok(d.cuDeviceGetDefaultMemPool(1)); "
    "ok(d.cuMemPoolSetAccess(pool, [access(0)], 1)); p = pooled(1); "
    "ok(d.cuMemPoolSetAccess(pool, [access(0, NONE)], 1))",
}


@pytest.mark.parametrize("why", FAULTS)
def test_without_access_a_kernel_faults(peers: EmulatedGpu, why: str) -> None:
    run(peers, SET_UP + FAULTS[why] + '\nassert fault(0, p) == "ILLEGAL_ADDRESS"\n')


def test_read_only_access_lets_a_peer_read(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + """
p, q = mapped(1, 1), plain(0)
ok(allow(p, 0, flags=READ)); assert allowed(p) == (1, 3)
on(1); ok(launch("fill", p, N, 4)); ok(d.cuCtxSynchronize())
on(0); ok(d.cuMemcpyDtoD(q, p, PAGE)); assert filled(q, 4)
assert fault(0, p, "checksum", q) == "CUDA_SUCCESS"
assert error(d.cuMemcpyDtoD(p, q, PAGE)) == error(d.cuMemsetD8(p, 0, 1)) == "INVALID_VALUE"
assert fault(0, p) == "ILLEGAL_ADDRESS"
""",
    )


def test_mapped_memory_is_for_the_devices_that_are_named(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + """
p = mapped(1)
assert allowed(p) == allowed(p + 4096) == (0, 0)
ok(allow(p, 1, 0)); assert allowed(p) == (3, 3)
ok(allow(p, 1)); assert allowed(p) == (3, 3)         # who is not named keeps what it has
ok(allow(p, 0, flags=READ)); assert allowed(p) == (1, 3)
ok(allow(p, 0, flags=NONE)); assert allowed(p) == (0, 3)
ok(d.cuMemSetAccess(p, PAGE, [access(0, READ), access(0)], 2)); assert allowed(p) == (3, 3)
ok(d.cuMemSetAccess(p, PAGE, [access(0), access(0, NONE)], 2)); assert allowed(p) == (0, 3)
for bad in (99, -1):                                 # all or nothing
    assert error(allow(p, 0, bad)) == "INVALID_VALUE" and allowed(p) == (0, 3)
    assert error(d.cuMemGetAccess(access(bad).location, p)) == "INVALID_DEVICE"
assert error(d.cuMemSetAccess(p, PAGE, [], 0)) == "INVALID_VALUE"
assert allowed(plain(1)) == (0, 0)                   # that is of other memory
# One call for what two devices have, side by side: a kernel of either walks over all of it.
at = int(ok(d.cuMemAddressReserve(2 * PAGE, 0, 0, 0)))
for n in (0, 1): ok(d.cuMemMap(at + n * PAGE, PAGE, 0, create(n), 0))
ok(allow(at, 0, 1, size=2 * PAGE))
for n in (0, 1):
    on(n); ok(launch("fill", at, 2 * N, n + 1)); assert filled(at, n + 1, 2 * N)
# Contexts have no say in it, and the memory's own device may be left out.
enable(0); disable(0)
p, q = mapped(1, 0), plain(0)
assert fault(0, p) == "CUDA_SUCCESS" and filled(p, 5)
assert error(d.cuMemcpyPeer(q, contexts[0], p, contexts[1], 64)) == "INVALID_VALUE"
ok(d.cuMemcpyDtoD(q, p, 64))
on(1); assert error(d.cuMemcpyDtoD(q, p, 64)) == "INVALID_VALUE"
assert fault(1, p) == "ILLEGAL_ADDRESS"
""",
    )


def test_pools_are_opened_to_peers(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + """
pool = ok(d.cuDeviceGetDefaultMemPool(1))
def state(): return int(ok(d.cuMemPoolGetAccess(pool, access(0).location)))
p = pooled(1)
assert state() == 0
# Copies know it no better than they know mappings.
s, q = ok(d.cuStreamCreate(1)), plain(0)
def copies():
    got = [error(d.cuMemcpyDtoD(q, p, 64)), error(d.cuMemcpyDtoD(p, q, 64)),
           error(d.cuMemcpyHtoD(p, bytes(64), 64)), error(d.cuMemcpyDtoH(bytearray(64), p, 64)),
           error(d.cuMemsetD32(p, 1, 16))]
    ok(d.cuMemcpyPeer(p, contexts[1], q, contexts[0], 64)); ok(d.cuCtxSynchronize())
    return got
assert copies() == ["INVALID_VALUE"] * 5
on(1); ok(d.cuMemcpyDtoD(q, p, 64)); on(0)
ok(d.cuMemPoolSetAccess(pool, [access(0)], 1))
assert state() == 3 and copies() == ["CUDA_SUCCESS"] * 5
assert error(d.cuMemPoolSetAccess(pool, [access(0, READ)], 1)) == "NOT_SUPPORTED"
assert state() == 3
assert fault(0, p) == "CUDA_SUCCESS"     # what there was, and what comes
q = pooled(1); assert fault(0, q) == "CUDA_SUCCESS"
on(1); assert filled(p, 5) and filled(q, 5)
ok(d.cuMemPoolSetAccess(pool, [access(0, NONE)], 1)); assert state() == 0
""",
    )


def test_managed_memory_is_reached_by_all(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + """
on(1); m = int(ok(d.cuMemAllocManaged(PAGE, 1)))
ok(launch("fill", m, N, 5)); ok(d.cuCtxSynchronize())
on(0); ok(launch("add", m, N, 1, 1)); assert filled(m, 6)
""",
    )


COPIES = """
kinds = {"plain": plain, "own": lambda n: mapped(n, n), "both": lambda n: mapped(n, 0, 1)}
stream = []
for n in (0, 1):
    on(n); stream.append(ok(d.cuStreamCreate(1)))
def copy(how, to, source, at):
    s = stream[at]
    return {
        "DtoD": lambda: d.cuMemcpyDtoD(to, source, PAGE),
        "DtoDAsync": lambda: d.cuMemcpyDtoDAsync(to, source, PAGE, s),
        "any": lambda: d.cuMemcpy(to, source, PAGE),
        "Peer": lambda: d.cuMemcpyPeer(to, contexts[0], source, contexts[1], PAGE),
        "PeerAsync": lambda: d.cuMemcpyPeerAsync(to, contexts[0], source, contexts[1], PAGE, s),
    }[how]()
value = 0
def check(how, to_kind, from_kind, at, want="CUDA_SUCCESS"):
    # From device 1 to device 0, in the context of either.
    global value
    value += 1
    to, source = kinds[to_kind](0), kinds[from_kind](1)
    on(1); ok(launch("fill", source, N, value)); ok(d.cuCtxSynchronize())
    on(at)
    assert error(copy(how, to, source, at)) == want, (how, to_kind, from_kind, at)
    ok(d.cuCtxSynchronize())
    on(0); assert filled(to, value) == (want == "CUDA_SUCCESS")
    for kind, p in ((to_kind, to), (from_kind, source)):
        ok(d.cuMemFree(p) if kind == "plain" else d.cuMemUnmap(p, PAGE))
"""


@pytest.mark.parametrize("enabled", [False, True])
def test_copies_find_memory_of_any_device_but_mappings(peers: EmulatedGpu, enabled: bool) -> None:
    """Mappings need the access of the device in whose context the copy is; others do not."""
    run(
        peers,
        SET_UP
        + COPIES
        + ("enable(0); enable(1)\n" if enabled else "")
        + """
for how in ("DtoD", "DtoDAsync", "any", "Peer", "PeerAsync"):
    for at in (0, 1):
        check(how, "plain", "plain", at)
        check(how, "both", "both", at)
        named = how.startswith("Peer")
        for to, source, needs in (("plain", "own", 1), ("own", "plain", 0)):
            good = named or at == needs
            check(how, to, source, at, "CUDA_SUCCESS" if good else "INVALID_VALUE")
        check(how, "own", "own", at, "CUDA_SUCCESS" if named else "INVALID_VALUE")
""",
    )


def test_host_and_set_with_memory_of_another_device(peers: EmulatedGpu) -> None:
    run(
        peers,
        SET_UP
        + COPIES
        + """
pinned = int(ok(d.cuMemHostAlloc(64, 1)))
def host(p):
    s = stream[0]
    got = [error(d.cuMemcpyHtoD(p, bytes(64), 64)), error(d.cuMemcpyDtoH(bytearray(64), p, 64)),
           error(d.cuMemcpyHtoDAsync(p, pinned, 64, s)),
           error(d.cuMemcpyDtoHAsync(pinned, p, 64, s))]
    ok(d.cuStreamSynchronize(s))
    return got
def sets(p):
    s = stream[0]
    got = [error(d.cuMemsetD32(p, 7, 16)), error(d.cuStreamWriteValue32(s, p, 5, 0))]
    ok(d.cuStreamSynchronize(s))
    return got
good, bad = "CUDA_SUCCESS", "INVALID_VALUE"
p, own, both = plain(1), mapped(1, 1), mapped(1, 0, 1)
on(0)
assert host(p) == [good] * 4 and sets(p) == [bad] * 2
assert host(own) == [bad] * 4 and sets(own) == [bad] * 2
assert host(both) == [good] * 4 and sets(both) == [good] * 2
enable(0)
assert sets(p) == [good] * 2 and sets(own) == [bad] * 2
""",
    )


def test_bytes_that_cross_each_link(peers: EmulatedGpu) -> None:
    """Kernels and copies with access go from device to device, others by way of the host."""
    page = 2 << 20
    code = (
        SET_UP
        + """
p, q = plain(1), plain(0)
on(0); STEP
ok(d.cuCtxSynchronize())
"""
    )

    def moved(step: str) -> tuple[int, ...]:
        """Of device 0: over the link between devices, in from the host, out of device 1."""
        before = peers.stats()["devices"]
        run(peers, code.replace("STEP", step))
        after = peers.stats()["devices"]
        names = ((0, "peer_bytes"), (0, "in_bytes"), (1, "out_bytes"))
        return tuple(after[n][name] - before[n][name] for n, name in names)

    assert moved("ok(d.cuMemcpyDtoD(q, p, PAGE))") == (0, page, page)
    assert moved("enable(0); ok(d.cuMemcpyDtoD(q, p, PAGE))") == (page, 0, 0)
    peer = "ok(d.cuMemcpyPeer(q, contexts[0], p, contexts[1], PAGE))"
    assert moved(peer) == (0, page, page)
    assert moved("q = mapped(0, 0, 1); " + peer) == (page, 0, 0)
    assert moved("enable(0); ok(launch('fill', p, N, 1))") == (page, 0, 0)
    assert moved("ok(launch('fill', q, N, 1))") == (0, 0, 0)


def test_devices_count_as_the_process_sees_them(peers: EmulatedGpu) -> None:
    run(
        peers,
        'os.environ["CUDA_VISIBLE_DEVICES"] = "1,0"\n'
        + SET_UP
        + """
p = mapped(1, 1); ok(allow(p, 0, flags=READ))
assert allowed(p) == (1, 3)
q = plain(0); ok(d.cuMemsetD8(q, 0, 8))
assert fault(0, p, "checksum", q) == "CUDA_SUCCESS"
assert fault(0, p) == "ILLEGAL_ADDRESS"
""",
    )


def test_devices_that_are_no_peers(strangers: EmulatedGpu) -> None:
    run(
        strangers,
        SET_UP
        + COPIES
        + """
assert ok(d.cuDeviceCanAccessPeer(0, 1)) == 0
A = d.CUdevice_P2PAttribute
assert ok(d.cuDeviceGetP2PAttribute(A.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1)) == 0
on(0)
assert error(d.cuCtxEnablePeerAccess(contexts[1], 0)) == "PEER_ACCESS_UNSUPPORTED"
assert error(d.cuCtxDisablePeerAccess(contexts[1])) == "PEER_ACCESS_NOT_ENABLED"
p = mapped(1)
assert error(allow(p, 1, 0)) == "INVALID_VALUE" and allowed(p) == (0, 0)
pool = ok(d.cuDeviceGetDefaultMemPool(1))
assert error(d.cuMemPoolSetAccess(pool, [access(0)], 1)) == "INVALID_DEVICE"
for how in ("DtoD", "Peer", "PeerAsync"):
    check(how, "plain", "plain", 0)
check("Peer", "own", "own", 1)
check("DtoD", "own", "own", 1, "INVALID_VALUE")
assert fault(0, plain(1)) == "ILLEGAL_ADDRESS"
""",
    )
