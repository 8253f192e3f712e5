"""Shards that stand for memory (device.mem_per_shard): what a job may have for its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leased.base.errors import Refused
from leased.base.requests import Request, get_int, get_ints
from leased.base.words import count, size
from leased.config.config import Config
from leased.config.options import Options, Resolved, parse_amount
from leased.gpus.devices import Gpu

SHARDS = 2**20  # no job has more


class Fence(NamedTuple):
    """What a job may have of a GPU. shards: that it has of it; each: bytes for each of them."""

    shards: int
    each: int

    @property
    def most(self) -> int:
        return self.shards * self.each


Fences = Mapping[str, Fence]  # by UUID; GPUs of which shards stand for no memory are left out


def of_one(config: Config, gpu: Gpu) -> int | None:
    """The bytes of the GPU that a shard stands for; None: for none."""
    text = config.for_device(gpu.index, gpu.uuid).mem_per_shard
    return parse_amount(text, gpu.memory) if text else None


def _shards(request: Request) -> dict[int, int]:
    """By Slurm's index, how many shards of each GPU the job has. An older plugin does not say it:
    then they are divided alike."""
    indices = get_ints(request, "gpus", SHARDS, SHARDS)
    each = get_ints({"shards_of": []} | request, "shards_of", SHARDS, SHARDS)
    if len(each) != len(indices):
        each = [get_int(request, "shards", 0, SHARDS) // max(1, len(indices))] * len(indices)
    return dict(zip(indices, each))


def fences(config: Config, request: Request, gpus: Iterable[Gpu]) -> dict[str, Fence]:
    """What the job of the request may have of these GPUs."""
    shards = _shards(request)
    found: dict[str, Fence] = {}
    for gpu in gpus:
        each = of_one(config, gpu)
        if each is not None:
            found[gpu.uuid] = Fence(max(1, shards.get(gpu.index, 0)), each)
    return found


def moved(config: Config, old: Gpu, new: Gpu, total: int) -> Fences:
    """What a job may have on another GPU, for the shards that Slurm gave it of the old one, of
    which it sees `total` bytes."""
    return {} if of_one(config, old) is None else {new.uuid: Fence(1, total)}


def check(said: Options, given: Resolved, gang: Iterable[Gpu], most: Fences) -> None:
    """Refused: the job asks for more memory than its shards stand for."""
    for gpu in gang:
        fence = most.get(gpu.uuid)
        if fence is None:
            continue
        what = f"the {size(fence.most)} of GPU {gpu.index} that its "
        what += f"{count(fence.shards, 'shard')} stand for on this site"
        if given.oversub:
            raise Refused(
                f"oversub:on does not go with {what}", "leave it out, and ask for more shards"
            )
        wanted = given.visible_of(gpu.usable)
        if (said.mem_bytes or said.mem_fraction) and wanted > fence.most:
            raise Refused(
                f"mem asks for {size(wanted)}, more than {what}",
                f"ask for --gres=shard:{-(-wanted // fence.each)}, or leave mem out",
            )
