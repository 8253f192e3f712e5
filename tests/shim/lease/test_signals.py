"""Who waits for its turn hears signals: the daemon learns of them, and gives it a short turn."""

from __future__ import annotations

import os
import signal

import pytest

from tests.conftest import Start
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, Process, line, state, tell

LONG = "lock:on,tq:600"  # no turn of the waiter comes while the test runs

# It is never idle, so that it keeps its lease for its whole quantum.
HOLDS = (
    SET_UP
    + """
import threading
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("holds")
one, other = ok(d.cuEventCreate(0)), ok(d.cuEventCreate(0))
while not ended.is_set():
    ok(spin(50_000_000)); ok(d.cuEventRecord(one, 0)); ok(d.cuEventSynchronize(other))
    one, other = other, one
say("ends")
"""
)
# argv[1]: does a handler interrupt system calls? A handler of Python runs between its bytecodes, so
# when the call has returned.
HEARS = (
    SET_UP
    + """
import signal, time
libc = ctypes.CDLL(None)
def hears(number, _):
    say("hears", signal.Signals(number).name)
def action():
    found = ctypes.create_string_buffer(152)  # struct sigaction: handler, mask, flags
    libc.sigaction(signal.SIGUSR1, None, found)
    return found.raw[:16], found.raw[136:140]
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
    signal.signal(number, hears)
    signal.siginterrupt(number, sys.argv[1] == "interrupts")
mine = action()
say(os.getpid())
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("goes on")
while action() != mine: time.sleep(0.01)
say("has its handlers"); sys.stdin.readline()
"""
)

# The thread at the gate is not the one that gets the signal: that waits for it, in a call of C.
HEARS_ELSEWHERE = HEARS.replace(
    "ok(spin(1000)); ok(d.cuCtxSynchronize())\n",
    """
import threading
barrier = ctypes.create_string_buffer(64)
libc.pthread_barrier_init(barrier, None, 2)
def works():
    ok(d.cuCtxSetCurrent(ctx)); ok(spin(1000)); ok(d.cuCtxSynchronize())
    libc.pthread_barrier_wait(barrier)
threading.Thread(target=works).start()
libc.pthread_barrier_wait(barrier)
""",
)


def behind_a_holder(tenant: Start, leased: Leased, *program: str) -> tuple[Process, Process, int]:
    """Two jobs that want one GPU: the holder, the waiter, and the pid of the waiter's program."""
    holder = tenant(1, LONG, "-c", HOLDS)
    assert line(holder) == "holds"
    waiter = tenant(2, LONG, "-c", *program)
    pid = int(line(waiter))
    wait_until("job 2 to wait", lambda: state(leased, 2) == "waits")
    return holder, waiter, pid


@pytest.mark.parametrize(
    ("name", "restarts", "program"),
    [
        ("SIGUSR1", "interrupts", HEARS),
        ("SIGTERM", "restarts", HEARS),
        ("SIGINT", "interrupts", HEARS),
        ("SIGUSR1", "restarts", HEARS_ELSEWHERE),
    ],
    ids=["interrupts", "restarts", "interrupt", "elsewhere"],
)
def test_a_waiter_hears_a_signal(
    tenant: Start, leased: Leased, name: str, restarts: str, program: str
) -> None:
    holder, waiter, pid = behind_a_holder(tenant, leased, program, restarts)
    os.kill(pid, getattr(signal, name))
    assert line(waiter) == f"hears {name}"
    assert line(waiter) == "goes on"
    assert line(waiter) == "has its handlers"
    wait_until("the holder to go on", lambda: state(leased, 1) == "holds")
    tell(holder)
    assert line(holder) == "ends"
