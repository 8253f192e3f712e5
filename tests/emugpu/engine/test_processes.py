"""Processes that share an emulated device: a death frees everything, paging loses nothing."""

from __future__ import annotations

import os
import signal

from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import EmulatedGpu


def test_a_killed_process_frees_everything(emulated_gpu: EmulatedGpu) -> None:
    code = """
setup()
p = ok(d.cuMemAlloc(200 * MIB))
ok(launch("spin", 60_000_000_000))
say("up")
wait()
"""
    with program(emulated_gpu, code) as process:
        assert line(process) == "up"
        process.kill()
    run(
        emulated_gpu,
        """
setup()
while ok(d.cuMemGetInfo())[0] < 250 * MIB:
    pass
ok(launch("spin", 1000))
ok(d.cuCtxSynchronize())
""",
    )


def test_a_process_that_is_stopped_in_a_copy_keeps_nobody_waiting(
    emulated_gpu: EmulatedGpu,
) -> None:
    code = """
import threading, time
setup()
n = 4 * MIB
p = ok(d.cuMemAlloc(n)); ok(d.cuMemsetD8(p, 7, n)); ok(d.cuCtxSynchronize())
out = bytearray(n)
threading.Thread(target=lambda: (time.sleep(0.1), say("copies"))).start()
ok(launch("spin", 300_000_000))
ok(d.cuMemcpyDtoH(out, p, n))  # what it is told of that does not fit into a socket
assert out.count(7) == n
"""
    with program(emulated_gpu, code) as stopped:
        assert line(stopped) == "copies"
        os.kill(stopped.pid, signal.SIGSTOP)
        run(emulated_gpu, code)
        os.kill(stopped.pid, signal.SIGCONT)
        finish(stopped)


def test_two_processes_evict_each_other_and_lose_nothing(emulated_gpu: EmulatedGpu) -> None:
    code = """
import os
import numpy as np
setup()
n = 200 * MIB // 4
p = ok(d.cuMemAllocManaged(4 * n, 1))
ok(launch("fill", p, n, os.getpid()))
ok(d.cuCtxSynchronize())
say("filled")
wait()
ok(launch("add", p, n, 1, 3))
out = np.zeros(n, dtype=np.uint32)
ok(d.cuMemcpyDtoH(out.ctypes.data, p, 4 * n))
piece = 1 << 20  # what is reckoned at once stays in the cache
for at in range(0, n, piece):
    i = np.arange(at, min(n, at + piece), dtype=np.uint32)
    assert (out[at : at + piece] == i * np.uint32(2654435761) + np.uint32(os.getpid() + 3)).all()
"""
    with program(emulated_gpu, code) as one, program(emulated_gpu, code) as other:
        for process in (one, other):
            assert line(process) == "filled"
        for process in (one, other):
            go_on(process)
        for process in (one, other):
            finish(process)
        pids = {one.pid, other.pid}
    moved = [p for p in emulated_gpu.stats()["processes"] if p["pid"] in pids]
    # 400 MiB on a device of 256: at least the difference went out and came back.
    assert sum(p["faulted_in"] for p in moved) >= 144 << 20
    assert sum(p["moved_out"] for p in moved) >= 144 << 20
