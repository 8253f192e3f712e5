"""gres.conf, as slurmd of one node reads it (gres.c, alike from 22.05 to 26.05)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from leased.base import words
from leased.slurm.conf_lines import Faults, Fields, Reader, fields
from leased.slurm.gres_text import count
from leased.slurm.hostlists import expand
from leased.slurm.slurmconf import beside


@dataclass(frozen=True)
class GresLine:
    """A line about GRES. count: as slurmd takes it where nothing is written, too. cores: it has
    Cores=. wrong: why slurmd stops at it; "": it does not."""

    name: str
    type: str
    files: tuple[str, ...]
    count: int
    cores: bool
    wrong: str = ""


@dataclass
class GresConf:
    """What gres.conf says of one node. lines: in slurmd's order, which is first those that count
    for all nodes. autodetect: AutoDetect's value in lower case; "": none.

    faults: sentences about the lines that could not be understood and were left out.
    """

    lines: list[GresLine] = field(default_factory=list)
    autodetect: str = ""
    faults: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """Every device file that is named; slurmd waits for each, and stops if it does not come."""
        return [file for line in self.lines for file in line.files]


def _line(said: Fields) -> GresLine:
    """ValueError: a list in it is wrong."""
    name = said["name"].lower()
    several = expand(said.get("multiplefiles", ""))
    files = several or expand(said.get("file", said.get("files", "")))
    usual = 1 if several else len(files) or 1
    number = count(said["count"]) if "count" in said else usual
    wrong = ""
    if "count" in said and not said["count"][:1].isdigit():
        wrong = f"Count={said['count']} is no number"
    elif files and name != "shard" and number != usual:
        wrong = f"Count={number} does not fit the {words.count(usual, 'file')} of its File="
    placed = bool({"cores", "cpus"} & said.keys())
    return GresLine(name, said.get("type", "").lower(), tuple(files), number, placed, wrong)


def gres_of(path: Path, node: str | None) -> GresConf:
    """gres.conf for one node; None: only lines about all nodes. OSError: it cannot be read."""
    faults = Faults()
    of_all: list[GresLine] = []
    of_node: list[GresLine] = []
    autodetect = {"all": "", "node": ""}
    for line in Reader(beside, faults).read(path):
        said = fields(line, faults)
        try:
            if "nodename" in said and node not in expand(said["nodename"]):
                continue
            if "name" in said:
                (of_node if "nodename" in said else of_all).append(_line(said))
        except ValueError as fault:
            faults.line(line, str(fault))
        if "autodetect" in said and ("nodename" in said or "name" not in said):
            autodetect["node" if "nodename" in said else "all"] = said["autodetect"].lower()
    chosen = autodetect["node"] or autodetect["all"]
    return GresConf([*of_all, *of_node], "" if chosen == "off" else chosen, faults.listed())
