"""When a pause of a program is taken for long enough to give up the device: shim/lease/idle.c."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

FILTER = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/lease/idle_filter"
MS = 1_000_000
S = 1000 * MS
LOOKS = [n * 4 * MS for n in range(1, 3000)]  # when the interposer looks, from a pause's start


class History:
    """A program's pauses, as the interposer keeps them."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process

    def _write(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def note(self, pause: int, handoff: int) -> None:
        self._write("note", pause, handoff)

    def enough(self, so_far: int, handoff: int) -> bool:
        self._write("ask", so_far, handoff)
        assert self.process.stdout is not None
        return bool(int(self.process.stdout.readline()))

    def cost(self, pause: int, handoff: int) -> int:
        """Of a pause that is then noted: what was waited, and the handoff if it was given up."""
        looks = (at for at in LOOKS if at < pause)
        given_up = next((at for at in looks if self.enough(at, handoff)), None)
        self.note(pause, handoff)
        return pause if given_up is None else given_up + handoff

    def costs(self, pauses: Sequence[int], handoff: int) -> list[int]:
        return [self.cost(pause, handoff) for pause in pauses]


@pytest.fixture
def history() -> Iterator[History]:
    with subprocess.Popen(
        [str(FILTER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield History(process)
        process.communicate()


def test_without_history_a_pause_is_waited_for_as_long_as_a_handoff_takes(history: History) -> None:
    assert not history.enough(699 * MS, 700 * MS)
    assert history.enough(700 * MS, 700 * MS)


def test_long_pauses_are_given_up_to_at_once(history: History) -> None:
    first, second, third = history.costs([5 * S] * 3, 700 * MS)
    assert first == 2 * 700 * MS
    assert second == third <= 700 * MS + 20 * MS


def test_short_pauses_are_waited_out(history: History) -> None:
    assert history.costs([200 * MS] * 20, 700 * MS) == [200 * MS] * 20


def test_many_short_pauses_do_not_hide_that_those_which_last_are_long(history: History) -> None:
    for _ in range(5):
        history.costs([5 * MS] * 50, 700 * MS)
        cost = history.cost(5 * S, 700 * MS)
    assert cost <= 700 * MS + 20 * MS


def test_a_change_of_the_pauses_is_learnt(history: History) -> None:
    history.costs([5 * S] * 20, 700 * MS)
    costs = history.costs([100 * MS] * 30, 700 * MS)
    assert costs[-20:] == [100 * MS] * 20


@pytest.mark.parametrize("handoff", [2 * MS, 10 * MS])
def test_where_a_handoff_costs_little_nothing_is_learnt(history: History, handoff: int) -> None:
    history.costs([5 * S] * 5, handoff)
    assert not history.enough(handoff - 1, handoff)
    assert history.enough(handoff, handoff)


def test_pauses_of_every_kind_cost_at_most_twice_the_best_in_hindsight(history: History) -> None:
    """By turns long and short, which no rule can foresee: over all of them, that is."""
    pauses = [(5 * S, 100 * MS)[n % 3 > 0] for n in range(60)]
    handoff = 700 * MS
    best = sum(min(pause, handoff) for pause in pauses)
    assert sum(history.costs(pauses, handoff)) <= 2 * best + 3 * handoff
