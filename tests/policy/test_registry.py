"""A policy is a file in leased/policy: it can be chosen by its name, and the documents have it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from leased import policy
from tests.conftest import ROOT


def written() -> list[type]:
    """The classes in leased/policy that say who is next."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.iter_modules(policy.__path__, f"{policy.__name__}.")
    ]
    return [
        kind
        for module in modules
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and hasattr(kind, "order")
    ]


def test_every_class_of_a_policy_is_registered() -> None:
    names = {kind: getattr(kind, "name", None) for kind in written()}
    assert len(names) >= len(policy.names())
    assert {kind for kind, name in names.items() if name not in policy.names()} == set(), (
        "the class needs @register"
    )
    assert all(type(policy.make(name)) is kind for kind, name in names.items()), (
        "the class needs @register and a name of its own"
    )


def test_the_document_says_what_every_policy_does() -> None:
    told = (ROOT / "docs" / "daemon.md").read_text()
    assert [name for name in policy.names() if f"`{name}`" not in told] == []
