"""Values of a trace and of the command line: times, sizes, numbers. Refused names the key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from leased.base.errors import Refused
from leased.base.requests import shown
from leased.sim.jobs import GIB, S

# Nothing lasts longer, is larger, or faster: sums stay exact, and a slip of the pen is found.
LONGEST_S, MOST_BYTES, FASTEST_GIB_S = 1e8, 1 << 50, 1e6
MOST_BURSTS = 1_000_000
MOST_GPUS = 64
MOST_LATENCY_NS = S // 10  # daemons that hear of each other later agree on nothing

TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
SIZES = {"B": 1, "": 1} | {
    prefix + unit: base**power
    for unit, base in (("iB", 1024), ("B", 1000))
    for power, prefix in enumerate("KMGT", 1)
}
AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,12})?)\s?([A-Za-z]{0,3})", re.ASCII)

Read = Callable[[Any, str], Any]


def refused(value: object, where: str, what: str, write: str) -> Refused:
    return Refused(f"{where} = {shown(value)} is {what}", f"write {write}")


def _amount(value: Any, units: Mapping[str, float]) -> float | None:
    """A number, or a text of a number and its unit; None: it is neither."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if abs(value) < 1e30 else None
    found = AMOUNT.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        return None
    return float(found[1]) * units[found[2]]


def time_ns(value: Any, where: str) -> int:
    """0 or more: a number of seconds, or a text with a unit."""
    seconds = _amount(value, TIMES)
    if seconds is None or not 0 <= seconds <= LONGEST_S:
        raise refused(value, where, "not a time", 'seconds, or for example "500ms", "30s", "2m"')
    return round(seconds * S)


def _but(read: Read, is_right: Callable[[Any], bool], what: str, write: str) -> Read:
    """What `read` reads, but where it is not right."""

    def narrower(value: Any, where: str) -> Any:
        found = read(value, where)
        if not is_right(found):
            raise refused(value, where, what, write)
        return found

    return narrower


some_time_ns = _but(time_ns, lambda ns: ns >= 1000, "too short", "a time of at least a microsecond")
latency_ns = _but(time_ns, lambda ns: ns <= MOST_LATENCY_NS, "too long", 'at most "100ms"')


def size(value: Any, where: str) -> int:
    found = _amount(value, SIZES)
    if found is None or not 0 <= found <= MOST_BYTES:
        raise refused(value, where, "not a size", 'bytes, or for example "15.3GB", "40GiB"')
    return round(found)


some_size = _but(size, bool, "nothing", 'for example "40GiB"')


def number(least: float, most: float, unit: float = 1.0) -> Read:
    def read(value: Any, where: str) -> float:
        found = _amount(value, {"": 1.0})
        if found is None or not math.isfinite(found) or not least <= found <= most:
            raise refused(value, where, "out of bounds", f"a number from {least:g} to {most:g}")
        return found * unit

    return read


# GiB a second, as bytes a second.
speed = number(1e-3, FASTEST_GIB_S, GIB)


def count(most: int) -> Read:
    def read(value: Any, where: str) -> int:
        if type(value) is not int or not 1 <= value <= most:
            raise refused(value, where, "out of bounds", f"a whole number from 1 to {most}")
        return value

    return read


def one_of(*known: str) -> Read:
    def read(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise refused(value, where, "not known", f"one of {', '.join(known)}")
        return value

    return read


def name(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= 40:
        raise refused(value, where, "not a name", "1 to 40 printable characters in quotes")
    return value


def indices(value: Any, where: str) -> tuple[int, ...]:
    good = isinstance(value, list) and value and all(type(each) is int for each in value)
    if not good or len(set(value)) < len(value):
        raise refused(value, where, "no list of indices", "each index once, for example [0, 1]")
    return tuple(sorted(value))


def bursts(value: Any, where: str) -> tuple[tuple[int, int], ...]:
    """A list of pairs: time on the GPU, then off it."""
    if not isinstance(value, list) or not 0 < len(value) <= MOST_BURSTS:
        words = 'a list of pairs, for example [["5s", "2s"], [3, 0]]'
        raise refused(value, where, "not a list of bursts", words)
    found = []
    for n, pair in enumerate(value):
        if not isinstance(pair, list) or len(pair) != 2:
            words = "[time on the GPU, time off it]"
            raise refused(pair, f"{where}[{n}]", "not a burst", words)
        found.append((time_ns(pair[0], f"{where}[{n}]"), time_ns(pair[1], f"{where}[{n}]")))
    return tuple(found)


def taken(table: Any, known: Mapping[str, Read], where: str) -> dict[str, Any]:
    """The values of a table by key, each read. Refused: it is none, or has a key that is not
    known."""
    if not isinstance(table, dict):
        raise refused(table, where, "not a table", f"[{where}] with the keys {', '.join(known)}")
    for key in table:
        if key not in known:
            known_keys = ", ".join(known)
            raise Refused(f"{where}.{shown(key)[1:-1]} is not known", f"the keys are {known_keys}")
    return {key: known[key](value, f"{where}.{key}") for key, value in table.items()}
