"""What the interposer needs of glibc is old enough for the containers that it is loaded into."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.slurm.leased import PRELOAD

OLDEST = (2, 17)  # CentOS 7's, and aarch64's first
NEEDED = re.compile(r"Name: GLIBC_([0-9.]+)")


def needed_versions(library: Path) -> list[tuple[int, ...]]:
    """The versions of glibc's symbols that a library needs, in order."""
    said = subprocess.run(
        ["readelf", "--version-info", "--wide", library], check=True, capture_output=True, text=True
    ).stdout
    return sorted({tuple(map(int, found.split("."))) for found in NEEDED.findall(said)})


def needed_libraries(library: Path) -> set[str]:
    said = subprocess.run(
        ["readelf", "--dynamic", "--wide", library], check=True, capture_output=True, text=True
    ).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))


def test_the_interposer_can_be_loaded_by_an_old_glibc() -> None:
    assert needed_versions(PRELOAD), "readelf was not understood"
    assert needed_versions(PRELOAD)[-1] <= OLDEST, "shim/base/old_glibc.h says what to do"


def test_the_interposer_names_the_libraries_that_an_old_glibc_has_apart() -> None:
    assert needed_libraries(PRELOAD) == {"libc.so.6", "libdl.so.2", "libpthread.so.0"}


def test_a_function_that_is_too_new_is_noticed(tmp_path: Path) -> None:
    source = tmp_path / "new.c"
    source.write_text("#include <threads.h>\nint f(void) { return thrd_create(0, 0, 0); }\n")
    built = tmp_path / "new.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, source], check=True)
    assert needed_versions(built)[-1] > OLDEST
