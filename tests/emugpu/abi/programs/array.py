"""Arrays, and copies of boxes between them, device memory and the host."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from tests.emugpu.program_api import MIB, d, error, ok, setup

setup()
U8, F32 = (getattr(d.CUarray_format, "CU_AD_FORMAT_" + f) for f in ("UNSIGNED_INT8", "FLOAT"))
T = d.CUmemorytype
HOST, DEVICE, ARRAY = (getattr(T, "CU_MEMORYTYPE_" + t) for t in ("HOST", "DEVICE", "ARRAY"))


def array(width: Any, height: Any = 0, depth: Any = 0, format: Any = U8, channels: Any = 1) -> Any:
    desc = d.CUDA_ARRAY3D_DESCRIPTOR()
    desc.Width, desc.Height, desc.Depth = width, height, depth
    desc.Format, desc.NumChannels = format, channels
    return ok(d.cuArray3DCreate(desc))


def set_side(
    copy: Any,
    side: Any,
    where: Any,
    *,
    x: int = 0,
    y: int = 0,
    z: int = 0,
    pitch: int = 0,
    height: int = 0,
) -> None:
    kind = {d.CUarray: ARRAY, d.CUdeviceptr: DEVICE}.get(type(where), HOST)
    field = {ARRAY: "Array", DEVICE: "Device", HOST: "Host"}[kind]
    if kind == HOST:
        where = ctypes.addressof(where)
    at = {"XInBytes": x, "Y": y, "Z": z, "Pitch": pitch, "Height": height}
    for name, value in {"MemoryType": kind, field: where, **at}.items():
        if side + name in dir(copy):
            setattr(copy, side + name, value)


def box(to: Any, source: Any, width: Any, height: Any, depth: Any) -> Any:
    copy = d.CUDA_MEMCPY3D()
    set_side(copy, "dst", *to[:1], **to[1])
    set_side(copy, "src", *source[:1], **source[1])
    copy.WidthInBytes, copy.Height, copy.Depth = width, height, depth
    return copy


def test_boxes_go_where_they_are_told() -> None:
    w, h, n = 10, 7, 5
    data = ctypes.create_string_buffer(os.urandom(w * h * n), w * h * n)
    a = array(w, h, n)
    ok(d.cuMemcpy3D(box((a, {}), (data, {"pitch": w, "height": h}), w, h, n)))
    # A part of it to device memory with gaps, and that to another array, shifted.
    p = ok(d.cuMemAlloc(4096))
    ok(d.cuMemsetD8(p, 0xEE, 4096))
    part = (4, 3, 2)
    ok(
        d.cuMemcpy3D(
            box(
                (p, {"x": 1, "y": 1, "z": 1, "pitch": 16, "height": 5}),
                (a, {"x": 2, "y": 3, "z": 1}),
                *part,
            )
        )
    )
    b = array(w, h, n)
    stream = ok(d.cuStreamCreate(1))
    ok(
        d.cuMemcpy3DAsync(
            box(
                (b, {"x": 5, "y": 4, "z": 3}),
                (p, {"x": 1, "y": 1, "z": 1, "pitch": 16, "height": 5}),
                *part,
            ),
            stream,
        )
    )
    ok(d.cuStreamSynchronize(stream))
    back = ctypes.create_string_buffer(w * h * n)
    ok(d.cuMemcpy3D(box((back, {}), (b, {}), w, h, n)))
    want = bytearray(w * h * n)
    flat = bytearray(b"\xee" * 4096)
    for z in range(part[2]):
        for y in range(part[1]):
            at = ((z + 1) * h + y + 3) * w + 2
            row = data.raw[at : at + part[0]]
            to = ((z + 3) * h + y + 4) * w + 5
            want[to : to + part[0]] = row
            to = ((z + 1) * 5 + y + 1) * 16 + 1
            flat[to : to + part[0]] = row
    assert back.raw == bytes(want)
    host = bytearray(4096)
    ok(d.cuMemcpyDtoH(host, p, 4096))
    assert host == flat
    # All of an array to another one.
    c = array(w, h, n)
    ok(d.cuMemcpy3D(box((c, {}), (a, {}), w, h, n)))
    ok(d.cuMemcpy3D(box((back, {}), (c, {}), w, h, n)))
    assert back.raw == data.raw


def test_rows_of_arrays() -> None:
    a, b = array(256), array(256)
    p = ok(d.cuMemAlloc(256))
    host = ok(d.cuMemHostAlloc(256, 0))
    data = os.urandom(256)
    back = bytearray(256)
    ok(d.cuMemcpyHtoA(a, 0, data, 256))
    ok(d.cuMemcpyAtoA(b, 100, a, 50, 60))
    ok(d.cuMemcpyAtoD(p, b, 100, 60))
    ok(d.cuMemcpyDtoH(back, p, 60))
    assert back[:60] == data[50:110]
    ok(d.cuMemcpyDtoA(b, 0, p, 60))
    ok(d.cuMemcpyAtoH(back, b, 0, 256))
    assert back == data[50:110] + bytes(40) + data[50:110] + bytes(96)
    stream = ok(d.cuStreamCreate(1))
    ok(d.cuMemcpyHtoAAsync(b, 0, data, 256, stream))
    ok(d.cuMemcpyAtoHAsync(host, b, 0, 256, stream))
    ok(d.cuStreamSynchronize(stream))
    assert ctypes.string_at(int(host), 256) == data
    # A rectangle, of elements of 8 bytes.
    wide = array(4, 3, format=F32, channels=2)
    rows = ctypes.create_string_buffer(os.urandom(96), 96)
    copy = d.CUDA_MEMCPY2D()
    set_side(copy, "dst", wide)
    set_side(copy, "src", rows, pitch=32)
    copy.WidthInBytes, copy.Height = 32, 3
    ok(d.cuMemcpy2D(copy))
    copy = d.CUDA_MEMCPY2D()
    got = ctypes.create_string_buffer(32)
    set_side(copy, "dst", got, pitch=16)
    set_side(copy, "src", wide, x=8, y=1)
    copy.WidthInBytes, copy.Height = 16, 2
    ok(d.cuMemcpy2DAsync(copy, stream))
    ok(d.cuStreamSynchronize(stream))
    assert got.raw == rows.raw[40:56] + rows.raw[72:88]


def test_an_array_is_plain_memory_and_knows_its_shape() -> None:
    free = ok(d.cuMemGetInfo())[0]
    a = array(1024, 1024, 4, F32, 4)
    assert ok(d.cuMemGetInfo())[0] == free - 64 * MIB
    desc = ok(d.cuArray3DGetDescriptor(a))
    shape = (desc.Width, desc.Height, desc.Depth, desc.Format, desc.NumChannels)
    assert shape == (1024, 1024, 4, F32, 4)
    flat = d.CUDA_ARRAY_DESCRIPTOR()
    flat.Width, flat.Height, flat.Format, flat.NumChannels = 5, 6, U8, 2
    b = ok(d.cuArrayCreate(flat))
    desc = ok(d.cuArrayGetDescriptor(b))
    assert (desc.Width, desc.Height, desc.Format, desc.NumChannels) == (5, 6, U8, 2)
    ok(d.cuArrayDestroy(a))
    ok(d.cuArrayDestroy(b))
    assert ok(d.cuMemGetInfo())[0] == free
    assert error(d.cuArrayDestroy(a)) == error(d.cuArrayGetDescriptor(a)) == "INVALID_HANDLE"
    c = array(16, 4)
    host = ctypes.create_string_buffer(256)
    for size in ((17, 4, 1), (16, 5, 1), (16, 4, 2)):  # over each edge
        assert error(d.cuMemcpy3D(box((c, {}), (host, {}), *size))) == "INVALID_VALUE"
    assert error(d.cuMemcpyHtoA(c, 8, bytes(16), 16)) == "INVALID_VALUE"
    desc = d.CUDA_ARRAY3D_DESCRIPTOR()
    desc.Width, desc.Height, desc.Format, desc.NumChannels = 4, 4, U8, 3
    assert error(d.cuArray3DCreate(desc)) == "INVALID_VALUE"
    desc.NumChannels, desc.Depth, desc.Width, desc.Height = 1, 512, 1024, 1024
    assert error(d.cuArray3DCreate(desc)) == "OUT_OF_MEMORY"
