"""Memory of a chain's keeper, which moves although other processes of the job have it open."""

from __future__ import annotations

import os
import signal

import pytest

from tests.conftest import Start
from tests.emugpu.programs import IMPORTS, TIMEOUT_S, finish, go_on, line
from tests.shim.memory.test_shared import OPENING, SWAP
from tests.support.programs import tell

CODE = IMPORTS + OPENING + "OURS = True\n"
N = 10 * 1024 * 1024  # words of 40 MiB
KEEPER = (
    IMPORTS
    + """
import socket
program, door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
assert ctypes.CDLL(None).gpu_lease_chain_keep(door.fileno()) == 0
"""
    + OPENING
    + f"""
OURS = True
p = ok(d.cuMemAlloc(4 * {N})); give(p)
"""
)
OPENER = (
    CODE
    + f"""
q = int(ok(take())); ok(launch("fill", q, {N}, 5)); ok(d.cuCtxSynchronize())
say("filled"); wait()
assert same(q, 5, {N}); ok(launch("fill", q, {N}, 9)); ok(d.cuCtxSynchronize())
say("again"); wait()
assert same(q, 9, {N}); ok(d.cuIpcCloseMemHandle(q))
"""
)
HOLDS = 'ok(launch("spin", 1000, grid=1, block=1)); ok(d.cuCtxSynchronize()); '
# Does not fit beside the shared memory.
OTHER = (
    CODE
    + "p = ok(d.cuMemAlloc(220 * MIB)); ok(launch('fill', p, 1024, 1)); assert same(p, 1, 1024)"
)


@pytest.mark.parametrize("holds", [False, True])
def test_what_a_keeper_lends_leaves_and_comes_back(tenant: Start, holds: bool) -> None:
    """holds: it is opened by a process that has its lease already, and no memory of its own."""
    keeper = tenant(1, SWAP, "-c", KEEPER + "wait()")
    handle = line(keeper)
    opener = tenant(1, SWAP, "-c", OPENER.replace("q = ", HOLDS + "q = ") if holds else OPENER)
    tell(opener, handle)
    assert line(opener) == "filled"
    for word in ("again", ""):
        finish(tenant(2, SWAP, "-c", OTHER))
        go_on(opener)
        assert not word or line(opener) == word
    finish(opener)
    go_on(keeper)
    finish(keeper)


def test_what_was_away_when_its_keeper_ended_is_lost_and_said_to_be(tenant: Start) -> None:
    keeper = tenant(1, SWAP, "-c", KEEPER + "wait()")
    opener = tenant(
        1,
        SWAP,
        "-c",
        CODE
        + f"""
q = int(ok(take())); ok(launch("fill", q, {N}, 5)); ok(d.cuCtxSynchronize())
say("filled"); wait()
assert error(d.cuMemcpyDtoH(bytearray(64), q, 64)) == "INVALID_VALUE"
mine = ok(d.cuMemAlloc(4096)); ok(launch("fill", mine, 1024, 3)); assert same(mine, 3, 1024)
ok(d.cuIpcCloseMemHandle(q))
""",
    )
    tell(opener, line(keeper))
    assert line(opener) == "filled"
    finish(tenant(2, SWAP, "-c", OTHER))
    os.killpg(keeper.pid, signal.SIGKILL)
    keeper.wait()
    tell(opener)
    _, said = opener.communicate(timeout=TIMEOUT_S)
    assert opener.returncode == 0, said
    assert "a buffer of this job's chain is lost" in said
