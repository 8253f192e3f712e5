"""Every function of cuda.h is hooked, or known to be harmless; the library exports the hooks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from leased import __version__
from tests.slurm.leased import PRELOAD, Leased

ROOT = Path(__file__).resolve().parents[3]
SHIM = ROOT / "shim"
BUILD = ROOT / "build" / "meson"
MADE = BUILD / "shim"  # of other files, by the build
FORM = re.compile(r"_pt[ds][sz]$")
LISTED = '#define HOOK(name) "hook" #name\n#include "driver/hooks.def"\n'
GATED = (
    '#define GATED(name, s, p, a) "hook" #name\n'
    '#define GATED2(name, suffix, s, p, a) "hook" #name "hook" #name #suffix\n'
    "#define OWN(name)\n#define OWN2(name, suffix)\n#define NVML(name)\n"
    '#include "driver/hooks.def"\n'
)


BUILT = "built"


def header(package: str) -> Path:
    """The cuda.h that a package of the test environment brings; BUILT: that of the build, which may
    be newer than both."""
    if package == BUILT:
        options = json.loads((BUILD / "meson-info" / "intro-buildoptions.json").read_text())
        chosen = next(line["value"] for line in options if line["name"] == "driver_include")
        return Path(chosen) / "cuda.h"
    spec = find_spec("nvidia")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    paths = [Path(d) / package / "include" / "cuda.h" for d in spec.submodule_search_locations]
    return next(path for path in paths if path.exists())


HEADERS = {"12.9": "cuda_runtime", "13": "cu13", "of the build": BUILT}


def preprocess(source: str, *options: str) -> str:
    done = subprocess.run(
        ["gcc", "-E", "-P", "-x", "c", *options, "-"],
        input=source,
        check=True,
        capture_output=True,
        text=True,
    )
    return re.sub(r"\s+", " ", done.stdout)


@cache
def functions(package: str) -> frozenset[str]:
    """Every function that a cuda.h declares: old versions and per-thread forms too."""
    text = preprocess('#include "cuda.h"', *include(package), "-D__CUDA_API_VERSION_INTERNAL")
    return frozenset(re.findall(r"\bCUresult (cu\w+) ?\(", text))


def include(package: str) -> list[str]:
    return ["-I", str(header(package).parent)]


def hooked(version: int, which: str = LISTED) -> list[str]:
    """The names of hooks.def under a cuda.h of this CUDA_VERSION."""
    text = preprocess(which, "-I", str(SHIM), f"-DCUDA_VERSION={version}")
    return ["".join(parts) for parts in re.findall(r'"hook" ?"(\w+)"(?: ?"(_pt\w+)")?', text)]


def version_of(package: str) -> int:
    found = re.search(r"#define CUDA_VERSION (\d+)", header(package).read_text())
    assert found is not None
    return int(found[1])


def newest() -> str:
    """The package with the latest cuda.h."""
    return max(HEADERS.values(), key=version_of)


def harmless() -> list[str]:
    lines = (SHIM / "driver" / "harmless.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("package", HEADERS.values(), ids=HEADERS.keys())
def test_every_function_is_classified_once(package: str) -> None:
    declared = functions(package)
    assert len(declared) > 600
    hooks = {name for name in hooked(version_of(package)) if name.startswith("cu")}
    listed = set(harmless())
    calm = {name for name in declared if name in listed or FORM.sub("", name) in listed}
    assert declared - hooks - calm == set(), "neither in hooks.def nor in harmless.txt"
    assert hooks & calm == set(), "in both"
    assert hooks - declared == set(), "in hooks.def, but not in this cuda.h"


# Forms of CUDA 3, for addresses of 32 bits, which no memory of today has.
NARROW = {"cuMemGetAddressRange", "cuTexRefSetAddress", "cuTexRefSetAddress2D"}


def test_a_function_and_its_later_forms_are_hooked_alike() -> None:
    hooks = {plain_name(name) for name in hooked(version_of(newest()))}
    assert {name for name in harmless() if plain_name(name) in hooks} == NARROW


def plain_name(name: str) -> str:
    """Of every form of a function."""
    return re.sub(r"_v\d$", "", FORM.sub("", name))


def test_no_name_stands_twice_or_for_nothing() -> None:
    for names in (hooked(version_of(newest())), harmless()):
        assert len(names) == len(set(names))
    assert set(harmless()) <= functions(newest())


@pytest.mark.parametrize("name", [name for name, package in HEADERS.items() if package != BUILT])
def test_the_interposer_compiles_with(name: str) -> None:
    package = HEADERS[name]
    if header(package).samefile(header(BUILT)):
        pytest.skip("the build compiles it with that one")
    sources = [str(path) for path in sorted(SHIM.rglob("*.c"))]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-D__CUDA_API_VERSION_INTERNAL", "-Wall", "-Wextra"]
    flags += ["-I", str(SHIM), "-I", str(MADE)]
    flags.append(f'-DGPU_LEASE_VERSION="{__version__}"')
    done = subprocess.run(
        ["gcc", "-fsyntax-only", "-Werror", *flags, "-isystem", *include(package)[1:], *sources],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_exactly_the_hooks_are_exported() -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(PRELOAD)], check=True, capture_output=True, text=True
    )
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    own = {"dlopen", "dlsym", "dlvsym", "gpu_lease_chain_keep", "gpu_lease_chain_meet"}
    own |= {"gpu_lease_chain_ask_part"}
    assert exported == {*hooked(version_of(BUILT)), *own}


CALL_ALL = """
import ctypes, sys
own, driver = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1")
zeros = [ctypes.c_void_p()] * 12
for name in sys.argv[1:]:
    if hasattr(own, name):  # not what this driver lacks
        print(name, getattr(own, name)(*zeros))
"""
NOT_PERMITTED = "800"


def test_every_submitting_function_stops_at_the_gate(leased: Leased) -> None:
    """A process of no job gets no lease: whatever it submits with is refused before the driver."""
    names = hooked(version_of(BUILT), GATED)
    env = leased.env | {
        "LD_PRELOAD": str(PRELOAD),
        "GPU_LEASE_SOCKET": str(leased.run_dir / "tenant.sock"),
    }
    done = subprocess.run(
        [sys.executable, "-c", CALL_ALL, *names],
        check=True,
        env=env,
        capture_output=True,
        text=True,
    )
    said = dict(row.split() for row in done.stdout.splitlines())
    assert set(said) <= set(names)
    assert set(said.values()) == {NOT_PERMITTED}
    assert len(said) > 100, "the emulated driver has most of them"
