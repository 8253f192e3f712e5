"""One GPU job of the demo: works on a buffer by turns on the GPU and on the CPU, and verifies it.

Run by Slurm, several at once. It knows nothing of sharing: it uses the driver
as any program does (NVIDIA's cuda-bindings), on a real GPU or the emulated one.
A *step* launches `sweeps` times the kernel `add` over `pieces` pieces of the
buffer, waits for the GPU, then computes on the CPU for `cpu_ms` of CPU time, or sleeps. A service
has `every_ms`: its steps are requests, one each so many milliseconds.
Every word has a value that can be computed without the GPU; after each step a
checksum of one piece is taken on the GPU, at the end of all, and compared.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda.bindings import driver

if TYPE_CHECKING:
    from numpy.typing import NDArray

KERNELS = Path(__file__).resolve().parents[1] / "emugpu" / "kernels.ptx"
WORD = 4
GRID, BLOCK = 1024, 256
HASH_CHUNK = bytes(1 << 16)
CACHED = 1 << 15  # words, of which all that is computed of them stays in a CPU's cache


class GpuError(RuntimeError):
    """A driver call failed; the text names the call and the driver's error."""


def call(function: Callable[..., tuple[Any, ...]], *args: Any) -> Any:
    """Call the driver and return its single result, or raise GpuError."""
    status, *results = function(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise GpuError(f"{function.__name__}: {status.name}")
    return results[0] if len(results) == 1 else results


@dataclass
class Piece:
    """A part of the buffer: where it is and what has been added to its words."""

    pointer: int
    words: int
    seed: int
    added: int = 0


@dataclass(frozen=True)
class Check:
    """A checksum that the GPU gave, and what is needed to compute it without the GPU."""

    got: int
    words: int
    base: int

    def ok(self) -> bool:
        """Whether the CPU gets the same: sum of word[i] * (i % 65521 + 1), mod 2**64."""
        pattern, weights = pattern_and_weights(self.words)
        base, total = np.uint32(self.base & 0xFFFFFFFF), 0
        for at in range(0, self.words, CACHED):
            part = slice(at, at + CACHED)
            weighted = np.multiply(pattern[part] + base, weights[part], dtype=np.uint64)
            total += int(weighted.sum(dtype=np.uint64))
        return total % 2**64 == self.got


@functools.cache
def pattern_and_weights(words: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """By index: what `fill` writes with a seed of 0, and what `checksum` multiplies it by."""
    index = np.arange(words, dtype=np.uint32)
    return index * np.uint32(2654435761), index % np.uint32(65521) + np.uint32(1)


@dataclass
class Gpu:
    """The context, the kernels and the buffer of this job."""

    pieces: list[Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        call(driver.cuInit, 0)
        device = call(driver.cuDeviceGet, 0)
        self.name = call(driver.cuDeviceGetName, 80, device).split(b"\0")[0].decode()
        call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
        module = call(driver.cuModuleLoadData, KERNELS.read_bytes() + b"\0")
        self.kernels = {
            name: call(driver.cuModuleGetFunction, module, name.encode())
            for name in ("fill", "add", "checksum")
        }
        self.free, self.total = call(driver.cuMemGetInfo)
        self.result = call(driver.cuMemAlloc, 8)

    def launch(self, name: str, values: tuple[int, ...], types: tuple[Any, ...]) -> None:
        call(
            driver.cuLaunchKernel,
            *(self.kernels[name], GRID, 1, 1, BLOCK, 1, 1, 0, 0),
            *((values, types), 0),
        )

    def alloc(self, size: int) -> int:
        """The address of so many bytes."""
        return int(call(driver.cuMemAlloc, size))

    def allocate(self, size: int, piece_size: int) -> None:
        """Allocate and fill `size` bytes in pieces; every piece has a seed of its own."""
        while size > 0:
            take = min(size, piece_size)
            piece = Piece(self.alloc(take), take // WORD, 17 + len(self.pieces))
            self.launch(
                "fill",
                (piece.pointer, piece.words, piece.seed),
                (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32),
            )
            self.pieces.append(piece)
            size -= take
        call(driver.cuCtxSynchronize)

    def add(self, piece: Piece, value: int, rounds: int) -> None:
        self.launch(
            "add",
            (piece.pointer, piece.words, value, rounds),
            (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32),
        )
        piece.added = (piece.added + value * rounds) & 0xFFFFFFFF

    def checksum(self, piece: Piece) -> Check:
        call(driver.cuMemsetD8, self.result, 0, 8)
        self.launch(
            "checksum",
            (piece.pointer, piece.words, int(self.result)),
            (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64),
        )
        out = np.zeros(1, dtype=np.uint64)
        call(driver.cuMemcpyDtoH, out.ctypes.data, self.result, 8)
        return Check(int(out[0]), piece.words, piece.seed + piece.added)


def compute_on_cpu(seconds: float) -> None:
    """Hash for so many seconds of this thread's CPU time, as preparing a batch would."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.sha256(HASH_CHUNK).digest()


@dataclass
class Steps:
    """When each step began, and how long its work on the GPU took, in seconds; and checksums."""

    began: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def begin(self, every_s: float) -> None:
        """Now, or so many seconds after the step before began."""
        if self.began and every_s:
            time.sleep(max(0.0, self.began[-1] + every_s - time.monotonic()))
        self.began.append(time.monotonic())

    def on_gpu(self) -> None:
        """The step's work on the GPU is over."""
        self.took.append(time.monotonic() - self.began[-1])

    def figures(self) -> dict[str, float]:
        """Milliseconds that half of the steps, and that 99 of 100, took at most; steps a second."""
        ordered = sorted(self.took)
        p50, p99 = (1000 * ordered[round(part * (len(ordered) - 1))] for part in (0.5, 0.99))
        seconds = self.began[-1] + self.took[-1] - self.began[0]
        return {"step_p50_ms": p50, "step_p99_ms": p99, "steps_s": len(ordered) / seconds}


def run(gpu: Gpu, options: argparse.Namespace) -> Steps:
    """All steps, with a checksum of one piece after each 1/8 of them and of all at the end, which
    shows too what the steps beyond them have done."""
    steps = Steps()
    every = max(1, options.steps // 8)
    width = options.pieces or len(gpu.pieces)
    for step in itertools.count():
        if step >= options.steps and (options.until is None or options.until.exists()):
            break
        steps.begin(options.every_ms / 1000)
        for _ in range(options.sweeps):
            for offset in range(width):
                gpu.add(gpu.pieces[(step * width + offset) % len(gpu.pieces)], 3, options.rounds)
        call(driver.cuCtxSynchronize)
        steps.on_gpu()
        compute_on_cpu(options.cpu_ms / 1000)
        time.sleep(options.pause_ms / 1000)
        if step < options.steps and step % every == every - 1:
            steps.checks.append(gpu.checksum(gpu.pieces[step % len(gpu.pieces)]))
            print(f"step {step + 1}/{options.steps}", flush=True)
    steps.checks += [gpu.checksum(piece) for piece in gpu.pieces]
    return steps


def calibrate(gpu: Gpu) -> float:
    """Seconds that one round of `add` over the whole buffer takes when it is resident."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        for piece in gpu.pieces:
            gpu.add(piece, 1, 4)
        call(driver.cuCtxSynchronize)
        best = min(best, (time.perf_counter() - started) / 4)
    return best


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, required=True, help="size of the buffer")
    parser.add_argument("--piece", type=int, default=16 << 20, help="bytes of one allocation")
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--until", type=Path, help="more steps, until this file is there")
    parser.add_argument("--sweeps", type=int, default=1, help="kernels on each piece in a step")
    parser.add_argument("--pieces", type=int, default=0, help="pieces in a step, 0 for all")
    parser.add_argument("--rounds", type=int, default=1, help="arithmetic intensity of a kernel")
    parser.add_argument("--cpu-ms", type=float, default=0.0, help="CPU time after each step")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="sleep after each step")
    parser.add_argument("--every-ms", type=float, default=0.0, help="a step each so often")
    parser.add_argument("--calibrate", action="store_true", help="only measure one round")
    parser.add_argument("--result", type=Path, required=True, help="where to write the JSON")
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    report: dict[str, Any] = {"started_at": time.time(), "pid": os.getpid()}
    gpu = Gpu()
    gpu.allocate(options.bytes, options.piece)
    report |= {"gpu": gpu.name, "total_bytes": gpu.total, "free_bytes": gpu.free}
    if options.calibrate:
        report["round_s"] = calibrate(gpu)
        checks = [gpu.checksum(piece) for piece in gpu.pieces]
    else:
        steps = run(gpu, options)
        report |= steps.figures()
        checks = steps.checks
    report["finished_at"] = time.time()
    # The CPU's side of the check comes after the clock has stopped.
    right = sum(check.ok() for check in checks)
    report |= {"checks": len(checks), "checksum_ok": right == len(checks)}
    options.result.write_text(json.dumps(report))
    print(f"{right} of {len(checks)} checksums right")
    return 0 if right == len(checks) else 1


if __name__ == "__main__":
    raise SystemExit(main())
