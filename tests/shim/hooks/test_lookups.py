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
