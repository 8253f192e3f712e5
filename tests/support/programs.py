"""Programs that tests start and speak with over pipes: what they begin with, and their answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from leased.api.client import ask
from tests.emugpu.programs import next_line
from tests.emugpu.server import KERNELS, EmulatedGpu
from tests.slurm.leased import CHECKED, Leased

Process = subprocess.Popen[str]

# What a program in Python begins with: a context, kernels, spin() and say().
SET_UP = f"""
import ctypes, os, sys
from tests.emugpu.bindings import driver as d
def ok(r):
    assert r[0] == d.CUresult.CUDA_SUCCESS, r[0]
    return r[1] if len(r) == 2 else r[1:]
ok(d.cuInit(0))
ctx = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuCtxSetCurrent(ctx))
module = ok(d.cuModuleLoadData(open({str(KERNELS)!r}, "rb").read() + b"\\0"))
kernel = {{n: ok(d.cuModuleGetFunction(module, n.encode())) for n in ("fill", "add", "spin")}}
def spin(ns, stream=0):
    values = ((ns,), (ctypes.c_uint64,))
    return d.cuLaunchKernel(kernel["spin"], 1, 1, 1, 1, 1, 1, 0, stream, values, 0)
def say(*words):  # in one write: several ranks may write to one pipe at once
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""
# What looks at the memory of a device: each of the `n` words from `p` on is to have one value. The
# first one has it, and each has what the next one has. Fresh memory of the host for each look would
# take longer than the look; before it there is something else, so that what is not copied shows.
CHECK = """
libc, hosts = ctypes.CDLL(None), {}
libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
def check(p, n, value):
    if n not in hosts:
        hosts[n] = (ctypes.c_uint32 * n)()
    host, at = hosts[n], ctypes.addressof(hosts[n])
    libc.memset(at, ~value, 4 * n)
    ok(d.cuMemcpyDtoH(at, p, 4 * n))
    assert host[0] == value and not libc.memcmp(at, at + 4, 4 * n - 4), (value, set(host))
"""


# -- what it says, and what it is told ---------------------------------------------------


def output(process: Process, timeout: float = 60) -> str:
    """Wait for its end, and return everything that it printed; a failure shows its errors."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


def line(process: Process) -> str:
    """The next line that it prints; "" if it has ended."""
    return next_line(process).strip()


def tell(process: Process, text: str = "") -> None:
    """Send it a line."""
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()


def state(leased: Leased, job: int) -> str:
    """The state of the job in the answer to status."""
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    return str(next(t["state"] for t in tenants if t["job_id"] == job))


# -- programs under the interposer ---------------------------------------------------------


class Programs:
    """Starts programs on an emulated GPU, under the interposer."""

    def __init__(self, gpu: EmulatedGpu, env: Mapping[str, str], preload: Path):
        self.env = os.environ | gpu.env | {"LD_PRELOAD": str(preload)} | dict(env)
        self.started: list[Process] = []

    def start(self, *command: str, socket: Path | str) -> Process:
        """socket: where the program finds its daemon."""
        pipe = subprocess.PIPE
        env = self.env | {"GPU_LEASE_SOCKET": str(socket)}
        process = subprocess.Popen(
            command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """What they have not said yet is shown with a failure."""
        for process in self.started:
            process.kill()
            sys.stderr.write("".join(process.communicate()))


@contextmanager
def programs(gpu: EmulatedGpu, *, preload: Path = CHECKED, **env: str) -> Iterator[Programs]:
    """All of them are ended behind it. env: of the programs."""
    made = Programs(gpu, env, preload)
    try:
        yield made
    finally:
        made.end()
