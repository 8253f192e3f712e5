"""GRES as slurm.conf and slurmctld write those of a node: gpu:a100:4(S:0-1),shard:32."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Entry(NamedTuple):
    """Some of a GRES. type: "": none."""

    name: str
    type: str
    number: int


def count(text: str) -> int:
    """A count as Slurm writes it, such as 32 or 4K; 0: the text is no count."""
    found = re.fullmatch(r"([0-9]{1,9})([KkMmGg]?)", text)
    return int(found[1]) * UNITS[found[2].lower()] if found else 0


def entries(text: str) -> Iterator[Entry]:
    """The entries of a node's GRES. Without a count it is one, as Slurm takes it."""
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = [word for word in part.strip().split(":") if word != "no_consume"]
        number = count(rest.pop()) if rest and rest[-1][:1].isdigit() else 1
        if name:
            yield Entry(name.lower(), rest[0] if rest else "", number)


def counts(text: str) -> dict[str, int]:
    """gpu:a100:4,gpu:1,shard:32 -> {"gpu": 5, "shard": 32}."""
    found: dict[str, int] = {}
    for entry in entries(text):
        found[entry.name] = found.get(entry.name, 0) + entry.number
    return found


def as_configured(text: str) -> str:
    """What slurmctld says of a node, as it was told it: it has the types of their GPUs added to
    shards. gpu:a:2(S:0),shard:a:8(S:0) -> gpu:a:2,shard:8."""
    told = [f"{e.name}:{e.type}:{e.number}" for e in entries(text) if e.name != "shard"]
    shards = counts(text).get("shard", 0)
    return ",".join([*told, f"shard:{shards}"] if shards else told).replace("::", ":")


def divided(number: int, parts: int) -> list[int]:
    """So slurmd divides shards among GPUs: 7 among 2 -> 3, 4."""
    found = []
    for left in range(parts, 0, -1):
        found.append(number // left)
        number -= found[-1]
    return found
