"""A process says which of its calls have finished, and which of them launched a graph."""

from __future__ import annotations

from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell

SINGLE, GRAPHS = 7, 5
NS = 20_000_000  # of each call

# When it is told to: kernels, then a graph of one kernel again and again.
CALLS = f"""
ok(spin(1000)); stream = ok(d.cuStreamCreate(1))
ok(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
values = (({NS},), (ctypes.c_uint64,))
ok(d.cuLaunchKernel(kernel["spin"], 1, 1, 1, 1, 1, 1, 0, stream, values, 0))
graph = ok(d.cuGraphInstantiate(ok(d.cuStreamEndCapture(stream)), 0))
ok(d.cuCtxSynchronize()); say("ready")
wait()
for _ in range({SINGLE}): ok(spin({NS}))
for _ in range({GRAPHS}): ok(d.cuGraphLaunch(graph, stream))
ok(d.cuCtxSynchronize()); say("done"); wait()
"""


def test_launches_of_graphs_are_told_apart_from_other_calls(
    program: swap.Program, daemon: FakeDaemon
) -> None:
    job = program(CALLS)
    client = swap.client_of(daemon, job)
    assert line(job) == "ready"
    client.calls()
    before = client.told[-1]
    tell(job)
    while client.told[-1].done - before.done < SINGLE + GRAPHS:
        client.calls()
    after = client.told[-1]
    assert line(job) == "done"
    assert after.done - before.done == SINGLE + GRAPHS
    assert after.done_graphs - before.done_graphs == GRAPHS
    assert 0 < after.done_ns - before.done_ns <= after.busy_ns
    tell(job)
    swap.finish(job)
