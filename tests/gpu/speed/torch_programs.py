"""PyTorch programs of check_speed: trainings and an inference, as people write them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.gpu.workloads import Workload, load_torch, torch_graph

DEVICE = "cuda"
WIDTH = 1024
IMAGE = (3, 64, 64)
CLASSES = 10


def torch_of(allocator: str = "") -> Any:
    """PyTorch as it is by default. allocator: see load_torch()."""
    torch = load_torch(allocator)
    torch.use_deterministic_algorithms(False)
    return torch


def nothing() -> Iterable[bytes]:
    """Results are compared elsewhere (check_frameworks)."""
    return ()


def program(torch: Any, step: Callable[[], object]) -> Workload:
    if DEVICE == "cpu":
        return Workload(step, lambda: None, nothing, 0)
    about = {"allocator": torch.cuda.get_allocator_backend()}
    return Workload(step, torch.cuda.synchronize, nothing, 0, about)


def convolutions(torch: Any) -> Any:
    """Ten convolutions with batch norms, of which every second halves the image."""
    nn = torch.nn
    layers, before = [], IMAGE[0]
    for n in range(10):
        channels = 32 << n // 2
        layers.append(nn.Conv2d(before, channels, 3, stride=1 + n % 2, padding=1, bias=False))
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
        before = channels
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, CLASSES)]
    return nn.Sequential(*layers).to(DEVICE)


def perceptron(torch: Any, dtype: Any) -> Any:
    nn = torch.nn
    layers = [nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*layers).to(DEVICE, dtype)


def cnn() -> Workload:
    """fp32, eager: a network for images in training."""
    torch = torch_of()
    model = convolutions(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    images = torch.randn(32, *IMAGE, device=DEVICE)
    labels = torch.arange(32, device=DEVICE) % CLASSES

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return program(torch, step)


def bf16_item() -> Workload:
    """bf16, AdamW, and a look at the loss in every step."""
    torch = torch_of()
    model = perceptron(torch, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.randn(256, WIDTH, device=DEVICE, dtype=torch.bfloat16)

    def step() -> object:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), data)
        loss.backward()
        optimizer.step()
        return loss.item()

    return program(torch, step)


def compiled() -> Workload:
    """torch.compile with mode="reduce-overhead": graphs of compiled kernels, both ways."""
    torch = torch_of()
    model = perceptron(torch, torch.float32)
    mode = "default" if DEVICE == "cpu" else "reduce-overhead"
    forward = torch.compile(model, mode=mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(512, WIDTH, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(forward(data), data).backward()
        optimizer.step()

    return program(torch, step)


PROMPT, TOKENS = 32, 8


def decode() -> Workload:
    """A Llama of random weights: eight tokens, one after the other, with their cache."""
    torch = torch_of()
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        LlamaConfig,
        LlamaForCausalLM,
    )

    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    dtype = torch.float32 if DEVICE == "cpu" else torch.float16
    model = LlamaForCausalLM(config).to(DEVICE, dtype).eval()
    prompt = torch.randint(8192, (1, PROMPT), device=DEVICE)

    def step() -> list[int]:
        said, tokens, cache = [], prompt, None
        with torch.inference_mode():
            for _ in range(TOKENS):
                found = model(input_ids=tokens, past_key_values=cache, use_cache=True)
                tokens, cache = found.logits[:, -1:].argmax(-1), found.past_key_values
                said.append(int(tokens.item()))
        return said

    return program(torch, step)


def batches(torch: Any) -> Iterator[Any]:
    """Batches of images without end, from two processes, in pinned memory."""
    data = torch.utils.data
    images = torch.randint(256, (4096, *IMAGE), dtype=torch.uint8)
    labels = torch.arange(4096) % CLASSES
    dataset = data.TensorDataset(images, labels)
    order = data.RandomSampler(dataset, replacement=True, num_samples=1 << 40)
    loader = data.DataLoader(
        dataset,
        batch_size=None,  # the sampler gives whole batches of indices
        sampler=data.BatchSampler(order, 128, drop_last=True),
        num_workers=2,
        pin_memory=DEVICE != "cpu",
    )
    return iter(loader)


def loader() -> Workload:
    """A DataLoader whose batches are copied from pinned memory, and a training of them."""
    torch = torch_of()
    model = convolutions(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given = batches(torch)

    def step() -> None:
        images, labels = (value.to(DEVICE, non_blocking=True) for value in next(given))
        optimizer.zero_grad()
        images = images.float() / 255
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return program(torch, step)


def changing_sizes(torch: Any) -> Workload:
    """Batches of four sizes by turns, so that memory is taken and given back in every step."""
    model = perceptron(torch, torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = [torch.randn(rows, WIDTH, device=DEVICE) for rows in (512, 320, 448, 384)]
    given = itertools.cycle(data)

    def step() -> None:
        rows = next(given)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(rows), rows).backward()
        optimizer.step()

    return program(torch, step)


def malloc_async() -> Workload:
    """The driver's stream-ordered allocator."""
    work = changing_sizes(torch_of("backend:cudaMallocAsync"))
    assert DEVICE == "cpu" or work.about["allocator"] == "cudaMallocAsync", work.about
    return work


def expandable() -> Workload:
    """Memory that PyTorch maps itself."""
    torch = torch_of("expandable_segments:True")
    work = changing_sizes(torch)
    if DEVICE != "cpu":
        segments = torch.cuda.memory_snapshot()
        assert any(segment.get("is_expandable") for segment in segments), segments[:1]
    return work


PROGRAMS: dict[str, Callable[[], Workload]] = {
    "cnn": cnn,
    "bf16_item": bf16_item,
    "graph": torch_graph,
    "compiled": compiled,
    "decode": decode,
    "loader": loader,
    "malloc_async": malloc_async,
    "expandable": expandable,
}
