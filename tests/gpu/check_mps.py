"""What gpu-lease relies on of NVIDIA's MPS, on a real GPU: `python -m tests.gpu.check_mps`.

As root, on a machine whose GPU nobody else uses: one client ends the other one's work. It starts
the control program as the daemon does, and looks for what the daemon looks for: the pid file, the
name of the process, the words of a fault in the server's log, a server that recovers, and its end.
Prints a line for each; exit status 1 if one is not so. With an emulated GPU in EMUGPU_DIR it runs
on the emulated control program: `python -m tests.gpu.emulated tests.gpu.check_mps
--passes 10`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml

from leased.mps.control import Control
from tests.emugpu.mps_control import install
from tests.emugpu.programs import IMPORTS, line
from tests.gpu.build import ROOT
from tests.support.work_dir import work_dir

RECOVERS_S = 30.0
WAITS = """
setup()
p = ok(d.cuMemAlloc(64 * MIB))
say("up")
result = (d.CUresult.CUDA_SUCCESS,)
while error(result) == "CUDA_SUCCESS":
    launch("add", p, 16 * MIB, 1, 1)
    result = d.cuCtxSynchronize()
say(error(result))
"""
ILLEGAL = """
setup()
say("up")
launch("fill", 1 << 46, 1000, 1)
say(error(d.cuCtxSynchronize()))
"""
# Both ends of copies between pinned memory and the device: by _exit() and by SIGKILL.
ENDS_IN_A_COPY = """
import os, signal
setup()
n = 64 * MIB
p, host = ok(d.cuMemAlloc(n)), ok(d.cuMemHostAlloc(n, 0))
out, back = (ok(d.cuStreamCreate(1)) for _ in range(2))
for _ in range(40):
    ok(d.cuMemcpyDtoHAsync(host, p, n, out)); ok(d.cuMemcpyHtoDAsync(p, host, n, back))
say("copies")
END
"""
ENDS = ("os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)")
BEGINS = """
say(error(d.cuInit(0)))
"""
TAKES = """
import time
setup()
p = ok(d.cuMemAlloc(64 * MIB))
ok(launch("add", p, 16 * MIB, 1, 1)); ok(d.cuCtxSynchronize())
begun = time.monotonic()
ok(launch("add", p, 16 * MIB, 1, PASSES, grid=1024, block=256)); ok(d.cuCtxSynchronize())
say(time.monotonic() - begun)
"""


def environment(control: Control, percent: int) -> dict[str, str]:
    return os.environ | {
        "CUDA_MPS_PIPE_DIRECTORY": str(control.pipes),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent),
        "CUDA_VISIBLE_DEVICES": control.uuid,
    }


@contextmanager
def client(control: Control, code: str, percent: int = 100) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", IMPORTS + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=environment(control, percent),
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def recovers(control: Control) -> bool:
    """Whether a new client is taken, in time."""
    until = time.monotonic() + RECOVERS_S
    while time.monotonic() < until:
        with client(control, BEGINS) as later:
            if line(later) == "CUDA_SUCCESS":
                return True
    return False


def works(process: subprocess.Popen[str]) -> bool:
    """It has said nothing for two seconds: a client that fails says so."""
    assert process.stdout is not None
    return not select.select([process.stdout], [], [], 2.0)[0]


def look(control: Control, passes: int) -> Iterator[tuple[str, bool]]:
    """What is relied on, and whether it is so."""
    asyncio.run(control.start(any_user=False))
    yield "the pid file and the name of the process are found", control.pid() is not None
    control.faults()
    for percent in (100, 25):
        with client(control, f"PASSES = {passes}\n{TAKES}", percent) as one:
            print(f"with {percent}% of the multiprocessors a kernel takes {line(one)} s")
    with client(control, WAITS) as neighbour:
        yield "a client runs", line(neighbour) == "up"
        for end in ENDS * 3:
            with client(control, ENDS_IN_A_COPY.replace("END", end)) as one:
                copied = line(one) == "copies"
                one.wait()
            yield f"it works on when one ends in a copy ({end})", copied and works(neighbour)
        with client(control, ILLEGAL) as guilty:
            yield "a second one runs", line(guilty) == "up"
            print(f"the guilty one gets {line(guilty)}, its neighbour {line(neighbour)}")
    log = control.logs / "server.log"
    found = control.faults()
    if not found:
        print(log.read_text()[-4000:] if log.exists() else "there is no server.log")
    yield "the server's log has the words of a fault", found > 0
    yield "the server takes new clients then", recovers(control)
    asyncio.run(control.quit())
    yield "it ends when it is told", control.pid() is None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--passes", type=int, default=2000, help="over 64 MiB, of the timed kernel")
    chosen = parser.parse_args()
    place = work_dir()
    real = shutil.which("nvidia-cuda-mps-control")
    program = install(place) if "EMUGPU_DIR" in os.environ else Path(real or "/missing")
    pynvml.nvmlInit()
    uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(chosen.gpu))
    control = Control(program, place / "mps", uuid)
    wrong = 0
    try:
        for what, is_so in look(control, chosen.passes):
            print(f"{'ok   ' if is_so else 'WRONG'} {what}")
            wrong += not is_so
    finally:
        if control.pid() is not None:
            asyncio.run(control.quit())
        shutil.rmtree(place, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
