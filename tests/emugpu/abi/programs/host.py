"""Pinned host memory: copies that the program does not wait for."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any

from tests.emugpu.program_api import MIB, d, error, launch, ok, setup, word, words

HOST_FUNCTION: Any = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

setup()


class Gate:
    def __init__(self: Any, stream: Any) -> None:
        self.opened = threading.Event()
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: self.opened.wait(60))
        address = ctypes.cast(self.call, ctypes.c_void_p).value
        ok(d.cuLaunchHostFunc(stream, d.CUhostFn(address), 0))

    def open(self: Any) -> None:
        self.opened.set()


def view(address: Any, n: Any) -> Any:
    return (ctypes.c_uint32 * n).from_address(int(address))


def test_a_copy_to_pinned_memory_is_not_waited_for() -> None:
    n = 3 * MIB // 4 + 1  # several slices of time
    p = ok(d.cuMemAlloc(4 * n))
    stream = ok(d.cuStreamCreate(1))
    host = ok(d.cuMemHostAlloc(4 * n, 0))
    mine = (ctypes.c_uint32 * (4 * n // 4))()
    ok(d.cuMemHostRegister(ctypes.addressof(mine), 4 * n, 0))
    gate = Gate(stream)
    ok(launch("fill", p, n, 3, stream=stream))
    for to in (int(host), ctypes.addressof(mine)):
        ok(d.cuMemcpyDtoHAsync(to, p, 4 * n, stream))
        assert view(to, 2)[:] == [0, 0]
    assert error(d.cuStreamQuery(stream)) == "NOT_READY"
    gate.open()
    ok(d.cuStreamSynchronize(stream))
    want = [word(3, i) for i in range(n)]
    assert view(host, n)[:] == want
    assert mine[:] == want
    # Unless the memory goes away, which waits for all that was submitted before.
    gate = Gate(stream)
    ok(launch("add", p, n, 1, 1, stream=stream))
    ok(d.cuMemcpyDtoHAsync(ctypes.addressof(mine), p, 4 * n, stream))
    threading.Timer(0.05, gate.open).start()
    ok(d.cuMemHostUnregister(ctypes.addressof(mine)))
    assert mine[n - 1] == want[-1] + 1
    other = (ctypes.c_uint32 * 1024)()
    ok(d.cuMemHostRegister(ctypes.addressof(other), 4096, 0))
    gate = Gate(stream)
    threading.Timer(0.05, gate.open).start()
    ok(d.cuMemHostUnregister(ctypes.addressof(other)))
    ok(d.cuStreamQuery(stream))
    ok(d.cuMemFreeHost(host))
    # A copy that waits has its bytes whatever the memory is.
    host = ok(d.cuMemAllocHost(4096))
    ok(d.cuMemcpyDtoH(host, p, 4096))
    assert view(host, 2)[:] == [want[0] + 1, want[1] + 1]


def test_copies_from_pinned_memory() -> None:
    n = MIB
    p, host = ok(d.cuMemAlloc(4 * n)), ok(d.cuMemHostAlloc(4 * n, 0))
    source = view(host, n)
    source[:] = [word(8, i) for i in range(n)]
    stream = ok(d.cuStreamCreate(1))
    gate = Gate(stream)
    ok(d.cuMemcpyHtoDAsync(p, host, 4 * n, stream))
    assert error(d.cuStreamQuery(stream)) == "NOT_READY"
    source[5] = 6  # it is read when its turn comes, not before
    gate.open()
    ok(d.cuStreamSynchronize(stream))
    assert words(p, n) == source[:]

    # Work on the host that was ordered before it is in it.
    write = HOST_FUNCTION(lambda _: source.__setitem__(n - 1, 99))
    address = ctypes.cast(write, ctypes.c_void_p).value
    ok(d.cuLaunchHostFunc(stream, d.CUhostFn(address), 0))
    ok(d.cuMemcpyHtoDAsync(p, host, 4 * n, stream))
    ok(d.cuStreamSynchronize(stream))
    assert words(int(p) + 4 * n - 4, 1) == [99]
    # Other memory has been read when the call returns.
    pageable = ctypes.create_string_buffer(b"1234", 4)
    gate = Gate(stream)
    ok(d.cuMemcpyHtoDAsync(p, ctypes.addressof(pageable), 4, stream))
    pageable.raw = b"5678"
    gate.open()
    ok(d.cuStreamSynchronize(stream))
    assert words(p, 1) == [int.from_bytes(b"1234", "little")]


def test_memory_that_may_be_pinned() -> None:
    setup()
    mine = ctypes.create_string_buffer(1 << 16)
    at = ctypes.addressof(mine)
    ok(d.cuMemHostRegister(at, 4096, 1))
    assert ok(d.cuMemHostGetFlags(at)) == 1
    for where in (at, at + 100, at - 100):
        assert error(d.cuMemHostRegister(where, 4096, 0)) == "HOST_MEMORY_ALREADY_REGISTERED"
    ok(d.cuMemHostRegister(at + 4096, 4096, 0))
    assert error(d.cuMemHostUnregister(at + 8)) == "HOST_MEMORY_NOT_REGISTERED"
    assert error(d.cuMemFreeHost(at)) == "INVALID_VALUE"
    assert error(d.cuMemHostRegister(at, 0, 0)) == error(d.cuMemHostAlloc(0, 0)) == "INVALID_VALUE"
    ok(d.cuMemHostUnregister(at))
    ok(d.cuMemHostUnregister(at + 4096))
    assert error(d.cuMemHostUnregister(at)) == "HOST_MEMORY_NOT_REGISTERED"
    assert error(d.cuMemHostGetFlags(at)) == "INVALID_VALUE"
    A = d.CUpointer_attribute
    host = ok(d.cuMemHostAlloc(4096, 2))
    assert ok(d.cuMemHostGetFlags(host)) == 2
    assert int(ok(d.cuPointerGetAttribute(A.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host))) == int(
        host
    )


def test_memory_that_is_gone_is_a_bad_address() -> None:
    import mmap

    p = ok(d.cuMemAlloc(8192))
    block = mmap.mmap(-1, 8192)
    at = ctypes.addressof(ctypes.c_char.from_buffer(block))
    ok(d.cuMemHostRegister(at, 8192, 0))
    libc = ctypes.CDLL(None)
    stream = ok(d.cuStreamCreate(1))
    gate = Gate(stream)
    ok(d.cuMemcpyHtoDAsync(p, at, 8192, stream))
    assert libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(8192)) == 0
    gate.open()
    assert error(d.cuStreamSynchronize(stream)) == "ILLEGAL_ADDRESS"
    os._exit(0)


def die_amid_a_copy() -> None:
    p, host = ok(d.cuMemAlloc(64 * MIB)), ok(d.cuMemHostAlloc(64 * MIB, 0))
    stream = ok(d.cuStreamCreate(1))
    for _ in range(20):
        ok(d.cuMemcpyDtoHAsync(host, p, 64 * MIB, stream))
    os._exit(0)


def fill() -> None:
    p = ok(d.cuMemAlloc(4096))
    ok(launch("fill", p, 1024, 1))
    assert words(p, 1) == [1]
