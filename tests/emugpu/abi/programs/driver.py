"""Details of the emulated driver through cuda-bindings: copies, order, faults, contexts."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from tests.emugpu.program_api import (
    MIB,
    d,
    error,
    functions,
    launch,
    ok,
    say,
    setup,
    wait,
    word,
    words,
)

HOST_FUNCTION: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def test_parameters_packed_in_a_buffer() -> None:
    import struct

    setup()
    p = ok(d.cuMemAlloc(4096))
    packed = ctypes.create_string_buffer(struct.pack("<QQI", int(p), 1024, 9))
    size = ctypes.c_size_t(20)
    extra = (ctypes.c_void_p * 5)(
        1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0
    )  # POINTER, SIZE, END
    ok(d.cuLaunchKernel(functions["fill"], 1, 1, 1, 1, 1, 1, 0, 0, 0, ctypes.addressof(extra)))
    assert words(p, 1024) == [word(9, i) for i in range(1024)]


def test_copies_and_sets_in_every_direction() -> None:
    setup()
    n = 3 * MIB + 5
    data = os.urandom(n)
    a, b = ok(d.cuMemAlloc(n)), ok(d.cuMemAllocManaged(n, 1))
    host = bytearray(n)
    ok(d.cuMemcpyHtoD(a, data, n))
    ok(d.cuMemcpyDtoD(b, a, n))
    ok(d.cuMemcpyDtoH(host, b, n))
    assert host == data
    ok(d.cuMemsetD32(a, 0x01020304, 2))
    ok(d.cuMemsetD16(int(a) + 8, 0x0506, 1))
    ok(d.cuMemsetD8(int(a) + 10, 7, 1))
    ok(d.cuMemcpyDtoH(host, a, 12))
    assert host[:12] == bytes([4, 3, 2, 1] * 2 + [6, 5, 7]) + data[11:12]
    stream = ok(d.cuStreamCreate(0))
    ok(d.cuMemcpyHtoDAsync(b, data[::-1], n, stream))
    ok(d.cuMemcpyDtoHAsync(host, b, n, stream))
    ok(d.cuStreamSynchronize(stream))
    assert host == data[::-1]
    ok(d.cuMemcpy(a, b, n))  # unified addresses: which side is which is in the pointer
    ok(d.cuMemcpyDtoH(host, a, n))
    assert host == data[::-1]


def test_out_of_memory_is_honest_and_not_sticky() -> None:
    setup()
    free, total = ok(d.cuMemGetInfo())
    assert free < total == 256 * MIB  # the context takes some
    p = ok(d.cuMemAlloc(free - 8 * MIB))
    assert ok(d.cuMemGetInfo())[0] == 8 * MIB
    assert error(d.cuMemAlloc(16 * MIB)) == "OUT_OF_MEMORY"
    assert ok(d.cuMemGetInfo())[0] == 8 * MIB  # a failed one took nothing
    ok(d.cuMemFree(p))
    assert ok(d.cuMemGetInfo())[0] == free
    ok(d.cuMemAllocManaged(2 * total, 1))  # takes room when it is touched
    assert ok(d.cuMemGetInfo())[0] == free
    assert error(d.cuMemAlloc(0)) == "INVALID_VALUE"
    rows, pitch = ok(d.cuMemAllocPitch(7, 5, 4))
    assert pitch % 512 == 0
    ok(d.cuMemFree(rows))
    assert error(d.cuMemAlloc(2**63)) == "OUT_OF_MEMORY"


def test_bad_calls_get_an_error_of_the_call_alone() -> None:
    assert error(d.cuDeviceGetCount()) == "NOT_INITIALIZED"
    ok(d.cuInit(0))
    assert error(d.cuMemAlloc(4096)) == "INVALID_CONTEXT"
    assert error(d.cuDeviceGet(ok(d.cuDeviceGetCount()))) == "INVALID_DEVICE"
    setup()
    p = ok(d.cuMemAlloc(4096))
    assert error(d.cuMemFree(int(p) + 512)) == "INVALID_VALUE"
    assert error(d.cuMemFreeAsync(int(p) + 512, 0)) == "INVALID_VALUE"
    assert error(d.cuMemsetD8(p, 0, 4097)) == "INVALID_VALUE"
    assert error(d.cuMemcpyDtoD(p, p, 2**64 - 1)) == "INVALID_VALUE"
    assert error(d.cuMemPrefetchAsync(p, 4096, d.CUmemLocation(), 0, 0)) == "INVALID_VALUE"
    assert error(d.cuIpcGetMemHandle(ok(d.cuMemAllocManaged(4096, 1)))) == "INVALID_VALUE"
    assert error(launch("fill", p, 1, 1, grid=0)) == "INVALID_VALUE"
    assert error(launch("fill", p, 1, 1, block=2048)) == "INVALID_VALUE"
    assert error(d.cuModuleLoadData(b"no ptx\0")) == "INVALID_IMAGE"
    ok(launch("fill", p, 1024, 3))
    assert words(p, 1) == [3]  # nothing of all that stuck
    ok(d.cuMemFree(p))
    assert error(d.cuMemFree(p)) == "INVALID_VALUE"


def test_streams_and_events_keep_order() -> None:
    setup()
    n = 1024
    p = ok(d.cuMemAlloc(4 * n))
    a, b = (ok(d.cuStreamCreate(1)) for _ in range(2))  # non-blocking
    begin, end = (ok(d.cuEventCreate(0)) for _ in range(2))
    ok(d.cuEventRecord(begin, a))
    ok(launch("spin", 20_000_000, stream=a))
    ok(launch("fill", p, n, 1, stream=a))
    ok(d.cuEventRecord(end, a))
    assert error(d.cuEventQuery(end)) == error(d.cuStreamQuery(a)) == "NOT_READY"
    assert error(d.cuStreamQuery(b)) == "CUDA_SUCCESS"
    ok(d.cuStreamWaitEvent(b, end, 0))
    ok(launch("add", p, n, 10, 1, stream=b))  # after the fill, or it would be lost
    ok(d.cuStreamSynchronize(b))
    assert error(d.cuEventQuery(end)) == error(d.cuStreamQuery(a)) == "CUDA_SUCCESS"
    assert words(p, 2) == [11, word(11, 1)]
    assert ok(d.cuEventElapsedTime(begin, end)) >= 20
    # The legacy default stream waits for blocking streams, and they for it.
    c = ok(d.cuStreamCreate(0))
    ok(launch("spin", 5_000_000, stream=c))
    ok(launch("fill", p, n, 2, stream=c))
    ok(launch("add", p, n, 1, 1))
    ok(launch("add", p, n, 1, 1, stream=c))
    ok(d.cuCtxSynchronize())
    assert words(p, 1) == [4]


def test_an_event_of_the_context_covers_every_stream() -> None:
    context = setup()
    streams = [ok(d.cuStreamCreate(1)) for _ in range(3)]
    other, flag = ok(d.cuStreamCreate(1)), ok(d.cuMemAlloc(4))
    ok(d.cuMemsetD32(flag, 0, 1))
    for stream in streams:
        ok(d.cuStreamWaitValue32(stream, flag, 1, 0))
        ok(launch("spin", 1000, stream=stream))
    event = ok(d.cuEventCreate(0))
    ok(d.cuCtxRecordEvent(context, event))
    assert error(d.cuEventQuery(event)) == "NOT_READY"
    ok(d.cuStreamWriteValue32(other, flag, 1, 0))
    ok(d.cuEventSynchronize(event))
    assert [error(d.cuStreamQuery(s)) for s in streams] == ["CUDA_SUCCESS"] * 3


def test_host_functions_run_in_stream_order() -> None:
    setup()
    stream = ok(d.cuStreamCreate(1))
    done = ok(d.cuEventCreate(0))
    seen = []

    record = HOST_FUNCTION(lambda data: seen.append((data, error(d.cuEventQuery(done)))))
    ok(launch("spin", 5_000_000, stream=stream))
    ok(d.cuEventRecord(done, stream))
    address = ctypes.cast(record, ctypes.c_void_p).value
    ok(d.cuLaunchHostFunc(stream, d.CUhostFn(address), 42))
    ok(d.cuStreamSynchronize(stream))
    assert seen == [(42, "CUDA_SUCCESS")]


def test_ordered_allocations() -> None:
    setup()
    stream = ok(d.cuStreamCreate(0))
    free = ok(d.cuMemGetInfo())[0]
    p = ok(d.cuMemAllocAsync(32 * MIB, stream))
    ok(launch("spin", 5_000_000, stream=stream))
    ok(launch("fill", p, 8 * MIB, 1, stream=stream))
    ok(d.cuMemFreeAsync(p, stream))
    ok(d.cuStreamSynchronize(stream))  # not freed under the kernel: that would be a bad address
    assert ok(d.cuMemGetInfo())[0] == free


def test_contexts_of_one_process() -> None:
    primary = setup()
    free = ok(d.cuMemGetInfo())[0]
    own = ok(d.cuCtxCreate(None, 0, 0))
    assert int(ok(d.cuCtxGetCurrent())) == int(own) != int(primary)
    ok(d.cuStreamCreate(0))
    ok(d.cuMemAlloc(8 * MIB))
    assert ok(d.cuMemGetInfo())[0] < free - 8 * MIB  # a context takes memory too
    ok(d.cuCtxDestroy(own))
    assert int(ok(d.cuCtxGetCurrent())) == int(primary)
    assert ok(d.cuMemGetInfo())[0] == free
    ok(d.cuDevicePrimaryCtxReset(0))
    assert error(d.cuMemAlloc(1)) == "CONTEXT_IS_DESTROYED"
    assert int(ok(d.cuCtxGetCurrent())) == int(primary)


def test_a_forked_child_may_not_use_its_parents_driver() -> None:
    setup()
    p = ok(d.cuMemAlloc(4096))
    child = os.fork()
    if not child:
        os._exit(error(d.cuMemAlloc(4096)) != "NOT_INITIALIZED")
    assert os.waitpid(child, 0)[1] == 0
    ok(launch("fill", p, 1024, 1))
    assert words(p, 1) == [1]  # and the parent goes on


def test_pools() -> None:
    setup()
    default = ok(d.cuDeviceGetDefaultMemPool(0))
    properties = d.CUmemPoolProps()
    properties.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    pool = ok(d.cuMemPoolCreate(properties))
    ok(d.cuDeviceSetMemPool(0, pool))
    assert int(ok(d.cuDeviceGetMemPool(0))) == int(pool) != int(default)
    p = ok(d.cuMemAllocFromPoolAsync(4096, pool, 0))
    ok(launch("fill", p, 1024, 6))
    assert words(p, 1) == [6]
    ok(d.cuMemFreeAsync(p, 0))
    ok(d.cuMemPoolDestroy(pool))
    assert int(ok(d.cuDeviceGetMemPool(0))) == int(default)
    assert error(d.cuMemPoolDestroy(default)) == "INVALID_VALUE"


def test_attributes_of_a_pointer() -> None:
    setup()
    A = d.CUpointer_attribute
    KIND, MANAGED = A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, A.CU_POINTER_ATTRIBUTE_IS_MANAGED
    p, m = ok(d.cuMemAlloc(5 * MIB)), ok(d.cuMemAllocManaged(4096, 1))
    host = ok(d.cuMemHostAlloc(4096, 0))
    assert [ok(d.cuPointerGetAttribute(KIND, x)) for x in (p, m, host)] == [2, 2, 1]
    assert [bool(ok(d.cuPointerGetAttribute(MANAGED, x))) for x in (p, m)] == [False, True]
    base, size = ok(d.cuMemGetAddressRange(int(p) + 3 * MIB))
    assert (int(base), size) == (int(p), 5 * MIB)
    assert int(ok(d.cuMemHostGetDevicePointer(host, 0))) == int(host)
    assert error(d.cuPointerGetAttribute(KIND, 12345)) == "INVALID_VALUE"
    assert ok(d.cuPointerGetAttributes(2, [MANAGED, KIND], m)) == [1, 2]
    assert ok(d.cuPointerGetAttributes(2, [MANAGED, KIND], 12345)) == [0, 0]
    ok(d.cuMemFreeHost(host))
    assert error(d.cuMemHostGetDevicePointer(host, 0)) == "INVALID_VALUE"


def test_a_handle_that_is_gone_is_refused() -> None:
    setup()
    stream = ok(d.cuStreamCreate(0))
    ok(d.cuStreamDestroy(stream))
    assert error(launch("empty", stream=stream)) == "INVALID_HANDLE"
    own = ok(d.cuCtxCreate(None, 0, 0))
    stream = ok(d.cuStreamCreate(0))
    ok(d.cuCtxDestroy(own))
    assert error(d.cuStreamSynchronize(stream)) == "INVALID_HANDLE"
    assert error(d.cuCtxDestroy(own)) == error(d.cuCtxPushCurrent(own)) == "INVALID_CONTEXT"


def test_kernels_compute_what_the_ptx_does() -> None:
    setup()
    n = 300_001  # several blocks, and not a whole number of them
    p, out = ok(d.cuMemAlloc(4 * n)), ok(d.cuMemAlloc(8))
    want = [(word(7, i) + 15) % 2**32 for i in range(n)]
    for grid, block in ((1, 1), (7, 33)):
        ok(d.cuMemsetD8(p, 0, 4 * n))
        ok(d.cuMemsetD8(out, 0, 8))
        ok(launch("fill", p, n, 7, grid=grid, block=block))
        ok(launch("add", p, n, 5, 3, grid=grid, block=block))
        ok(launch("checksum", p, n, out, grid=grid, block=block))
        assert words(p, n) == want
        low, high = words(out, 2)
        assert low + (high << 32) == sum(w * (i % 65521 + 1) for i, w in enumerate(want)) % 2**64


def fill_in_time() -> None:
    """It goes on although another process has faulted meanwhile."""
    setup()
    p = ok(d.cuMemAlloc(4096))
    say("up")
    wait()
    ok(launch("fill", p, 1024, 1))
    assert words(p, 1) == [1]
    say("fine")


def fault_for_good() -> None:
    """Every call says so from then on."""
    setup()
    p = ok(d.cuMemAlloc(4096))
    ok(launch("fill", p, 1 << 26, 1))  # far over its end
    for call in (
        d.cuCtxSynchronize,
        lambda: d.cuMemAlloc(1),
        lambda: launch("empty"),
        lambda: d.cuMemcpyDtoH(bytearray(4), p, 4),
        lambda: d.cuStreamSynchronize(0),
    ):
        assert error(call()) == "ILLEGAL_ADDRESS"
    assert ok(d.cuCtxGetDevice()) is not None


def test_what_was_done_last_to_whole_blocks_is_read_and_new_memory_has_zeros() -> None:
    setup()
    n = MIB // 4
    p = ok(d.cuMemAlloc(MIB))
    ok(d.cuMemsetD32(p, 7, n))
    ok(launch("add", p, n, 1, 2))
    assert set(words(p, n)) == {9}
    ok(d.cuMemsetD32(p, 7, n))
    ok(d.cuMemsetD32(int(p) + 4, 3, 1))
    assert words(p, 3) == [7, 3, 7]
    ok(d.cuMemsetD32(p, 7, n))
    ok(d.cuMemcpyHtoD(p, bytes(range(256)) * (MIB // 256), MIB))
    ok(launch("add", p, n, 1, 1))
    assert words(p, 2) == [0x03020101, 0x07060505]
    ok(d.cuMemFree(p))
    for _ in range(2):
        p = ok(d.cuMemAlloc(MIB))
        assert not any(words(p, n))
        ok(d.cuMemsetD32(p, 7, n))
        assert words(p, 1) == [7]
        ok(d.cuMemFree(p))
