"""The jobs of the chaos test: what they ask for, drawn from one seed, and how they went."""

from __future__ import annotations

import json
import random
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
MARK = "GPU_LEASE_CHAOS"  # in the environment of every process of the jobs
STEPS = 75
PROGRAM_BYTES = 2 * MIB  # of a program that a job runs in mid-run
KINDS = ["single"] * 5 + ["ranks"] * 2 + ["steps"] * 2 + ["gang"] * 2
LOCKS = ["lock:auto"] * 3 + ["lock:on"] * 3 + ["lock:off"]
QUANTA = ["tq:100ms", "tq:200ms", "tq:500ms"]
SWAP_UNIT = 2 * MIB  # of memory that is swapped
GPUS = 8  # of the node
# What the plugin does in a step, run by root: the job's gang is these GPUs. As the plugin it asks
# again where the daemon is killed meanwhile.
REGISTER = """
import sys
from spank.register import ask
path, job, options, gpus = sys.argv[1:]
step = {"job_id": int(job), "uid": 0, "nodes": 1, "shards": 1, "options": options}
said = ask(path, {"op": "register", **step, "gpus": [int(gpu) for gpu in gpus.split(",")]})
said.get("ok") or sys.exit(str(said))
"""


@dataclass(frozen=True)
class Spec:
    """One job. bytes: of each rank; kind: one process, ranks forked by one, srun steps, or a gang:
    a rank on the job's GPU and one on that which is `apart` further.
    """

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
    apart: int = 0
    maps: bool = False  # by itself what it allocates

    @property
    def swaps(self) -> bool:
        return "memory:swap" in self.share

    @property
    def devices(self) -> int:
        """How many it uses."""
        return 2 if self.kind == "gang" else 1

    @property
    def total_bytes(self) -> int:
        """What all its ranks have at once."""
        return self.ranks * self.bytes

    def _program(self, out: Path, first: int, ranks: int, steps: int = STEPS) -> str:
        words = [sys.executable, "-m", "tests.slurm.chaos_job", "--result", str(out / self.name)]
        numbers = {
            **{"bytes": self.bytes, "piece": self.piece, "steps": steps, "rounds": self.rounds},
            **{"pause-ms": self.pause_ms, "fork-at": self.fork_at, "run-at": self.run_at},
            **{"ranks": ranks, "first-rank": first, "maps": int(self.maps)},
        }
        return " ".join(words + [f"--{name}={number}" for name, number in numbers.items()])

    def _gang(self, out: Path, admin: Path) -> list[str]:
        """Slurm 22.05 gives a job shards of one GPU: the second one is registered here."""
        words = [sys.executable, "-c", REGISTER, str(admin), "$job", self.share, "$own,$other"]
        register = (
            shlex.join(words).replace("'$job'", "$job").replace("'$own,$other'", "$own,$other")
        )
        lines = [f"own=$SLURM_JOB_GPUS other=$(((SLURM_JOB_GPUS + {self.apart}) % {GPUS}))"]
        lines += [f"job=$SLURM_JOB_ID; {register} || exit 8"]
        for rank, gpu in enumerate(("own", "other")):
            program = self._program(out, rank, 1)
            lines += [f"CUDA_VISIBLE_DEVICES=${gpu} {program} &", f"p{rank}=$!"]
        return [*lines, "bad=0; wait $p0 || bad=1; wait $p1 || bad=1; exit $bad"]

    def script(self, out: Path, admin: Path) -> str:
        """The batch script. admin: the daemon's admin.sock."""
        lines = ["#!/bin/sh", f"cd {ROOT} || exit 9", f"export {MARK}={out}/{self.name}"]
        if self.kind == "gang":
            return "\n".join([*lines, *self._gang(out, admin)]) + "\n"
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


def draw_share(rng: random.Random, needs: int, swaps: bool) -> str:
    """What it asks for; now and then a limit that is just what it needs."""
    lock = rng.choice(LOCKS[:-1] if swaps else LOCKS)  # who swaps takes turns
    share = f"{lock},{rng.choice(QUANTA)}" + (",memory:swap" if swaps else "")
    return share + (f",mem:{needs // MIB + 1}MiB" if rng.random() < 0.3 else "")


def draw_sizes(rng: random.Random, each: int, swaps: bool) -> tuple[int, int, int]:
    """Bytes of a rank, of one of its allocations, and what that takes of a device at most."""
    each = max(1, each)
    if not swaps:
        return each * MIB, max(MIB // 2, each * MIB // rng.choice([2, 4, 8])), each * MIB
    each = each if each < 4 else each // 2 * 2
    pieces = [1] if each < 4 else [1, 4, 8, 2 * each]
    piece = rng.choice(pieces) * MIB // 2  # the smallest ones share slabs
    # One more for the checksum, in a slab, as small pieces are.
    return each * MIB, piece, (each * MIB // SWAP_UNIT + 1) * SWAP_UNIT


def draw(rng: random.Random, number: int, total_mib: int, kinds: list[str]) -> Spec:
    """One job that wants about so many MiB of its device, or of each of a gang."""
    kind, swaps = rng.choice(kinds), rng.random() < 1 / 3
    ranks = {"single": 1, "gang": 2}.get(kind) or rng.randint(2, 3)
    together = 1 if kind == "gang" else ranks  # on one device
    size, piece, needs = draw_sizes(rng, total_mib // together, swaps)
    # With room for the program that it may run.
    needs = needs * together + PROGRAM_BYTES + (SWAP_UNIT if swaps else 0)
    share = draw_share(rng, needs, swaps)
    device_ms = rng.uniform(40, 100)  # that one step computes, in the emulated GPU's time
    return Spec(
        *(f"job{number:02}", kind, share, ranks, size, piece),
        rounds=max(1, round(device_ms / 1000 * 4096 * MIB / size / together)),
        pause_ms=rng.choice([0, 10, 40, 80]),
        fork_at=rng.choice([-1, -1, rng.randrange(STEPS)]),
        run_at=rng.choice([-1, -1, -1, rng.randrange(STEPS)]) if kind == "single" else -1,
        apart=rng.randrange(1, GPUS),
        # Else it would stay where it is, and others could not have theirs.
        maps=swaps and not size % SWAP_UNIT and not piece % SWAP_UNIT and rng.random() < 0.5,
    )


def draw_all(rng: random.Random, jobs: int, together: int, late: int) -> list[Spec]:
    """Jobs in the order of submission; `together` after each other share a device of 32 MiB.

    On every fourth device they fit together, on the others not. The last `late` are no gangs:
    by then the daemon has left out GPUs that they might ask for.
    """
    specs = []
    for first in range(0, jobs, together):
        fits = first // together % 4 == 3
        low, high = (3, 6) if fits else (10, 22)
        for n in range(first, first + together):
            kinds = [kind for kind in KINDS if n < jobs - late or kind != "gang"]
            specs.append(draw(rng, n, rng.randint(low, high), kinds))
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
        """Nothing: it has not begun."""
        log = self.out / f"{self.spec.name}.log"
        return log.read_text(errors="replace") if log.exists() else ""
