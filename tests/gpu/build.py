"""Build the C programs of the checks with nvcc, into build/gpu.

`python -m tests.gpu.build [NAME...]`: some, or all. Several processes may build at once: each
program has a lock, and a file of its own until it is whole. GPU_PROGRAMS: a directory where all
are built already, for a machine without a compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.together import zip_strict

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
OUT = ROOT / "build" / "gpu"
KERNELS = ROOT / "tests" / "emugpu" / "kernels.ptx"

# Code for an H100 or H200, and for any other card what its driver can compile.
COMMON = ["-O2", "-std=c++17", "-Xcompiler", "-Wall", "-Xcompiler", "-pthread"]
COMMON += ["-gencode", "arch=compute_75,code=compute_75", "-gencode", "arch=compute_90,code=sm_90"]
STATIC = ["-cudart", "static"]


class BuildError(RuntimeError):
    """A program could not be built; the text has the compiler's words."""


@dataclass(frozen=True)
class Program:
    """source: file without suffix. driver: it links with the driver, and with no runtime."""

    source: str
    flags: tuple[str, ...] = ()
    driver: bool = False


PROGRAMS = {
    "launch": Program("launch", driver=True),
    "trivial": Program("trivial", driver=True),
    "waiter": Program("waiter", driver=True),
    "duty": Program("duty", driver=True),
    "resident": Program("resident", driver=True),
    "clean": Program("clean", driver=True),
    "fingerprint": Program("fingerprint", driver=True),
    "small_calls": Program("small_calls", driver=True),
    "call_cost": Program("call_cost", driver=True),
    # A library: a program loads it, and it loads CUPTI.
    "count_calls": Program(
        "count_calls", ("-x", "c++", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none")
    ),
    "slices": Program("slices", (*STATIC,)),
    "swapper": Program("swapper", (*STATIC,)),
    "link": Program("link", (*STATIC,)),
    "static": Program("static", (*STATIC,)),
    "ipc": Program("ipc", driver=True),
    "ipc_runtime": Program("ipc", (*STATIC, "-DWITH_RUNTIME")),
    "kinds": Program("kinds", (*STATIC,)),
    "stream": Program("stream", (*STATIC,)),
    "shares": Program("shares", driver=True),
    "loads": Program("loads", driver=True),
    "steps": Program("steps", driver=True),
    "stops": Program("stops", driver=True),
    "stops_runtime": Program("stops_runtime", (*STATIC,)),
    # A library: PyTorch loads it, and shares its runtime.
    "kinds_allocator": Program(
        "kinds_allocator", ("-shared", "-Xcompiler", "-fPIC", "-cudart", "shared")
    ),
    # The same source, as a program that gives every thread a default stream of its own.
    "ptds": Program("static", (*STATIC, "--default-stream", "per-thread")),
}


def compiler() -> str:
    """nvcc: from PATH, else of the newest toolkit under /usr/local."""
    found = shutil.which("nvcc")
    toolkits = sorted(Path("/usr/local").glob("cuda*/bin/nvcc"))
    if found is None and not toolkits:
        raise BuildError("no nvcc in PATH nor under /usr/local/cuda*")
    return found or str(toolkits[-1])


def driver_library() -> str:
    """Path of the driver that programs here load: a toolkit has not always one to link with."""
    ctypes.CDLL("libcuda.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libcuda.so" in line:
            return line.split(maxsplit=5)[5]
    raise BuildError("libcuda.so.1 is loaded from no file")


def command_of(name: str, target: Path) -> list[str]:
    """The compiler's command line for a program, which is written to target."""
    program = PROGRAMS[name]
    source = SOURCES / f"{program.source}.cu"
    command = [compiler(), *COMMON, *program.flags, "-o", str(target), str(source)]
    if program.driver:
        command += ["-x", "c++", "-cudart", "none", "-Xlinker", driver_library()]
        command += ["-Xlinker", "--unresolved-symbols=ignore-in-shared-libs"]
    return command


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Nobody else builds this program meanwhile."""
    with (OUT / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_built(name: str, text: str) -> bool:
    """It is there, as new as its sources, and made by this command."""
    target, stamp = OUT / name, OUT / f"{name}.command"
    sources = [SOURCES / f"{PROGRAMS[name].source}.cu", *SOURCES.glob("*.cuh")]
    newest = max(path.stat().st_mtime for path in sources)
    new = target.exists() and target.stat().st_mtime >= newest
    return new and stamp.exists() and stamp.read_text() == text


@cache
def build(name: str) -> Path:
    """Build a program unless it is there and as new as its sources. BuildError: why not."""
    if built := os.environ.get("GPU_PROGRAMS"):
        return Path(built) / name
    target, unfinished = OUT / name, OUT / f"{name}.new"
    text = " ".join(command_of(name, target))
    OUT.mkdir(parents=True, exist_ok=True)
    with _locked(name):
        if _is_built(name, text):
            return target
        command = command_of(name, unfinished)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise BuildError(f"{text}\n{done.stdout}{done.stderr}")
        unfinished.replace(target)
        (OUT / f"{name}.command").write_text(text)
    return target


def build_all(*names: str) -> dict[str, Path]:
    """Build several at once."""
    with ThreadPoolExecutor(4) as pool:
        return dict(zip_strict(names, pool.map(build, names)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    chosen = parser.parse_args().names or list(PROGRAMS)
    unknown = [name for name in chosen if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {', '.join(unknown)}; there is {', '.join(PROGRAMS)}")
    for built in build_all(*chosen).values():
        print(built)


if __name__ == "__main__":
    main()
