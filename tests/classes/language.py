"""An online job that answers requests as a language model does: it reads a prompt, kernel by
kernel and far ahead of the GPU, and then makes one token after the other, each by a graph."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from leased.classes.pulse import Work
from tests.classes.model import LOOK_NS

MS = 1_000_000
SAMPLE_NS = 2 * MS
KERNELS, PIECES = 1000, 20  # of a prompt; parts of it that are launched one after the other
PROMPT_NS, TOKEN_NS = 50 * MS, 6_400_000
LAUNCH_NS = 8_000  # the program takes for each launch

Mix = Callable[[int], tuple[float, int, int]]  # at a time: ns between requests, prompt_ns, tokens


def alike(_: int) -> tuple[float, int, int]:
    """Each request is as the others."""
    return 300 * MS, PROMPT_NS, 24


def changing(now: int) -> tuple[float, int, int]:
    """Every twenty seconds there is another mix: many long prompts, or many tokens."""
    return [(200 * MS, PROMPT_NS, 4), (400 * MS, PROMPT_NS, 45)][now // (20_000 * MS) % 2]


def rising(now: int) -> tuple[float, int, int]:
    """More and more tokens for each prompt."""
    return 350 * MS, PROMPT_NS, 2 + min(40, now // (2_000 * MS))


class Piece(NamedTuple):
    """What the GPU does at once: so many calls, of them launches of graphs, and how long it takes
    alone. launched_at: 0: when the GPU begins with it."""

    calls: int
    graphs: int
    ns: float
    launched_at: int = 0


@dataclass
class Language:
    """prompts, tokens: by which part each takes longer beside an offline job that always runs.
    waiting: what the GPU has not begun with. launches, ends: of calls: when, how many, and how many
    of them launch a graph."""

    mix: Mix
    prompts: float
    tokens: float
    seed: int = 0
    now: int = 0
    free_at: int = 0  # when the GPU has done what it has begun with
    due: float = 0.0  # the next request
    alone_ns: float = 0.0  # of all that it has done beside an offline job, and for how long it did
    took_ns: float = 0.0
    waiting: deque[Piece] = field(default_factory=deque)
    launches: deque[tuple[int, int, int]] = field(default_factory=deque)
    ends: deque[tuple[int, int, int]] = field(default_factory=deque)
    said: deque[Work | None] = field(default_factory=lambda: deque([None, None]))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.counts = Counts()

    def run(self, duty: float) -> None:
        """From one look to the next."""
        before = self.counts.done
        for _ in range(LOOK_NS // SAMPLE_NS):
            self.now += SAMPLE_NS
            while self.free_at < self.now and (self.waiting or self.due < self.now):
                if not self.waiting:
                    self._request()
                self._work(self.waiting.popleft(), duty / 1000)
            self.counts.sample(self.now, self.launches, self.ends)
        done = self.counts.done
        self.said.append(Work(done[0] - before[0], done[2] - before[2], 2, done[1] - before[1]))

    def _request(self) -> None:
        """A prompt, and its tokens. Its kernels are launched far ahead of the GPU."""
        every, prompt_ns, tokens = self.mix(self.now)
        begin = self.free_at = max(self.free_at, int(self.due))
        self.due += every * self.random.uniform(0.5, 1.5)
        of = KERNELS // PIECES
        for n in range(PIECES):
            self.waiting.append(Piece(of, 0, prompt_ns / PIECES, begin + n * of * LAUNCH_NS))
            self.launches.append((begin + n * of * LAUNCH_NS, of, 0))
        token_ns = TOKEN_NS * self.random.uniform(0.97, 1.03)
        self.waiting.extend([Piece(1, 1, token_ns)] * tokens)

    def _work(self, piece: Piece, duty: float) -> None:
        slower = duty * (self.tokens if piece.graphs else self.prompts)
        begin = max(self.free_at, piece.launched_at)
        self.free_at = round(begin + piece.ns * (1 + slower))
        if piece.graphs:
            self.launches.append((begin, 1, 1))
        self.ends.append((self.free_at, piece.calls, piece.graphs))
        if duty:
            self.took_ns += self.free_at - begin
            self.alone_ns += piece.ns

    @property
    def slowdown(self) -> float:
        """The truth, of all work beside an offline job so far."""
        return self.took_ns / self.alone_ns - 1


@dataclass
class Counts:
    """As a process counts its calls (shim/lease/lease.c): a mark stands behind what was submitted
    at some sample, and what is before it has finished together."""

    submitted: tuple[int, int] = (0, 0)
    finished: int = 0
    busy_ns: int = 0
    marked: tuple[int, int] = (0, 0)
    done: tuple[int, int, int] = (0, 0, 0)

    def sample(
        self, now: int, launches: deque[tuple[int, int, int]], ends: deque[tuple[int, int, int]]
    ) -> None:
        calls, graphs = self.submitted
        while launches and launches[0][0] <= now:
            _, more, of_them = launches.popleft()
            calls, graphs = calls + more, graphs + of_them
        while ends and ends[0][0] <= now:
            self.finished += ends.popleft()[1]
        self.submitted = calls, graphs
        idle = self.finished == calls
        self.busy_ns += 0 if idle else SAMPLE_NS
        if idle or self.finished >= self.marked[0]:
            self.done = (*(self.submitted if idle else self.marked), self.busy_ns)
            self.marked = self.submitted
