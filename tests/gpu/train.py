"""A small PyTorch training, eager and by CUDA graph, that prints what it computed and how fast."""

from __future__ import annotations

import argparse
import hashlib
import json
import time

import torch


def train(steps: int, graphed: bool) -> tuple[str, float]:
    """(digest of all weights, steps per second) of a training that is the same every time."""
    torch.manual_seed(7)
    layers = [torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(512, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        torch.nn.functional.mse_loss(model(data), data).backward()
        optimizer.step()

    run = step
    if graphed:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
    speed = steps / (time.perf_counter() - started)
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(weights).hexdigest()[:16], speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    chosen = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    free, total = torch.cuda.mem_get_info()
    report = {"total_bytes": total, "free_bytes": free}
    for name, graphed in (("eager", False), ("graph", True)):
        started = time.time()
        digest, speed = train(chosen.steps, graphed)
        report[name] = {
            "digest": digest,
            "steps_s": round(speed, 1),
            "from": started,
            "to": time.time(),
        }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
