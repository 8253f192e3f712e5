"""Pools of stream-ordered memory: what they keep, give back and say of themselves."""

from __future__ import annotations

from typing import Any

from tests.emugpu.program_api import MIB, d, error, launch, ok, setup, words

setup()
A = d.CUmemPool_attribute


def get(pool: Any, what: Any) -> Any:
    return int(ok(d.cuMemPoolGetAttribute(pool, getattr(A, "CU_MEMPOOL_ATTR_" + what))))


def put(pool: Any, what: Any, value: Any) -> Any:
    what = getattr(A, "CU_MEMPOOL_ATTR_" + what)
    return d.cuMemPoolSetAttribute(pool, what, d.cuuint64_t(value))


def memory(pool: Any) -> Any:
    return tuple(
        get(pool, w + "_MEM_" + m) for w in ("USED", "RESERVED") for m in ("CURRENT", "HIGH")
    )


props = d.CUmemPoolProps()
props.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
props.location.id = 0
pool = ok(d.cuMemPoolCreate(props))
stream = ok(d.cuStreamCreate(1))


def alloc(size: Any, pool: Any = pool) -> Any:
    return ok(d.cuMemAllocFromPoolAsync(size, pool, stream))


def free() -> Any:
    return ok(d.cuMemGetInfo())[0]


def sync() -> None:
    ok(d.cuStreamSynchronize(stream))


before = free()


def test_freed_memory_stays_until_a_synchronization() -> None:
    p, q = alloc(8 * MIB), alloc(100)
    assert memory(pool) == (8 * MIB + 100,) * 2 + (8 * MIB + MIB // 2,) * 2  # blocks of 512 KiB
    assert free() == before - 8 * MIB - MIB // 2
    ok(launch("fill", p, 2 * MIB, 5, stream=stream))
    ok(d.cuMemFreeAsync(p, stream))
    again = alloc(8 * MIB)  # it may come too early for what was freed, and never too late
    ok(d.cuMemFreeAsync(again, stream))
    ok(d.cuMemFreeAsync(q, stream))
    sync()
    high = memory(pool)[1]
    assert memory(pool)[0] == memory(pool)[2] == 0
    assert high in (8 * MIB + 100, 16 * MIB + 100)
    assert free() == before
    assert error(d.cuMemFreeAsync(p, stream)) == "INVALID_VALUE"
    # A reset mark starts from what there is now, and can be set to nothing else.
    p = alloc(4 * MIB)
    ok(put(pool, "USED_MEM_HIGH", 0))
    ok(put(pool, "RESERVED_MEM_HIGH", 0))
    assert memory(pool) == (4 * MIB,) * 4
    for what in ("USED_MEM_HIGH", "USED_MEM_CURRENT", "RESERVED_MEM_CURRENT"):
        assert error(put(pool, what, 5)) == "INVALID_VALUE"
    ok(d.cuMemFree(p))  # without a stream, as good
    assert memory(pool) == (0, 4 * MIB, 0, 4 * MIB)
    assert free() == before


def test_a_threshold_and_a_trim_say_what_a_pool_keeps() -> None:
    ok(put(pool, "RELEASE_THRESHOLD", 2**64 - 1))
    assert get(pool, "RELEASE_THRESHOLD") == 2**64 - 1
    blocks = [alloc(4 * MIB) for _ in range(4)]
    ok(launch("fill", blocks[0], 1024, 3, stream=stream))
    for p in blocks:
        ok(d.cuMemFreeAsync(p, stream))
    sync()
    assert memory(pool) == (0, 16 * MIB, 16 * MIB, 16 * MIB)
    assert free() == before - 16 * MIB
    assert error(d.cuMemsetD8(blocks[0], 0, 4)) == "INVALID_VALUE"  # kept, but nobody's
    assert int(alloc(4 * MIB)) in map(int, blocks)  # and taken first
    ok(d.cuMemPoolTrimTo(pool, 9 * MIB))
    assert memory(pool)[2] == 12 * MIB  # at least so much, in blocks of 4
    ok(d.cuMemPoolTrimTo(pool, 0))
    assert memory(pool)[0] == memory(pool)[2] == 4 * MIB
    assert free() == before - 4 * MIB
    ok(put(pool, "RELEASE_THRESHOLD", 0))
    # What is kept back makes room for others before they fail.
    ok(put(pool, "RELEASE_THRESHOLD", 2**64 - 1))
    big = alloc(150 * MIB)
    ok(d.cuMemFreeAsync(big, stream))
    sync()
    assert free() == before - 154 * MIB
    ok(d.cuMemAlloc(200 * MIB))
    assert free() == before - 204 * MIB
    assert error(d.cuMemAllocFromPoolAsync(100 * MIB, pool, stream)) == "OUT_OF_MEMORY"


def test_which_pool_an_allocation_takes() -> None:
    default = ok(d.cuDeviceGetDefaultMemPool(0))
    p = ok(d.cuMemAllocAsync(MIB, stream))
    assert (get(default, "USED_MEM_CURRENT"), get(pool, "USED_MEM_CURRENT")) == (MIB, 0)
    ok(d.cuDeviceSetMemPool(0, pool))
    q = ok(d.cuMemAllocAsync(3 * MIB, stream))
    assert (get(default, "USED_MEM_CURRENT"), get(pool, "USED_MEM_CURRENT")) == (MIB, 3 * MIB)
    # A pool that is destroyed lives on in its allocations, and no longer.
    ok(d.cuMemPoolDestroy(pool))
    assert int(ok(d.cuDeviceGetMemPool(0))) == int(default)
    assert error(d.cuMemPoolTrimTo(pool, 0)) == "INVALID_VALUE"
    ok(launch("fill", q, 1024, 8, stream=stream))
    sync()
    assert words(q, 1) == [8]
    ok(d.cuMemFreeAsync(p, stream))
    ok(d.cuMemFreeAsync(q, stream))
    sync()
    assert free() == before
    props.maxSize = 8 * MIB
    small = ok(d.cuMemPoolCreate(props))
    p = alloc(6 * MIB, small)
    assert error(d.cuMemAllocFromPoolAsync(3 * MIB, small, stream)) == "OUT_OF_MEMORY"
    # It outlives a context of its own, not the primary one.
    own = ok(d.cuCtxCreate(None, 0, 0))
    here = ok(d.cuStreamCreate(1))
    q = ok(d.cuMemAllocAsync(MIB, here))
    ok(d.cuMemsetD32Async(q, 6, 4, here))
    ok(d.cuStreamSynchronize(here))
    ok(d.cuCtxDestroy(own))
    assert words(q, 4) == [6] * 4
    ok(d.cuDevicePrimaryCtxReset(0))
    setup()
    assert free() == before
    assert get(small, "RESERVED_MEM_CURRENT") == 0
    access = d.CUmemAccessDesc()
    access.location = props.location
    access.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
    assert error(d.cuMemPoolSetAccess(small, [access], 1)) == "INVALID_VALUE"
    access.flags = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    ok(d.cuMemPoolSetAccess(small, [access], 1))
    assert int(ok(d.cuMemPoolGetAccess(small, props.location))) == 3
