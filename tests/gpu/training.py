"""A training as people run it: a ResNet-152 that fills a device, and work on the CPU in between.

`python -m tests.gpu.training --gib 36 --calibrate` tells how large a batch fills so
much memory (or takes that of --batch), how long a step and its CPU part take.
`--batch B --steps S --rounds R --cycles C` runs C cycles of S steps and R rounds
of preparing images on one core, from the line that it reads after `ready` on.
`--batch B --parts` does so for each order `S R C` (orders.py).
Prints a line of JSON each time; the digest is of all parameters at the end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

from tests.gpu.orders import orders
from tests.gpu.workloads import Workload, digest_of, load_torch, make_resnet, wait_for_go

SIDE = 224
IMAGES = 16  # of a round on the CPU
SMALL, LARGE = 16, 48  # batches from whose memory that of others follows
WARM_UP = 2
GIB = 1 << 30


def make(batch: int) -> tuple[Any, Workload]:
    """PyTorch, and the training."""
    torch = load_torch()
    work = make_resnet(torch, "resnet152", batch, side=SIDE, classes=1000, momentum=0.9, steps=0)
    return torch, work


def prepare_images(rounds: int) -> float:
    """What a data loader does, on one core; returns a number that depends on all of it."""
    import numpy as np

    random = np.random.default_rng(7)
    total = 0.0
    for _ in range(rounds):
        raw = random.integers(0, 256, (IMAGES, SIDE, SIDE, 3), dtype=np.uint8)
        image = (raw[:, :, ::-1].astype(np.float32) / 255 - 0.45) / 0.225
        total += float(np.ascontiguousarray(image.transpose(0, 3, 1, 2)).sum())
    return total


def reserved(batch: int) -> int:
    """Bytes that PyTorch takes for a batch."""
    torch, work = make(batch)
    for _ in range(WARM_UP):
        work.step()
    work.wait()
    used = int(torch.cuda.max_memory_reserved())
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return used


def batch_for(gib: float) -> int:
    """The batch that takes so much memory."""
    small, large = reserved(SMALL), reserved(LARGE)
    return int(SMALL + (gib * GIB - small) / ((large - small) / (LARGE - SMALL)))


def calibrate(batch: int) -> dict[str, Any]:
    """What it takes, and how long a step and a round take."""
    torch, work = make(batch)
    work.step()
    work.wait()
    started = time.perf_counter()
    for _ in range(4):
        work.step()
    work.wait()
    step_s = (time.perf_counter() - started) / 4
    used = int(torch.cuda.max_memory_reserved())
    prepare_images(4)
    started = time.perf_counter()
    prepare_images(40)
    round_s = (time.perf_counter() - started) / 40
    return {"batch": batch, "bytes": used, "step_s": step_s, "round_s": round_s}


def prepare(batch: int) -> tuple[Any, Workload]:
    """PyTorch, and a training that has taken all of its memory."""
    torch, work = make(batch)
    torch.set_num_threads(1)
    for _ in range(WARM_UP):
        work.step()
    work.wait()
    return torch, work


def train(torch: Any, work: Workload, steps: int, rounds: int, cycles: int) -> dict[str, Any]:
    """So many cycles, and what came of them. longest_s: of a cycle, beyond the median one."""
    began, took = time.time(), []
    for _ in range(cycles):
        before = time.monotonic()
        for _ in range(steps):
            work.step()
        work.wait()
        prepare_images(rounds)
        took.append(time.monotonic() - before)
    ended = time.time()
    return {
        "name": "training",
        "digest": digest_of(work.outputs()),
        "bytes": int(torch.cuda.max_memory_reserved()),
        "from": began,
        "to": ended,
        "seconds": round(ended - began, 3),
        "longest_s": round(max(took) - statistics.median(took), 3),
    }


def train_once(chosen: argparse.Namespace) -> dict[str, Any]:
    torch, work = prepare(chosen.batch)
    wait_for_go()
    return train(torch, work, chosen.steps, chosen.rounds, chosen.cycles)


def train_parts(batch: int, lines: Iterator[str]) -> None:
    """One after the other, with what the one before has learnt."""
    torch, work = prepare(batch)
    print("ready", flush=True)
    for line in lines:
        steps, rounds, cycles = map(int, line.split())
        print(json.dumps(train(torch, work, steps, rounds, cycles)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, help="of memory to fill, for --calibrate")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, help="of a cycle")
    parser.add_argument("--rounds", type=int, help="of a cycle, on the CPU")
    parser.add_argument("--cycles", type=int)
    parser.add_argument("--parts", action="store_true", help="an order each")
    parser.add_argument("--orders", nargs="*", default=[], help="the folder that has them")
    chosen = parser.parse_args()
    if chosen.parts:
        train_parts(chosen.batch, orders(*chosen.orders))
    elif chosen.calibrate:
        print(json.dumps(calibrate(chosen.batch or batch_for(chosen.gib))), flush=True)
    else:
        print(json.dumps(train_once(chosen)), flush=True)


if __name__ == "__main__":
    main()
