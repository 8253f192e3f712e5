"""XSched (Shen et al., OSDI 2025), where it was installed: its server, and programs under it.

What `make cuda` of XSched installs is meant: bin/xserver, and lib/ with its libcuda.so.1, which
programs load in place of the driver's.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.gpu.jobs import ROOT, JobFailed, readable
from tests.slurm.processes import Daemon, StartError

PORT = 50000  # where the server answers its terminal viewer
BY_SLICES = 3  # the level at which a queue is stopped in mid-kernel


class XSched:
    """What is installed in a directory. SystemExit: something of it cannot be read."""

    def __init__(self, directory: Path):
        self.server = readable(directory / "bin" / "xserver")
        self.libraries = readable(directory / "lib" / "libcuda.so.1").parent

    @contextmanager
    def serving(self, policy: str) -> Iterator[None]:
        """Its server runs by this policy. JobFailed: it did not come up, or did not stay."""
        log = ROOT / "build" / "bench" / "xserver.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        server = Daemon.start("xserver", [str(self.server), policy, str(PORT)], log)
        try:
            try:
                server.wait_ready(_answers)
            except StartError as fault:
                raise JobFailed(str(fault)) from None
            yield
        finally:
            ended = not server.running()
            server.stop()
            if ended:
                raise JobFailed(f"xserver ended:\n{server.tail()}")

    def environment(self, level: int = 1, **queue: int) -> dict[str, str]:
        """Of a program that the server schedules. level: of preemption. queue: what else its queues
        are told, by the lower-case ends of the names XSCHED_AUTO_XQUEUE_...

        At level 3 the driver's time slice of a queue's context is taken away; the other method of
        that level, and level 2, know the machine code of some older GPUs only.
        """
        driver = str(_driver_file())
        path = ":".join(filter(None, [str(self.libraries), os.environ.get("LD_LIBRARY_PATH")]))
        told = {"level": level, **queue}
        by_slices = {"XSCHED_CUDA_LV3_IMPL": "TSG"} if level == BY_SLICES else {}
        return by_slices | {
            "LD_LIBRARY_PATH": path,
            "XSCHED_CUDA_LIB": driver,
            "CUXTRA_CUDA_LIB": driver,
            "XSCHED_SCHEDULER": "GLB",
            "XSCHED_AUTO_XQUEUE": "ON",
            **{f"XSCHED_AUTO_XQUEUE_{name.upper()}": str(value) for name, value in told.items()},
        }


def _answers() -> bool:
    """Whether the server listens; it receives what programs say before it does."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", PORT)) == 0


def _driver_file() -> Path:
    """The libcuda.so.1 that programs here load."""
    ctypes.CDLL("libcuda.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libcuda.so" in path:
            return Path(path)
    raise SystemExit("the driver's libcuda.so.1 is not in this process' memory map")
