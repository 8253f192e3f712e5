"""Devices that reach each other's memory: by kernels, by copies, and what each of them needs."""

from __future__ import annotations

from typing import Any

from tests.emugpu.program_api import (
    MIB,
    d,
    error,
    functions,
    kernels_image,
    launch,
    ok,
    setup,
    word,
    words,
)

contexts, loaded = [], []
for n in (0, 1):
    contexts.append(setup(n))
    loaded.append(dict(functions))


def on(n: Any, context: Any = None) -> None:
    ok(d.cuCtxSetCurrent(context or contexts[n]))
    functions.update(loaded[n])


def enable(n: Any) -> None:
    on(n)
    ok(d.cuCtxEnablePeerAccess(contexts[1 - n], 0))


def disable(n: Any) -> None:
    on(n)
    ok(d.cuCtxDisablePeerAccess(contexts[1 - n]))


PAGE = 2 * MIB
N = PAGE // 4
F = d.CUmemAccess_flags
NONE, READ, BOTH = (
    getattr(F, "CU_MEM_ACCESS_FLAGS_PROT_" + f) for f in ("NONE", "READ", "READWRITE")
)


def located(what: Any, n: Any) -> Any:
    what.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    what.location.id = n
    return what


def access(n: Any, flags: Any = BOTH) -> Any:
    a = located(d.CUmemAccessDesc(), n)
    a.flags = flags
    return a


def allow(at: Any, *devices: Any, flags: Any = BOTH, size: Any = PAGE) -> Any:
    return d.cuMemSetAccess(at, size, [access(n, flags) for n in devices], len(devices))


def allowed(at: Any) -> Any:
    return tuple(ok(d.cuMemGetAccess(access(n).location, at)) for n in (0, 1))


def create(n: Any, size: Any = PAGE) -> Any:
    prop = located(d.CUmemAllocationProp(), n)
    prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    return ok(d.cuMemCreate(size, prop, 0))


def mapped(n: Any, *devices: Any) -> Any:
    at = int(ok(d.cuMemAddressReserve(PAGE, 0, 0, 0)))
    handle = create(n)
    ok(d.cuMemMap(at, PAGE, 0, handle, 0))
    ok(d.cuMemRelease(handle))
    if devices:
        ok(allow(at, *devices))
    return at


def plain(n: Any) -> Any:
    on(n)
    return int(ok(d.cuMemAlloc(PAGE)))


def pooled(n: Any) -> Any:
    on(n)
    p = int(ok(d.cuMemAllocAsync(PAGE, 0)))
    ok(d.cuCtxSynchronize())
    return p


def fault(n: Any, p: Any, kernel: Any = "fill", *more: Any) -> Any:
    # What a kernel of a device comes to; calls in either context say the same from then on.
    on(n)
    ok(launch(kernel, p, N, *more or (5,)))
    ended = error(d.cuCtxSynchronize())
    for other in (1 - n, n):
        on(other)
        assert ended == error(d.cuCtxSynchronize()) == error(d.cuMemAlloc(4))
    return ended


def filled(p: Any, value: Any, n: Any = N) -> Any:
    # Words at both ends and around each seam of blocks.
    return all(
        words(p + 4 * at, 16) == [word(value, at + i) for i in range(16)]
        for at in (0, *range(N // 16 - 8, n - 8, N // 16), n - 16)
    )


def test_attributes_of_pairs_of_devices() -> None:
    can = {(a, b): ok(d.cuDeviceCanAccessPeer(a, b)) for a in (0, 1) for b in (0, 1)}
    assert can == {(0, 0): 0, (0, 1): 1, (1, 0): 1, (1, 1): 0}
    A = d.CUdevice_P2PAttribute

    def attribute(name: Any, a: Any, b: Any) -> Any:
        return d.cuDeviceGetP2PAttribute(getattr(A, f"CU_DEVICE_P2P_ATTRIBUTE_{name}"), a, b)

    for a, b in ((0, 1), (1, 0)):
        assert ok(attribute("ACCESS_SUPPORTED", a, b)) == 1
        assert ok(attribute("PERFORMANCE_RANK", a, b)) >= 0
        assert ok(attribute("NATIVE_ATOMIC_SUPPORTED", a, b)) in (0, 1)
        assert ok(attribute("CUDA_ARRAY_ACCESS_SUPPORTED", a, b)) in (0, 1)
    for bad in (
        attribute("ACCESS_SUPPORTED", 0, 0),
        attribute("ACCESS_SUPPORTED", 0, 99),
        d.cuDeviceCanAccessPeer(0, 99),
        d.cuDeviceCanAccessPeer(-1, 0),
    ):
        assert error(bad) == "INVALID_DEVICE"


def test_access_is_enabled_and_disabled_once() -> None:
    zero, one = contexts
    also = ok(d.cuCtxCreate(None, 0, 0))
    other = ok(d.cuCtxCreate(None, 0, 1))
    E, X = d.cuCtxEnablePeerAccess, d.cuCtxDisablePeerAccess
    on(0)
    assert error(X(one)) == error(X(zero)) == "PEER_ACCESS_NOT_ENABLED"
    assert error(E(one, 1)) == "INVALID_VALUE"
    assert error(E(zero, 0)) == error(E(also, 0)) == "PEER_ACCESS_UNSUPPORTED"
    assert error(E(0, 0)) == error(X(0)) == "INVALID_CONTEXT"
    ok(E(one, 0))
    assert error(E(one, 0)) == "PEER_ACCESS_ALREADY_ENABLED"
    assert error(E(one, 1)) == "INVALID_VALUE"
    ok(E(other, 0))  # each context by itself, on either side
    on(0, also)
    ok(E(one, 0))
    on(0)
    ok(X(one))
    assert error(X(one)) == "PEER_ACCESS_NOT_ENABLED"
    ok(E(one, 0))
    ok(X(one))
    ok(X(other))
    ok(E(other, 0))
    on(0, also)
    ok(X(one))
    on(1)
    ok(E(zero, 0))
    ok(X(zero))  # one way says nothing of the other
    # With a context its access ends.
    ok(d.cuCtxDestroy(other))
    on(0)
    assert error(X(other)) == error(E(other, 0)) == "CONTEXT_IS_DESTROYED"
    ok(E(one, 0))
    ok(d.cuDevicePrimaryCtxReset(1))
    one = ok(d.cuDevicePrimaryCtxRetain(1))
    on(0)
    ok(E(one, 0))
    ok(X(one))


def test_read_only_access_lets_a_peer_read() -> None:
    p, q = mapped(1, 1), plain(0)
    ok(allow(p, 0, flags=READ))
    assert allowed(p) == (1, 3)
    on(1)
    ok(launch("fill", p, N, 4))
    ok(d.cuCtxSynchronize())
    on(0)
    ok(d.cuMemcpyDtoD(q, p, PAGE))
    assert filled(q, 4)
    assert fault(0, p, "checksum", q) == "CUDA_SUCCESS"
    assert error(d.cuMemcpyDtoD(p, q, PAGE)) == error(d.cuMemsetD8(p, 0, 1)) == "INVALID_VALUE"
    assert fault(0, p) == "ILLEGAL_ADDRESS"


def test_mapped_memory_is_for_the_devices_that_are_named() -> None:
    p = mapped(1)
    assert allowed(p) == allowed(p + 4096) == (0, 0)
    ok(allow(p, 1, 0))
    assert allowed(p) == (3, 3)
    ok(allow(p, 1))
    assert allowed(p) == (3, 3)  # who is not named keeps what it has
    ok(allow(p, 0, flags=READ))
    assert allowed(p) == (1, 3)
    ok(allow(p, 0, flags=NONE))
    assert allowed(p) == (0, 3)
    ok(d.cuMemSetAccess(p, PAGE, [access(0, READ), access(0)], 2))
    assert allowed(p) == (3, 3)
    ok(d.cuMemSetAccess(p, PAGE, [access(0), access(0, NONE)], 2))
    assert allowed(p) == (0, 3)
    for bad in (99, -1):  # all or nothing
        assert error(allow(p, 0, bad)) == "INVALID_VALUE"
        assert allowed(p) == (0, 3)
        assert error(d.cuMemGetAccess(access(bad).location, p)) == "INVALID_DEVICE"
    assert error(d.cuMemSetAccess(p, PAGE, [], 0)) == "INVALID_VALUE"
    assert allowed(plain(1)) == (0, 0)  # that is of other memory
    # One call for what two devices have, side by side: a kernel of either walks over all of it.
    at = int(ok(d.cuMemAddressReserve(2 * PAGE, 0, 0, 0)))
    for n in (0, 1):
        ok(d.cuMemMap(at + n * PAGE, PAGE, 0, create(n), 0))
    ok(allow(at, 0, 1, size=2 * PAGE))
    for n in (0, 1):
        on(n)
        ok(launch("fill", at, 2 * N, n + 1))
        assert filled(at, n + 1, 2 * N)
    # Contexts have no say in it, and the memory's own device may be left out.
    enable(0)
    disable(0)
    p, q = mapped(1, 0), plain(0)
    assert fault(0, p) == "CUDA_SUCCESS"
    assert filled(p, 5)
    assert error(d.cuMemcpyPeer(q, contexts[0], p, contexts[1], 64)) == "INVALID_VALUE"
    ok(d.cuMemcpyDtoD(q, p, 64))
    on(1)
    assert error(d.cuMemcpyDtoD(q, p, 64)) == "INVALID_VALUE"
    assert fault(1, p) == "ILLEGAL_ADDRESS"


def test_pools_are_opened_to_peers() -> None:
    pool = ok(d.cuDeviceGetDefaultMemPool(1))

    def state() -> Any:
        return int(ok(d.cuMemPoolGetAccess(pool, access(0).location)))

    p = pooled(1)
    assert state() == 0
    # Copies know it no better than they know mappings.
    q = plain(0)

    def copies() -> Any:
        got = [
            error(d.cuMemcpyDtoD(q, p, 64)),
            error(d.cuMemcpyDtoD(p, q, 64)),
            error(d.cuMemcpyHtoD(p, bytes(64), 64)),
            error(d.cuMemcpyDtoH(bytearray(64), p, 64)),
            error(d.cuMemsetD32(p, 1, 16)),
        ]
        ok(d.cuMemcpyPeer(p, contexts[1], q, contexts[0], 64))
        ok(d.cuCtxSynchronize())
        return got

    assert copies() == ["INVALID_VALUE"] * 5
    on(1)
    ok(d.cuMemcpyDtoD(q, p, 64))
    on(0)
    ok(d.cuMemPoolSetAccess(pool, [access(0)], 1))
    assert state() == 3
    assert copies() == ["CUDA_SUCCESS"] * 5
    assert error(d.cuMemPoolSetAccess(pool, [access(0, READ)], 1)) == "NOT_SUPPORTED"
    assert state() == 3
    assert fault(0, p) == "CUDA_SUCCESS"  # what there was, and what comes
    q = pooled(1)
    assert fault(0, q) == "CUDA_SUCCESS"
    on(1)
    assert filled(p, 5)
    assert filled(q, 5)
    ok(d.cuMemPoolSetAccess(pool, [access(0, NONE)], 1))
    assert state() == 0


def test_managed_memory_is_reached_by_all() -> None:
    on(1)
    m = int(ok(d.cuMemAllocManaged(PAGE, 1)))
    ok(launch("fill", m, N, 5))
    ok(d.cuCtxSynchronize())
    on(0)
    ok(launch("add", m, N, 1, 1))
    assert filled(m, 6)


def test_a_kernel_reaches_what_a_peer_has_allocated() -> None:
    for first in ("enable", "allocate"):
        if first == "enable":
            enable(0)
        p, q = plain(1), plain(0)
        if first == "allocate":
            enable(0)
        on(0)
        ok(launch("fill", p, N, 7))
        ok(launch("add", p, N, 2, 3))
        ok(d.cuMemsetD8(q, 0, 8))
        ok(launch("checksum", p, N, q))
        ok(d.cuCtxSynchronize())
        on(1)
        have = words(p, N)
        assert filled(p, 7 + 6)
        on(0)
        low, high = words(q, 2)
        assert low + (high << 32) == sum(w * (i % 65521 + 1) for i, w in enumerate(have)) % 2**64
        # The result may lie there as well, and so may what a stream writes or sets.
        ok(d.cuMemsetD32(p, 0, N))
        ok(launch("fill", q, N, 3))
        ok(launch("checksum", q, N, p))
        ok(d.cuStreamWriteValue32(0, p + 8, 11, 0))
        ok(d.cuCtxSynchronize())
        assert words(p, 3)[2] == 11
        assert words(p, 2) != [0, 0]
        # Any context of the device reaches it.
        ok(d.cuCtxCreate(None, 0, 0))
        module = ok(d.cuModuleLoadData(kernels_image()))
        functions["fill"] = ok(d.cuModuleGetFunction(module, b"fill"))
        ok(launch("fill", p, N, 9))
        ok(d.cuCtxSynchronize())
        on(1)
        assert filled(p, 9)
        disable(0)
        on(1)
        ok(launch("fill", p, N, 1))
        assert filled(p, 1)


def denied(p: Any) -> None:
    """A kernel of device 0 does not reach it: the fault ends the process's contexts."""
    assert fault(0, p) == "ILLEGAL_ADDRESS"


def reached(p: Any) -> None:
    on(0)
    ok(launch("fill", p, N, 1))
    ok(d.cuCtxSynchronize())


def test_no_access_where_nothing_was_enabled() -> None:
    denied(plain(1))


def test_no_access_where_the_other_way_was_enabled() -> None:
    p = plain(1)
    enable(1)
    denied(p)


def test_no_access_after_it_was_disabled() -> None:
    p = plain(1)
    enable(0)
    reached(p)
    disable(0)
    denied(p)


def test_no_access_after_the_context_there_began_anew() -> None:
    enable(0)
    ok(d.cuDevicePrimaryCtxReset(1))
    contexts[1] = ok(d.cuDevicePrimaryCtxRetain(1))
    denied(plain(1))


def test_no_access_to_memory_of_another_context_there() -> None:
    enable(0)
    ok(d.cuCtxCreate(None, 0, 1))
    denied(int(ok(d.cuMemAlloc(PAGE))))


def test_no_access_to_what_is_mapped_for_its_device() -> None:
    denied(mapped(1, 1))


def test_no_access_to_what_is_mapped_for_its_device_by_enabled_contexts() -> None:
    p = mapped(1, 1)
    enable(0)
    denied(p)


def test_no_access_to_what_is_no_more_mapped_for_the_peer() -> None:
    p = mapped(1, 1, 0)
    reached(p)
    ok(allow(p, 0, flags=NONE))
    denied(p)


def test_no_access_to_pooled_memory() -> None:
    denied(pooled(1))


def test_no_access_to_pooled_memory_by_enabled_contexts() -> None:
    enable(0)
    denied(pooled(1))


def test_no_access_to_a_pool_that_was_closed() -> None:
    pool = ok(d.cuDeviceGetDefaultMemPool(1))
    ok(d.cuMemPoolSetAccess(pool, [access(0)], 1))
    p = pooled(1)
    ok(d.cuMemPoolSetAccess(pool, [access(0, NONE)], 1))
    denied(p)


def test_devices_count_as_the_process_sees_them() -> None:
    """It is run with CUDA_VISIBLE_DEVICES=1,0 too."""
    p = mapped(1, 1)
    ok(allow(p, 0, flags=READ))
    assert allowed(p) == (1, 3)
    q = plain(0)
    ok(d.cuMemsetD8(q, 0, 8))
    assert fault(0, p, "checksum", q) == "CUDA_SUCCESS"
    denied(p)


def cross(step: str) -> None:
    """One step whose bytes the test finds on the links between the devices and the host."""
    p, q = plain(1), plain(0)
    if step.startswith("enabled"):
        enable(0)
    on(0)
    if step == "peer copy into a mapping of both":
        q = mapped(0, 0, 1)
    if "peer copy" in step:
        ok(d.cuMemcpyPeer(q, contexts[0], p, contexts[1], PAGE))
    elif "copy" in step:
        ok(d.cuMemcpyDtoD(q, p, PAGE))
    else:
        ok(launch("fill", p if "there" in step else q, N, 1))
    ok(d.cuCtxSynchronize())
