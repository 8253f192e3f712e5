"""How often the interposer looks up the driver's functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.emugpu.server import BUILD
from tests.slurm.leased import PRELOAD

ASK = """
import ctypes, sys
driver, found, status = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
for _ in range(int(sys.argv[1])):
    arguments = b"cuInit", ctypes.byref(found), 12000, ctypes.c_uint64(0), ctypes.byref(status)
    assert driver.cuGetProcAddress_v2(*arguments) == 0 and found
"""
# In the first library that is looked into, as the dynamic loader tells.
LOOKUP = re.compile(r"symbol=(cu\w+);  lookup in file=\S*libcuda\.so\.1 ")


def lookups(times: int, folder: Path) -> Counter[str]:
    """By name, the lookups in the driver by a program that asks it so often for a function."""
    env = os.environ | {"LD_LIBRARY_PATH": str(BUILD), "LD_PRELOAD": str(PRELOAD)}
    env |= {"LD_DEBUG": "symbols", "LD_DEBUG_OUTPUT": str(folder / "symbols")}
    command = [sys.executable, "-c", ASK, str(times)]
    subprocess.run(command, check=True, env=env, capture_output=True)
    (said,) = folder.glob("symbols.*")
    return Counter(LOOKUP.findall(said.read_text()))


def test_what_the_driver_lacks_is_looked_up_once(tmp_path: Path) -> None:
    """A driver older than our cuda.h lacks many, and a program asks for hundreds at its start."""
    few, many = tmp_path / "few", tmp_path / "many"
    few.mkdir()
    many.mkdir()
    once = lookups(1, few)
    assert len(once) > 100
    assert lookups(5, many) == once


# What a library that stands in for dlsym itself, or a program that wants glibc's, asks for.
ASK_FOR_LOADERS = """
import ctypes, platform, sys
ours, glibc = ctypes.CDLL(sys.argv[1]), ctypes.CDLL("libc.so.6")
version = {"x86_64": b"GLIBC_2.2.5", "aarch64": b"GLIBC_2.17"}[platform.machine()]
pointer, text = ctypes.c_void_p, ctypes.c_char_p
NEXT, DEFAULT = pointer(-1), None
plain = ctypes.CFUNCTYPE(pointer, pointer, text)(("dlsym", ours))
versioned = ctypes.CFUNCTYPE(pointer, pointer, text, text)(("dlvsym", ours))
for name in ("dlopen", "dlsym", "dlvsym"):
    own = ctypes.cast(getattr(ours, name), pointer).value
    for handle in (DEFAULT, NEXT, glibc._handle):
        assert versioned(handle, name.encode(), version) == own, (name, handle)
        assert not versioned(handle, name.encode(), b"GLIBC_0.1"), (name, handle)
    for handle in (DEFAULT, glibc._handle):
        assert plain(handle, name.encode()) == own, (name, handle)
assert plain(glibc._handle, b"getpid") == ctypes.cast(glibc.getpid, pointer).value
"""


def test_glibcs_own_lookups_are_replaced_however_they_are_asked_for() -> None:
    """With those the driver's functions would be found past the gate."""
    command = [sys.executable, "-c", ASK_FOR_LOADERS, str(PRELOAD)]
    env = os.environ | {"LD_PRELOAD": str(PRELOAD)}
    subprocess.run(command, check=True, env=env)
