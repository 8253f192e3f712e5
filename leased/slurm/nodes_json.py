"""The nodes of a whole cluster whose GPUs jobs share, by the JSON that sinfo or scontrol prints.

sinfo of Slurm 22.05 prints them one by one. That of later releases prints groups of nodes that are
alike, and there scontrol prints them one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from leased.slurm.json_answers import Missing, Read, each_of, list_of, number_of, text_of, words_of

MOST_GPUS = 1024  # of a node
# Shards of each GPU of a node whose shards are not known now: slurmctld of 22.05 writes shard:0 of
# a node with jobs from its restart on until the node registers.
UNKNOWN = 1 << 20
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


def nodes(text: str) -> Read:
    """The nodes with shards in what `sinfo --json` or `scontrol show nodes --json` prints.
    Unreadable: it is something else."""
    try:
        read = each_of(text, "nodes", _node)
    except Missing as fault:
        if "sinfo" in fault.there:
            raise Grouped("nodes", fault.there) from None
        raise
    return Read(tuple(node for node in read.found if node.gpus), read.not_understood)


def _node(said: Mapping[str, Any]) -> GpuNode:
    words = [*words_of(said["state"]), *words_of(said.get("state_flags") or [])]
    features = said.get("active_features") or said.get("features")
    gpus = gpus_of(text_of(said.get("gres")))
    cpus = number_of(said.get("effective_cpus")) or number_of(said.get("cpus"))
    return GpuNode(
        name=_name(said["name"]),
        usable=words[0] in USABLE and set(words) <= HARMLESS and not is_unknown(gpus),
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


def is_unknown(gpus: tuple[tuple[str, int], ...]) -> bool:
    return any(shards == UNKNOWN for _, shards in gpus)


def gpus_of(gres: str) -> tuple[tuple[str, int], ...]:
    """By index, the type and the shards of each GPU, from a node's Gres: gpu:a:1,gpu:b:1,shard:8.

    Shards with a type are those of the GPUs of that type, evenly; others of all, evenly.
    """
    types: list[str] = []
    shards: dict[str, int] = {}
    for name, middle, count in re.findall(
        r"(?:^|,)(gpu|shard)((?::[A-Za-z][^:(,]*)?):(\d{1,6})(?:\([^)]*\))?", gres
    ):
        if name == "gpu":
            types += [middle[1:]] * min(int(count), MOST_GPUS - len(types))
        else:
            shards[middle[1:]] = shards.get(middle[1:], 0) + int(count)
    if not types or not shards:
        return ()
    if not sum(shards.values()):
        return tuple((kind, UNKNOWN) for kind in types)
    every = shards.get("", 0) // len(types)
    return tuple(
        (kind, every + (shards.get(kind, 0) // types.count(kind) if kind else 0)) for kind in types
    )
