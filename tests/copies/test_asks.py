"""Whose memory the keeper makes next, on a clock of our own."""

from __future__ import annotations

import pytest

from leased.copies.asks import AT_ONCE, KEEPER_BURST_S, KEEPER_SHARE, KEPT_S, OF_A_USER, Ask, Asks

USER, OTHER = 1000, 1001
PIECE_S = 0.3  # of the keeper's time, for a piece, and for freeing it


class Node:
    """A keeper that makes and frees what it is told to, and takes PIECE_S for each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asks = Asks(lambda: self.now)
        self.spent = 0.0
        self.has: list[Ask] = []

    def ask(self, name: str, user: int = USER) -> None:
        self.asks.add(Ask(name, 1, False, lambda *_: None, user))

    def begin(self) -> list[str]:
        """What it gets now."""
        begun = []
        while (ask := self.asks.next()) is not None:
            begun.append(ask)
        self.has += begun
        return [ask.name for ask in begun]

    def make(self, took: float = PIECE_S) -> str:
        """It has made what it got first."""
        done = self.has.pop(0)
        self.spent += took
        assert self.asks.answered({"ask": done.number, "took": took}) is done
        return done.name

    def give_back(self, name: str, took: float = PIECE_S) -> None:
        self.asks.given_back(name)
        self.spent += took
        self.asks.ended({"ended": name, "took": took})

    def waste(self) -> None:
        """The user owes more than a little."""
        self.ask("7.0")
        self.begin()
        self.give_back(self.make(2 * KEEPER_BURST_S))


def test_who_takes_and_gives_back_gets_half_a_processor() -> None:
    node, began = Node(), 0
    while node.now < 100:
        node.ask(f"1.{began}")
        began += 1
        node.begin()
        if node.has:
            node.now += PIECE_S
            node.give_back(node.make())
        else:
            pause = node.asks.pause_s()
            assert pause is not None
            node.asks.given_back(f"1.{began - 1}")
            node.now += max(pause, 0.001)
    assert (
        KEEPER_BURST_S + KEEPER_SHARE * 100
        <= node.spent
        <= 2 * KEEPER_BURST_S + 2 * KEEPER_SHARE * 100
    )


def test_what_is_given_back_while_it_is_made_is_paid_for() -> None:
    node = Node()
    node.ask("1.1")
    (name,) = node.begin()
    node.asks.given_back(name)
    assert len(node.asks.under_way) == 1, "the keeper is at it still"
    number = node.has[0].number
    node.asks.ended({"ended": name, "ask": number, "took": 2 * KEEPER_BURST_S})
    assert not node.asks.under_way
    node.ask("1.2")
    assert node.begin() == []


def test_what_is_kept_costs_nothing() -> None:
    node = Node()
    for number in range(100):
        node.ask(f"1.{number}")
        node.begin()
        node.make()
    node.now += KEPT_S
    for number in range(100):
        node.give_back(f"1.{number}")
    node.ask("1.1")
    node.ask("1.2")
    assert node.begin() == ["1.1", "1.2"]


def test_who_owes_comes_last_and_one_at_a_time() -> None:
    node = Node()
    node.waste()
    for number in range(3):
        node.ask(f"1.{number}")
    node.ask("2.0", OTHER)
    assert node.begin() == ["2.0", "1.0"]
    node.make()
    assert node.begin() == []
    node.make()
    assert node.begin() == [], "it rests"
    assert node.asks.pause_s() == pytest.approx(PIECE_S)
    node.now += PIECE_S + 0.001
    assert node.begin() == ["1.1"]
    node.now += 1000
    assert node.begin() == ["1.2"], "it owes no more"


def test_users_and_their_jobs_take_turns() -> None:
    node = Node()
    for name in ("1.0", "1.1", "1.2", "1.3", "1.4", "2.0"):
        node.ask(name)
    node.ask("3.0", OTHER)
    assert node.begin() == ["1.0", "3.0", "2.0", "1.1", "1.2"]
    assert len(node.has) == OF_A_USER + 1 < AT_ONCE
    node.make()
    assert node.begin() == ["1.3"]


def test_a_job_leaves_another_of_its_user_a_request() -> None:
    node = Node()
    for number in range(2 * OF_A_USER):
        node.ask(f"1.{number}")
    assert node.begin() == ["1.0", "1.1", "1.2"]
    node.ask("2.0")
    assert node.begin() == ["2.0"], "without waiting for one of the other's"
    node.make()
    assert node.begin() == ["1.3"]


def test_the_next_keeper_is_asked_again() -> None:
    node = Node()
    for name in ("1.0", "1.1", "1.2"):
        node.ask(name)
    node.begin()
    node.asks.given_back("1.1")
    node.asks.lost()
    assert node.begin() == ["1.0", "1.2"]
    assert len(node.asks.under_way) == 2


def test_memory_that_is_sent_again_costs_what_it_did() -> None:
    node = Node()
    for took in (2 * KEEPER_BURST_S, 0.0):
        node.ask("1.0")
        node.begin()
        node.make(took)
    node.give_back("1.0", 0.0)
    node.ask("1.1")
    assert node.begin() == ["1.1"], "for the first that it asks for"
    node.make()
    node.ask("1.2")
    assert node.begin() == []


def test_nothing_is_left_of_what_is_over() -> None:
    node = Node()
    node.waste()
    node.ask("1.0")
    node.asks.take_all()
    for part in (node.asks.by_name, node.asks.waiting, node.asks.kept, node.asks.freed):
        assert not part
