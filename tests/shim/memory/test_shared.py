"""CUDA IPC between the processes of one job: with the interposer as without it, and between no
others. Every program runs bare as well."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, finish, go_on, line, program
from tests.emugpu.server import EmulatedGpu
from tests.support.programs import tell

BARE = "no interposer"
SWAP = "tq:1,lock:on,memory:swap"
Process = subprocess.Popen[str]
Run = Callable[[str], Process]  # in the one job

OPENING = """
setup()
OURS = False
def give(p):
    handle = ctypes.string_at(ok(d.cuIpcGetMemHandle(p)).getPtr(), 64)
    assert handle.startswith(b"GPLSIPC") == OURS
    say(handle.hex())
def handle_of(text):
    handle = d.CUipcMemHandle(); ctypes.memmove(handle.getPtr(), bytes.fromhex(text), 64)
    return handle
def take(text=None):
    return d.cuIpcOpenMemHandle(handle_of(text or sys.stdin.readline()), 1)
def same(p, base, n, step=65537):
    return all(words(int(p) + 4 * i, 1) == [word(base, i)] for i in (*range(0, n, step), n - 1))
"""


@pytest.fixture(params=[BARE, SWAP], ids=["bare", "swap"])
def run(request: pytest.FixtureRequest, emulated_gpu: EmulatedGpu) -> Iterator[Run]:
    """Starts programs, without the interposer or in one job."""
    opened = []

    def bare(code: str) -> Process:
        opened.append(program(emulated_gpu, OPENING + code))
        return opened[-1].__enter__()

    def in_job(code: str) -> Process:
        start: Start = request.getfixturevalue("tenant")
        return start(1, request.param, "-c", IMPORTS + OPENING + "OURS = True\n" + code)

    yield bare if request.param == BARE else in_job
    for manager in opened:
        manager.__exit__(None, None, None)


@pytest.mark.parametrize("size", ["4096", "6 * MIB", "40 * MIB"])
def test_both_see_what_the_other_writes(run: Run, size: str) -> None:
    owner = run(
        f"""
size = {size}; n = size // 4
p = ok(d.cuMemAlloc(size)); ok(launch("fill", p, n, 5)); ok(d.cuCtxSynchronize())
give(p); wait()
assert same(p, 9, n)
ok(launch("fill", p, n, 11)); ok(d.cuCtxSynchronize()); say("once more"); wait()
"""
    )
    other = run(
        f"""
size = {size}; n = size // 4
q = int(ok(take()))
assert same(q, 5, n)
ok(launch("fill", q, n, 9)); ok(d.cuCtxSynchronize()); say("written"); wait()
assert same(q, 11, n)
base, length = ok(d.cuMemGetAddressRange(q + size // 2)); assert (int(base), length) == (q, size)
assert error(d.cuMemFree(q)) == error(d.cuIpcGetMemHandle(q)) == "INVALID_VALUE"
ok(d.cuIpcCloseMemHandle(q))
assert error(d.cuIpcCloseMemHandle(q)) == "INVALID_VALUE"
"""
    )
    tell(other, line(owner))
    assert line(other) == "written"
    go_on(owner)
    assert line(owner) == "once more"
    go_on(other)
    finish(other)
    go_on(owner)
    finish(owner)


def test_three_processes_and_several_openings(run: Run) -> None:
    owner = run(
        """
p = ok(d.cuMemAlloc(6 * MIB)); small = [ok(d.cuMemAlloc(4096)) for _ in range(3)]
ok(launch("fill", p, 1536 * 1024, 5))
for i, s in enumerate(small): ok(launch("fill", s, 1024, 20 + i))
ok(d.cuCtxSynchronize()); give(p)
for s in small: give(s)
wait(); assert same(p, 7, 1536 * 1024)
for i, s in enumerate(small): assert same(s, 30 + i, 1024)
"""
    )
    handles = [line(owner) for _ in range(4)]
    opener = f"""
texts = {handles}
q, r, *small = (int(ok(take(t))) for t in (texts[0], *texts))
assert q == r and len(set(small)) == 3
for i, s in enumerate(small): assert same(s, 20 + i, 1024)
ok(d.cuIpcCloseMemHandle(q)); assert same(q, 5, 1536 * 1024)
assert error(d.cuIpcCloseMemHandle(q + 4)) == "INVALID_VALUE"
say("open"); wait()
"""
    reader = run(opener + "ok(d.cuIpcCloseMemHandle(q)); assert int(ok(take(texts[0])))\n")
    writer = run(
        opener
        + """
ok(launch("fill", q, 1536 * 1024, 7))
for i, s in enumerate(small): ok(launch("fill", s, 1024, 30 + i))
ok(d.cuCtxSynchronize())
"""
    )
    for process in (reader, writer):
        assert line(process) == "open"
    for process in (reader, writer, owner):
        go_on(process)
        finish(process)


def test_opened_memory_outlives_its_owner(run: Run) -> None:
    owner = run(
        """
p = ok(d.cuMemAlloc(6 * MIB)); ok(launch("fill", p, 1536 * 1024, 5)); ok(d.cuCtxSynchronize())
give(p); wait()
"""
    )
    other = run(
        """
q = int(ok(take())); say("open"); wait()
held = ok(d.cuMemAlloc(40 * MIB)); ok(d.cuMemsetD32(held, 0, 10 * MIB))
assert same(q, 5, 1536 * 1024)
ok(launch("fill", q, 1536 * 1024, 6)); assert same(q, 6, 1536 * 1024)
ok(d.cuIpcCloseMemHandle(q))
"""
    )
    tell(other, line(owner))
    assert line(other) == "open"
    go_on(owner)
    finish(owner)
    go_on(other)
    finish(other)


def test_a_process_that_has_opened_the_memory_is_killed(run: Run) -> None:
    owner = run(
        """
p = ok(d.cuMemAlloc(6 * MIB)); ok(launch("fill", p, 1536 * 1024, 5)); ok(d.cuCtxSynchronize())
give(p); wait()
assert same(p, 5, 1536 * 1024); give(p); wait(); ok(d.cuMemFree(p))
"""
    )
    code = """
q = int(ok(take())); say("open", os.getpid()); wait()
"""
    killed = run(code)
    tell(killed, line(owner))
    os.kill(int(line(killed).split()[1]), signal.SIGKILL)
    killed.wait()
    go_on(owner)
    other = run(code + "assert same(q, 5, 1536 * 1024)\n")
    tell(other, line(owner))
    assert line(other).startswith("open")
    go_on(other)
    finish(other)
    go_on(owner)
    finish(owner)


def test_handles_that_cannot_be_opened(run: Run) -> None:
    owner = run(
        """
p, small = ok(d.cuMemAlloc(6 * MIB)), ok(d.cuMemAlloc(4096)); give(p); give(small)
for bad in (ok(d.cuMemAllocAsync(4096, 0)), ok(d.cuMemAllocManaged(4096, 1)), 4096):
    assert error(d.cuIpcGetMemHandle(bad)) == "INVALID_VALUE"
assert error(take(ctypes.string_at(ok(d.cuIpcGetMemHandle(p)).getPtr(), 64).hex())) == (
    "INVALID_CONTEXT")
ok(d.cuMemFree(p)); ok(d.cuMemFree(small)); say("freed"); wait()
"""
    )
    handles = [line(owner) for _ in range(2)]
    assert line(owner) == "freed"
    other = run(
        f"""
for text in {handles}: assert error(take(text)) == "INVALID_VALUE", text
text = {handles[0]!r}
assert error(d.cuIpcOpenMemHandle(handle_of(text), 0)) == "INVALID_VALUE"
for at in (0, 20, 40, 50, 58, 80):                  # mark, name, block, offset, size
    forged = text[:at] + "f3" + text[at + 2:]
    assert error(take(forged)) == "INVALID_VALUE", at
assert error(take("00" * 64)) == error(take("ff" * 64)) == "INVALID_VALUE"
assert error(d.cuIpcCloseMemHandle(4096)) == "INVALID_VALUE"
"""
    )
    finish(other)
    go_on(owner)
    finish(owner)
    gone = run(f"assert error(take({handles[0]!r})) == 'INVALID_VALUE'\n")
    finish(gone)
