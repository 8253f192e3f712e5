"""Words of device memory that one stream writes and another waits for."""

from __future__ import annotations

from typing import Any

from tests.emugpu.program_api import d, error, launch, ok, setup, words

setup()
p = int(ok(d.cuMemAlloc(4096)))
ok(d.cuMemsetD8(p, 0, 4096))
a, b = (ok(d.cuStreamCreate(1)) for _ in range(2))
W = d.CUstreamWaitValue_flags
GEQ, EQ, AND, NOR = (getattr(W, "CU_STREAM_WAIT_VALUE_" + w) for w in ("GEQ", "EQ", "AND", "NOR"))


def waiting(stream: Any) -> Any:
    return error(d.cuStreamQuery(stream)) == "NOT_READY"


def test_misuse_is_refused() -> None:
    m = ok(d.cuMemAllocManaged(4096, 1))
    bad: Any
    for bad in (
        lambda: d.cuStreamWriteValue32(a, p + 2, 1, 0),
        lambda: d.cuStreamWaitValue32(a, p, 1, 9),
        lambda: d.cuStreamWriteValue32(a, p, 1, 4),
        lambda: d.cuStreamWaitValue32(a, m, 1, EQ),
        lambda: d.cuStreamWaitValue32(a, 4, 1, EQ),
    ):
        assert error(bad()) == "INVALID_VALUE"
    # A context ends whatever its streams wait for.
    own = ok(d.cuCtxCreate(None, 0, 0))
    ok(d.cuStreamWaitValue32(ok(d.cuStreamCreate(1)), p, 99, EQ))
    ok(d.cuCtxDestroy(own))
    ok(d.cuStreamSynchronize(a))


def test_a_stream_waits_for_its_condition() -> None:
    """By turns it has a value, is not yet met by each of `no`, and is met by `yes`."""
    for condition, value, first, no, yes in (
        (GEQ, 5, 0, [4, 2**31 + 5], 6),
        (GEQ, 2**32 - 1, 2**32 - 2, [], 0),  # by signed difference, so it wraps around
        (EQ, 7, 0, [6, 8], 7),
        (AND, 0b110, 0, [0b1001], 0b1010),
        (NOR, 0x0000FFFF, 0xFFFF0000, [0xFFFF0000], 0x7FFF0000),
    ):
        ok(d.cuMemsetD32(p, first, 1))
        ok(d.cuMemsetD32(p + 1024, 0, 4))
        ok(d.cuStreamWaitValue32(a, p, value, condition))
        ok(launch("fill", p + 1024, 4, 9, stream=a))
        assert waiting(a)
        for written in no:
            ok(d.cuStreamWriteValue32(b, p, written, 0))
            ok(d.cuStreamSynchronize(b))
            assert waiting(a)
            assert words(p, 1) == [written]
        assert words(p + 1024, 1) == [0]
        ok(d.cuStreamWriteValue32(b, p, yes, 0))
        ok(d.cuStreamSynchronize(a))
        assert words(p + 1024, 1) == [9]
