"""What the demo runs: two workloads, the ways to share, and sizes that fit the GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

GIB = 1 << 30
MIB = 1 << 20
JOBS = 2

# On a real card the device is capped, so that two heavy jobs have a few GiB of
# managed memory and never more than is free: asking for more can hang a card.
REAL_CAP_BYTES = 2 * GIB

SWEEP_S = 0.375


@dataclass(frozen=True)
class Mode:
    """One row of the table: how the two jobs get the GPU. share=None: a whole GPU each.

    words: what that is, for people.
    """

    name: str
    label: str
    share: str | None
    words: str


def modes(quantum_s: float) -> dict[str, Mode]:
    """Every row by name; quantum_s is the N of tq:N."""
    tq = f"{quantum_s:g}"
    rows = [
        Mode("sequential", "sequential", None, "one after the other, a whole GPU each"),
        Mode("lock_off", "lock:off", "lock:off", "both at once, without protection"),
        Mode("tq", f"tq:{tq}", f"tq:{tq},lock:on", f"by turns of {tq} s"),
        Mode("lock_on", f"lock:on, tq:{tq}", f"tq:{tq},lock:on", f"always by turns of {tq} s"),
        Mode("auto", "lock:auto", f"tq:{tq},lock:auto", "default: by turns unless they fit"),
    ]
    return {mode.name: mode for mode in rows}


PLAN = {
    "heavy": ["sequential", "lock_off", "tq", "auto"],
    "light": ["sequential", "lock_off", "lock_on", "auto"],
}


@dataclass(frozen=True)
class Beside:
    """How a service and a batch job get the GPU: what each asks for. batch=None: the service has
    a whole GPU for itself."""

    name: str
    label: str
    words: str
    service: str | None
    batch: str | None


BESIDE = [
    Beside("alone", "alone", "a whole GPU for itself", None, None),
    Beside("lock_off", "lock:off", "the driver's time slices", "lock:off", "lock:off"),
    Beside("classes", "class:online", "beside class:offline", "class:online", "class:offline"),
]


@dataclass(frozen=True)
class Workload:
    """Arguments of one job (see job.py): bytes, steps, kernels in a step, CPU time of a step, and
    milliseconds from one step to the next where they are requests."""

    name: str
    bytes: int
    piece: int
    steps: int
    sweeps: int
    pieces: int
    rounds: int
    cpu_ms: float
    every_ms: float = 0

    def arguments(self) -> list[str]:
        """The command line for job.py, less --result."""
        return [
            *("--bytes", str(self.bytes), "--piece", str(self.piece)),
            *("--steps", str(self.steps), "--sweeps", str(self.sweeps)),
            *("--pieces", str(self.pieces), "--rounds", str(self.rounds)),
            *("--cpu-ms", f"{self.cpu_ms:g}", "--every-ms", f"{self.every_ms:g}"),
        ]


def _aligned(size: float, unit: int = 2 * MIB) -> int:
    return int(size) // unit * unit


def heavy(total_bytes: int, round_s_per_byte: float, phase_s: float, steps: int) -> Workload:
    """Training: 0.95 of the memory, long steps over all of it, half of the time on the CPU.

    A kernel works on its data for about as long as a real training step does in
    proportion to the time that moving the data takes (SWEEP_S for one sweep over
    everything), so `sweeps` and `rounds` follow from the GPU.
    """
    size = _aligned(0.95 * total_bytes)
    round_s = size * round_s_per_byte
    rounds = max(1, round(SWEEP_S / round_s))
    sweeps = max(1, round(phase_s / (rounds * round_s)))
    piece = _aligned(max(16 * MIB, size / 16))
    return Workload("heavy", size, piece, steps, sweeps, 0, rounds, 1000 * phase_s)


def light(total_bytes: int, round_s_per_byte: float, kernel_s: float, seconds: float) -> Workload:
    """Inference: 0.40 of the memory, short requests, half of the time on the CPU."""
    size = _aligned(0.40 * total_bytes)
    piece = _aligned(size / 16)
    rounds = max(1, round(kernel_s / (piece * round_s_per_byte)))
    steps = math.ceil(seconds / (2 * kernel_s))
    return Workload("light", size, piece, steps, 1, 1, rounds, 1000 * kernel_s)


SERVICE_S, BATCH_S, EVERY_S = 0.003, 0.0022, 0.020


def service(total_bytes: int, round_s_per_byte: float, seconds: float) -> Workload:
    """A service: requests of 3 ms, one each 20 ms."""
    one = _kernels("service", total_bytes, round_s_per_byte, SERVICE_S)
    return replace(one, steps=math.ceil(seconds / EVERY_S), every_ms=1000 * EVERY_S)


def batch(total_bytes: int, round_s_per_byte: float) -> Workload:
    """A job that always has work: kernels of 2.2 ms, one after the other."""
    return _kernels("batch", total_bytes, round_s_per_byte, BATCH_S)


def _kernels(name: str, total_bytes: int, round_s_per_byte: float, kernel_s: float) -> Workload:
    """One kernel of so many seconds a step, on a fifth of the memory."""
    size = _aligned(0.20 * total_bytes)
    piece = _aligned(size / 4)
    rounds = max(1, round(kernel_s / (piece * round_s_per_byte)))
    return Workload(name, size, piece, 400, 1, 1, rounds, 0)
