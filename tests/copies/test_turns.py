"""Whose memory is made next, a slice at a time."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from leased.copies.turns import SLICE, Slice, Turns


class Node:
    """Jobs that wait for a turn, one slice at once. Whose turn it is begins when the test says."""

    def __init__(self) -> None:
        self.turns = Turns(1)
        self.left: dict[str, int] = {}
        self.slices: dict[str, Slice] = {}
        self.stacks: dict[str, ExitStack] = {}

    def make(self, job: str, slices: int) -> None:
        self.stacks[job] = ExitStack()
        self.slices[job] = self.stacks[job].enter_context(self.turns.of(job))
        self.turns.waiting[job] += 1
        self.left[job] = slices

    def order(self, number: int) -> str:
        """Whose the next slices are."""
        found = ""
        for _ in range(number):
            job = self.turns.next()
            assert job is not None
            with self.slices[job](SLICE):
                assert self.turns.next() is None
            found += job
            self.left[job] -= 1
            if not self.left[job]:
                del self.turns.waiting[job]
                self.stacks[job].close()
        return found


def test_who_comes_later_waits_for_one_slice_of_each_other() -> None:
    node = Node()
    node.make("a", 100)
    assert node.order(50) == 50 * "a"
    node.make("b", 3)
    assert node.order(4) == "baba"
    node.make("c", 1)
    assert "c" in node.order(3)


def test_who_gives_back_and_takes_again_has_had_what_it_had() -> None:
    node = Node()
    node.make("b", 100)
    node.make("a", 1)
    found = ""
    for _ in range(10):
        found += node.order(1)
        if found[-1] == "a":
            node.make("a", 1)
    assert found == 5 * "ba"


def test_nothing_is_left_of_who_has_gone() -> None:
    node = Node()
    for job in "abc":
        node.make(job, 2)
    assert sorted(node.order(6)) == list("aabbcc")
    turns = node.turns
    assert not any((turns.had, turns.makes, turns.waiting, turns.working))


def test_nobody_has_a_turn_while_it_is_quiet() -> None:
    node = Node()
    node.make("a", 1)
    with node.turns.quiet():
        assert node.turns.next() is None
    assert node.order(1) == "a"


@pytest.mark.parametrize("others", [0, 1, 4])
def test_threads_are_divided_among_the_jobs(others: int) -> None:
    """A job whose memory is made by many threads, beside others that have none at work."""
    turns, most = Turns(5), 5 // (1 + others)
    ends = threading.Event()

    def make() -> None:
        with turns.of("a") as turn, turn(SLICE):
            ends.wait(60)

    with ExitStack() as stack:
        for other in range(others):
            stack.enter_context(turns.of(f"b{other}"))
        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        with turns.changed:
            assert turns.changed.wait_for(
                lambda: (turns.working["a"], turns.waiting["a"]) == (most, 8 - most), 60
            )
        ends.set()
        for thread in threads:
            thread.join()
