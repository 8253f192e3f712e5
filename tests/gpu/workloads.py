"""Small deterministic GPU programs of several frameworks, each with a digest and a speed.

`python -m tests.gpu.workloads NAME [--steps N] [--seconds S]` prints one line of
JSON. The digest is of all that the program computed after N steps, always the
same number for one N; the speed is measured in further steps, for S seconds.
Every program stays far below 2 GiB of device memory, but for jax_defaults (10 GiB)
and for the ballast that it is told to carry: so many MiB more that it fills at its
start, and that are part of the digest.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.together import zip_strict

WARM_S = 0.5
BATCH_S = 0.2
SEED = 7


@dataclass(frozen=True)
class Workload:
    """A program ready to run. step submits work, wait returns when all of it is done.

    steps: after how many the digest is taken unless told. about: what the report adds.
    """

    step: Callable[[], object]
    wait: Callable[[], object]
    outputs: Callable[[], Iterable[bytes]]
    steps: int
    about: dict[str, Any] = field(default_factory=dict)


# -- PyTorch ----------------------------------------------------------------------


def load_torch(allocator: str = "") -> Any:
    """PyTorch with deterministic algorithms. allocator: its setting, read when it is imported."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if allocator:  # the name of today and the one before
        os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = allocator
    import torch

    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    return torch


def torch_workload(torch: Any, model: Any, step: Callable[[], object], steps: int) -> Workload:
    """The workload of a training: its outputs are all of the model's parameters and buffers."""

    def outputs() -> Iterable[bytes]:
        return (value.cpu().numpy().tobytes() for value in model.state_dict().values())

    about = {
        "total_bytes": torch.cuda.mem_get_info()[1],
        "allocator": torch.cuda.get_allocator_backend(),
    }
    return Workload(step, torch.cuda.synchronize, outputs, steps, about)


def make_mlp(torch: Any, compiled: bool = False) -> Workload:
    """Two layers that learn the identity: about a dozen launches a step."""
    nn = torch.nn
    layers = [nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)]
    model = nn.Sequential(*layers).cuda()
    forward = torch.compile(model) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(512, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        nn.functional.mse_loss(forward(data), data).backward()
        optimizer.step()

    return torch_workload(torch, model, step, 500)


def torch_eager() -> Workload:
    return make_mlp(load_torch())


def torch_graph() -> Workload:
    """The same training, a step captured once and replayed."""
    torch = load_torch()
    eager = make_mlp(torch)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            eager.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager.step()
    return Workload(graph.replay, eager.wait, eager.outputs, 500, eager.about)


def torch_compile() -> Workload:
    return make_mlp(load_torch(), compiled=True)


def torch_async() -> Workload:
    """Eager, with the driver's stream-ordered allocator."""
    work = make_mlp(load_torch("backend:cudaMallocAsync"))
    assert work.about["allocator"] == "cudaMallocAsync", work.about
    return work


def torch_expandable() -> Workload:
    """Eager, with memory that PyTorch maps itself."""
    torch = load_torch("expandable_segments:True")
    work = make_mlp(torch)
    segments = torch.cuda.memory_snapshot()
    work.about["expandable"] = any(segment.get("is_expandable") for segment in segments)
    return work


def make_resnet(
    torch: Any, name: str, batch: int, *, side: int, classes: int, momentum: float, steps: int
) -> Workload:
    """A ResNet of torchvision in training, on images of so many pixels each way."""
    import torchvision  # type: ignore[import-not-found]

    # Pooling backwards is on PyTorch's list of what may differ; for this layout it does not.
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    model = getattr(torchvision.models, name)(num_classes=classes).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=momentum)
    images = torch.randn(batch, 3, side, side, device="cuda")
    labels = torch.arange(batch, device="cuda") % classes

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return torch_workload(torch, model, step, steps)


def torch_conv() -> Workload:
    """A ResNet-18 in training: cuDNN."""
    return make_resnet(load_torch(), "resnet18", 16, side=64, classes=10, momentum=0, steps=30)


def triton_kernel() -> Workload:
    """Kernels of our own in Triton: eight stencils and a row sum a step."""
    torch = load_torch()
    from tests.gpu.triton_kernels import add_row_sums, smooth

    rows, width, block = 1024, 1024, 1024
    first = torch.randn(rows * width, device="cuda")
    second, sums = torch.empty_like(first), torch.zeros(rows, device="cuda")

    def step() -> None:
        for _ in range(4):
            smooth[(rows * width // block,)](first, second, rows * width, BLOCK=block)
            smooth[(rows * width // block,)](second, first, rows * width, BLOCK=block)
        add_row_sums[(rows,)](first, sums, WIDTH=width)

    def outputs() -> Iterable[bytes]:
        return (value.cpu().numpy().tobytes() for value in (first, sums))

    about = {"total_bytes": torch.cuda.mem_get_info()[1]}
    return Workload(step, torch.cuda.synchronize, outputs, 200, about)


# -- others -----------------------------------------------------------------------


def jax_train() -> Workload:
    """Three layers trained by one compiled function."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    import jax  # type: ignore[import-not-found]
    import numpy as np

    assert jax.default_backend() == "gpu", jax.default_backend()
    keys = jax.random.split(jax.random.key(SEED), 4)
    data = jax.random.normal(keys[0], (512, 512))
    weights = [jax.random.normal(key, (512, 512)) / 512**0.5 for key in keys[1:]]

    def loss(weights: list[Any]) -> Any:
        value = data
        for weight in weights:
            value = jax.nn.tanh(value @ weight)
        return ((value - data) ** 2).mean()

    def train(weights: list[Any]) -> list[Any]:
        gradients = jax.grad(loss)(weights)
        return [w - 0.01 * g for w, g in zip_strict(weights, gradients)]

    compiled = jax.jit(train)
    state = [weights]

    def step() -> None:
        state[0] = compiled(state[0])

    def outputs() -> Iterable[bytes]:
        return (np.asarray(weight).tobytes() for weight in state[0])

    memory = jax.devices()[0].memory_stats() or {}
    about = {"limit_bytes": memory.get("bytes_limit")}
    return Workload(step, lambda: jax.block_until_ready(state[0]), outputs, 500, about)


JAX_LARGE_GIB = 10


def jax_defaults() -> Workload:
    """Large arrays that every step changes, with JAX's own settings: it takes three quarters of
    the device at its start, in objects of 1 GiB and more."""
    import jax
    import numpy as np

    assert jax.default_backend() == "gpu", jax.default_backend()
    pieces = [jax.numpy.arange(1 << 28, dtype=np.uint32) + n for n in range(JAX_LARGE_GIB - 1)]

    def next_numbers(piece: Any) -> Any:
        return piece * np.uint32(1664525) + np.uint32(1013904223)

    change = jax.jit(next_numbers, donate_argnums=0)

    def step() -> None:
        for n, piece in enumerate(pieces):
            pieces[n] = change(piece)

    def outputs() -> Iterable[bytes]:
        return (np.asarray(piece).tobytes() for piece in pieces)

    memory = jax.devices()[0].memory_stats() or {}
    about = {"limit_bytes": memory.get("bytes_limit"), "in_use": memory.get("bytes_in_use")}
    return Workload(step, lambda: jax.block_until_ready(pieces), outputs, 2000, about)


CUPY_KERNEL = """
extern "C" __global__ void fold(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = y[i] * 0.5f + x[n - 1 - i] * 0.25f;
}
"""


def cupy_math() -> Workload:
    """A product, element-wise work, a sort, sums and a kernel of our own, on an own stream."""
    import cupy  # type: ignore[import-not-found]
    import numpy as np

    side = 512
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.use()
    random = np.random.default_rng(SEED)
    factor = cupy.asarray(random.standard_normal((side, side), dtype=np.float32) / side**0.5)
    value = cupy.asarray(random.standard_normal((side, side), dtype=np.float32))
    folded, sums = cupy.zeros_like(value), cupy.zeros(side, dtype=np.float32)
    fold = cupy.RawKernel(CUPY_KERNEL, "fold")

    def step() -> None:
        value[...] = cupy.tanh(value @ factor) + 0.125
        fold((side * side // 256,), (256,), (value, folded, np.int32(side * side)))
        ordered = cupy.sort(folded, axis=1)
        sums[...] = sums * 0.5 + ordered[:, : side // 2].sum(axis=1)

    def outputs() -> Iterable[bytes]:
        return (cupy.asnumpy(array).tobytes() for array in (value, folded, sums))

    about = {"total_bytes": cupy.cuda.runtime.memGetInfo()[1]}
    return Workload(step, stream.synchronize, outputs, 300, about)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    make.__name__: make
    for make in (
        *(torch_eager, torch_graph, torch_compile, torch_async, torch_expandable),
        *(jax_train, jax_defaults, cupy_math, triton_kernel, torch_conv),
    )
}


# -- ballast ----------------------------------------------------------------------

PIECE_MIB = 256


def torch_ballast(words: int) -> Callable[[], bytes]:
    import torch

    piece = torch.arange(words, dtype=torch.int32, device="cuda")
    return lambda: piece.cpu().numpy().tobytes()


def jax_ballast(words: int) -> Callable[[], bytes]:
    import jax.numpy  # type: ignore[import-not-found]
    import numpy as np

    piece = jax.numpy.arange(words, dtype=np.int32)
    return lambda: np.asarray(piece).tobytes()


def cupy_ballast(words: int) -> Callable[[], bytes]:
    import cupy

    piece = cupy.arange(words, dtype=cupy.int32)
    return lambda: cupy.asnumpy(piece).tobytes()


BALLAST = {"jax": jax_ballast, "cupy": cupy_ballast}


def carry(name: str, mib: int) -> list[Callable[[], bytes]]:
    """Fill so much memory of the program's framework; what reads each piece of it."""
    make = BALLAST.get(name.split("_", maxsplit=1)[0], torch_ballast)
    return [make(min(PIECE_MIB, mib - done) << 18) for done in range(0, mib, PIECE_MIB)]


# -- running one ------------------------------------------------------------------


def steps_in(work: Workload, seconds: float) -> int:
    """About how many steps the device does in so many seconds; also warms it up."""
    done = 0
    started = time.perf_counter()
    while time.perf_counter() - started < WARM_S:
        for _ in range(8):
            work.step()
        work.wait()
        done += 8
    return max(1, int(done / (time.perf_counter() - started) * seconds))


def measure_speed(work: Workload, batch: int, seconds: float) -> dict[str, Any]:
    """Steps per second: over all of the time, and the median of batches."""
    rates: list[float] = []
    first = last = time.perf_counter()
    began = time.time()
    while last - first < seconds:
        for _ in range(batch):
            work.step()
        work.wait()
        now = time.perf_counter()
        rates.append(batch / (now - last))
        last = now
    return {
        "steps_s": round(batch * len(rates) / (last - first), 2) if rates else None,
        "median_steps_s": round(statistics.median(rates), 2) if rates else None,
        "timed_steps": batch * len(rates),
        "from": began,
        "to": time.time(),
    }


def digest_of(outputs: Iterable[bytes]) -> str:
    """One number for all that a program computed."""
    digest = hashlib.sha256()
    for data in outputs:
        digest.update(data)
    return digest.hexdigest()


def wait_for_go() -> bool:
    """Say that the timed part can begin and wait for a line; false at the end of the input."""
    print("ready", flush=True)
    return bool(sys.stdin.readline())


def is_interposed() -> bool:
    return "libgpulease.so" in Path("/proc/self/maps").read_text()


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """Run one workload, as the command line says."""
    started = time.perf_counter()
    name, seconds = chosen.name, chosen.seconds
    work = WORKLOADS[name]()
    steps = chosen.steps or work.steps
    ballast = carry(name, chosen.ballast)
    work.step()
    work.wait()
    first = time.perf_counter()
    for _ in range(steps - 1):
        work.step()
    work.wait()
    computed = time.perf_counter()
    digest = digest_of(itertools.chain(work.outputs(), (piece() for piece in ballast)))
    batch = steps_in(work, BATCH_S) if seconds else 1
    while chosen.segments and wait_for_go():
        print(json.dumps(measure_speed(work, batch, seconds)), flush=True)
    if chosen.ready:
        wait_for_go()
    report = {
        "name": name,
        "digest": digest,
        "steps": steps,
        "digest_s": round(computed - first, 3),
        "ms_first": round((first - started) * 1e3, 1),
        "interposed": is_interposed(),
    }
    return report | measure_speed(work, batch, 0 if chosen.segments else seconds) | work.about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--steps", type=int, default=0, help="before the digest; 0: its own number")
    parser.add_argument("--seconds", type=float, default=4.0, help="of the timed part")
    parser.add_argument("--ready", action="store_true", help="print ready, wait for a line, time")
    parser.add_argument("--segments", action="store_true", help="time a part for each line")
    parser.add_argument("--ballast", type=int, default=0, help="MiB of memory to carry along")
    print(json.dumps(run(parser.parse_args())), flush=True)


if __name__ == "__main__":
    main()
