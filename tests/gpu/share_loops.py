"""Loops of PyTorch and JAX that always want the GPU, and how much they do in every second.

`python -m tests.gpu.share_loops NAME`: torch (a training step of small launches), graph (the same
captured in a CUDA graph) or jax (a compiled step). It prints `ready`; for each line of its input, a
number of seconds, it works for so long and prints a line of JSON with the steps that finished in
every second of the clock. The loop submits as far ahead as its framework lets it, but waits every
few steps, as programs do that look at their loss.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
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


LOOPS: dict[str, Callable[[], Loop]] = {"torch": make_torch, "graph": make_graph, "jax": make_jax}


def work(step: Callable[[], object], wait: Callable[[], object], seconds: float) -> dict[str, Any]:
    by_second: Counter[int] = Counter()
    begin = time.time()
    while time.time() < begin + seconds:
        for _ in range(AHEAD):
            step()
        wait()
        by_second[int(time.time())] += AHEAD
    return {"from": begin, "to": time.time(), "by_second": by_second}


def main() -> int:
    step, wait = LOOPS[sys.argv[1]]()
    for _ in range(AHEAD):
        step()
    wait()
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(work(step, wait, float(line))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
