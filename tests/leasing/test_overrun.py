"""A holder that does not give its GPU back: noticed, charged, passed over, and let in again."""

from __future__ import annotations

import pytest

from leased.api.client import ask
from tests.conftest import Start
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, output, state, tell

pytestmark = pytest.mark.daemon(extra='[limits]\ndrain = "300ms"\n')


def usage(leased: Leased, job: int) -> dict[str, float]:
    used = ask(leased.admin_socket, {"op": "usage", "job_id": job})["usage"]
    return dict(next(iter(used.values())))


@pytest.mark.usefixtures("uncontrolled")
def test_a_hanging_holder_is_passed_over_and_goes_on_later(tenant: Start, leased: Leased) -> None:
    hangs = (
        SET_UP
        + """
told, tell = os.pipe()
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: os.read(told, 1))
ok(d.cuLaunchHostFunc(0, ctypes.cast(wait, ctypes.c_void_p).value, 0))
say("hangs"); sys.stdin.readline()
os.write(tell, b"x")
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("went on")
"""
    )
    code = (
        SET_UP
        + """
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("ran"); sys.stdin.readline()
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("went on")
"""
    )
    holder = tenant(1, "tq:100ms,lock:on", "-c", hangs)
    assert line(holder) == "hangs"
    waiter = tenant(2, "tq:100ms,lock:on", "-c", code)
    assert line(waiter) == "ran"
    assert usage(leased, 1)["overruns"] == 1
    log = leased.log.read_text()
    assert "job 1 (uid 0) has not released its lease" in log
    assert "the next in the queue gets its GPUs" in log
    # The lease that it lost is no lease: it holds the GPU again only when it is its turn.
    tell(holder)
    assert line(holder) == "went on"
    tell(waiter)
    assert "went on" in output(waiter)
    output(holder)


def test_a_long_kernel_that_ends_in_time_is_no_overrun(tenant: Start, leased: Leased) -> None:
    long = SET_UP + 'say("holds"); ok(spin(200_000_000)); ok(d.cuCtxSynchronize()); say("done")'
    short = SET_UP + 'say("asks"); ok(spin(1000)); ok(d.cuCtxSynchronize())'
    holder = tenant(1, "tq:100ms,lock:on", "-c", long)
    assert line(holder) == "holds"
    wait_until("job 1 to hold", lambda: state(leased, 1) == "holds")
    output(tenant(2, "tq:100ms,lock:on", "-c", short))
    output(holder)
    assert usage(leased, 1)["overruns"] == 0
