"""Batches of copies and prefetches, copies between contexts and devices, and callbacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emugpu.programs import run
from tests.emugpu.server import EmulatedGpu

BATCH = """
setup()
O = d.CUmemcpySrcAccessOrder
stream = ok(d.cuStreamCreate(1))
def attributes(order=O.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM):
    a = d.CUmemcpyAttributes(); a.srcAccessOrder = order
    return a
data = os.urandom(8192)
source = ctypes.create_string_buffer(data, 8192)
back = ctypes.create_string_buffer(8192)
src, dst = ctypes.addressof(source), ctypes.addressof(back)
p = int(ok(d.cuMemAlloc(8192))); q = int(ok(d.cuMemAllocManaged(8192, 1)))
"""


def test_batches_of_copies(emulated_gpu: EmulatedGpu) -> None:
    run(
        emulated_gpu,
        BATCH
        + """
def batch(to, from_, sizes, attrs=None, indices=(0,), on=None):
    attrs = [attributes()] if attrs is None else attrs
    to, from_ = ([d.CUdeviceptr(int(at)) for at in side] for side in (to, from_))
    return d.cuMemcpyBatchAsync(to, from_, sizes, len(sizes), attrs, list(indices), len(attrs),
                                stream if on is None else on)
ok(batch([p, p + 4096, q], [src, src + 4096, src + 100], [4096, 4096, 50],
         [attributes(), attributes(O.CU_MEMCPY_SRC_ACCESS_ORDER_ANY)], (0, 2)))
ok(batch([q + 4096, dst], [p, p + 4090], [4096, 4000]))
ok(batch([dst + 4096, dst + 8000], [q + 4096, q], [3904, 50]))
ok(d.cuStreamSynchronize(stream))
assert back.raw[:4000] == data[4090:8090]
assert back.raw[4096:8000] == data[:3904] and back.raw[8000:8050] == data[100:150]
bad = attributes(); bad.srcAccessOrder = O.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
for refused in (batch([p], [src], [4], on=0), batch([p], [src], [4], [bad]),
                batch([p], [src], [4], indices=(1,)), batch([p], [src], [4], [], ()),
                batch([p, p], [src, src], [4, 4], [attributes()] * 2, (0, 2)),
                batch([p], [src], [8193])):
    assert error(refused) == "INVALID_VALUE"
# The oldest form says which copy was at fault.
lib = ctypes.CDLL("libcuda.so.1")
U64 = ctypes.c_uint64
to, from_, sizes = (U64 * 2)(p, p), (U64 * 2)(src, src), (U64 * 2)(4, 8193)
failed, index = U64(), U64(0)
attrs = attributes()
assert lib.cuMemcpyBatchAsync(to, from_, sizes, U64(2), ctypes.c_void_p(attrs.getPtr()),
    ctypes.byref(index), U64(1), ctypes.byref(failed), ctypes.c_void_p(int(stream))) == 1
assert failed.value == 1
ok(d.cuMemcpyWithAttributesAsync(p, src + 512, 512, attributes(), stream))
ok(d.cuMemcpyWithAttributesAsync(dst, p, 512, attributes(), stream))
ok(d.cuStreamSynchronize(stream)); assert back.raw[:512] == data[512:1024]
""",
    )


def test_batches_of_boxes(emulated_gpu: EmulatedGpu) -> None:
    run(
        emulated_gpu,
        BATCH
        + """
T = d.CUmemcpy3DOperandType
def pointer(at, row=0, rows=0):
    o = d.CUmemcpy3DOperand(); o.type = T.CU_MEMCPY_OPERAND_TYPE_POINTER
    o.op.ptr.ptr, o.op.ptr.rowLength, o.op.ptr.layerHeight = at, row, rows
    return o
def in_array(array, x=0, y=0, z=0):
    o = d.CUmemcpy3DOperand(); o.type = T.CU_MEMCPY_OPERAND_TYPE_ARRAY
    o.op.array.array = array
    o.op.array.offset.x, o.op.array.offset.y, o.op.array.offset.z = x, y, z
    return o
def box(to, from_, w, h, n):
    o = d.CUDA_MEMCPY3D_BATCH_OP()
    o.dst, o.src = to, from_
    o.extent.width, o.extent.height, o.extent.depth = w, h, n
    o.srcAccessOrder = O.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    return o
desc = d.CUDA_ARRAY3D_DESCRIPTOR()
desc.Width, desc.Height, desc.Depth, desc.NumChannels = 8, 4, 2, 2
desc.Format = d.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT16
a = ok(d.cuArray3DCreate(desc))  # elements of 4 bytes
ok(d.cuMemcpy3DBatchAsync(2, [box(pointer(p), pointer(src, 100, 3), 50, 2, 2),
                              box(in_array(a), pointer(src), 8, 4, 2)], 0, stream))
ok(d.cuMemcpy3DBatchAsync(1, [box(pointer(dst), pointer(p), 200, 1, 1)], 0, stream))
ok(d.cuMemcpy3DBatchAsync(1, [box(pointer(dst + 1024, 3, 2), in_array(a, 5, 1, 1), 3, 2, 1)], 0,
                          stream))
ok(d.cuMemcpy3DWithAttributesAsync(box(pointer(dst + 2048), in_array(a, 0, 0, 1), 8, 4, 1), 0,
                                   stream))
ok(d.cuStreamSynchronize(stream))
rows = [data[at:at + 50] for at in (0, 100, 300, 400)]
assert back.raw[:200] == b"".join(rows)
at = 4 * ((1 * 4 + 1) * 8 + 5)
assert back.raw[1024:1048] == data[at:at + 12] + data[at + 32:at + 44]
assert back.raw[2048:2048 + 128] == data[128:256]
for bad in (box(in_array(a), pointer(src), 9, 1, 1), box(pointer(p), pointer(src), 0, 1, 1),
            box(pointer(p, 5), pointer(src), 6, 1, 1)):
    assert error(d.cuMemcpy3DBatchAsync(1, [bad], 0, stream)) == "INVALID_VALUE"
""",
    )


def test_batches_of_prefetches(emulated_gpu: EmulatedGpu) -> None:
    out = run(
        emulated_gpu,
        """
setup()
n = 16 * MIB
a, b = (int(ok(d.cuMemAllocManaged(n, 1))) for _ in range(2))
stream = ok(d.cuStreamCreate(1))
host, device = d.CUmemLocation(), d.CUmemLocation()
host.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_HOST
device.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
for m in (a, b):
    ok(launch("fill", m, n // 4, 7, stream=stream))
free = ok(d.cuMemGetInfo())[0]
def prefetch(pointers, sizes, places, indices, on=stream):
    pointers = [d.CUdeviceptr(int(at)) for at in pointers]
    return d.cuMemPrefetchBatchAsync(pointers, sizes, len(sizes), places, indices, len(places), 0,
                                     on)
ok(d.cuStreamSynchronize(stream))
free = ok(d.cuMemGetInfo())[0]
ok(prefetch([a, b], [n, n], [host], [0])); ok(d.cuStreamSynchronize(stream))
assert ok(d.cuMemGetInfo())[0] == free + 2 * n
ok(prefetch([a, b, b + n // 2], [n, n // 2, n // 2], [device, host], [0, 1]))
ok(d.cuStreamSynchronize(stream))
assert ok(d.cuMemGetInfo())[0] == free + n   # a came back, b stayed away
assert words(a, 2) == words(b, 2) == [word(7, 0), word(7, 1)]
assert error(prefetch([a], [n], [host], [0], on=0)) == "INVALID_VALUE"
assert error(prefetch([a, b], [n, n], [host, host], [0, 0])) == "INVALID_VALUE"
assert error(prefetch([ok(d.cuMemAlloc(64))], [64], [host], [0])) == "INVALID_VALUE"
ok(d.cuStreamAttachMemAsync(stream, a, 0, 1))
assert error(d.cuStreamAttachMemAsync(stream, ok(d.cuMemAlloc(64)), 0, 1)) == "INVALID_VALUE"
say(os.getpid())
""",
    )
    moved = next(p for p in emulated_gpu.stats()["processes"] if p["pid"] == int(out))
    assert (moved["moved_out"], moved["copied_in"]) == (32 << 20, 16 << 20)


def test_callbacks_run_in_stream_order(emulated_gpu: EmulatedGpu) -> None:
    run(
        emulated_gpu,
        """
setup()
stream, done = ok(d.cuStreamCreate(1)), ok(d.cuEventCreate(0))
seen = []
@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
def callback(on, status, data):
    seen.append((on, status, data, error(d.cuEventQuery(done))))
address = d.CUstreamCallback(ctypes.cast(callback, ctypes.c_void_p).value)
ok(launch("spin", 5_000_000, stream=stream)); ok(d.cuEventRecord(done, stream))
ok(d.cuStreamAddCallback(stream, address, 42, 0)); ok(d.cuStreamSynchronize(stream))
assert seen == [(int(stream), 0, 42, "CUDA_SUCCESS")]
assert error(d.cuStreamAddCallback(stream, address, 0, 1)) == "INVALID_VALUE"
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
assert error(d.cuStreamAddCallback(stream, address, 0, 0)) == "STREAM_CAPTURE_UNSUPPORTED"
assert error(d.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_INVALIDATED"
""",
    )


@pytest.fixture
def two_gpus(short_dir: Path) -> Iterator[EmulatedGpu]:
    with EmulatedGpu(short_dir / "gpus", devices=2) as gpu:
        yield gpu


def test_copies_between_contexts_and_devices(two_gpus: EmulatedGpu) -> None:
    run(
        two_gpus,
        """
n = 3 * MIB
other = setup(1)
q = int(ok(d.cuMemAlloc(n)))
own = ok(d.cuCtxCreate(None, 0, 1)); r = int(ok(d.cuMemAlloc(n)))
first = setup(0)
p = int(ok(d.cuMemAlloc(n)))
ok(launch("fill", p, n // 4, 4))
ok(d.cuMemcpyPeer(q, other, p, first, n))
stream = ok(d.cuStreamCreate(1))
ok(d.cuMemcpyPeerAsync(r, own, q, other, n, stream))
ok(d.cuMemsetD8Async(p, 0, n, stream))
ok(d.cuMemcpyPeerAsync(p, first, r, own, n, stream))
ok(d.cuStreamSynchronize(stream))
assert words(p, n // 4) == [word(4, i) for i in range(n // 4)]
ok(d.cuMemcpyDtoD(q, p + 4, 4)); assert words(q, 1) == [word(4, 1)]  # addresses are unified
box = d.CUDA_MEMCPY3D_PEER()
box.srcMemoryType = box.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
box.srcDevice, box.srcContext, box.srcPitch, box.srcHeight = p, first, 64, 4
box.dstDevice, box.dstContext, box.dstPitch, box.dstHeight = q, other, 16, 4
box.WidthInBytes, box.Height, box.Depth = 16, 4, 2
ok(d.cuMemcpy3DPeer(box))
want = [word(4, 16 * row + i) for row in range(8) for i in range(4)]
assert words(q, 32) == want
box.dstDevice = r; box.dstContext = own
ok(d.cuMemcpy3DPeerAsync(box, stream)); ok(d.cuStreamSynchronize(stream))
assert words(r, 32) == want
ok(d.cuCtxDestroy(own))
assert error(d.cuMemcpyPeer(q, own, p, first, 4)) == "INVALID_CONTEXT"
# A kernel does not reach the other device.
ok(launch("fill", q, 1, 1)); assert error(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
""",
    )
