"""Files that root's daemon believes or hands on: only root may be able to change them.

The rule is sshd's for its keys: the file, every directory on the way to it, and every link
there belong to root, and nobody else may write to them. That includes directories with a
sticky bit: in /tmp others cannot replace a file, but they can be the first to make it.

A daemon that does not run as root (in a test or a demo) can lose only what its own user has,
so it does not check this.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leased.base.errors import Refused
from leased.config.config import Config

MOST_LINKS = 40  # as the kernel
OTHERS = stat.S_IWGRP | stat.S_IWOTH
ROOT = 0


@dataclass(frozen=True)
class Part:
    """A directory, link or file on the way to one that is asked for."""

    path: Path
    found: os.stat_result


def parts(path: Path) -> Iterator[Part]:
    """Everything on the way to a file, with links and what they lead to, and at last the file.

    It ends where nothing exists. OSError: something there cannot be looked at.
    """
    left = list(reversed(path.absolute().parts[1:]))
    at, links = Path("/"), 0
    yield Part(at, at.lstat())
    while left:
        name = left.pop()
        if name == "..":
            at = at.parent
            continue
        try:
            found = (at / name).lstat()
        except FileNotFoundError:
            return
        yield Part(at / name, found)
        if not stat.S_ISLNK(found.st_mode):
            at /= name
            continue
        links += 1
        if links > MOST_LINKS:
            return  # the kernel opens nothing there
        target = (at / name).readlink()
        at = Path("/") if target.is_absolute() else at
        left += reversed([part for part in target.parts if part != "/"])


def fault(path: Path) -> Refused | None:
    """Why others may change the file; None: they cannot. OSError: it cannot be found out."""
    for part in parts(path):
        mode = stat.S_IMODE(part.found.st_mode)
        own = part.path == path.absolute()
        what = str(path) if own else f"{path}: {part.path}"
        if part.found.st_uid != ROOT:
            return Refused(
                f"{what} belongs to uid {part.found.st_uid}, who may change it",
                f"run chown root {part.path}, or keep it elsewhere",
            )
        if mode & OTHERS and not stat.S_ISLNK(part.found.st_mode):
            sticky = mode & stat.S_ISVTX
            return Refused(
                f"{what} can be written by others (mode {mode:04o})",
                "keep it in a directory of root's, such as /etc/gpu-lease"
                if sticky
                else f"run chmod go-w {part.path}",
            )
    return None


def named(path: Path, settings: Config) -> list[tuple[Path, str]]:
    """All files that root's daemon believes: the configuration, and what that names."""
    return [
        (path, "the configuration"),
        (Path(settings.preload), "daemon.preload"),
        (settings.runtime_dir, "daemon.runtime_dir"),
        (settings.state_dir, "daemon.state_dir"),
        *([(settings.record, "daemon.record")] if settings.record is not None else []),
    ]


def check(path: Path, what: str) -> None:
    """Refused: others may change it. what: the key of the configuration that names it."""
    if os.geteuid() != ROOT:
        return
    try:
        found = fault(path)
    except OSError as why:
        raise Refused(f"{what}: cannot look at {why.filename}: {why.strerror}") from None
    if found is not None:
        raise Refused(f"{what}: {found}", found.hint)
