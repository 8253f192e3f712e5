"""The library of chains for Python: an extension that lies beside it (chain/python.c).

Component and Held are classes of it; where gpu-lease is not installed they are empty.
"""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

LIBRARY = "/usr/lib/gpu-lease/libgpulease-chain.so"
EXTENSION = "gpu_lease_chain"


class Component:
    """A component's place in its chain. number: what open() has returned, or 0."""

    number: int


class Held:
    """Device memory that a component holds."""

    __slots__ = ()


def _extension(path: str) -> Any:
    loader = ExtensionFileLoader(EXTENSION, str(Path(path).with_name(f"{EXTENSION}.abi3.so")))
    module = module_from_spec(ModuleSpec(EXTENSION, loader, origin=loader.path))
    loader.exec_module(module)
    return module


path = os.environ.get("GPU_LEASE_CHAIN_LIBRARY", LIBRARY)
library: Any = None
missing = ""  # why there is no library
try:
    library = _extension(path)
except ImportError as fault:
    missing = str(fault)
else:
    if not TYPE_CHECKING:
        Component, Held = library.Component, library.Held


def load(errors: tuple[type[Exception], ...]) -> str:
    """Before all calls. errors: classes, in the order of enum gpu_lease_chain_status. Returns why
    there is no library, or nothing."""
    if library:
        try:
            library.load(path, errors)
        except OSError as fault:
            return str(fault)
    return missing


def make(buffer: type[Held]) -> None:
    """The class of the buffers that calls return."""
    if library:
        library.make(buffer)
