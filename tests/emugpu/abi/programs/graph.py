"""What a capture can hold besides kernels: copies with the host, and memory of its own."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.emugpu.program_api import MIB, d, error, launch, ok, setup, word, words

setup()
stream, other = (ok(d.cuStreamCreate(1)) for _ in range(2))
out = int(ok(d.cuMemAlloc(4096)))
ok(d.cuMemsetD8(out, 0, 4096))


def capture(body: Any) -> Any:
    ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    kept = body()
    return ok(d.cuStreamEndCapture(stream)), kept


def instantiate(graph: Any, flags: Any = 0) -> Any:
    return ok(d.cuGraphInstantiate(graph, flags))


def run(graph: Any) -> None:
    ok(d.cuGraphLaunch(graph, stream))
    ok(d.cuStreamSynchronize(stream))


def memory() -> Any:
    # of graphs: used now and at most, reserved now and at most
    A = d.CUgraphMem_attribute
    return [
        int(ok(d.cuDeviceGetGraphMemAttribute(0, getattr(A, "CU_GRAPH_MEM_ATTR_" + what))))
        for what in (
            "USED_MEM_CURRENT",
            "USED_MEM_HIGH",
            "RESERVED_MEM_CURRENT",
            "RESERVED_MEM_HIGH",
        )
    ]


def free() -> Any:
    return ok(d.cuMemGetInfo())[0]


n = MIB
before = free()


def test_copies_with_the_host_happen_at_each_launch() -> None:
    pageable = (ctypes.c_uint32 * 1024)()
    for to in (int(ok(d.cuMemHostAlloc(4096, 0))), ctypes.addressof(pageable)):
        source = (ctypes.c_uint32 * 1024)(*range(1024))

        def body(source: Any = source, to: Any = to) -> None:
            ok(d.cuMemcpyHtoDAsync(out, ctypes.addressof(source), 4096, stream))
            ok(launch("add", out, 1024, 5, 1, stream=stream))
            ok(d.cuMemcpyDtoHAsync(to, out, 4096, stream))

        graph = instantiate(capture(body)[0])
        seen = (ctypes.c_uint32 * 1024).from_address(to)
        assert set(seen) == {0}  # nothing of it has happened
        for start in (7, 70):
            source[:] = list(range(start, start + 1024))
            run(graph)
            assert seen[:] == list(range(start + 5, start + 1029))


def test_memory_that_a_graph_allocates_and_frees() -> None:
    def body() -> None:
        p, q = (ok(d.cuMemAllocAsync(4 * n, stream)) for _ in range(2))
        ok(launch("fill", p, n, 3, stream=stream))
        ok(d.cuMemcpyDtoDAsync(q, p, 4 * n, stream))
        ok(d.cuMemFreeAsync(p, stream))
        ok(launch("add", q, n, 1, 1, stream=stream))
        ok(d.cuMemcpyDtoDAsync(out, q, 4096, stream))
        ok(d.cuMemFreeAsync(q, stream))

    graph, _ = capture(body)
    assert free() == before
    assert memory() == [0, 0, 0, 0]
    first = instantiate(graph)
    ok(d.cuGraphDestroy(graph))
    for _ in range(3):
        ok(d.cuMemsetD8(out, 0, 4096))
        run(first)
        assert words(out, 1024) == [word(4, i) for i in range(1024)]
    size = 8 * MIB
    assert memory() == [0, size, size, size]
    assert free() == before - size
    ok(d.cuDeviceGraphMemTrim(0))
    assert memory() == [0, size, 0, size]
    assert free() == before
    run(first)
    assert free() == before - size
    ok(d.cuGraphExecDestroy(first))
    assert free() == before - size  # and for other graphs
    second = instantiate(capture(body)[0])
    ok(d.cuGraphUpload(second, stream))
    assert free() == before - size
    run(second)
    assert words(out, 2) == [word(4, 0), word(4, 1)]
    assert free() == before - size
    HIGH = d.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_USED_MEM_HIGH
    ok(d.cuDeviceSetGraphMemAttribute(0, HIGH, d.cuuint64_t(0)))
    assert memory() == [0, 0, size, size]
    assert error(d.cuDeviceSetGraphMemAttribute(0, HIGH, d.cuuint64_t(1))) == "INVALID_VALUE"


def test_memory_that_outlives_a_launch() -> None:
    def body() -> Any:
        p = ok(d.cuMemAllocAsync(4 * n, stream))
        ok(launch("fill", p, n, 3, stream=stream))
        return int(p)

    graph, p = capture(body)
    kept = instantiate(graph)
    run(kept)
    assert words(p, 2) == [word(3, 0), word(3, 1)]
    assert memory()[0] == 4 * MIB
    assert error(d.cuGraphLaunch(kept, stream)) == "INVALID_VALUE"  # not until it is freed
    ok(launch("add", p, n, 1, 1, stream=stream))
    ok(d.cuMemFreeAsync(p, stream))
    ok(d.cuGraphLaunch(kept, stream))  # in stream order is enough
    ok(d.cuStreamSynchronize(stream))
    assert words(p, 1) == [3]
    frees = instantiate(capture(lambda: ok(d.cuMemFreeAsync(p, stream)))[0])
    run(frees)
    assert memory()[0] == 0  # another graph can free it
    run(kept)
    ok(d.cuMemFree(p))
    assert memory()[0] == 0
    ok(d.cuGraphExecDestroy(kept))
    AUTO_FREE = 1
    again = instantiate(graph, AUTO_FREE)
    for _ in range(3):
        run(again)
    assert memory()[0] == 4 * MIB
    assert words(p, 1) == [3]
    # What a graph left allocated stays when the graph is gone.
    ok(d.cuGraphExecDestroy(again))
    ok(d.cuGraphDestroy(graph))
    ok(d.cuDeviceGraphMemTrim(0))
    assert words(p, 2) == [word(3, 0), word(3, 1)]
    ok(d.cuMemFree(p))
    ok(d.cuDeviceGraphMemTrim(0))
    assert free() == before
    assert memory()[0] == memory()[2] == 0
    assert error(d.cuMemFree(p)) == "INVALID_VALUE"


def test_nodes_that_a_graph_cannot_have() -> None:
    plain, pooled = ok(d.cuMemAlloc(4096)), ok(d.cuMemAllocAsync(4096, other))

    def foreign() -> None:
        assert error(d.cuMemFreeAsync(plain, stream)) == "INVALID_VALUE"
        assert error(d.cuMemFreeAsync(pooled, stream)) == "INVALID_VALUE"

    capture(foreign)

    def body() -> Any:
        return [ok(d.cuMemAllocAsync(size, stream)) for size in (100 * MIB, 100 * MIB, 100 * MIB)]

    graph, _ = capture(body)
    big = instantiate(graph)
    free_now = free()
    assert error(d.cuGraphLaunch(big, stream)) == "OUT_OF_MEMORY"
    ok(d.cuDeviceGraphMemTrim(0))
    assert free() == free_now
    assert memory()[0] == 0
    ok(d.cuGraphExecDestroy(big))
    ok(d.cuGraphDestroy(graph))
    small = instantiate(capture(lambda: ok(d.cuMemAllocAsync(4096, stream)))[0])
    ok(d.cuStreamBeginCapture(other, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    assert error(d.cuGraphLaunch(small, other)) == "NOT_SUPPORTED"
    ok(d.cuStreamEndCapture(other))
    # Memory is there from its place in the order on, not before.
    graph, p = capture(lambda: ok(d.cuMemAllocAsync(4096, stream)))
    ok(launch("fill", p, 1, 1))
    assert error(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
