"""Who is let on while a lease with several processes ends: a table of cases, and small worlds of
ranks, all in a time of their own."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from leased.leasing.drain import PATIENCE_NS, SETTLE_NS, Drain

MS = 1_000_000
PATIENCE, SETTLE = PATIENCE_NS // MS, SETTLE_NS // MS

# By what it shows: the ranks that hold the lease at its revoke, those that do not, and what
# happens: when (ms), what, and what is ordered then: who is let on, "back" and whose call is not
# needed any more, "at" and when to ask again. A rank that is let on holds the lease again.
Happening = tuple[int, str, str]
CASES: dict[str, tuple[str, str, list[Happening]]] = {
    "nobody is let on while nobody is stuck": (
        *("a b", ""),
        [(1, "a released", ""), (2, "b released", "")],
    ),
    "who has released is let on at once for one that is stuck": (
        *("a b c", ""),
        [(1, "b released", ""), (1, "c released", ""), (20, "a stuck", "b c")],
    ),
    "who had no lease is let on as well": (
        *("a", "b"),
        [(20, "a stuck", "b")],
    ),
    "who comes while one is stuck is let on": (
        *("a", ""),
        [(20, "a stuck", ""), (30, "b comes", "b")],
    ),
    "who comes while nobody is stuck waits": (
        *("a", ""),
        [(5, "b comes", "")],
    ),
    "who has not released yet is let on when it has": (
        *("a b", ""),
        [(20, "a stuck", ""), (25, "b released", "b")],
    ),
    "again and again, as long as it is stuck": (
        *("a b", ""),
        [(1, "b released", ""), (20, "a stuck", "b"), (21, "b released", "b")]
        + [(n, "b released", "b") for n in range(22, 30)],
    ),
    "who is let on and silent gets no second call": (
        *("a b c", ""),
        [(1, "b released", ""), (20, "a stuck", "b"), (21, "c released", "c"), (25, "look", "")],
    ),
    "who is through ends the help, and calls back what has not come": (
        *("a b c", ""),
        [
            *((1, "b released", ""), (1, "c released", ""), (20, "a stuck", "b c")),
            *((22, "b released", "b"), (23, "a released", "back b c"), (24, "b released", "")),
            (25, "c released", ""),
        ],
    ),
    "a call is called back once": (
        *("a b", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (23, "a released", "back b")),
            (24, "look", ""),
        ],
    ),
    "all that were stuck by themselves are helped until the last is through": (
        *("a b c", ""),
        [
            *((1, "c released", ""), (20, "a stuck", "c"), (21, "b stuck", "")),
            *((22, "a released", "a"), (23, "b released", "back a c")),
        ],
    ),
    "one that is stuck by itself is helped at once, however late": (
        *("a b c", ""),
        [
            *((1, "c released", ""), (20, "a stuck", "c"), (21, "a released", "back c")),
            *((22, "c released", ""), (500, "b stuck", "a c")),
        ],
    ),
    "one that was let on is not helped at once": (
        *("a b", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (40, "b stuck", "")),
            (45, "a released", f"at {40 + PATIENCE}"),
        ],
    ),
    "and not at all if it is through by then": (
        *("a b", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (40, "b stuck", "")),
            *((45, "a released", f"at {40 + PATIENCE}"), (60, "b released", "")),
            (40 + PATIENCE, "look", ""),
        ],
    ),
    "but after a while": (
        *("a b", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (40, "b stuck", "")),
            *((45, "a released", f"at {40 + PATIENCE}"), (39 + PATIENCE, "look", "at 90")),
            (40 + PATIENCE, "look", "a"),
        ],
    ),
    "and the second time after twice as long": (
        *("a b", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (40, "b stuck", "")),
            *((45, "a released", "at 90"), (90, "look", "a"), (110, "a stuck", "")),
            *((115, "b released", f"at {110 + 2 * PATIENCE}"), (209, "look", "at 210")),
            (210, "look", "b"),
        ],
    ),
    "a rank that says again that it is stuck is not more so": (
        *("a b", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (40, "b stuck", "")),
            *((45, "a released", "at 90"), (70, "b stuck", "at 90"), (90, "look", "a")),
        ],
    ),
    "for one that was let on nobody is let on before the word of the others can have come": (
        *("a b c", ""),
        [
            *((1, "b released", ""), (1, "c released", ""), (20, "a stuck", "b c")),
            *((40, "b stuck", ""), (41, "c released", "c"), (42, "c released", "c")),
            *(
                (43, "c released", "c"),
                (45, "a released", "back c at 90"),
                (46, "c released", "at 90"),
            ),
            *((90, "look", "a c"), (92, "c released", f"at {92 + SETTLE}")),
            *((93, "look", "at 97"), (97, "look", "c")),
        ],
    ),
    "and where it was helped then nobody is let on any more": (
        *("a b c", ""),
        [
            *((1, "b released", ""), (1, "c released", ""), (20, "a stuck", "b c")),
            *((40, "b stuck", ""), (45, "a released", "back c at 90"), (46, "c released", "at 90")),
            *((90, "look", "a c"), (92, "c released", "at 97"), (93, "b released", "back a")),
            (97, "look", ""),
        ],
    ),
    "one that ends is not waited for": (
        *("a b", ""),
        [(1, "b released", ""), (20, "a stuck", "b"), (21, "a gone", "back b")],
    ),
    "one that was let on and ends is not called back": (
        *("a b c", ""),
        [
            *((1, "b released", ""), (1, "c released", ""), (20, "a stuck", "b c")),
            *((21, "b gone", ""), (22, "a released", "back c")),
        ],
    ),
    "another that was let on is helped after its own while, which is longer": (
        *("a b c", ""),
        [
            *((1, "b released", ""), (1, "c released", ""), (20, "a stuck", "b c")),
            *((40, "b stuck", ""), (60, "c stuck", ""), (61, "a released", "at 90")),
            *((90, "look", "a"), (91, "b released", f"back a at {60 + 2 * PATIENCE}")),
        ],
    ),
    "one that was let on does not keep a later one waiting that is stuck by itself": (
        *("a b c", ""),
        [
            *((1, "b released", ""), (20, "a stuck", "b"), (40, "b stuck", "")),
            *((45, "a released", "at 90"), (50, "c stuck", "a")),
        ],
    ),
}


class Table:
    """One case as it is played."""

    def __init__(self, holders: str, others: str):
        self.drain: Drain[str] = Drain(1)
        self.holders, self.through = set(holders.split()), set(others.split())

    def happens(self, at: int, what: str) -> str:
        """What is ordered, in the words of the table."""
        self.tell(at * MS, *what.split())
        orders = self.drain.orders(sorted(self.through), at * MS)
        self.through -= set(orders.let_on)
        self.holders |= set(orders.let_on)
        words = sorted(orders.let_on)
        words += ["back", *sorted(orders.call_back)] if orders.call_back else []
        words += ["at", f"{orders.again / MS:g}"] if orders.again is not None else []
        return " ".join(words)

    def tell(self, now: int, rank: str, said: str = "") -> None:
        if said == "stuck":
            self.drain.tell_stuck(rank, now)
        elif said == "released":
            self.drain.tell_released(rank, now)
            self.holders.remove(rank)
            self.through.add(rank)
        elif said == "gone":
            self.drain.tell_gone(rank)
            self.holders.remove(rank)
        elif said == "comes":
            self.through.add(rank)
        else:
            assert rank == "look"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_case(case: tuple[str, str, list[Happening]]) -> None:
    holders, others, happenings = case
    table = Table(holders, others)
    ordered = [(at, what, table.happens(at, what)) for at, what, _ in happenings]
    assert ordered == happenings


def test_it_knows_who_has_released_since_the_revoke() -> None:
    table = Table("a b", "")
    table.happens(1, "a released")
    assert table.drain.has_released("a")
    assert not table.drain.has_released("b")


# -- small worlds --------------------------------------------------------------------

STUCK_AFTER = 20 * MS  # shim/lease/closing.c
CALL_AFTER = MS  # a program makes its next call
NEVER = 1 << 62


@dataclass
class Rank:
    """A process. submitted: calls that it has made. since: when its drain began, or when it was
    let on. ends: when the last of its work that has begun is over."""

    submitted: int
    holds: bool = True
    since: int = 0
    said: bool = False
    done: int = 0  # calls that have finished
    ends: int = 0


class World:
    """Ranks that make the same calls; call n is one of all together if n divides by `together`
    (0: none is). Each takes kernel_ns. Words of a rank arrive as much later as `delay` says.
    """

    def __init__(self, submitted: list[int], kernel_ns: int, together: int, delay: int):
        self.kernel_ns, self.together, self.delay = kernel_ns, together, delay
        self.ranks = [Rank(n) for n in submitted]
        self.drain: Drain[int] = Drain(1)
        self.through: set[int] = set()
        self.now = 0
        self.coming: list[tuple[int, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.let_on = 0

    def later(self, after: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.coming, (self.now + max(after, 1), next(self.order), what))

    def run(self, until: int) -> bool:
        """Whether all have released by then."""
        for n in range(len(self.ranks)):
            self.later(n + 1, lambda n=n: self.look(n))  # type: ignore[misc]
        while self.coming and self.now < until and len(self.through) < len(self.ranks):
            self.now, _, what = heapq.heappop(self.coming)
            self.work()
            what()
        return len(self.through) == len(self.ranks)

    def work(self) -> None:
        """What was submitted goes on, on each rank in its order."""
        moved = True
        while moved:
            moved = False
            for rank in self.ranks:
                if rank.done < rank.submitted and rank.ends <= self.now and self.may_begin(rank):
                    rank.done, rank.ends = rank.done + 1, self.now + self.kernel_ns
                    moved = True

    def may_begin(self, rank: Rank) -> bool:
        call = rank.done + 1
        alone = not self.together or call % self.together
        return bool(alone) or all(other.submitted >= call for other in self.ranks)

    def look(self, n: int) -> None:
        """A rank looks whether its work is over, and says what it finds."""
        rank = self.ranks[n]
        if not rank.holds:
            return
        if rank.done == rank.submitted and rank.ends <= self.now:
            rank.holds = False
            self.later(n * self.delay, lambda: self.released(n))
            return
        if not rank.said and self.now - rank.since > STUCK_AFTER:
            rank.said = True
            self.later(n * self.delay, lambda: self.stuck(n))
        self.later(MS // 2, lambda: self.look(n))

    def released(self, n: int) -> None:
        self.drain.tell_released(n, self.now)
        self.through.add(n)
        self.order_again()

    def stuck(self, n: int) -> None:
        if n not in self.through:
            self.drain.tell_stuck(n, self.now)
            self.order_again()

    def order_again(self) -> None:
        if len(self.through) == len(self.ranks):
            return
        orders = self.drain.orders(sorted(self.through), self.now)
        for n in orders.let_on:
            self.through.remove(n)
            self.let_on += 1
            self.later(CALL_AFTER, lambda n=n: self.call(n))  # type: ignore[misc]
        if orders.again is not None:
            self.later(orders.again - self.now, self.order_again)

    def call(self, n: int) -> None:
        """It makes its one call, and waits for it."""
        rank = self.ranks[n]
        rank.submitted, rank.holds, rank.since, rank.said = (
            rank.submitted + 1,
            True,
            self.now,
            False,
        )
        self.look(n)


MOST = 20_000 * MS  # a job that takes longer loses its GPU


@pytest.mark.parametrize("delay", [0, MS // 2, 3 * MS])
@pytest.mark.parametrize("kernel", [1, 40, 300])
@pytest.mark.parametrize("together", [0, 1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ranks_release_their_lease(ranks: int, together: int, kernel: int, delay: int) -> None:
    """Kernels that take long, collectives, both, and words that come late."""
    world = World([5 + n % 3 for n in range(ranks)], kernel * MS, together, delay)
    assert world.run(MOST), f"after {world.let_on} calls they still let each other on"
    # Ranks that need nobody do not run on for the sake of others that only take long.
    assert together or world.let_on < 10 * ranks
