"""A policy is found by its name."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TypeVar

from leased.core.policy import Policy

DEFAULT = "fcfs"

# By name; names() sees to it that all are here.
known: dict[str, type[Policy]] = {}

Kind = TypeVar("Kind", bound=type[Policy])


def register(kind: Kind) -> Kind:
    """Decorates the class of a policy."""
    if known.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"there are two policies with the name {kind.name}")
    return kind


def names() -> list[str]:
    """The names of all policies. It imports every module of this folder, so that a policy needs no
    entry in a list."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__, f"{__package__}."):
        importlib.import_module(module.name)
    return sorted(known)


class Registry:
    """What an arbiter is given to make policies by name. It holds nothing, so an arbiter's state
    can be written down with it."""

    def make(self, name: str | None = None) -> Policy:
        """A new policy of that name; None: the default one. ValueError: there is none."""
        chosen = name or DEFAULT
        if chosen not in known and chosen not in names():
            raise ValueError(f"{chosen!r} is not a policy; known are {', '.join(names())}")
        return known[chosen]()


make = Registry().make
