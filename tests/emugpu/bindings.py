"""cuda-bindings for programs of tests: `from tests.emugpu.bindings import driver`.

More than half of its import is cuda.pathfinder, which knows where packages put NVIDIA's libraries.
The programs need the driver alone, and find it as any program does; hundreds start in a run.
"""

from __future__ import annotations

import ctypes
import os
import sys
from types import ModuleType


class Loaded:
    def __init__(self, handle: int) -> None:
        self._handle_uint = handle  # cuda-bindings reads it by this name


def load_nvidia_dynamic_lib(name: str) -> Loaded:
    """As cuda.pathfinder's, of the driver."""
    if name != "cuda":
        raise ValueError(f"a program of the tests asks for NVIDIA's {name}, not for the driver")
    library = ctypes.CDLL("libcuda.so.1", os.RTLD_NOW | os.RTLD_GLOBAL)
    return Loaded(library._handle)  # noqa: SLF001 (ctypes documents it by this name)


def without_pathfinder() -> None:
    module = ModuleType("cuda.pathfinder")
    vars(module)["load_nvidia_dynamic_lib"] = load_nvidia_dynamic_lib
    sys.modules.setdefault(module.__name__, module)


without_pathfinder()

from cuda.bindings import driver  # noqa: E402

__all__ = ["driver"]
