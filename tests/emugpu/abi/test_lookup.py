"""Every function of the emulated driver has the form that NVIDIA's headers give it."""

from __future__ import annotations

import ctypes
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.emugpu.server import BUILD, ROOT

DRIVER_VERSION = 13020
PER_THREAD = 2  # CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
PER_THREAD_SINCE = 7000
TABLES = [Path(__file__).resolve().parent / f"{name}.def" for name in ("table", "unsupported")]

Forms = dict[str, dict[int, set[str]]]


@cache
def header_forms() -> Forms:
    """{function: {since which version of CUDA: {"", "_ptsz" or "_ptds"}}} of cudaTypedefs.h."""
    options = json.loads((BUILD.parents[1] / "meson-info" / "intro-buildoptions.json").read_text())
    include = Path(next(o["value"] for o in options if o["name"] == "driver_include"))
    text = (ROOT / include / "cudaTypedefs.h").read_text()
    found: Forms = defaultdict(lambda: defaultdict(set))
    for name, since, form in re.findall(r"PFN_(\w+?)_v(\d+)(_pt[sd][zs])?\)\(", text):
        if int(since) <= DRIVER_VERSION:
            found[name][int(since)].add(form)
    assert "_ptsz" in found["cuLaunchKernel"][PER_THREAD_SINCE]
    return found


@cache
def our_forms() -> dict[str, dict[int, tuple[str, str]]]:
    """{function: {since: (symbol, per-thread symbol)}} of the emulated driver's tables."""
    text = "".join(table.read_text() for table in TABLES)
    found: dict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    for entry in re.findall(r"^[FS]\((.*)\)$", text, re.MULTILINE):
        name, symbol, *per_thread, since = entry.split(", ")
        found[name][int(since)] = (symbol, per_thread[0] if per_thread else symbol)
    assert len(found) > 100
    return found


FUNCTIONS = sorted(our_forms())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_newer_form_that_the_header_has_is_there(name: str) -> None:
    ours, header = our_forms()[name], header_forms()[name]
    # A version in between would get an older form, with other parameters. Forms older than
    # the oldest here are honestly not found.
    legacy = {since for since, forms in header.items() if "" in forms}
    assert set(ours) == {since for since in legacy if since >= min(ours)}
    per_thread = {form for forms in header.values() for form in forms if form}
    for symbol, own in ours.values():
        assert (own != symbol) == bool(per_thread)
        assert own == symbol or own.endswith(tuple(per_thread))


@cache
def library() -> ctypes.CDLL:
    return ctypes.CDLL(str(BUILD / "libcuda.so.1"))


def lookup(name: str, version: int, flags: int) -> tuple[int, int | None, int]:
    """(CUresult, address, status) of cuGetProcAddress_v2."""
    out, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = library().cuGetProcAddress_v2(
        name.encode(), ctypes.byref(out), version, ctypes.c_uint64(flags), ctypes.byref(status)
    )
    return result, out.value, status.value


def address(symbol: str) -> int | None:
    return ctypes.cast(getattr(library(), symbol), ctypes.c_void_p).value


def newest(ours: dict[int, tuple[str, str]], version: int) -> tuple[str, str]:
    """The form that a program of this version of CUDA knows."""
    return ours[max(since for since in ours if since <= version)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_version_and_flags_choose_the_form(name: str) -> None:
    ours = our_forms()[name]
    for since, (symbol, per_thread) in ours.items():
        assert lookup(name, since, 0) == (0, address(symbol), 0)
        if since < PER_THREAD_SINCE and per_thread != symbol:
            assert lookup(name, since, PER_THREAD) == (0, None, 2)
        later = max(since, PER_THREAD_SINCE)
        assert lookup(name, later, PER_THREAD) == (0, address(newest(ours, later)[1]), 0)
    too_old = lookup(name, min(ours) - 1, 0)
    assert too_old == (0, None, 2)  # CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT


def test_missing_functions_are_not_found() -> None:
    missing = set(header_forms()) - set(our_forms())
    assert "cuTexRefCreate" in missing  # or this test looks at nothing
    for name in missing:
        assert lookup(name, DRIVER_VERSION, 0) == (0, None, 1)  # SYMBOL_NOT_FOUND
        assert not hasattr(library(), name)
    assert lookup("cuInit", DRIVER_VERSION, 8)[0] == 1  # unknown flags: CUDA_ERROR_INVALID_VALUE
