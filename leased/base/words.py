"""Amounts, lists and users as people read them."""

from __future__ import annotations

import pwd
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

LINE_MOST = 200  # characters of what a program wrote
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
JOBS_SHOWN = 6

Said = TypeVar("Said", bound=Hashable)


def size(amount: float) -> str:
    """An amount of bytes, in the largest unit of which it is 1 or more."""
    for unit in UNITS:
        if abs(amount) < 1024 or unit == UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == "B" else f"{amount:.1f} {unit}"


def user_of(uid: int) -> str | None:
    """The user's name; None: this host knows none. It may take long to find out."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):  # the latter: no uid is so large
        return None


def count(number: int, what: str) -> str:
    """1 process, 2 processes."""
    return f"{number} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def line(text: str) -> str:
    """What a program wrote, as one line without odd characters."""
    said = " ".join(text.split())[:LINE_MOST]
    return "".join(c if c.isprintable() else "?" for c in said)


def first_of(names: Sequence[str], most: int) -> str:
    """Names in a list, of many so many of the first."""
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def jobs(names: Sequence[object]) -> str:
    """Jobs in a list, of many the first ones and how many more there are; "-" for none."""
    text = ", ".join(map(str, names[:JOBS_SHOWN])) or "-"
    more = len(names) - JOBS_SHOWN
    return f"{text} and {more} more" if more > 0 else text


def named(names: Sequence[object]) -> str:
    """job 7, or jobs 7, 8."""
    return f"{'job' if len(names) == 1 else 'jobs'} {jobs(names)}"


def grouped(said: Iterable[tuple[object, Said]]) -> Iterator[tuple[str, bool, Said]]:
    """What is said of jobs, each thing once: the jobs, as "job 7" or "jobs 7, 8", whether there are
    several, and what is said of them."""
    found: dict[Said, list[object]] = {}
    for job, one in said:
        found.setdefault(one, []).append(job)
    for one, names in found.items():
        yield named(names), len(names) > 1, one
