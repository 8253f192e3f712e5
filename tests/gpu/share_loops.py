"""Loops of PyTorch and JAX that want the GPU, and how much they do in every second.

`python -m tests.gpu.share_loops NAME`: torch (a training step of small launches), graph (the same
captured in a CUDA graph), jax (a compiled step), server (a model answers) or resnet (a ResNet-50
in training, 32 images a step). It prints `ready`; for each line of its input, a number of seconds,
it works for so long and prints a line of JSON with the steps that finished in every second of the
clock, and how long it took from one look at the result to the next. The loop submits as far ahead
as its framework lets it, but waits every few steps, as programs do that look at their loss. With a
second number on the line, of ms, it answers a request each so many ms on average instead, at random
from half to one and a half of that, and prints how long these took, from when each was due.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

AHEAD = 20  # steps between two looks at the result

Loop = tuple[Callable[[], object], Callable[[], object]]  # a step, and waiting for all of them


def torch_step() -> tuple[Any, Callable[[], object]]:
    import torch

    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(2048, 1024, device="cuda")

    def step() -> object:
        optimizer.zero_grad(set_to_none=False)
        (model(data) - data).square().mean().backward()
        return optimizer.step()

    return torch, step


def make_torch() -> Loop:
    torch, step = torch_step()
    return step, torch.cuda.synchronize


def make_graph() -> Loop:
    torch, step = torch_step()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay, torch.cuda.synchronize


def make_jax() -> Loop:
    import jax  # type: ignore[import-not-found]

    def loss(weights: Any, data: Any) -> Any:
        return ((jax.nn.tanh(data @ weights) @ weights.T - data) ** 2).mean()

    data = jax.random.normal(jax.random.PRNGKey(1), (2048, 1024))
    update = jax.jit(lambda weights: weights - 1e-3 * jax.grad(loss)(weights, data))
    state = [jax.random.normal(jax.random.PRNGKey(0), (1024, 1024)) / 32]

    def step() -> None:
        state[0] = update(state[0])

    def wait() -> None:
        state[0].block_until_ready()

    return step, wait


def make_server() -> Loop:
    """Three layers on 2048 rows: some 3 ms on an H100."""
    import torch

    layers = [torch.nn.Linear(4096, 4096, device="cuda") for _ in range(3)]
    model = torch.nn.Sequential(*layers)
    data = torch.randn(2048, 4096, device="cuda")

    def step() -> object:
        with torch.no_grad():
            return model(data)

    return step, torch.cuda.synchronize


def make_resnet50() -> Loop:
    from tests.gpu.workloads import load_torch, make_resnet

    torch = load_torch()
    made = make_resnet(torch, "resnet50", 32, side=224, classes=1000, momentum=0.9, steps=0)
    return made.step, made.wait


LOOPS: dict[str, Callable[[], Loop]] = {
    "torch": make_torch,
    "graph": make_graph,
    "jax": make_jax,
    "server": make_server,
    "resnet": make_resnet50,
}


def times(took: Sequence[float]) -> dict[str, Any]:
    """took: seconds, of each step."""
    ms = sorted(1e3 * seconds for seconds in took)
    mean, middle, late = sum(ms) / len(ms), ms[len(ms) // 2], ms[len(ms) * 99 // 100]
    found = {"mean_ms": mean, "p50_ms": middle, "p99_ms": late, "max_ms": ms[-1]}
    return {"steps": len(ms)} | found


def work(step: Callable[[], object], wait: Callable[[], object], seconds: float) -> dict[str, Any]:
    by_second: Counter[int] = Counter()
    took: list[float] = []
    begin = last = time.time()
    while last < begin + seconds:
        for _ in range(AHEAD):
            step()
        wait()
        took.append(time.time() - last)
        last += took[-1]
        by_second[int(last)] += AHEAD
    return {"from": begin, "to": last, "by_second": by_second} | times(took)


def serve(
    step: Callable[[], object], wait: Callable[[], object], seconds: float, every_s: float
) -> dict[str, Any]:
    part = random.Random(7)
    took: list[float] = []
    begin = due = time.time()
    while (due := due + every_s * part.uniform(0.5, 1.5)) < begin + seconds or not took:
        time.sleep(max(0.0, due - time.time()))
        step()
        wait()
        took.append(time.time() - due)
    return {"from": begin, "to": time.time()} | times(took)


def main() -> int:
    step, wait = LOOPS[sys.argv[1]]()
    for _ in range(AHEAD):
        step()
    wait()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, *every_ms = map(float, line.split())
        found = serve(step, wait, seconds, every_ms[0] / 1e3) if every_ms else None
        print(json.dumps(found or work(step, wait, seconds)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
