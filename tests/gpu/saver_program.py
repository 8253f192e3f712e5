"""A program with torch_memory_saver that pauses and resumes its memory: how fast that is.

`python -m tests.gpu.saver_program --gib 13.5 --cycles 4 [--retain]`. Prints a line of JSON;
seconds of each pause and resume, and whether every word was right behind the last of them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import time
from typing import Any

PIECE = 1 << 30
TAG = "weights"


def load(retain: bool) -> tuple[Any, Any]:
    """PyTorch, and the saver in the mode that needs no library preloaded."""
    import torch
    from torch_memory_saver import torch_memory_saver  # type: ignore[import-not-found]

    torch_memory_saver.hook_mode = "torch"
    if retain:
        torch_memory_saver.retain_cpu_backup = True
    return torch, torch_memory_saver


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=13.5)
    parser.add_argument("--cycles", type=int, default=4)
    parser.add_argument("--retain", action="store_true", help="it keeps its host memory")
    chosen = parser.parse_args()
    torch, saver = load(chosen.retain)
    size = int(chosen.gib * (1 << 30))
    sizes = [min(PIECE, size - at) // 4 for at in range(0, size, PIECE)]
    with saver.region(tag=TAG, enable_cpu_backup=True):
        pieces = [
            torch.full((words,), n + 1, dtype=torch.int32, device="cuda")
            for n, words in enumerate(sizes)
        ]
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    took: dict[str, list[float]] = {"pause_s": [], "resume_s": []}
    freed = 0
    for _ in range(chosen.cycles):
        for name, act in (("pause_s", saver.pause), ("resume_s", saver.resume)):
            began = time.monotonic()
            act(TAG)
            torch.cuda.synchronize()
            took[name].append(round(time.monotonic() - began, 4))
            freed = max(freed, torch.cuda.mem_get_info()[0] - free)
    right = all(bool((piece == n + 1).all()) for n, piece in enumerate(pieces))
    about = {
        "version": importlib.metadata.version("torch_memory_saver"),
        "bytes": sum(sizes) * 4,
        "freed": freed,
        "right": right,
    }
    print(json.dumps(took | about), flush=True)
    os._exit(0)  # as the module frees its tensors at Python's end it may end the process


if __name__ == "__main__":
    main()
