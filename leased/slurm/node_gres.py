"""The GPUs of a node, and how many shards each has, as slurmd makes them of its files.

slurmd merges Gres= of slurm.conf with gres.conf, and adds what it detects. It says the result
itself (`slurmd -G`). Where it cannot be asked, merged() does the same (gres.c, gres_gpu.c and
gres_c_s.c, alike from 22.05 to 26.05).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from leased.base import children
from leased.slurm import gres_text
from leased.slurm.gres_conf import GresConf, GresLine

ASK_S = 25.0  # slurmd waits for 20 s for a device file
MOST_GPUS = 1024  # of a node
SAID = re.compile(
    r"Gres Name=(gpu|shard) Type=(\S+) Count=([0-9]{1,18}) (?:Index=\S+ )?ID=\S+"
    r"(?: File=(\S+))?(?: Cores=(\S+))?"
)
# 26.05 says the time first, and not that it is slurmd.
STOPS = re.compile(r"^(?:slurmd:|\[\S+\]) fatal: (?:\w+: )?(.+)$", re.MULTILINE)
CGROUPS = Path("/sys/fs/cgroup")
SLURMD = ("/usr/sbin/slurmd", "/usr/local/sbin/slurmd", "slurmd")


@dataclass(frozen=True)
class SlurmGpu:
    """A GPU as slurmd has it. type: "": none. file: its device file; the first of several.
    placed: slurmctld knows the cores beside it. shards: that it has."""

    file: str
    type: str = ""
    placed: bool = False
    shards: int = 0


@dataclass(frozen=True)
class NodeGres:
    """gpus: in the order of Slurm's indices. stops: why slurmd does not start; "": it does.
    unknown: slurmd detects GPUs that are not known here, and there may be others."""

    gpus: tuple[SlurmGpu, ...] = ()
    stops: str = ""
    unknown: bool = False

    @property
    def shards(self) -> int:
        return sum(gpu.shards for gpu in self.gpus)

    @property
    def described(self) -> bool:
        """Whether slurmctld keeps apart which GPUs are in use: one of them has a type or cores."""
        return any(gpu.type or gpu.placed for gpu in self.gpus)


@dataclass(frozen=True)
class Detected:
    """A GPU that slurmd detects. name: as NVML has it."""

    file: str
    name: str = ""

    @property
    def type(self) -> str:
        return self.name.lower().replace(" ", "_")


# -- asked -------------------------------------------------------------------------


def read(text: str) -> NodeGres:
    """What `slurmd -G` has printed."""
    gpus: list[SlurmGpu] = []
    shards: dict[str, int] = {}
    for name, type_, number, file, cores in SAID.findall(text):
        if name == "shard":
            shards[file] = shards.get(file, 0) + int(number)
        else:
            kind = "" if type_ == "(null)" else type_.lower()
            gpus.append(SlurmGpu(file, kind, bool(cores)))
    stops = STOPS.search(text)
    named = tuple(replace(gpu, shards=shards.get(gpu.file, 0)) for gpu in gpus)
    return NodeGres(named, stops[1] if stops else "")


def _has_not_run() -> bool:
    """Whether slurmd has not made its cgroup since the host began. Up to 23.11 `slurmd -G` would
    make it, where there are cgroups of version 2."""
    made = any(CGROUPS.glob("system.slice/*slurmstepd.scope"))
    return (CGROUPS / "cgroup.controllers").exists() and not made


def ask(node: str, gres: str | None, env: Mapping[str, str]) -> NodeGres | None:
    """What slurmd of this host makes of its files now, for the node of that name; it changes
    nothing. None: it does not say, or has not run yet.

    gres: of a node that slurm.conf does not have; None: slurm.conf has it.
    """
    if _has_not_run():
        return None
    dynamic = [] if gres is None else ["-Z", "--conf", f"Gres={gres}"]
    for slurmd in SLURMD:
        command = (slurmd, "-N", node, "-L", "/dev/null", *dynamic, "-G")
        try:
            done = children.run_and_wait(*command, env=env, patience_s=ASK_S)
        except OSError:
            continue
        found = read(done.err)
        # Whoever is not root may lack more than slurmd of this host does.
        return found if found.gpus or (found.stops and os.geteuid() == 0) else None
    return None


# -- merged ------------------------------------------------------------------------


class _Stops(Exception):
    """Why slurmd does not start."""


def merged(conf: GresConf, gres: str, detected: Sequence[Detected] | None = None) -> NodeGres:
    """What slurmd makes of gres.conf and of a node's Gres.

    detected: the GPUs that it detects, in the order of their PCI addresses; None: unknown.
    """
    gres = gres.lower()  # so slurmd compares types
    unknown = bool(conf.autodetect) and detected is None
    gpus = _gpus(_merged("gpu", conf.lines, gres))
    if conf.autodetect and detected is not None:
        gpus = _with_detected(gpus, detected, in_pci_order="nvml" in conf.autodetect)
    gpus = [gpu for gpu in gpus if gpu.file]
    shards = _merged("shard", conf.lines, gres)
    try:
        for name in ("gpu", "shard"):
            _check(name, [line for line in conf.lines if line.name == name], gres)
        if not unknown:
            gpus = _with_shards(gpus, shards)
    except _Stops as why:
        return NodeGres(tuple(gpus), str(why), unknown)
    return NodeGres(tuple(gpus), "", unknown)


def _check(name: str, lines: Sequence[GresLine], gres: str) -> None:
    """What slurmd looks at first, and stops at."""
    wrong = next((line.wrong for line in lines if line.wrong), "")
    if wrong:
        raise _Stops(f"a line of {name} is wrong: {wrong}")
    for what, have in (("File=", {bool(x.files) for x in lines}), ("Type=", {*map(_typed, lines)})):
        if len(have) > 1:
            raise _Stops(f"some lines of {name} have {what} and others do not")
    if len(lines) > 1 and not lines[0].files and not lines[0].type:
        raise _Stops(f"there are several lines of {name} with neither File= nor Type=")
    if len({bool(entry.type) for entry in gres_text.entries(gres) if entry.name == name}) > 1:
        raise _Stops(f"some {name} of Gres= in slurm.conf have a type and others do not")


def _typed(line: GresLine) -> bool:
    return bool(line.type)


def _merged(name: str, lines: Iterable[GresLine], gres: str) -> list[GresLine]:
    """The lines of gres.conf that fill the entries of Gres=, cut to their counts. What is missing
    is added without a file."""
    left = [line for line in lines if line.name == name]
    wanted: dict[str, int] = {}
    for entry in gres_text.entries(gres):
        if entry.name == name:
            wanted[entry.type] = wanted.get(entry.type, 0) + entry.number
    found: list[GresLine] = []
    for type_, number in wanted.items():
        missing = number
        for line in [line for line in left if not type_ or line.type == type_]:
            if missing <= 0:
                break
            left.remove(line)
            taken = min(line.count, missing)
            missing -= line.count
            # A type that slurm.conf does not have is forgotten.
            cut = line.files[:taken] if taken < line.count else line.files
            found.append(replace(line, type=type_, count=taken, files=cut))
        if missing > 0:
            found.append(GresLine(name, type_, (), missing, cores=False))
    return found


def _gpus(lines: Iterable[GresLine]) -> list[SlurmGpu]:
    """One by one; file "": slurmd has yet to detect it."""
    return [
        SlurmGpu(file, line.type, line.cores)
        for line in lines
        for file in line.files or [""] * min(line.count, MOST_GPUS)
    ]


def _natural(gpu: SlurmGpu) -> tuple[bool, list[tuple[int, str]]]:
    """nvidia2 comes before nvidia10, and none comes last."""
    parts = re.split(r"([0-9]{1,18})", gpu.file)
    return not gpu.file, [(int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts)]


def _with_detected(
    wanted: list[SlurmGpu], detected: Sequence[Detected], *, in_pci_order: bool
) -> list[SlurmGpu]:
    """The GPUs of the files, each as it was detected; those that were not need a file."""
    kinds = _types_of_detected(wanted, detected)
    free = sorted(
        (SlurmGpu(gpu.file, kind, True) for gpu, kind in zip(detected, kinds)),
        key=_natural,
    )
    found: list[SlurmGpu] = []
    for gpu in sorted(wanted, key=_natural):
        match = next((one for one in free if _fits(gpu, one)), None)
        if match is not None:
            free.remove(match)
        found.append(match or gpu)
    place = {gpu.file: n for n, gpu in enumerate(detected)} if in_pci_order else {}
    by_file = sorted(found, key=_natural)
    return sorted(by_file, key=lambda gpu: place.get(gpu.file, len(place)))


def _fits(wanted: SlurmGpu, detected: SlurmGpu) -> bool:
    return wanted.type in ("", detected.type) and wanted.file in ("", detected.file)


def _types_of_detected(wanted: list[SlurmGpu], detected: Sequence[Detected]) -> list[str]:
    """A type of the files is a part of the detected name; each is used once."""
    left = sorted((gpu.type for gpu in wanted if gpu.type), key=lambda kind: (-len(kind), kind))
    if not left:
        return [""] * len(detected)
    kinds = [gpu.type for gpu in detected]
    longest_first = sorted(
        range(len(kinds)), key=lambda n: (-len(kinds[n]), kinds[n], detected[n].file)
    )
    for n in longest_first:
        match = next((kind for kind in left if kind in kinds[n]), None)
        if match is not None:
            left.remove(match)
            kinds[n] = match
    return kinds


def _with_shards(gpus: list[SlurmGpu], lines: list[GresLine]) -> list[SlurmGpu]:
    anywhere = [line for line in lines if not line.files]
    if anywhere and len(lines) > 1:
        raise _Stops(
            "shards are counted several times without File=: Gres= of slurm.conf has more, or "
            "other types, than gres.conf"
        )
    if lines and not gpus:
        raise _Stops("there are shards, and no GPU has a device file")
    if anywhere:
        each = gres_text.divided(anywhere[0].count, len(gpus))
        return [replace(gpu, shards=n) for gpu, n in zip(gpus, each)]
    shards: dict[str, int] = {}
    for line in lines:
        for file in line.files:
            shards.setdefault(file, line.count // len(line.files))
    return [replace(gpu, shards=shards.get(gpu.file, 0)) for gpu in gpus]
