"""Memory that is freed in stream order: twice, in another context, after its pool is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon


@pytest.fixture(params=["managed", "swapped"])
def daemon(short_dir: Path, uuid: str, request: pytest.FixtureRequest) -> Iterator[FakeDaemon]:
    path, swaps = short_dir / "tenant.sock", request.param == "swapped"
    with FakeDaemon(path, {uuid: swap.TOTAL}, swaps=swaps) as fake:
        yield fake


SET_UP = """
def error(result): return result[0].name.removeprefix("CUDA_ERROR_")
def used(): free, total = ok(d.cuMemGetInfo()); return total - free
stream = ok(d.cuStreamCreate(1))
def take(size): return int(ok(d.cuMemAllocAsync(size, stream)))
def give(p): ok(d.cuMemFreeAsync(p, stream))
"""


@pytest.mark.usefixtures("daemon")
def test_freed_memory_cannot_be_freed_again(program: swap.Program) -> None:
    job = program(
        SET_UP
        + """
p = take(2 * MIB)
give(p)
assert error(d.cuMemFreeAsync(p, stream)) == "INVALID_VALUE"
assert error(d.cuMemFree(p)) == "INVALID_VALUE"
one, two = take(2 * MIB), take(2 * MIB)
assert one != two, "two allocations have one address"
fill(one, 2 * MIB, 1); fill(two, 2 * MIB, 2); ok(d.cuCtxSynchronize())
check_all(one, 2 * MIB, 1); check_all(two, 2 * MIB, 2)
give(one); ok(d.cuMemFree(two))
assert error(d.cuMemFree(two)) == "INVALID_VALUE"
ok(d.cuMemPoolTrimTo(ok(d.cuDeviceGetMemPool(0)), 0)); ok(d.cuStreamSynchronize(stream))
ok(d.cuMemPoolTrimTo(ok(d.cuDeviceGetMemPool(0)), 0))
assert used() == 0, used()
"""
    )
    swap.finish(job)


@pytest.mark.usefixtures("daemon")
def test_kept_memory_ends_with_the_context_that_it_was_made_in(program: swap.Program) -> None:
    """It was freed in another one, where the next allocation must not get it."""
    job = program(
        SET_UP
        + """
p = take(2 * MIB); ok(d.cuStreamSynchronize(stream))
ok(d.cuMemFree(take(4096)))
other = ok(d.cuCtxCreate(None, 0, 0))
q = ok(d.cuMemAllocAsync(3 * MIB, 0)); ok(d.cuCtxSynchronize())
ok(d.cuCtxSetCurrent(ctx))
give(q); ok(d.cuStreamSynchronize(stream))
ok(d.cuCtxDestroy(other))
again = take(3 * MIB)
ok(d.cuMemsetD8Async(again, 1, 3 * MIB, stream)); ok(d.cuStreamSynchronize(stream))
give(again); give(p)
"""
    )
    swap.finish(job)


@pytest.mark.usefixtures("daemon")
def test_memory_freed_in_a_context_is_free_when_the_context_ends(program: swap.Program) -> None:
    job = program(
        SET_UP
        + """
p = take(2 * MIB); ok(d.cuStreamSynchronize(stream))
other = ok(d.cuCtxCreate(None, 0, 0))
ok(d.cuMemFreeAsync(p, 0)); ok(d.cuCtxSynchronize())
ok(d.cuCtxDestroy(other)); ok(d.cuCtxSetCurrent(ctx))
assert used() == 0, used()
"""
    )
    swap.finish(job)


@pytest.mark.usefixtures("daemon")
def test_memory_outlives_its_pool(program: swap.Program) -> None:
    """Freed after the pool's end it is no debt of the next pool, which has the same handle."""
    job = program(
        SET_UP
        + """
props = d.CUmemPoolProps()
props.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
def attribute(pool, name):
    name = getattr(d.CUmemPool_attribute, "CU_MEMPOOL_ATTR_" + name)
    return int(ok(d.cuMemPoolGetAttribute(pool, name)))
pools = [ok(d.cuMemPoolCreate(props)) for _ in range(4)]
ps = [ok(d.cuMemAllocFromPoolAsync(2 * MIB, pool, stream)) for pool in pools for _ in range(2)]
ok(d.cuStreamSynchronize(stream))
for pool in pools: ok(d.cuMemPoolDestroy(pool))
new = [ok(d.cuMemPoolCreate(props)) for _ in range(4)]
for n, p in enumerate(ps): ok(d.cuMemFreeAsync(p, stream) if n % 2 else d.cuMemFree(p))
ok(d.cuStreamSynchronize(stream))
for pool in new:
    assert attribute(pool, "USED_MEM_CURRENT") == attribute(pool, "USED_MEM_HIGH") == 0
    assert attribute(pool, "RESERVED_MEM_CURRENT") == 0
    ok(d.cuMemFreeAsync(ok(d.cuMemAllocFromPoolAsync(2 * MIB, pool, stream)), stream))
    assert attribute(pool, "USED_MEM_HIGH") == 2 * MIB
"""
    )
    swap.finish(job)
