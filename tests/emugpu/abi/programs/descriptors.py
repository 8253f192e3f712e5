"""Both sides of physical memory whose descriptors go through a socket, as a real driver has it."""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import Any

from tests.emugpu.abi.programs.vmm import PAGE, allow, create, file_handles, free, put, reserve
from tests.emugpu.program_api import MIB, d, error, launch, ok, say, wait, word, words

KIND = file_handles()
AT_ONCE = 64  # descriptors in a message
TIMES = 100  # that memory is unmapped


def offer(*values: int) -> Any:
    """Fill a page with each value, and send their descriptors; where the first one is."""
    pages = []
    for value in values:
        handle, at = create(), reserve(PAGE)
        put(at, handle)
        ok(launch("fill", at, PAGE // 4, value))
        pages.append((handle, at))
    ok(d.cuCtxSynchronize())
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind("")
    door.listen()
    say(door.getsockname().hex())
    files = [ok(d.cuMemExportToShareableHandle(handle, KIND, 0)) for handle, _ in pages]
    socket.send_fds(door.accept()[0], [b"all"], files)
    for file in files:
        os.close(file)
    return pages[0][1]


def take(door: str) -> list[int]:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(bytes.fromhex(door))
    return list(socket.recv_fds(peer, 16, 100)[1])


def whole(at: int, value: int) -> bool:
    return words(at, PAGE // 4) == [word(value, i) for i in range(PAGE // 4)]


def imported(file: int) -> Any:
    return ok(d.cuMemImportFromShareableHandle(file, KIND))


def offer_one() -> None:
    at = offer(5)
    wait()
    assert whole(at, 6)


def take_one(door: str) -> None:
    start, [file] = free(), take(door)
    twins = [imported(file) for _ in range(2)]
    at = reserve(PAGE)
    put(at, twins[0])
    for twin in twins:
        ok(d.cuMemRelease(twin))  # the mapping is enough
    assert error(d.cuMemRelease(twins[1])) == "INVALID_VALUE"
    assert whole(at, 5)
    assert free() == start  # it takes nothing
    ok(launch("fill", at, PAGE // 4, 6))
    ok(d.cuCtxSynchronize())
    say("has it")
    wait()
    assert whole(at, 6)  # its owner has ended
    ok(d.cuMemUnmap(at, PAGE))
    while free() < start + MIB:  # its owner's context
        pass
    assert free() < start + MIB + PAGE
    put(at, imported(file))  # the file keeps it
    assert whole(at, 6)
    ok(d.cuMemUnmap(at, PAGE))


def offer_many() -> None:
    offer(*range(AT_ONCE))
    wait()


def take_many(door: str) -> None:
    files = take(door)
    assert len(files) == AT_ONCE
    at = reserve(AT_ONCE * PAGE)
    for i, file in enumerate(files):
        twin = imported(file)
        os.close(file)
        ok(d.cuMemMap(at + i * PAGE, PAGE, 0, twin, 0))
        ok(d.cuMemRelease(twin))
    ok(allow(at, AT_ONCE * PAGE))
    say("has it")
    wait()
    for i in range(AT_ONCE):
        assert words(at + i * PAGE, 2) == [word(i, 0), word(i, 1)], i
    assert whole(at + (AT_ONCE - 1) * PAGE, AT_ONCE - 1)
    ok(d.cuMemUnmap(at, AT_ONCE * PAGE))


def offer_and_unmap() -> None:
    at = offer(5)
    handle = ok(d.cuMemRetainAllocationHandle(at))
    wait()
    for _ in range(TIMES):
        ok(d.cuMemUnmap(at, PAGE))
        put(at, handle)


def take_and_fill(door: str) -> None:
    """Until the test says go on, a kernel computes on it all the time."""
    [file] = take(door)
    at = reserve(PAGE)
    put(at, imported(file))
    say("has it")
    while not select.select([sys.stdin], [], [], 0)[0]:
        ok(launch("fill", at, PAGE // 4, 6))
        ok(d.cuCtxSynchronize())
    assert whole(at, 6)
