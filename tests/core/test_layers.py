"""Layers and counts of devices as masks say what lists for each device would."""

from __future__ import annotations

import random

import pytest

from leased.core.bits import bits_of
from leased.core.layers import Entry, Layers
from leased.core.taken import Taken
from tests.core.items import items

DEVICES = 12
STEPS = 600


def some(r: random.Random) -> int:
    """A mask of at least one device, of many as often as of few."""
    return sum(1 << n for n in r.sample(range(DEVICES), r.randint(1, DEVICES)))


def firsts(there: list[Entry]) -> dict[int, int]:
    """The lowest key on each device."""
    found: dict[int, int] = {}
    for key, _, mask in sorted(there):
        for bit in bits_of(mask):
            found.setdefault(bit, key)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_layers_know_who_is_first_on_each_device(seed: int) -> None:
    r, layers, there = random.Random(seed), Layers(), list[Entry]()
    for number in range(STEPS):
        if there and r.random() < 0.48:
            layers.remove(*there.pop(r.randrange(len(there))))
        else:
            there.append((r.randrange(40), number, some(r)))
            layers.add(*there[-1])
        plain, mask, key = firsts(there), some(r), r.randrange(40)
        assert len(layers) == len(there)
        assert {bit: k for k, on in layers.heads() for bit in bits_of(on)} == plain
        here = [plain[bit] for bit in bits_of(mask) if bit in plain]
        assert layers.first(mask) == min(here, default=None)
        assert layers.before(key) == sum(bit for bit, first in plain.items() if first < key)
        assert sorted(layers.on(mask)) == sorted(k for k, _, on in there if on & mask)
    for entry in there:
        layers.remove(*entry)
    assert items(layers) == items(Layers()), "nothing of them is left"


@pytest.mark.parametrize("seed", range(4))
def test_a_device_is_taken_until_the_last_has_left(seed: int) -> None:
    r, taken, masks = random.Random(seed), Taken(), list[int]()
    for _ in range(STEPS):
        if masks and r.random() < 0.48:
            taken.remove(masks.pop(r.randrange(len(masks))))
        else:
            masks.append(some(r))
            taken.add(masks[-1])
        expected = 0
        for mask in masks:
            expected |= mask
        assert taken.mask == expected
    for mask in masks:
        taken.remove(mask)
    assert vars(taken) == vars(Taken()), "nothing of them is left"
