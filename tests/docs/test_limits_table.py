"""SECURITY.md has every limit on what users can take, with the value that it really has."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest
from _gpulease import lib

import leased
from leased.connections import limits
from tests.conftest import ROOT

# Of limits.py, but no limit on a user: how often the daemon looks, and what it keeps of users.
NO_LIMITS = {"RETRY_S", "REST_S", "USERS"}
DAY_S = 86400
IN_WORDS: dict[float, set[str]] = {2: {"twice", "half"}}


def table() -> str:
    text = (ROOT / "SECURITY.md").read_text()
    return text[text.index("## Limits") : text.index("## Reporting")]


def rows() -> dict[str, str]:
    """Each name in the last column of the table, with what its row says the limit is."""
    found: dict[str, str] = {}
    for line in table().splitlines():
        if line.startswith("|"):
            _, _, said, where, _ = line.split("|")
            found |= dict.fromkeys(re.findall(r"`([A-Z][A-Z_]{3,})`", where), said)
    return found


def values(name: str) -> list[float]:
    """What the daemon's modules, or the protocol, have under this name."""
    if name.startswith("GL_"):
        return [getattr(lib, name)]
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(leased.__path__, "leased.")
        if found.name != "leased.build_native"
    ]
    found = [vars(module).get(name) for module in modules]
    return [value for value in found if isinstance(value, (int, float))]


def ways_to_say(value: float) -> set[str]:
    """A number as a table may have it: plain, of bytes, of seconds or of nanoseconds."""
    said = {f"{value:,}", f"{value:,g}", f"{value:.0%}", f"{value / DAY_S:g} days"}
    for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1):
        said.add(f"{value / 1024**power:g} {unit}")
    said.add(f"{value:g} GB/s")  # bytes a nanosecond
    for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "us"), (1e-9, "s")):
        said.add(f"{value * scale:g} {unit}")
    return said | IN_WORDS.get(value, set())


@pytest.mark.parametrize("name", rows())
def test_the_table_says_what_the_limit_is(name: str) -> None:
    said = rows()[name]
    found = values(name)
    assert found, f"nothing has the name {name}"
    wanted = set().union(*map(ways_to_say, found))
    pattern = r"(?<![\w.,])(?:" + "|".join(map(re.escape, wanted)) + r")(?!\w)"
    assert re.search(pattern, said), f"{name} is {found}, and the table says:{said}"


def test_the_files_of_the_table_are_there() -> None:
    named = re.findall(r"`((?:leased|shim)/[\w/]+\.\w+)`", table())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_every_limit_is_in_the_table() -> None:
    of_limits = {name for name in vars(limits) if name.isupper()}
    assert of_limits - rows().keys() == NO_LIMITS
