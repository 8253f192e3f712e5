"""The jobs of the chaos test: what they ask for, drawn from one seed, and how they went."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
MARK = "GPU_LEASE_CHAOS"  # in the environment of every process of the jobs
STEPS = 150
PROGRAM_BYTES = 2 * MIB  # of a program that a job runs in mid-run
KINDS = ["single"] * 5 + ["ranks"] * 2 + ["steps"] * 2
LOCKS = ["lock:auto"] * 3 + ["lock:on"] * 3 + ["lock:off"]
QUANTA = ["tq:100ms", "tq:200ms", "tq:500ms"]


@dataclass(frozen=True)
class Spec:
    """One job. bytes: of each rank; kind: one process, ranks forked by one, or srun steps."""

    name: str
    kind: str
    share: str
    ranks: int
    bytes: int
    piece: int
    rounds: int
    pause_ms: int
    fork_at: int
    run_at: int

    @property
    def total_bytes(self) -> int:
        """What all its ranks have at once."""
        return self.ranks * self.bytes

    def _program(self, out: Path, first: int, ranks: int, steps: int = STEPS) -> str:
        words = [sys.executable, "-m", "tests.slurm.chaos_job", "--result", str(out / self.name)]
        numbers = {
            **{"bytes": self.bytes, "piece": self.piece, "steps": steps, "rounds": self.rounds},
            **{"pause-ms": self.pause_ms, "fork-at": self.fork_at, "run-at": self.run_at},
            **{"ranks": ranks, "first-rank": first},
        }
        return " ".join(words + [f"--{name}={number}" for name, number in numbers.items()])

    def script(self, out: Path) -> str:
        """The batch script."""
        lines = ["#!/bin/sh", f"cd {ROOT} || exit 9", f"export {MARK}={out}/{self.name}"]
        # Many small processes: each with threads of its own would only take turns.
        lines += ["export OPENBLAS_NUM_THREADS=1"]
        if self.kind != "steps":
            return "\n".join([*lines, "exec " + self._program(out, 0, self.ranks)]) + "\n"
        for rank in range(self.ranks):
            lines += [f"srun --overlap -n1 {self._program(out, rank, 1)} &", f"p{rank}=$!"]
        lines += ["bad=0", *(f"wait $p{rank} || bad=1" for rank in range(self.ranks))]
        last = self._program(out, self.ranks, 1, steps=4)
        return "\n".join([*lines, "[ $bad = 0 ] || exit 1", f"exec srun -n1 {last}"]) + "\n"

    def rank_names(self) -> list[str]:
        """Every process that must report: the last step of a job of steps comes after the rest."""
        return [f"{self.name}.{r}" for r in range(self.ranks + (self.kind == "steps"))]


def draw(rng: random.Random, number: int, total_mib: int) -> Spec:
    """One job that wants about so many MiB of its device."""
    kind = rng.choice(KINDS)
    ranks = 1 if kind == "single" else rng.randint(2, 3)
    each = max(1, total_mib // ranks) * MIB
    piece = max(MIB // 2, each // rng.choice([2, 4, 8]))
    share = f"{rng.choice(LOCKS)},{rng.choice(QUANTA)}"
    if rng.random() < 0.3:  # what it needs, with room for the program that it may run
        share += f",mem:{(ranks * each + PROGRAM_BYTES) // MIB + 1}MiB"
    device_ms = rng.uniform(20, 50)  # that one step computes, in the emulated GPU's time
    return Spec(
        *(f"job{number:02}", kind, share, ranks, each, piece),
        rounds=max(1, round(device_ms / 1000 * 4096 * MIB / each / ranks)),
        pause_ms=rng.choice([0, 5, 20, 40]),
        fork_at=rng.choice([-1, -1, rng.randrange(STEPS)]),
        run_at=rng.choice([-1, -1, -1, rng.randrange(STEPS)]) if kind == "single" else -1,
    )


def draw_all(rng: random.Random, jobs: int, together: int) -> list[Spec]:
    """Jobs in the order of submission; `together` after each other share a device of 32 MiB.

    On every fourth device they fit together, on the others not.
    """
    specs = []
    for first in range(0, jobs, together):
        fits = first // together % 4 == 3
        low, high = (3, 6) if fits else (10, 22)
        specs += [draw(rng, first + n, rng.randint(low, high)) for n in range(together)]
    return specs[:jobs]


@dataclass
class Run:
    """A job that was submitted. hurt: what was done to it; "" for one that must be COMPLETED."""

    spec: Spec
    job_id: int
    out: Path
    hurt: str = ""
    touched: list[str] = field(default_factory=list)  # what it must survive

    def steps_done(self) -> int:
        """Steps of all its ranks so far; a rank that has ended, however, has none left."""
        return sum(self._steps_of(rank) for rank in self.spec.rank_names())

    def _steps_of(self, rank: str) -> int:
        steps = self.out / f"{rank}.steps"
        if (self.out / f"{rank}.json").exists():
            return STEPS
        return steps.stat().st_size if steps.exists() else 0

    def reports(self) -> dict[str, dict[str, Any]]:
        """What its ranks wrote at their end, by their names."""
        files = {rank: self.out / f"{rank}.json" for rank in self.spec.rank_names()}
        return {rank: json.loads(f.read_text()) for rank, f in files.items() if f.exists()}

    def log(self) -> str:
        return (self.out / f"{self.spec.name}.log").read_text(errors="replace")
