"""Stream captures: the traps of the real driver, from the capturing thread and from others."""

from __future__ import annotations

import threading
from typing import Any

from tests.emugpu.program_api import d, error, launch, ok, setup, words

context = setup()
M = d.CUstreamCaptureMode
GLOBAL, LOCAL, RELAXED = (
    getattr(M, "CU_STREAM_CAPTURE_MODE_" + m) for m in ("GLOBAL", "THREAD_LOCAL", "RELAXED")
)
n = 1024
p = ok(d.cuMemAlloc(4 * n))
stream, other = (ok(d.cuStreamCreate(1)) for _ in range(2))
event = ok(d.cuEventCreate(0))


def elsewhere(call: Any, mode: Any = None) -> Any:
    # What call returns in a thread of its own, in this capture mode.
    got = []

    def body() -> None:
        ok(d.cuCtxSetCurrent(context))
        if mode is not None:
            ok(d.cuThreadExchangeStreamCaptureMode(mode))
        got.append(error(call()))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return got[0]


def begin(mode: Any, on: Any = stream) -> None:
    ok(d.cuStreamBeginCapture(on, mode))
    ok(launch("fill", p, n, 1, stream=on))


def end(on: Any = stream) -> Any:
    return error(d.cuStreamEndCapture(on))


def test_a_relaxed_thread_during_a_global_capture() -> None:
    m = ok(d.cuMemAllocManaged(4096, 1))
    device = d.CUmemLocation()
    device.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    begin(GLOBAL)
    for call in (
        lambda: d.cuEventRecord(event, other),
        lambda: d.cuEventSynchronize(event),
        lambda: d.cuStreamSynchronize(other),
        lambda: d.cuEventRecord(event, 0),
        lambda: d.cuStreamSynchronize(0),
        lambda: d.cuMemAlloc(4096),
        lambda: d.cuMemPrefetchAsync(m, 4096, device, 0, other),
    ):
        assert elsewhere(call, RELAXED) == "CUDA_SUCCESS"
    assert end() == "CUDA_SUCCESS"


def test_a_capture_records_and_each_launch_runs_all() -> None:
    ok(d.cuStreamBeginCapture(stream, GLOBAL))
    ok(launch("add", p, n, 1, 1, stream=stream))
    ok(d.cuEventRecord(event, stream))
    ok(d.cuStreamWaitEvent(other, event, 0))  # draws the other stream in
    ok(launch("add", p, n, 10, 1, stream=other))
    ok(d.cuMemsetD32Async(int(p) + 4, 5, 1, other))
    join = ok(d.cuEventCreate(0))
    ok(d.cuEventRecord(join, other))
    ok(d.cuStreamWaitEvent(stream, join, 0))
    assert ok(d.cuStreamIsCapturing(other)) == ok(d.cuStreamIsCapturing(stream)) != 0
    graph = ok(d.cuStreamEndCapture(stream))
    assert ok(d.cuStreamIsCapturing(other)) == ok(d.cuStreamIsCapturing(stream)) == 0
    ok(d.cuCtxSynchronize())
    assert words(p, 2) == [0, 0]
    run = ok(d.cuGraphInstantiate(graph, 0))
    ok(d.cuGraphDestroy(graph))
    for _ in range(3):
        ok(d.cuGraphLaunch(run, stream))
    ok(d.cuStreamSynchronize(stream))
    assert words(p, 2) == [33, 5]
    # The event belongs to a capture that has ended: it is good for nothing until recorded again.
    for refused in (d.cuStreamWaitEvent(other, event, 0), d.cuEventQuery(event)):
        assert error(refused) == "INVALID_VALUE"
    assert ok(d.cuStreamIsCapturing(other)) == 0
    ok(d.cuEventRecord(event, other))
    ok(d.cuEventSynchronize(event))


def test_misuse_is_refused() -> None:
    assert error(d.cuStreamBeginCapture(0, GLOBAL)) == "STREAM_CAPTURE_UNSUPPORTED"
    assert end() == "ILLEGAL_STATE"
    begin(LOCAL)
    assert error(d.cuStreamBeginCapture(stream, LOCAL)) == "ILLEGAL_STATE"
    assert elsewhere(lambda: d.cuStreamEndCapture(stream)) == "STREAM_CAPTURE_WRONG_THREAD"
    assert end() == "ILLEGAL_STATE"  # it has ended all the same
    begin(RELAXED)
    assert error(d.cuStreamSynchronize(stream)) == "STREAM_CAPTURE_UNSUPPORTED"
    assert end() == "STREAM_CAPTURE_INVALIDATED"
    begin(RELAXED)
    ok(d.cuEventRecord(event, stream))
    assert error(d.cuEventQuery(event)) == "CAPTURED_EVENT"
    end()
    begin(RELAXED)
    ok(d.cuStreamDestroy(stream))  # and the capture with it
    ok(d.cuCtxSynchronize())
    # A blocking stream captures: work on the legacy stream would have to wait for it.
    blocking = ok(d.cuStreamCreate(0))
    begin(GLOBAL, blocking)
    assert error(launch("empty")) == "STREAM_CAPTURE_IMPLICIT"
    assert end(blocking) == "STREAM_CAPTURE_INVALIDATED"


def test_a_context_wide_wait_by_any_thread_destroys_any_capture() -> None:
    for mode in (GLOBAL, LOCAL, RELAXED):
        for call in (d.cuCtxSynchronize, lambda: d.cuCtxRecordEvent(context, event)):
            begin(mode)
            assert elsewhere(call, RELAXED) == "STREAM_CAPTURE_UNSUPPORTED"
            assert error(launch("empty", stream=stream)) == "STREAM_CAPTURE_INVALIDATED"
            assert end() == "STREAM_CAPTURE_INVALIDATED"
            ok(d.cuCtxSynchronize())
            begin(mode)
            assert end() == "CUDA_SUCCESS"  # and then all is well


def test_calls_that_a_global_capture_forbids_to_other_threads() -> None:
    for call in (
        lambda: d.cuEventQuery(event),
        lambda: d.cuStreamQuery(other),
        lambda: d.cuMemAlloc(4096),
    ):
        for mode in (LOCAL, RELAXED):
            begin(mode)
            assert elsewhere(call) == end() == "CUDA_SUCCESS"
        begin(GLOBAL)
        assert elsewhere(call, RELAXED) == "CUDA_SUCCESS"
        assert elsewhere(call) == "STREAM_CAPTURE_UNSUPPORTED"
        assert end() == "STREAM_CAPTURE_INVALIDATED"
