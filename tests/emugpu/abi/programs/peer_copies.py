"""Copies between two devices, from memory of each kind, in the context of either."""

from __future__ import annotations

import itertools
from typing import Any

from tests.emugpu.abi.programs.peer import (
    PAGE,
    N,
    access,
    allow,
    allowed,
    contexts,
    enable,
    fault,
    filled,
    mapped,
    on,
    plain,
)
from tests.emugpu.program_api import d, error, launch, ok

kinds: dict[str, Any] = {
    "plain": plain,
    "own": lambda n: mapped(n, n),
    "both": lambda n: mapped(n, 0, 1),
}
stream = []
for n in (0, 1):
    on(n)
    stream.append(ok(d.cuStreamCreate(1)))


def copy(how: Any, to: Any, source: Any, at: Any) -> Any:
    s = stream[at]
    calls: dict[str, Any] = {
        "DtoD": lambda: d.cuMemcpyDtoD(to, source, PAGE),
        "DtoDAsync": lambda: d.cuMemcpyDtoDAsync(to, source, PAGE, s),
        "any": lambda: d.cuMemcpy(to, source, PAGE),
        "Peer": lambda: d.cuMemcpyPeer(to, contexts[0], source, contexts[1], PAGE),
        "PeerAsync": lambda: d.cuMemcpyPeerAsync(to, contexts[0], source, contexts[1], PAGE, s),
    }
    return calls[how]()


values = itertools.count(1)


def check(how: Any, to_kind: Any, from_kind: Any, at: Any, want: Any = "CUDA_SUCCESS") -> None:
    # From device 1 to device 0, in the context of either.
    value = next(values)
    to, source = kinds[to_kind](0), kinds[from_kind](1)
    on(1)
    ok(launch("fill", source, N, value))
    ok(d.cuCtxSynchronize())
    on(at)
    assert error(copy(how, to, source, at)) == want, (how, to_kind, from_kind, at)
    ok(d.cuCtxSynchronize())
    on(0)
    assert filled(to, value) == (want == "CUDA_SUCCESS")
    for kind, p in ((to_kind, to), (from_kind, source)):
        ok(d.cuMemFree(p) if kind == "plain" else d.cuMemUnmap(p, PAGE))


def find_memory() -> None:
    for how in ("DtoD", "DtoDAsync", "any", "Peer", "PeerAsync"):
        for at in (0, 1):
            check(how, "plain", "plain", at)
            check(how, "both", "both", at)
            named = how.startswith("Peer")
            for to, source, needs in (("plain", "own", 1), ("own", "plain", 0)):
                good = named or at == needs
                check(how, to, source, at, "CUDA_SUCCESS" if good else "INVALID_VALUE")
            check(how, "own", "own", at, "CUDA_SUCCESS" if named else "INVALID_VALUE")


def test_copies_find_memory_of_any_device_but_mappings() -> None:
    """Mappings need the access of the device in whose context the copy is; others do not."""
    find_memory()


def test_copies_do_so_with_access_too() -> None:
    enable(0)
    enable(1)
    find_memory()


def test_host_and_set_with_memory_of_another_device() -> None:
    pinned = int(ok(d.cuMemHostAlloc(64, 1)))

    def host(p: Any) -> Any:
        s = stream[0]
        got = [
            error(d.cuMemcpyHtoD(p, bytes(64), 64)),
            error(d.cuMemcpyDtoH(bytearray(64), p, 64)),
            error(d.cuMemcpyHtoDAsync(p, pinned, 64, s)),
            error(d.cuMemcpyDtoHAsync(pinned, p, 64, s)),
        ]
        ok(d.cuStreamSynchronize(s))
        return got

    def sets(p: Any) -> Any:
        s = stream[0]
        got = [error(d.cuMemsetD32(p, 7, 16)), error(d.cuStreamWriteValue32(s, p, 5, 0))]
        ok(d.cuStreamSynchronize(s))
        return got

    good, bad = "CUDA_SUCCESS", "INVALID_VALUE"
    p, own, both = plain(1), mapped(1, 1), mapped(1, 0, 1)
    on(0)
    assert host(p) == [good] * 4
    assert sets(p) == [bad] * 2
    assert host(own) == [bad] * 4
    assert sets(own) == [bad] * 2
    assert host(both) == [good] * 4
    assert sets(both) == [good] * 2
    enable(0)
    assert sets(p) == [good] * 2
    assert sets(own) == [bad] * 2


def of_strangers() -> None:
    """Of two devices that are no peers."""
    assert ok(d.cuDeviceCanAccessPeer(0, 1)) == 0
    A = d.CUdevice_P2PAttribute
    assert ok(d.cuDeviceGetP2PAttribute(A.CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1)) == 0
    on(0)
    assert error(d.cuCtxEnablePeerAccess(contexts[1], 0)) == "PEER_ACCESS_UNSUPPORTED"
    assert error(d.cuCtxDisablePeerAccess(contexts[1])) == "PEER_ACCESS_NOT_ENABLED"
    p = mapped(1)
    assert error(allow(p, 1, 0)) == "INVALID_VALUE"
    assert allowed(p) == (0, 0)
    pool = ok(d.cuDeviceGetDefaultMemPool(1))
    assert error(d.cuMemPoolSetAccess(pool, [access(0)], 1)) == "INVALID_DEVICE"
    for how in ("DtoD", "Peer", "PeerAsync"):
        check(how, "plain", "plain", 0)
    check("Peer", "own", "own", 1)
    check("DtoD", "own", "own", 1, "INVALID_VALUE")
    assert fault(0, plain(1)) == "ILLEGAL_ADDRESS"
