"""What a check sees: findings, with ids that stay the same from release to release.

ok: it was looked at and is in order. warning: sharing works, or it could not be looked at.
fault: jobs fail, or are not protected.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from leased.api.answers import Status
from leased.config import config
from leased.gpus.nvml_answers import Described
from leased.slurm.slurmconf import SlurmConf

OK, WARNING, FAULT = "ok", "warning", "fault"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. level: ok, warning or fault."""

    id: str
    level: str
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def finding(id_: str, wrong: str, remedy: str, right: str, level: str = WARNING) -> Finding:
    """What is wrong, with its remedy, or what is right where `wrong` is empty."""
    return Finding(id_, level, wrong, remedy) if wrong else Finding(id_, OK, right)


@dataclass
class Site:
    """What there is to look at. status: the daemon's, None while it does not answer."""

    config: config.Config
    path: Path  # of gpu-leased.toml
    admin_socket: Path
    slurm: SlurmConf
    env: Mapping[str, str]
    version: tuple[int, int, int] | None = None
    node: str | None = None
    status: Status | None = None
    gpus: list[Described] = field(default_factory=list)  # that NVML shows; [] unknown


def as_list(found: Iterator[Finding]) -> list[Finding]:
    """All findings of a check; what it could not read is a finding too."""
    made: list[Finding] = []
    try:
        made.extend(found)
    except OSError as fault:
        remedy = (
            "run the check as root" if isinstance(fault, PermissionError) else "correct the file"
        )
        made.append(Finding("files", WARNING, f"{fault.filename}: {fault.strerror}", remedy))
    except Exception as fault:  # of ours: it must not hide what the others find
        words = f"a part of this check failed: {type(fault).__name__}: {fault}"
        made.append(Finding("check", WARNING, words, "report it as a fault of gpu-lease"))
    return made


def unreadable_lines(id_: str, faults: list[str]) -> Iterator[Finding]:
    """A warning for each line of a configuration file that could not be understood."""
    for fault in faults:
        yield Finding(id_, WARNING, f"left out of this check: {fault}", "correct the line")


def closed_to_others(path: Path) -> Path | None:
    """The first folder on the way to a file that others may not enter."""
    return next(
        (p for p in reversed(path.absolute().parents) if not p.stat().st_mode & stat.S_IXOTH), None
    )
