"""gres.conf, and counts of GRES as slurm.conf has them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from leased.slurm.conf_lines import Faults, Fields, Reader, fields
from leased.slurm.hostlists import expand
from leased.slurm.slurmconf import beside


def gres_counts(text: str) -> dict[str, int]:
    """gpu:a100:4,shard:32 -> {"gpu": 4, "shard": 32}."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = part.strip().split(":")
        if name:
            last = rest[-1] if rest and rest[-1][:1].isdigit() else "1"
            found[name] = found.get(name, 0) + count(last)
    return found


def count(text: str) -> int:
    """A count as Slurm writes it, such as 32 or 4K; 0: the text is no count."""
    found = re.fullmatch(r"([0-9]{1,9})([KkMm]?)", text)
    return int(found[1]) * {"": 1, "k": 1024, "m": 1024**2}[found[2].lower()] if found else 0


@dataclass
class Gres:
    """What gres.conf says of one node. autodetect: AutoDetect's value; "": none.

    faults: sentences about the lines that could not be understood and were left out.
    """

    files: list[str] = field(default_factory=list)
    gpus: list[tuple[str, list[str]]] = field(default_factory=list)  # a line's type and files
    shards: int = 0
    gpu_lines: int = 0
    shard_lines: int = 0
    unplaced: int = 0  # lines of gpu with neither Cores= nor Type=
    autodetect: str = ""
    faults: list[str] = field(default_factory=list)

    def add(self, said: Fields, node: str | None) -> None:
        """Add what a line says, if it is about this node. ValueError: a list in it is wrong."""
        if "nodename" in said and node not in expand(said["nodename"]):
            return
        files = expand(said.get("file", ""))
        self.autodetect = said.get("autodetect", self.autodetect).lower()
        name = said.get("name", "").lower()
        if name == "gpu":
            self.gpu_lines += 1
            self.files += files
            self.gpus.append((said.get("type", "").lower(), files))
            self.unplaced += not {"type", "cores", "cpus"} & said.keys()
        elif name == "shard":
            self.shard_lines += 1
            self.shards += count(said.get("count", "1")) * max(1, len(files))


def gres_of(path: Path, node: str | None) -> Gres:
    """gres.conf for one node; None: only lines about all nodes. OSError: it cannot be read."""
    found = Gres()
    faults = Faults()
    for line in Reader(beside, faults).read(path):
        try:
            found.add(fields(line, faults), node)
        except ValueError as fault:
            faults.line(line, str(fault))
    found.faults = faults.listed()
    if found.autodetect == "off":
        found.autodetect = ""
    return found
