"""Batches of copies and prefetches, copies between contexts and devices, and callbacks."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from tests.emugpu.program_api import d, error, ok, setup

setup()
ORDER = d.CUmemcpySrcAccessOrder
stream = ok(d.cuStreamCreate(1))


def attributes(order: Any = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM) -> Any:
    a = d.CUmemcpyAttributes()
    a.srcAccessOrder = order
    return a


data = os.urandom(8192)
source = ctypes.create_string_buffer(data, 8192)
back = ctypes.create_string_buffer(8192)
src, dst = ctypes.addressof(source), ctypes.addressof(back)
p = int(ok(d.cuMemAlloc(8192)))
q = int(ok(d.cuMemAllocManaged(8192, 1)))


def test_batches_of_copies() -> None:
    def batch(
        to: Any, from_: Any, sizes: Any, attrs: Any = None, indices: Any = (0,), *, on: Any = None
    ) -> Any:
        attrs = [attributes()] if attrs is None else attrs
        to, from_ = ([d.CUdeviceptr(int(at)) for at in side] for side in (to, from_))
        return d.cuMemcpyBatchAsync(
            to,
            from_,
            sizes,
            len(sizes),
            attrs,
            list(indices),
            len(attrs),
            stream if on is None else on,
        )

    ok(
        batch(
            [p, p + 4096, q],
            [src, src + 4096, src + 100],
            [4096, 4096, 50],
            [attributes(), attributes(ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_ANY)],
            (0, 2),
        )
    )
    ok(batch([q + 4096, dst], [p, p + 4090], [4096, 4000]))
    ok(batch([dst + 4096, dst + 8000], [q + 4096, q], [3904, 50]))
    ok(d.cuStreamSynchronize(stream))
    assert back.raw[:4000] == data[4090:8090]
    assert back.raw[4096:8000] == data[:3904]
    assert back.raw[8000:8050] == data[100:150]
    bad = attributes()
    bad.srcAccessOrder = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
    for refused in (
        batch([p], [src], [4], on=0),
        batch([p], [src], [4], [bad]),
        batch([p], [src], [4], indices=(1,)),
        batch([p], [src], [4], [], ()),
        batch([p, p], [src, src], [4, 4], [attributes()] * 2, (0, 2)),
        batch([p], [src], [8193]),
    ):
        assert error(refused) == "INVALID_VALUE"
    # The oldest form says which copy was at fault.
    lib = ctypes.CDLL("libcuda.so.1")
    U64 = ctypes.c_uint64
    to, from_, sizes = (U64 * 2)(p, p), (U64 * 2)(src, src), (U64 * 2)(4, 8193)
    failed, index = U64(), U64(0)
    attrs = attributes()
    assert (
        lib.cuMemcpyBatchAsync(
            to,
            from_,
            sizes,
            U64(2),
            ctypes.c_void_p(attrs.getPtr()),
            ctypes.byref(index),
            U64(1),
            ctypes.byref(failed),
            ctypes.c_void_p(int(stream)),
        )
        == 1
    )
    assert failed.value == 1
    ok(d.cuMemcpyWithAttributesAsync(p, src + 512, 512, attributes(), stream))
    ok(d.cuMemcpyWithAttributesAsync(dst, p, 512, attributes(), stream))
    ok(d.cuStreamSynchronize(stream))
    assert back.raw[:512] == data[512:1024]


def test_batches_of_boxes() -> None:
    T = d.CUmemcpy3DOperandType

    def pointer(at: Any, row: Any = 0, rows: Any = 0) -> Any:
        o = d.CUmemcpy3DOperand()
        o.type = T.CU_MEMCPY_OPERAND_TYPE_POINTER
        o.op.ptr.ptr, o.op.ptr.rowLength, o.op.ptr.layerHeight = at, row, rows
        return o

    def in_array(array: Any, x: Any = 0, y: Any = 0, z: Any = 0) -> Any:
        o = d.CUmemcpy3DOperand()
        o.type = T.CU_MEMCPY_OPERAND_TYPE_ARRAY
        o.op.array.array = array
        o.op.array.offset.x, o.op.array.offset.y, o.op.array.offset.z = x, y, z
        return o

    def box(to: Any, from_: Any, w: Any, h: Any, n: Any) -> Any:
        o = d.CUDA_MEMCPY3D_BATCH_OP()
        o.dst, o.src = to, from_
        o.extent.width, o.extent.height, o.extent.depth = w, h, n
        o.srcAccessOrder = ORDER.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
        return o

    desc = d.CUDA_ARRAY3D_DESCRIPTOR()
    desc.Width, desc.Height, desc.Depth, desc.NumChannels = 8, 4, 2, 2
    desc.Format = d.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT16
    a = ok(d.cuArray3DCreate(desc))  # elements of 4 bytes
    ok(
        d.cuMemcpy3DBatchAsync(
            2,
            [
                box(pointer(p), pointer(src, 100, 3), 50, 2, 2),
                box(in_array(a), pointer(src), 8, 4, 2),
            ],
            0,
            stream,
        )
    )
    ok(d.cuMemcpy3DBatchAsync(1, [box(pointer(dst), pointer(p), 200, 1, 1)], 0, stream))
    ok(
        d.cuMemcpy3DBatchAsync(
            1, [box(pointer(dst + 1024, 3, 2), in_array(a, 5, 1, 1), 3, 2, 1)], 0, stream
        )
    )
    ok(
        d.cuMemcpy3DWithAttributesAsync(
            box(pointer(dst + 2048), in_array(a, 0, 0, 1), 8, 4, 1), 0, stream
        )
    )
    ok(d.cuStreamSynchronize(stream))
    rows = [data[at : at + 50] for at in (0, 100, 300, 400)]
    assert back.raw[:200] == b"".join(rows)
    at = 4 * ((1 * 4 + 1) * 8 + 5)
    assert back.raw[1024:1048] == data[at : at + 12] + data[at + 32 : at + 44]
    assert back.raw[2048 : 2048 + 128] == data[128:256]
    for bad in (
        box(in_array(a), pointer(src), 9, 1, 1),
        box(pointer(p), pointer(src), 0, 1, 1),
        box(pointer(p, 5), pointer(src), 6, 1, 1),
    ):
        assert error(d.cuMemcpy3DBatchAsync(1, [bad], 0, stream)) == "INVALID_VALUE"
