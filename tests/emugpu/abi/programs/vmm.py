"""Virtual memory management: physical memory, mapped where the program says."""

from __future__ import annotations

import os
from typing import Any

from tests.emugpu.program_api import MIB, d, error, launch, ok, setup, word, words

setup()
PAGE = 2 * MIB
prop = d.CUmemAllocationProp()
prop.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
prop.location.id = 0
F = d.CUmemAccess_flags
NONE, READ, BOTH = (
    getattr(F, "CU_MEM_ACCESS_FLAGS_PROT_" + f) for f in ("NONE", "READ", "READWRITE")
)


def create(size: Any = PAGE) -> Any:
    return ok(d.cuMemCreate(size, prop, 0))


def reserve(size: Any) -> Any:
    return int(ok(d.cuMemAddressReserve(size, 0, 0, 0)))


def allow(at: Any, size: Any, flags: Any = BOTH) -> Any:
    access = d.CUmemAccessDesc()
    access.location = prop.location
    access.flags = flags
    return d.cuMemSetAccess(at, size, [access], 1)


def put(at: Any, handle: Any, size: Any = PAGE, offset: Any = 0) -> None:
    ok(d.cuMemMap(at, size, offset, handle, 0))
    ok(allow(at, size))


def free() -> Any:
    return ok(d.cuMemGetInfo())[0]


def test_handles_side_by_side_are_one_range() -> None:
    granularity = d.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    assert ok(d.cuMemGetAllocationGranularity(prop, granularity)) == PAGE
    before = free()
    at = reserve(8 * PAGE)
    assert at % PAGE == 0
    assert free() == before
    sizes = [PAGE, 3 * PAGE, 2 * PAGE]
    handles = [create(size) for size in sizes]
    assert free() == before - sum(sizes)
    end = at
    for handle, size in zip(handles, sizes):
        put(end, handle, size)
        end += size
    n = sum(sizes) // 4
    ok(launch("fill", at, n, 5))
    ok(launch("add", at, n, 1, 2))
    out = ok(d.cuMemAlloc(8))
    ok(d.cuMemsetD8(out, 0, 8))
    ok(launch("checksum", at, n, out))
    have = words(at, n)
    assert have == [(word(5, i) + 2) % 2**32 for i in range(n)]
    low, high = words(out, 2)
    assert low + (high << 32) == sum(w * (i % 65521 + 1) for i, w in enumerate(have)) % 2**64
    # Copies and sets cross the seams, too, and end where the mappings end.
    seam = at + PAGE - 6
    data = os.urandom(PAGE)
    ok(d.cuMemcpyHtoD(seam, data, len(data)))
    plain = ok(d.cuMemAlloc(PAGE))
    ok(d.cuMemcpyDtoD(plain, seam, PAGE))
    back = bytearray(PAGE)
    ok(d.cuMemcpyDtoH(back, plain, PAGE))
    assert back == data
    ok(d.cuMemsetD8(seam, 7, 12))
    assert words(seam, 3) == [0x07070707] * 3
    assert error(d.cuMemcpyDtoH(back, end - 8, 16)) == "INVALID_VALUE"
    assert error(d.cuMemsetD8(end - 8, 0, 9)) == "INVALID_VALUE"


def test_physical_memory_lives_by_its_handles_and_mappings() -> None:
    before = free()
    at = reserve(4 * PAGE)
    handle = create(2 * PAGE)
    put(at, handle, 2 * PAGE)
    ok(launch("fill", at, 1024, 1))
    ok(d.cuCtxSynchronize())
    ok(d.cuMemRelease(handle))
    assert free() == before - 2 * PAGE  # the mapping holds it
    again = ok(d.cuMemRetainAllocationHandle(at + 4096))  # and finds it
    assert int(again) == int(handle)
    ok(d.cuMemUnmap(at, 2 * PAGE))
    assert free() == before - 2 * PAGE  # the handle holds it
    put(at + PAGE, again, 2 * PAGE)
    assert words(at + PAGE, 2) == [word(1, 0), word(1, 1)]  # with its bytes, elsewhere
    ok(d.cuMemUnmap(at + PAGE, 2 * PAGE))
    ok(d.cuMemRelease(again))
    assert free() == before
    assert error(d.cuMemRelease(again)) == "INVALID_VALUE"
    ok(d.cuMemAddressFree(at, 4 * PAGE))
    # A context's end takes nothing of it along.
    own = ok(d.cuCtxCreate(None, 0, 0))
    handle = create()
    at = reserve(PAGE)
    put(at, handle)
    ok(d.cuMemsetD32(at, 6, 2))
    ok(d.cuCtxDestroy(own))
    assert free() == before - PAGE
    assert words(at, 2) == [6, 6]


def test_one_handle_at_several_addresses_and_offsets() -> None:
    at = reserve(8 * PAGE)
    handle = create(3 * PAGE)
    put(at, handle, 3 * PAGE)
    put(at + 4 * PAGE, handle, 2 * PAGE, PAGE)  # its last two pages once more
    put(at + 6 * PAGE, handle, PAGE)  # and behind them its first
    ok(launch("fill", at, 3 * PAGE // 4, 3))
    page = PAGE // 4
    assert words(at + 4 * PAGE, 2) == [word(3, page), word(3, page + 1)]
    assert words(at + 6 * PAGE - 4, 2) == [word(3, 3 * page - 1), word(3, 0)]
    ok(d.cuMemsetD32(at + 5 * PAGE, 9, 1))
    assert words(at + 2 * PAGE, 1) == [9]


def test_unmapped_and_forbidden_memory_is_out_of_reach() -> None:
    at = reserve(4 * PAGE)
    host = bytearray(16)

    def copies(where: Any) -> Any:
        return [
            error(d.cuMemcpyHtoD(where, bytes(16), 16)),
            error(d.cuMemcpyDtoH(host, where, 16)),
            error(d.cuMemsetD8(where, 0, 16)),
        ]

    assert copies(at) == ["INVALID_VALUE"] * 3
    handle = create()
    ok(d.cuMemMap(at, PAGE, 0, handle, 0))
    assert copies(at) == ["INVALID_VALUE"] * 3  # mapped, but nobody may use it
    assert ok(d.cuMemGetAccess(prop.location, at)) == 0
    ok(allow(at, PAGE, READ))
    assert copies(at) == ["INVALID_VALUE", "CUDA_SUCCESS", "INVALID_VALUE"]
    assert ok(d.cuMemGetAccess(prop.location, at)) == 1
    ok(allow(at, PAGE))
    assert ok(d.cuMemGetAccess(prop.location, at)) == 3
    ok(launch("fill", at, PAGE // 4, 1))
    ok(d.cuCtxSynchronize())  # all of what is mapped
    ok(launch("fill", at, PAGE // 4 + 1, 1))  # a word more
    assert error(d.cuCtxSynchronize()) == error(d.cuMemAlloc(1)) == "ILLEGAL_ADDRESS"


def test_a_write_to_read_only_memory_is_a_fault() -> None:
    at = reserve(PAGE)
    put(at, create())
    out = ok(d.cuMemAlloc(8))
    ok(allow(at, PAGE, READ))
    ok(launch("checksum", at, 1024, out))
    ok(d.cuCtxSynchronize())
    ok(launch("add", at, 1024, 1, 1))
    assert error(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"


def test_misuse_is_refused_and_harms_nothing() -> None:
    before = free()
    at = reserve(4 * PAGE)
    handle = create(2 * PAGE)
    other = int(ok(d.cuMemAlloc(4 * PAGE)))
    bad: Any
    for bad in (
        lambda: d.cuMemCreate(PAGE + 4096, prop, 0),
        lambda: d.cuMemCreate(0, prop, 0),
        lambda: d.cuMemAddressReserve(4096, 0, 0, 0),
        lambda: d.cuMemAddressReserve(PAGE, 3, 0, 0),
        lambda: d.cuMemMap(at, 3 * PAGE, 0, handle, 0),  # more than it has
        lambda: d.cuMemMap(at, 2 * PAGE, PAGE, handle, 0),
        lambda: d.cuMemMap(at + 4096, PAGE, 0, handle, 0),
        lambda: d.cuMemMap(at + 3 * PAGE, 2 * PAGE, 0, handle, 0),
        lambda: d.cuMemMap(other, PAGE, 0, handle, 0),  # not reserved
        lambda: d.cuMemMap(at, PAGE, 0, 123456789, 0),
        lambda: d.cuMemUnmap(at, PAGE),
        lambda: allow(at, PAGE),
        lambda: d.cuMemAddressFree(at, PAGE),
        lambda: d.cuMemRetainAllocationHandle(other),
        lambda: d.cuMemGetAllocationPropertiesFromHandle(123456789),
    ):
        assert error(bad()) == "INVALID_VALUE"
    put(at, handle, 2 * PAGE)
    for bad in (
        lambda: d.cuMemMap(at + PAGE, PAGE, 0, handle, 0),  # there is something
        lambda: d.cuMemUnmap(at, PAGE),
        lambda: allow(at + PAGE, PAGE),
        lambda: d.cuMemUnmap(at, 3 * PAGE),
        lambda: d.cuMemAddressFree(at, 4 * PAGE),
        lambda: d.cuMemFree(at),
        lambda: d.cuMemFreeAsync(at, 0),
        lambda: d.cuIpcGetMemHandle(at),
    ):
        assert error(bad()) == "INVALID_VALUE"
    back = ok(d.cuMemGetAllocationPropertiesFromHandle(handle))
    assert (back.type, back.location.type, back.location.id) == (prop.type, prop.location.type, 0)
    base, size = ok(d.cuMemGetAddressRange(at + PAGE))
    assert (int(base), size) == (at, 2 * PAGE)
    prop.location.id = 7
    assert error(d.cuMemCreate(PAGE, prop, 0)) == "INVALID_DEVICE"
    prop.location.id = 0
    assert error(d.cuMemCreate(1024 * MIB, prop, 0)) == "OUT_OF_MEMORY"
    assert error(d.cuMemAddressReserve(2**46, 0, 0, 0)) == "OUT_OF_MEMORY"
    assert reserve(2**40)
    assert reserve(2**40)
    ok(launch("fill", at, 1024, 2))
    assert words(at, 1) == [2]
    ok(d.cuMemFree(other))
    ok(d.cuMemUnmap(at, 2 * PAGE))
    ok(d.cuMemRelease(handle))
    assert free() == before


def test_physical_memory_is_plain_memory() -> None:
    m = ok(d.cuMemAllocManaged(200 * MIB, 1))
    ok(launch("fill", m, 50 * MIB, 3))
    ok(d.cuCtxSynchronize())
    at = reserve(160 * MIB)
    put(at, create(160 * MIB), 160 * MIB)  # pushes managed memory out
    ok(launch("fill", at, 40 * MIB, 4))
    ok(launch("add", m, 50 * MIB, 1, 1))  # which cannot push it back
    assert words(m, 2) == [word(4, 0), word(4, 1)]
    assert words(at, 2) == [word(4, 0), word(4, 1)]
    assert error(d.cuMemCreate(160 * MIB, prop, 0)) == "OUT_OF_MEMORY"


def test_unmapping_under_a_kernel_leaves_other_memory_alone() -> None:
    at = reserve(64 * MIB)
    handle = create(64 * MIB)
    put(at, handle, 64 * MIB)
    stream = ok(d.cuStreamCreate(1))
    ok(launch("add", at, 16 * MIB, 1, 1, stream=stream))
    ok(d.cuMemUnmap(at, 64 * MIB))
    ok(d.cuMemRelease(handle))  # the driver waits for nobody
    at = reserve(64 * MIB)
    handle = create(64 * MIB)
    put(at, handle, 64 * MIB)
    ended = error(d.cuStreamSynchronize(stream))
    assert ended in ("CUDA_SUCCESS", "ILLEGAL_ADDRESS")
    if ended == "CUDA_SUCCESS":
        assert set(words(at, MIB)) == {0}


def test_a_file_stands_for_physical_memory_of_the_process() -> None:
    plain = create()
    kind = file_handles()
    assert error(d.cuMemExportToShareableHandle(plain, kind, 0)) == "INVALID_VALUE"
    before, handle = free(), create()
    assert ok(d.cuMemGetAllocationPropertiesFromHandle(handle)).requestedHandleTypes == kind
    file = ok(d.cuMemExportToShareableHandle(handle, kind, 0))
    twin = ok(d.cuMemImportFromShareableHandle(file, kind))
    one, other = reserve(PAGE), reserve(PAGE)
    put(one, handle)
    put(other, twin)
    ok(launch("fill", one, PAGE // 4, 5))
    assert words(other, 3) == [word(5, i) for i in range(3)]
    for at in (one, other):
        ok(d.cuMemUnmap(at, PAGE))
    ok(d.cuMemRelease(handle))
    assert free() == before - PAGE
    ok(d.cuMemRelease(twin))
    assert free() == before - PAGE  # the file keeps it
    again = ok(d.cuMemImportFromShareableHandle(file, kind))
    put(one, again)
    os.close(file)
    assert words(one, 3) == [word(5, i) for i in range(3)]
    ok(d.cuMemUnmap(one, PAGE))
    assert free() == before - PAGE  # its handle keeps it
    ok(d.cuMemRelease(again))
    assert free() == before
    assert error(d.cuMemImportFromShareableHandle(0, kind)) == "INVALID_VALUE"


def file_handles() -> Any:
    """What is created from now on can be exported as a file; the kind of its handles."""
    file = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    prop.requestedHandleTypes = file
    return file
