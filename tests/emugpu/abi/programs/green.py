"""Green contexts: parts of the primary one that take work and can be waited for."""

from __future__ import annotations

from typing import Any

from tests.emugpu.program_api import MIB, d, error, launch, ok, setup, words

primary = setup()
SM = d.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
whole = ok(d.cuDeviceGetDevResource(0, SM))


def green(resource: Any, flags: Any = 1) -> Any:
    return ok(d.cuGreenCtxCreate(ok(d.cuDevResourceGenerateDesc([resource], 1)), 0, flags))


p = int(ok(d.cuMemAlloc(4096)))
ok(d.cuMemsetD8(p, 0, 4096))
before = ok(d.cuMemGetInfo())[0]


def test_multiprocessors_are_split() -> None:
    assert whole.sm.smCount == 132
    parts, n, rest = ok(d.cuDevSmResourceSplitByCount(3, whole, 0, 30))
    assert n == 3
    assert [part.sm.smCount for part in parts] == [32] * 3
    assert rest.sm.smCount == 132 - 96
    g = green(parts[0])
    assert ok(d.cuGreenCtxGetDevResource(g, SM)).sm.smCount == 32
    assert ok(d.cuCtxGetDevResource(ok(d.cuCtxFromGreenCtx(g)), SM)).sm.smCount == 32
    assert ok(d.cuCtxGetDevResource(primary, SM)).sm.smCount == 132
    assert (
        error(d.cuDevSmResourceSplitByCount(1, whole, 0, 133)) == "INVALID_RESOURCE_CONFIGURATION"
    )
    assert (
        error(d.cuDeviceGetDevResource(0, d.CUdevResourceType.CU_DEV_RESOURCE_TYPE_INVALID))
        == "INVALID_RESOURCE_TYPE"
    )


def test_work_in_a_green_context() -> None:
    g, h = green(whole), green(whole)
    assert ok(d.cuMemGetInfo())[0] == before  # it takes no memory
    stream, other = (ok(d.cuGreenCtxStreamCreate(x, 1, 0)) for x in (g, h))
    assert int(ok(d.cuStreamGetGreenCtx(stream))) == int(g)
    assert int(ok(d.cuStreamGetCtx(stream))) == int(ok(d.cuCtxFromGreenCtx(g))) != int(primary)
    event, event_of_all = (ok(d.cuEventCreate(0)) for _ in range(2))
    ok(d.cuStreamWaitValue32(stream, p, 1, 1))  # stands still
    ok(launch("fill", p + 1024, 4, 7, stream=stream))
    ok(launch("fill", p + 2048, 4, 8, stream=other))
    ok(d.cuGreenCtxRecordEvent(h, event))
    ok(d.cuEventSynchronize(event))  # that one alone
    assert words(p + 2048, 1) == [8]
    ok(d.cuGreenCtxRecordEvent(g, event))
    ok(d.cuCtxRecordEvent(primary, event_of_all))
    assert error(d.cuEventQuery(event)) == error(d.cuEventQuery(event_of_all)) == "NOT_READY"
    ok(d.cuCtxSetCurrent(ok(d.cuCtxFromGreenCtx(h))))
    ok(d.cuCtxSynchronize())
    ok(launch("add", p + 2048, 4, 1, 1))
    ok(d.cuCtxSynchronize())  # on its own default stream
    assert words(p + 2048, 1) == [9]
    assert words(p + 1024, 1) == [0]
    q = ok(d.cuMemAlloc(MIB))
    ok(d.cuMemsetD32(q, 5, 2))
    # From a green context: the primary one's default stream waits for all of them by now.
    ok(d.cuStreamWriteValue32(0, p, 1, 0))
    ok(d.cuCtxSetCurrent(primary))
    ok(d.cuCtxSynchronize())  # of the primary context: for its parts, too
    assert words(p + 1024, 1) == [7]
    assert error(d.cuEventQuery(event)) == error(d.cuEventQuery(event_of_all)) == "CUDA_SUCCESS"
    ok(d.cuGreenCtxDestroy(h))
    assert words(q, 2) == [5, 5]  # memory is the primary context's
    ok(d.cuMemFree(q))
    assert ok(d.cuMemGetInfo())[0] == before


def test_green_contexts_begin_and_end_with_the_primary_one() -> None:
    g = green(whole)
    stream = ok(d.cuGreenCtxStreamCreate(g, 1, 0))
    assert error(d.cuGreenCtxStreamCreate(g, 0, 0)) == "INVALID_VALUE"
    assert error(d.cuCtxDestroy(ok(d.cuCtxFromGreenCtx(g)))) == "INVALID_CONTEXT"
    ok(d.cuDevicePrimaryCtxRelease(0))
    ok(launch("fill", p, 4, 3, stream=stream))
    ok(d.cuStreamSynchronize(stream))  # it holds it
    assert ok(d.cuDevicePrimaryCtxGetState(0))[1]
    ok(d.cuGreenCtxDestroy(g))
    assert not ok(d.cuDevicePrimaryCtxGetState(0))[1]
    assert error(d.cuGreenCtxDestroy(g)) == "INVALID_CONTEXT"
    assert error(launch("empty", stream=stream)) == "INVALID_HANDLE"
    # A fault is that of all of them.
    setup()
    g = green(whole)
    stream = ok(d.cuGreenCtxStreamCreate(g, 1, 0))
    ok(launch("fill", 4096, 4, 3, stream=stream))
    assert error(d.cuStreamSynchronize(stream)) == error(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
    ok(d.cuDevicePrimaryCtxReset(0))
    assert error(d.cuGreenCtxStreamCreate(g, 1, 0)) == "INVALID_CONTEXT"
