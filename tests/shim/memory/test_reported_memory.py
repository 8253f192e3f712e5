"""One story of memory inside a job, and everything that takes device memory counted."""

from __future__ import annotations

from leased.api.client import ask
from tests.conftest import Start
from tests.slurm.leased import Leased
from tests.support.programs import SET_UP, line, output, tell
from tests.support.swap_programs import VMM

NVML = """
import pynvml as n
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(0)
def nvml():
    one = n.nvmlDeviceGetMemoryInfo(handle)
    two = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2)
    assert (one.free, one.total, one.used) == (two.free, two.total, two.used), (one, two)
    assert one.free + one.used == one.total
    return one.free, one.total
"""

SEES = "while n.nvmlDeviceGetMemoryInfo(handle).free != 48 << 20: pass"

PIECE = VMM + "PIECE = 32 << 20\n"


def test_nvml_says_what_the_driver_says(tenant: Start) -> None:
    code = (
        SET_UP
        + NVML
        + """
assert nvml() == ok(d.cuMemGetInfo())
p = ok(d.cuMemAlloc(64 << 20))
assert nvml() == ok(d.cuMemGetInfo())
ok(d.cuMemFree(p))
assert nvml() == ok(d.cuMemGetInfo())
assert nvml()[1] == ok(d.cuDeviceTotalMem(0))
"""
    )
    output(tenant(1, "", "-c", code))


def test_nvml_in_a_process_that_never_touches_cuda(tenant: Start) -> None:
    holder = tenant(
        1, "mem:64MiB", "-c", SET_UP + "ok(d.cuMemAlloc(16 << 20)); say('has')\ninput()"
    )
    assert line(holder) == "has"
    monitor = tenant(1, "mem:64MiB", "-c", NVML + SEES)
    output(monitor)
    tell(holder)
    output(holder)


def test_memory_that_the_program_maps_itself_is_counted_until_unmapped(tenant: Start) -> None:
    code = (
        SET_UP
        + PIECE
        + """
free, total = ok(d.cuMemGetInfo())
h = ok(d.cuMemCreate(PIECE, prop, 0))
assert ok(d.cuMemGetInfo())[0] == free - PIECE
a = ok(d.cuMemAddressReserve(2 * PIECE, 0, 0, 0))
ok(d.cuMemMap(a, PIECE, 0, h, 0))
ok(d.cuMemMap(int(a) + PIECE, PIECE, 0, h, 0))
ok(d.cuMemRelease(h))
assert ok(d.cuMemGetInfo())[0] == free - PIECE, "still mapped"
ok(d.cuMemUnmap(a, 2 * PIECE))
assert ok(d.cuMemGetInfo())[0] == free
more = (total // PIECE + 1) * PIECE
assert d.cuMemCreate(more, prop, 0)[0] == d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
"""
    )
    output(tenant(1, "", "-c", code))


def test_plain_memory_is_known_as_fixed(tenant: Start, leased: Leased) -> None:
    code = SET_UP + PIECE + "h = ok(d.cuMemCreate(PIECE, prop, 0)); say('has'); input()"
    job = tenant(1, "", "-c", code)
    assert line(job) == "has"
    while True:
        device = ask(leased.admin_socket, {"op": "status"})["devices"][0]
        if device["tenant_bytes"] == 32 << 20:
            break
    assert device["fits"]
    tell(job)
    output(job)


def test_pools_count_what_became_managed(tenant: Start) -> None:
    code = (
        SET_UP
        + """
MANAGED = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
names = ("USED_MEM_CURRENT", "RESERVED_MEM_CURRENT", "USED_MEM_HIGH", "RESERVED_MEM_HIGH")
def of(pool):
    kinds = [getattr(d.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{n}") for n in names]
    return [int(ok(d.cuMemPoolGetAttribute(pool, kind))) for kind in kinds]
free = ok(d.cuMemGetInfo())[0]
s = ok(d.cuStreamCreate(0))
pool = ok(d.cuDeviceGetMemPool(0))
props = d.CUmemPoolProps()
props.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
own = ok(d.cuMemPoolCreate(props))
for p, alloc in ((pool, lambda: d.cuMemAllocAsync(8 << 20, s)),
                 (own, lambda: d.cuMemAllocFromPoolAsync(8 << 20, own, s))):
    m = ok(alloc())
    assert ok(d.cuPointerGetAttribute(MANAGED, m))
    assert of(p) == [8 << 20] * 4, of(p)
    assert ok(d.cuMemGetInfo())[0] == free - (8 << 20)
    ok(d.cuMemFreeAsync(m, s)); ok(d.cuStreamSynchronize(s))
    assert of(p) == [0, 8 << 20, 8 << 20, 8 << 20]  # kept for the next one
    assert int(ok(alloc())) == int(m)
    assert of(p) == [8 << 20] * 4, of(p)
    ok(d.cuMemFreeAsync(m, s)); ok(d.cuStreamSynchronize(s))
    ok(d.cuMemPoolTrimTo(p, 0))
    assert of(p) == [0, 0, 8 << 20, 8 << 20]
    assert ok(d.cuMemGetInfo())[0] == free
# Without a threshold a pool does not keep much; what another allocation needs it gives back.
total = ok(d.cuMemGetInfo())[1]
big = ok(d.cuMemAllocAsync(total // 2, s)); ok(d.cuMemFreeAsync(big, s))
ok(d.cuMemFree(ok(d.cuMemAlloc(total))))
assert ok(d.cuMemGetInfo())[0] == total
# A block that another stream still uses is not given out.
t = ok(d.cuStreamCreate(1))
m = ok(d.cuMemAllocAsync(1 << 20, s))
ok(spin(200_000_000, s)); ok(d.cuMemFreeAsync(m, s))
assert int(ok(d.cuMemAllocAsync(1 << 20, t))) != int(m)
"""
    )
    output(tenant(1, "", "-c", code))


def test_arrays_are_counted(tenant: Start) -> None:
    code = (
        SET_UP
        + """
free = ok(d.cuMemGetInfo())[0]
shape = d.CUDA_ARRAY_DESCRIPTOR()
shape.Width, shape.Height, shape.NumChannels = 1024, 1024, 2
shape.Format = d.CUarray_format.CU_AD_FORMAT_FLOAT
a = ok(d.cuArrayCreate(shape))
assert ok(d.cuMemGetInfo())[0] == free - (8 << 20)
ok(d.cuArrayDestroy(a))
assert ok(d.cuMemGetInfo())[0] == free
"""
    )
    output(tenant(1, "", "-c", code))


def test_an_exported_allocation_fails_as_the_driver_says(tenant: Start) -> None:
    code = (
        SET_UP
        + """
p = ok(d.cuMemAlloc(1 << 20))
assert d.cuIpcGetMemHandle(p)[0] == d.CUresult.CUDA_ERROR_INVALID_VALUE
"""
    )
    output(tenant(1, "", "-c", code))


def test_a_context_that_ends_takes_its_memory_with_it(tenant: Start) -> None:
    code = (
        SET_UP
        + """
total = ok(d.cuMemGetInfo())[1]
s = ok(d.cuStreamCreate(0))
ok(d.cuMemAlloc(8 << 20)); m = ok(d.cuMemAllocAsync(4 << 20, s)); ok(d.cuMemFreeAsync(m, s))
ok(d.cuDevicePrimaryCtxReset(0))
ok(d.cuDevicePrimaryCtxRetain(0)); ok(d.cuCtxSetCurrent(ctx))
assert ok(d.cuMemGetInfo()) == (total, total)
"""
    )
    output(tenant(1, "", "-c", code))


def test_the_memory_of_contexts_is_measured(tenant: Start, leased: Leased) -> None:
    hold = SET_UP + "ok(d.cuMemGetInfo()); say('there'); input()"
    jobs = [tenant(n, "", "-c", hold) for n in (1, 2)]
    for job in jobs:
        assert line(job) == "there"

    def device() -> dict[str, int]:
        found: dict[str, int] = ask(leased.admin_socket, {"op": "status"})["devices"][0]
        return found

    # A MiB each, on this emulated GPU, as soon as they have said that they are there.
    for job in jobs:
        assert job.poll() is None
    while device()["overhead_bytes"] != 2 << 20:
        pass
    for job in jobs:
        tell(job)
        output(job)
