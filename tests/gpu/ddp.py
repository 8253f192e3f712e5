"""PyTorch training on every visible GPU at once: one process a GPU, gradients summed by NCCL.

`python -m tests.gpu.ddp [--steps N] [--seconds S] [--ballast MIB]` prints one line of
JSON, with the digest of the weights and the ballast of each GPU after N steps, and
the speed of further ones. `--rank R --world W --port P`: this process is one rank of so
many, on the first visible GPU; the others are started elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import time
from typing import Any

from tests.gpu.workloads import SEED, carry, is_interposed, load_torch
from tests.support.ports import free_port

# NVLink multicast stays off: on shared hosts it can put the GPUs out of service.
WITHOUT_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
# One algorithm: NCCL may otherwise choose by what it measures, and sums differ.
FIXED = {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}
CALIBRATION = 100


class Rank:
    """The training in one process, on PyTorch's current GPU."""

    def __init__(self, torch: Any, rank: int, world: int, port: int, ballast_mib: int):
        self.torch, self.rank = torch, rank
        torch.distributed.init_process_group(
            "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
        )
        nn = torch.nn
        layers = [nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)]
        self.model = nn.Sequential(*layers).cuda()
        self.shared = nn.parallel.DistributedDataParallel(
            self.model, device_ids=[torch.cuda.current_device()]
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        torch.manual_seed(SEED + 1 + rank)  # the weights are the same, the data not
        self.data = torch.randn(512, 1024, device="cuda")
        self.ballast = carry("torch", ballast_mib)

    def run(self, steps: int) -> float:
        """Seconds that so many steps took."""
        self.torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=False)
            loss = self.torch.nn.functional.mse_loss(self.shared(self.data), self.data)
            loss.backward()
            self.optimizer.step()
        self.torch.cuda.synchronize()
        return time.perf_counter() - started

    def digest(self) -> str:
        values = [value.cpu().numpy().tobytes() for value in self.model.state_dict().values()]
        digest = hashlib.sha256(b"".join(values))
        for piece in self.ballast:
            digest.update(piece())
        return digest.hexdigest()

    def agreed_steps(self, seconds: float) -> int:
        """How many steps fill so many seconds, as rank 0 sees it; the same in every rank."""
        wanted = int(CALIBRATION / self.run(CALIBRATION) * seconds)
        steps = self.torch.tensor([wanted], device="cuda")
        self.torch.distributed.broadcast(steps, 0)
        return max(1, int(steps.item()))

    def digests(self, world: int) -> list[str]:
        """Those of all ranks."""
        found: list[str] = [""] * world
        self.torch.distributed.all_gather_object(found, self.digest())
        return found


def work(rank: int, world: int, port: int, chosen: argparse.Namespace) -> None:
    """One process; the first one prints the report."""
    started = time.perf_counter()
    torch = load_torch()
    torch.cuda.set_device(rank if chosen.rank is None else 0)
    training = Rank(torch, rank, world, port, chosen.ballast)
    training.run(1)
    first = time.perf_counter() - started
    training.run(chosen.steps - 1)
    digests = training.digests(world)
    timed = training.agreed_steps(chosen.seconds)
    passed = training.run(timed)
    torch.distributed.destroy_process_group()
    if len(set(digests)) != 1:
        raise RuntimeError(f"the ranks differ: {digests}")
    if rank == 0:
        report = {
            "name": "ddp",
            "gpus": world,
            "digest": digests[0],
            "steps": chosen.steps,
            "steps_s": round(timed / passed, 2),
            "ms_first": round(first * 1e3, 1),
            "timed_steps": timed,
            "interposed": is_interposed(),
        }
        print(json.dumps(report), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ballast", type=int, default=0, help="MiB on each GPU, to carry along")
    parser.add_argument("--rank", type=int, help="of this process alone")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--port", type=int, default=0, help="of rank 0, with --rank")
    chosen = parser.parse_args()
    os.environ.update(WITHOUT_MULTICAST | FIXED)
    if chosen.rank is not None:
        work(chosen.rank, chosen.world, chosen.port, chosen)
        return
    import torch

    world = torch.cuda.device_count()
    if not world:
        raise SystemExit("no GPU is visible")
    torch.multiprocessing.spawn(work, args=(world, free_port(), chosen), nprocs=world)


if __name__ == "__main__":
    main()
