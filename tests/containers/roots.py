"""Root file systems for containers, made of files of this machine: small, and without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.emugpu.server import BUILD, KERNELS

HERE = Path(__file__).parent
SOURCE = HERE / "contained.c"
DIRECTORIES = ("bin", "dev", "etc", "lib", "proc", "run", "sys", "tmp", "usr/lib", "var")
PROGRAM = "/bin/contained"
DRIVER = "/lib/libcuda.so.1"


def compiled(place: Path, *options: str) -> Path:
    """The GPU job of contained.c, for this machine's C library."""
    program = place / "contained"
    words = ["gcc", "-O1", "-Wall", "-Wextra", "-D_GNU_SOURCE", *options, str(SOURCE)]
    subprocess.run([*words, "-o", str(program), "-ldl"], check=True)
    return program


def needs(file: Path) -> dict[str, Path]:
    """The libraries that a program or library needs, and its loader: by the place where it looks
    for them in a root of its own."""
    said = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
    found = {}
    for name, path in re.findall(r"^\s+(?:(\S+) => )?(/\S+) \(0x", said, re.MULTILINE):
        found[f"/lib/{name}" if name else path] = Path(path).resolve()
    return found


def put(root: Path, place: str, file: Path) -> None:
    """A copy of the file at this place below the root."""
    to = root / place.lstrip("/")
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, to)


def bare(root: Path) -> Path:
    """A root with a shell and nothing else."""
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    for file in (Path("/bin/sh"), Path("/usr/bin/env"), Path("/bin/cat")):
        put(root, f"/bin/{file.name}", file.resolve())
        for place, library in needs(file).items():
            put(root, place, library)
    return root


def with_job(root: Path, program: Path) -> Path:
    """A root that has the GPU job, its kernels and the emulated driver."""
    bare(root)
    driver = BUILD / "libcuda.so.1"
    put(root, PROGRAM, program)
    put(root, DRIVER, driver)
    put(root, "/kernels.ptx", KERNELS)
    # What the interposer needs too: an image has the whole C library.
    for file in (program, driver, BUILD.parents[1] / "shim" / "libgpulease.so"):
        for place, library in needs(file).items():
            put(root, place, library)
    return root


def command(mib: int, steps: int, driver: str = "libcuda.so.1") -> list[str]:
    """What runs the GPU job in such a root."""
    return [PROGRAM, driver, "/kernels.ptx", str(mib), str(steps)]
