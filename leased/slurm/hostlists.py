"""Lists of names as Slurm writes them, such as gpu[1-3,7]-ib,login, for hosts and device files."""

from __future__ import annotations

import itertools
import math
import re

from leased.base.requests import shown

MOST_NAMES = 65_536  # of one list
RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
PARTS = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")


def expand(names: str) -> list[str]:
    """The names of a list: gpu[1-2]-ib,login -> gpu1-ib, gpu2-ib, login. ValueError: no list."""
    if set(re.sub(r"\[[^\[\]]*\]", "", names)) & set("[]"):
        raise ValueError(f"{shown(names)} has a bracket without its partner")
    found: list[str] = []
    for part in PARTS.findall(names):
        pieces = re.split(r"\[([^\[\]]*)\]", part)  # text, inside of brackets, text, ...
        choices = [_numbers(piece) if n % 2 else [piece] for n, piece in enumerate(pieces)]
        if len(found) + math.prod(map(len, choices)) > MOST_NAMES:
            raise ValueError(f"{shown(names)} stands for more than {MOST_NAMES} names")
        found += ["".join(chosen) for chosen in itertools.product(*choices)]
    return found


def _numbers(text: str) -> list[str]:
    """The numbers between two brackets: 1-3,07 -> 1, 2, 3, 07. ValueError: no numbers."""
    found: list[str] = []
    for part in text.split(","):
        bounds = RANGE.fullmatch(part)
        if bounds is None:
            raise ValueError(f"[{shown(text)}] is not a list of numbers")
        low, high = bounds[1], bounds[2] or bounds[1]
        if int(high) - int(low) >= MOST_NAMES:
            raise ValueError(f"[{shown(text)}] stands for more than {MOST_NAMES} names")
        if int(high) < int(low):
            raise ValueError(f"[{shown(text)}] runs backwards")
        found += [f"{n:0{len(low)}d}" for n in range(int(low), int(high) + 1)]
    return found
