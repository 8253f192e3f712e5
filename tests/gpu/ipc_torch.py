"""torch.multiprocessing: processes that pass CUDA tensors to each other, both ways.

`python -m tests.gpu.ipc_torch [--mib N] [--ballast MIB] [--rounds N]` prints one line of JSON.
Tensors go through queues; what is written is waited for by events of both processes, on the
device; every element is compared. At the end one process keeps a tensor whose maker has ended
(`outlives`: whether it is still right, which CUDA promises nobody).
"""

from __future__ import annotations

import argparse
import hashlib
import json
from typing import Any

from tests.gpu.workloads import carry, is_interposed, load_torch

GOLDEN = 2654435761 - (1 << 32)  # as a signed number of 32 bits
SMALL = (1024, 1536 * 1024)  # elements, beside the large one
FRESH = 8  # so many rounds with the same tensors


class Side:
    """One of the two processes; to, of: queues."""

    def __init__(self, to: Any, of: Any, chosen: argparse.Namespace) -> None:
        self.torch = load_torch()
        self.to, self.of = to, of
        self.sizes = [*SMALL, chosen.mib << 18]
        numbers = self.torch.arange(max(self.sizes), device="cuda", dtype=self.torch.int32)
        self.pattern = numbers * GOLDEN  # private, and a part of what moves
        self.ballast = carry("torch", chosen.ballast)
        self.wrong = 0
        self.digest = hashlib.sha256()
        self.event = self.torch.cuda.Event(interprocess=True)
        self.event.record()
        to.put(bytes(self.event.ipc_handle()))
        device = self.torch.device("cuda", self.torch.cuda.current_device())
        self.others_event = self.torch.cuda.Event.from_ipc_handle(device, of.get())

    def write(self, tensors: list[Any], value: int) -> None:
        for i, tensor in enumerate(tensors):
            tensor.copy_(self.pattern[: tensor.numel()]).add_(value + 101 * i)

    def compare(self, tensors: list[Any], value: int) -> None:
        for i, tensor in enumerate(tensors):
            expected = self.pattern[: tensor.numel()] + (value + 101 * i)
            self.wrong += int((tensor != expected).sum())
            self.digest.update(tensor[-1024:].cpu().numpy().tobytes())

    def meet(self) -> None:
        """What is submitted from here on comes after all that the other one has submitted."""
        self.event.record()
        self.to.put("recorded")
        assert self.of.get() == "recorded"
        self.torch.cuda.current_stream().wait_event(self.others_event)

    def make(self) -> list[Any]:
        return [self.torch.empty(n, device="cuda", dtype=self.torch.int32) for n in self.sizes]

    def run(self, rounds: int) -> None:
        own: list[Any] = []
        others: list[Any] = []
        for number in range(rounds):
            if number % FRESH == 0:
                del own, others
                own = self.make()
                self.to.put(own)
                others = self.of.get()
            self.write(own, 1000003 * number)
            self.meet()
            self.compare(others, 1000003 * number)
            self.write(others, 1000003 * number + 7)
            self.meet()
            self.compare(own, 1000003 * number + 7)
            self.meet()
        self.torch.cuda.synchronize()
        del others
        self.to.put("let go")
        assert self.of.get() == "let go"

    def result(self) -> tuple[int, str]:
        for piece in self.ballast:
            self.digest.update(piece())
        return self.wrong, self.digest.hexdigest()


def other_side(to: Any, of: Any, chosen: argparse.Namespace) -> None:
    side = Side(to, of, chosen)
    side.run(chosen.rounds)
    to.put(side.result())


def maker(to: Any, opened: Any) -> None:
    torch = load_torch()
    to.put(torch.arange(6 << 20, device="cuda", dtype=torch.int32))
    torch.cuda.synchronize()
    opened.wait()


def keeper(of: Any, opened: Any, ended: Any) -> None:
    """Ends well if the tensor is right after its maker's end. What is wrong may also kill it."""
    torch = load_torch()
    tensor = of.get()
    torch.cuda.synchronize()
    opened.set()
    ended.wait()
    expected = torch.arange(6 << 20, device="cuda", dtype=torch.int32)
    if not bool((tensor == expected).all()):
        raise SystemExit(1)


def outlives(spawn: Any) -> bool:
    """Is a tensor right whose maker has ended?"""
    queue, opened, ended = spawn.Queue(), spawn.Event(), spawn.Event()
    keeps = spawn.Process(target=keeper, args=(queue, opened, ended))
    makes = spawn.Process(target=maker, args=(queue, opened))
    keeps.start()
    makes.start()
    makes.join()
    ended.set()
    keeps.join()
    return bool(keeps.exitcode == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=300, help="of the largest that each shares")
    parser.add_argument("--ballast", type=int, default=0, help="MiB of each, to carry along")
    parser.add_argument("--rounds", type=int, default=40)
    chosen = parser.parse_args()
    torch = load_torch()
    spawn = torch.multiprocessing.get_context("spawn")
    here, there = spawn.Queue(), spawn.Queue()
    other = spawn.Process(target=other_side, args=(here, there, chosen))
    other.start()
    side = Side(there, here, chosen)
    side.run(chosen.rounds)
    found = [side.result(), here.get()]
    other.join()
    result = {
        "name": "torch",
        "interposed": is_interposed(),
        "digest": " and ".join(sorted({digest for _, digest in found})),
        "wrong_words": sum(wrong for wrong, _ in found),
        "outlives": outlives(spawn),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
