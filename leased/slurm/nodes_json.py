"""The nodes of a whole cluster whose GPUs jobs share, by the JSON that sinfo or scontrol prints.

sinfo of Slurm 22.05 prints them one by one. That of later releases prints groups of nodes that are
alike, and there scontrol prints them one by one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from leased.slurm import gres_text
from leased.slurm.json_answers import Entries, Missing, Read, list_of, number_of, text_of, words_of

MOST_GPUS = 1024  # of a node
# Shards of each GPU of a node whose shards are not known now: slurmctld of 22.05 writes shard:0 of
# a node with jobs from its restart on until the node registers.
UNKNOWN = 1 << 20
OF_EACH = re.compile(r"(?:^|,)shard(?::([^:,]+))?:\d{1,9}\(((?:\d{1,9}/\d{1,9},?)+)\)")
OF_ONE = re.compile(r"/(\d{1,9})")
USABLE = {"IDLE", "MIXED", "ALLOCATED"}
HARMLESS = {*USABLE, "", "PLANNED", "CLOUD", "DYNAMIC_NORM", "COMPLETING"}


@dataclass(frozen=True)
class GpuNode:
    """A node with shards. gpus: by index, the type ("": none) and the number of shards.
    usable: it takes jobs, and its shards are known. idle_cpus, free_memory (MiB): what Slurm has
    not given out. comment: what anybody wrote there."""

    name: str
    usable: bool
    partitions: tuple[str, ...]
    features: frozenset[str]
    gpus: tuple[tuple[str, int], ...]
    idle_cpus: int
    free_memory: int
    comment: str = ""


class Grouped(Missing):
    """The answer has groups of nodes instead of nodes."""


class Nodes(Entries):
    """Reads the nodes with shards in what `sinfo --json` or `scontrol show nodes --json` prints."""

    def __init__(self) -> None:
        super().__init__("nodes", _node)

    def end(self) -> Read:
        """The nodes. Grouped, Unreadable: it is something else."""
        try:
            read = super().end()
        except Missing as fault:
            if "sinfo" in fault.there:
                raise Grouped("nodes", fault.there) from None
            raise
        return replace(read, found=tuple(node for node in read.found if node.gpus))


def _node(said: Mapping[str, Any]) -> GpuNode:
    words = [*words_of(said["state"]), *words_of(said.get("state_flags") or [])]
    features = said.get("active_features") or said.get("features")
    gpus = gpus_of(text_of(said.get("gres")), text_of(said.get("gres_used")))
    cpus = number_of(said.get("effective_cpus")) or number_of(said.get("cpus"))
    return GpuNode(
        name=_name(said["name"]),
        usable=words[0] in USABLE and set(words) <= HARMLESS and UNKNOWN not in dict(gpus).values(),
        partitions=list_of(said.get("partitions")),
        features=frozenset(list_of(features)),
        gpus=gpus,
        idle_cpus=cpus - number_of(said.get("alloc_cpus")),
        free_memory=number_of(said.get("real_memory")) - number_of(said.get("alloc_memory")),
        comment=text_of(said.get("comment")),
    )


def _name(value: Any) -> str:
    """A node's name is written into commands. ValueError: it is none."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}", str(value), re.ASCII):
        raise ValueError("no name of a node")
    return str(value)


def gpus_of(gres: str, used: str = "") -> tuple[tuple[str, int], ...]:
    """By index, the type and the shards of each GPU, from a node's Gres: gpu:a:1,gpu:b:1,shard:8.

    used: what is in use of it, where later releases have the shards of each GPU:
    shard:a:3(3/4,0/4). Otherwise shards with a type are divided among the GPUs of that type, and
    others among all, as slurmd divides them.
    """
    types: list[str] = []
    shards: dict[str, int] = {}
    for entry in gres_text.entries(gres):
        if entry.name == "gpu":
            types += [entry.type] * min(entry.number, MOST_GPUS - len(types))
        elif entry.name == "shard":
            shards[entry.type] = shards.get(entry.type, 0) + entry.number
    if not types or not shards:
        return ()
    if not sum(shards.values()):
        return tuple((kind, UNKNOWN) for kind in types)
    each = _told(types, used) or _divided(types, shards)
    return tuple(zip(types, each))


def _told(types: list[str], used: str) -> list[int]:
    """The shards of each GPU, by their types in turn; []: they are not told."""
    told: dict[str, list[int]] = {}
    for kind, where in OF_EACH.findall(used):
        told.setdefault("" if kind == "(null)" else kind, []).extend(
            map(int, OF_ONE.findall(where))
        )
    if {kind: len(parts) for kind, parts in told.items()} != Counter(types):
        return []
    return [told[kind].pop(0) for kind in types]


def _divided(types: list[str], shards: Mapping[str, int]) -> list[int]:
    each = [0] * len(types)
    for kind, number in shards.items():
        places = [n for n, one in enumerate(types) if not kind or one == kind]
        for n, part in zip(places, gres_text.divided(number, len(places))):
            each[n] += part
    return each
