"""Libraries that a program opens with RTLD_DEEPBIND, as Julia opens those of CUDA."""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import pytest

from tests.emugpu.server import BUILD
from tests.slurm.leased import CHECKED, PRELOAD

BUILT = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/hooks"
PROGRAM, ODD = BUILT / "deep_binding", BUILT / "deep_binding_odd"
PT_GNU_RELRO = 0x6474E552
WAYS = ("name", "call", "address")


def printed(command: list[str], preload: Path | None) -> str:
    env = os.environ | {"LD_LIBRARY_PATH": str(BUILD)}
    env |= {"LD_PRELOAD": str(preload)} if preload else {}
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def ways(mode: str, library: str, prefix: str, preload: Path | None) -> dict[str, str]:
    """The library in which each of its ways has found the driver's function."""
    text = printed([str(PROGRAM), mode, f"lib{library}.so", prefix], preload)
    words = [line.split() for line in text.splitlines()]
    return {each[0]: each[1] for each in words}


@pytest.mark.parametrize("mode", ["lazy", "now"])
@pytest.mark.parametrize("bound", ["lazily", "at_once"])
@pytest.mark.parametrize(("library", "prefix"), [("deep", "by"), ("outer", "outer")])
def test_it_finds_our_functions(library: str, prefix: str, bound: str, mode: str) -> None:
    name = f"{library}_{bound}"
    assert ways(mode, name, prefix, None) == dict.fromkeys(WAYS, "libcuda.so.1")
    assert ways(mode, name, prefix, PRELOAD) == dict.fromkeys(WAYS, PRELOAD.name)
    assert ways(mode, name, prefix, CHECKED) == dict.fromkeys(WAYS, CHECKED.name)


def found_by(*scenario: str) -> None:
    """Our function is found in a scenario of deep_binding_odd.c, and the driver's without us."""
    assert printed([str(ODD), *scenario], None) == "libcuda.so.1\n"
    assert printed([str(ODD), *scenario], PRELOAD) == f"{PRELOAD.name}\n"


@pytest.mark.parametrize(
    "scenario",
    ["another is closed", "another thread opens", "slots in constants", "others come and go"],
)
def test_it_is_so_however_it_is_opened(scenario: str) -> None:
    found_by(scenario)


def test_data_on_a_page_with_slots_can_be_written(tmp_path: Path) -> None:
    """Of the part that is made constant, the loader leaves the last page alone if that part ends
    within it, as it often does where pages are larger than the linker took them to be."""
    image = bytearray((BUILT / "libdeep_lazily.so").read_bytes())
    at, size, parts = *struct.unpack_from("<32xQ", image), *struct.unpack_from("<54xHH", image)
    for begin in range(at, at + size * parts, size):
        if struct.unpack_from("<I", image, begin)[0] == PT_GNU_RELRO:
            (length,) = struct.unpack_from("<Q", image, begin + 40)
            struct.pack_into("<Q", image, begin + 40, length + 64)
    library = tmp_path / "libdeep_lazily.so"
    library.write_bytes(image)
    found_by("data beside slots", str(library))
