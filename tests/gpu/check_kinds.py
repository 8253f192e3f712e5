"""What a kind of memory costs where nothing moves: one process, kinds by turns, GPU timestamps.

`python -m tests.gpu.check_kinds [--only calls,torch]` on a machine with a GPU. `calls`: single
calls of the driver (kinds.cu). `torch`: one small bf16 training, each copy of it in a memory pool
of one kind, in segments by turns. Managed memory stays below 4 GiB. Writes kinds.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.gpu.build import build
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import ONE_GPU, Job, print_table, python
from tests.support.together import zip_strict

KINDS = ("plain", "managed", "prefetched", "advised")
SEGMENT_S = 0.15
SAMPLES = 1000


def check_calls(segments: int) -> Result:
    """Host and device ns of single calls, by kind, and as a ratio to plain memory."""
    found = Job.start("kinds", [str(build("kinds")), str(segments)], ONE_GPU).result()
    for what, part in (("host", 0), ("device", 1)):
        print(f"{what} time of a call, ns")
        rows = found["operations"].items()
        print_table(
            ["call", *next(iter(found["operations"].values()))],
            [[name, *(cost[part] for cost in kinds.values())] for name, kinds in rows],
        )
    return {"good": True, "summary": "see the tables", **found}


def check_torch(segments: int, batch: int) -> Result:
    """Steps of a small training, by kind: the ratio to plain memory and how sure it is."""
    command = python("-m", "tests.gpu.check_kinds", "--train", str(segments), "--batch", str(batch))
    found = Job.start("training by kinds", command, ONE_GPU).result()
    for what in ("host_us", "device_us"):
        print(f"a step of {batch} rows, {what}: median, ratio to plain (95% interval)")
        print_table(
            ["kind", "median", "ratio", "low", "high"],
            [[kind, *found[what][kind]] for kind in KINDS],
        )
    ratios = {kind: found["host_us"][kind][1] for kind in KINDS}
    return {"good": True, "summary": str(ratios), **found}


# -- in the training's process ------------------------------------------------------


def make_step(torch: Any, batch: int) -> Callable[[], object]:
    """A small training in bf16: a dozen launches and one look at the loss a step."""
    nn = torch.nn
    layers = [nn.Linear(1024, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 1024)]
    model = nn.Sequential(*layers).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(batch, 1024, device="cuda", dtype=torch.bfloat16)

    def step() -> object:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def time_segment(torch: Any, step: Callable[[], object], steps: int) -> tuple[float, float]:
    """(us of the host, us of the device) a step."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    began = time.perf_counter()
    events[0].record()
    for _ in range(steps):
        step()
    events[1].record()
    torch.cuda.synchronize()
    host = (time.perf_counter() - began) * 1e6 / steps
    return host, events[0].elapsed_time(events[1]) * 1e3 / steps


def compare(times: Sequence[float], plain: Sequence[float]) -> list[float]:
    """Median, and ratio of each segment to plain memory's beside it with its 95% interval."""
    ratios = [own / other for own, other in zip_strict(times, plain)]
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    low, high = medians[SAMPLES // 40], medians[-SAMPLES // 40]
    found = statistics.median(times), statistics.median(ratios), low, high
    return [round(number, 4) for number in found]


def train(segments: int, batch: int) -> dict[str, Any]:
    """All kinds in this process, in an order that changes."""
    import torch

    library = str(build("kinds_allocator"))
    pools, steps = {}, {}
    for kind in KINDS:
        allocator = torch.cuda.memory.CUDAPluggableAllocator(library, f"{kind}_take", "give_back")
        pools[kind] = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pools[kind]):
            steps[kind] = make_step(torch, batch)
            for _ in range(50):
                steps[kind]()
    with torch.cuda.use_mem_pool(pools["plain"]):
        host, _ = time_segment(torch, steps["plain"], 100)
    count = max(10, int(SEGMENT_S * 1e6 / host))
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    order = list(KINDS)
    for _ in range(segments):
        random.shuffle(order)
        for kind in order:
            with torch.cuda.use_mem_pool(pools[kind]):
                times[kind].append(time_segment(torch, steps[kind], count))
    return {
        what: {k: compare([t[n] for t in times[k]], [t[n] for t in times["plain"]]) for k in KINDS}
        for n, what in enumerate(("host_us", "device_us"))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="calls,torch,wide", help="checks, with commas between")
    parser.add_argument("--segments", type=int, default=40)
    parser.add_argument("--train", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, default=256, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.train:
        print(json.dumps(train(chosen.train, chosen.batch)), flush=True)
        return 0
    checks = {
        "calls": partial(check_calls, chosen.segments),
        "torch": partial(check_torch, 3 * chosen.segments, 256),
        "wide": partial(check_torch, chosen.segments, 65536),
    }
    return run_checks("kinds", checks, chosen.only.split(","))


if __name__ == "__main__":
    sys.exit(main())
