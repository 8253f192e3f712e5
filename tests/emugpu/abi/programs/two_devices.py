"""Copies between contexts and devices."""

from __future__ import annotations

from tests.emugpu.program_api import MIB, d, error, launch, ok, setup, word, words


def test_copies_between_contexts_and_devices() -> None:
    n = 3 * MIB
    other = setup(1)
    q = int(ok(d.cuMemAlloc(n)))
    own = ok(d.cuCtxCreate(None, 0, 1))
    r = int(ok(d.cuMemAlloc(n)))
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
    ok(d.cuMemcpyDtoD(q, p + 4, 4))
    assert words(q, 1) == [word(4, 1)]  # addresses are unified
    ok(d.cuCtxDestroy(own))
    assert error(d.cuMemcpyPeer(q, own, p, first, 4)) == "INVALID_CONTEXT"
    # A kernel does not reach the other device.
    ok(launch("fill", q, 1, 1))
    assert error(d.cuCtxSynchronize()) == "ILLEGAL_ADDRESS"
