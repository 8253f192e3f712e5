"""The GPU the demo runs on: an NVIDIA card if there is one, else the emulated GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from tests.demo.scenarios import REAL_CAP_BYTES
from tests.emugpu.server import EmulatedGpu

MIB = 1 << 20


@dataclass
class DemoGpu:
    """One GPU. kind: emulated or nvidia; memory: bytes that the jobs may use of it.

    env: for the daemons and the jobs; files: its device files for gres.conf, None to make
    some; device_config: the [device] table of gpu-leased.toml.
    """

    kind: str
    name: str
    memory: int
    env: Mapping[str, str] = field(default_factory=dict)
    files: list[Path] | None = None
    device_config: str = ""
    emulator: EmulatedGpu | None = None

    def describe(self) -> dict[str, Any]:
        """The "gpu" object of result.json."""
        return {"kind": self.kind, "name": self.name, "memory_bytes": self.memory}

    def moved_bytes(self, pid: int) -> int | None:
        """Bytes a process moved over the link, as the emulator counted; None on a real card."""
        if self.emulator is None:
            return None
        counts = [p for p in self.emulator.stats()["processes"] if p["pid"] == pid]
        return sum(int(p["faulted_in"] + p["copied_in"] + p["moved_out"]) for p in counts)


def find_nvidia() -> DemoGpu | None:
    """The first NVIDIA GPU of this machine that has room, capped to a few GiB."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        # Two heavy jobs together never ask for more than half of what is free.
        cap = min(REAL_CAP_BYTES, int(memory.free) // 4) // MIB * MIB
        if cap < 256 * MIB:
            return None
        minor = pynvml.nvmlDeviceGetMinorNumber(handle)
        return DemoGpu(
            "nvidia",
            pynvml.nvmlDeviceGetName(handle),
            cap,
            files=[Path(f"/dev/nvidia{minor}")],
            device_config=f'[device]\nmemory = "{cap // MIB}MiB"\n',
        )
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


@contextlib.contextmanager
def choose(kind: str, directory: Path) -> Iterator[DemoGpu]:
    """The GPU to use: "nvidia", "emulated", or "auto" for the first of them that is there."""
    nvidia = find_nvidia() if kind != "emulated" else None
    if nvidia is not None:
        yield nvidia
        return
    if kind == "nvidia":
        raise SystemExit("demo: no NVIDIA GPU with room here; see nvidia-smi, or --gpu emulated")
    with EmulatedGpu(directory) as emulator:
        device = emulator.stats()["devices"][0]
        yield DemoGpu("emulated", device["name"], device["memory"], emulator.env, emulator=emulator)
