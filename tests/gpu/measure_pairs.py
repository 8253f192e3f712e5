"""Measures how fast pairs of an online and an offline program are, for the model that matches jobs.

`python -m tests.gpu.measure_pairs [--pairs N] [--gpus 0,1,...]` on a machine with a GPU, as root:
each of pair_programs.py alone, then pairs, the online one with `class:online` and the offline one
with `class:offline` (`--options` for others). With N pairs, each program is in as many as each
other one. On several GPUs at once, a pair on each. Writes after each pair to pairs.json in $OUT or
build/bench, or `--out`, and goes on where that file ends. `python -m tests.gpu.fit_pairs` then
makes the model. On the emulated GPU (emu-h200-slow): `--emulated 4`, times as on that model; they
take no CPU there, and it knows no memory bandwidth that two could share.

A program's rate alone is that of one that starts anew each time, as in each pair, where its kernels
are what they were alone. Its steps are counted after `--settle` seconds, for `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from tests.gpu.build import build
from tests.gpu.jobs import ROOT, Job, Sharing, on_gpu, sharing, stopping
from tests.gpu.pair_programs import PROGRAMS
from tests.support.together import zip_strict

BESIDE = ("class:online", "class:offline")
# The time of offline jobs is not cut: it is measured what slices alone do.
CLASSES = '[classes]\nmay_online = ["all"]\ncontroller = "slices"\n'
MEMORY = "32GiB"
MOST = 100  # pairs of one daemon, which has 256 jobs at most
Pair = tuple[str, str]  # the online program, the offline one


def all_pairs() -> list[Pair]:
    """So that each program is in as many of the first ones as each other."""
    names = list(PROGRAMS)
    further = range(len(names))
    return [(names[n], names[(n + by) % len(names)]) for by in further for n in further]


@dataclass
class Measured:
    """What has been measured, and the file that has it. found: as in that file."""

    file: Path
    found: dict[str, Any]
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, file: Path, said: dict[str, Any]) -> Measured:
        """Go on with the file, or begin it. said: how it is measured now. SystemExit: the file was
        measured in another way."""
        found = (
            json.loads(file.read_text()) if file.exists() else {**said, "alone": {}, "pairs": []}
        )
        there = {key: found.get(key) for key in said}
        if there != said:
            raise SystemExit(f"{file} was measured otherwise ({there}): choose another --out")
        return cls(file, found)

    def has(self, pair: Pair) -> bool:
        return any(tuple(each["pair"]) == pair for each in self.found["pairs"])

    def add_alone(self, name: str, result: dict[str, Any]) -> None:
        with self.lock:
            self.found["alone"][name] = result
            self._write()

    def add_pair(self, pair: Pair, online: dict[str, Any], offline: dict[str, Any]) -> None:
        with self.lock:
            self.found["pairs"].append({"pair": pair, "online": online, "offline": offline})
            self._write()

    def _write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.found, indent=1) + "\n")
        new.replace(self.file)


@dataclass
class Bench:
    """alone: runs of a program alone. free: indices of GPUs on which nothing is measured now."""

    share: Sharing
    settle: float
    seconds: float
    slower: float
    options: Sequence[str]
    alone: int
    free: SimpleQueue[int]

    def run(
        self, gpu: int, alone: Mapping[str, Any], *jobs: tuple[str, str]
    ) -> list[dict[str, Any]]:
        """Programs with their options, at once: what each did. alone: what is known of them."""
        commands = [
            PROGRAMS[name].command(self.slower, alone.get(name, {}).get("passes", 0))
            for name, _ in jobs
        ]
        started = [
            self.share.tenant(f"{name}, {options}", options, command, on_gpu(gpu), str(gpu))
            for (name, options), command in zip_strict(jobs, commands)
        ]
        with stopping(*started):
            for job in started:
                job.wait_ready()
            first = [json.loads(job.next_line(0)[0]) for job in started]
            for job in started:
                job.say(f"{self.settle} {self.seconds}")
                job.end_input()
            return [told | self._result(job) for told, job in zip_strict(first, started)]

    @staticmethod
    def _result(job: Job) -> dict[str, Any]:
        found = job.result()
        return found | {"rate": found["steps"] / found["seconds"]}

    def measure(self, measured: Measured, one: str | Pair) -> None:
        """A program alone, or a pair."""
        gpu = self.free.get()
        try:
            if isinstance(one, str):
                runs = [self.run(gpu, {}, (one, ""))[0] for _ in range(self.alone)]
                measured.add_alone(one, sorted(runs, key=lambda run: run["rate"])[len(runs) // 2])
            else:
                both = zip_strict(one, self.options)
                measured.add_pair(one, *self.run(gpu, measured.found["alone"], *both))
        finally:
            self.free.put(gpu)
        print(one if isinstance(one, str) else " with ".join(one), flush=True)


def _free(gpus: Sequence[int]) -> SimpleQueue[int]:
    free: SimpleQueue[int] = SimpleQueue()
    for gpu in gpus:
        free.put(gpu)
    return free


def measure(chosen: argparse.Namespace) -> None:
    gpus = [int(gpu) for gpu in chosen.gpus.split(",")]
    how = {
        "emulated": chosen.emulated > 0,
        "slower": chosen.emulated or 1,
        "options": chosen.options,
    }
    limits = CLASSES if "class:" in "".join(chosen.options) else ""
    measured = Measured.of(chosen.out, how)
    names: list[str | Pair] = [name for name in PROGRAMS if name not in measured.found["alone"]]
    pairs: list[str | Pair] = [p for p in all_pairs()[: chosen.pairs] if not measured.has(p)]
    parts = [pairs[first : first + MOST] for first in range(0, len(pairs), MOST)]
    for part in [names, *parts] if names else parts:
        with sharing(MEMORY, limits) as share, ThreadPoolExecutor(len(gpus)) as pool:
            measured.found["device"] = share.devices()[0]["name"]
            bench = Bench(
                *(
                    share,
                    chosen.settle,
                    chosen.seconds,
                    chosen.emulated,
                    chosen.options,
                    chosen.alone,
                ),
                free=_free(gpus),
            )
            list(pool.map(partial(bench.measure, measured), part))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    directory = Path(os.environ.get("OUT") or ROOT / "build" / "bench")
    parser.add_argument("--pairs", type=int, default=len(PROGRAMS) ** 2, help="the first so many")
    parser.add_argument("--gpus", default="0", help="indices, with commas between")
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--settle", type=float, default=0.6)
    parser.add_argument("--alone", type=int, default=1, help="runs alone; the median one counts")
    parser.add_argument("--options", nargs=2, default=list(BESIDE), metavar="OPTIONS")
    parser.add_argument("--emulated", type=float, default=0, metavar="TIMES")
    parser.add_argument("--out", type=Path, default=directory / "pairs.json")
    chosen = parser.parse_args()
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    build("steps")
    measure(chosen)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
