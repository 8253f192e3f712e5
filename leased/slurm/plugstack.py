"""plugstack.conf: which plugins Slurm loads, and from which files."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

from leased.base.requests import shown
from leased.slurm.conf_lines import Faults, Reader

PLUGIN_DIRS = (
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
)


def matching(folder: Path, word: str) -> list[Path]:
    """The files of plugstack.conf's include: a relative pattern is one beside the file."""
    return [Path(name) for name in sorted(glob.glob(str(folder / word.strip())))]  # noqa: PTH207


@dataclass(frozen=True)
class PluginLine:
    """A line of plugstack.conf."""

    file: Path
    required: bool
    path: str
    arguments: tuple[str, ...]


def plugin_lines(path: Path) -> tuple[list[PluginLine], list[str]]:
    """The plugins, with those of included files, and faults of lines. OSError: unreadable."""
    found: list[PluginLine] = []
    faults = Faults()
    for line in Reader(matching, faults).read(path):
        kind, *rest = line.text.split()
        if kind.lower() in ("required", "optional") and rest:
            plugin = PluginLine(line.file, kind.lower() == "required", rest[0], tuple(rest[1:]))
            found.append(plugin)
        else:
            faults.line(line, f"{shown(line.text)} is not a line of a plugin")
    return found, faults.listed()


def plugin_file(path: str, plugin_dirs: str) -> Path | None:
    """The plugin's file as Slurm finds it: an absolute path, or a name in PluginDir."""
    if path.startswith("/"):
        return Path(path) if Path(path).is_file() else None
    folders = plugin_dirs.split(":") if plugin_dirs else PLUGIN_DIRS
    found = (Path(folder) / path for folder in folders)
    return next((file for file in found if file.is_file()), None)
