"""Finds the subcommands: each module of leased/cli/subcommands has one, so a file is enough."""

from __future__ import annotations

import importlib
import pkgutil

from leased.cli import subcommands
from leased.cli.subcommand import Subcommand


def all_subcommands() -> list[Subcommand]:
    """In the order of their names. AttributeError, TypeError: a module there has none."""
    found = []
    for module in pkgutil.iter_modules(subcommands.__path__, f"{subcommands.__name__}."):
        subcommand = importlib.import_module(module.name).subcommand
        if not isinstance(subcommand, Subcommand):
            raise TypeError(f"{module.name}.subcommand is no Subcommand")
        found.append(subcommand)
    return sorted(found, key=lambda subcommand: subcommand.name)
