"""Side by side or by turns, where memory fits: try both, keep what makes more progress. Pure.

Kernels that fill a GPU run faster by turns than in the driver's time slices;
small ones run faster side by side, since they leave room for each other.
Nothing but trying tells which. The measure is progress: the rate at which each
job submits work, which in the long run is the rate at which it gets it done.

A trial measures a while side by side and a while by turns of TURN_NS each. Its
cost is bounded: after one that took t there is none for REST times t, and as
long as the answer stays the same the rests double up to LONGEST_REST_NS.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

STABLE_NS = 10_000_000_000  # the same tenants for so long before they are measured
SETTLE_NS = 500_000_000
PHASE_NS = 2_000_000_000
TURN_NS = 100_000_000
PATIENCE_NS = 5_000_000_000  # for the answers, and for everybody's first turn
REST = 50
LONGEST_REST_NS = 1_800_000_000_000
MOST_TENANTS = 8  # more would take too long to have a few turns each
MARGIN = 0.03  # by so much the other way must be better


@dataclass(frozen=True)
class Sample:
    """How far a tenant is: calls submitted, and when (ns) it said so."""

    at: int
    calls: int


@dataclass(frozen=True)
class Beat:
    """What is so now. tenants: who shares the device with lock auto and may be tried, else empty.

    samples: answers to the last Ask, of all of them or {}; had_turn: who was
    granted the device since the last Mode.
    """

    now: int
    tenants: frozenset[int]
    samples: Mapping[int, Sample] = field(default_factory=dict)
    had_turn: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Ask:
    """Ask the tenants how far they are."""


@dataclass(frozen=True)
class Mode:
    """Use the device so. quantum_ns: of the turns while they are tried."""

    exclusive: bool
    why: str
    quantum_ns: int | None = None


Command = Ask | Mode
Script = Generator[Command | None, Beat, None]


class Trial:
    """One device. beat() now and then; between trials it costs nothing."""

    def __init__(self) -> None:
        self.tenants: frozenset[int] = frozenset()
        self.since = 0  # when they became so
        self.next_at = 0
        self.rest_ns = 0
        self.exclusive = False  # what was found better
        self.script: Script | None = None
        self.started = 0

    def beat(self, beat: Beat) -> Command | None:
        """What to do now, if anything."""
        if beat.tenants != self.tenants:
            return self._others(beat)
        if self.script is not None:
            return self._go_on(beat)
        ready = max(self.next_at, self.since + STABLE_NS)
        if 2 <= len(self.tenants) <= MOST_TENANTS and beat.now >= ready:
            self.started = beat.now
            self.script = self._trial(beat)
            return next(self.script)
        return None

    def _go_on(self, beat: Beat) -> Command | None:
        assert self.script is not None
        try:
            return self.script.send(beat)
        except StopIteration:
            self.script = None
            return None

    def _others(self, beat: Beat) -> Command | None:
        """What was measured was about others: side by side until more is known."""
        self.tenants, self.since = beat.tenants, beat.now
        back = self.exclusive or self.script is not None
        if self.script is not None:
            self.script = None
            self.next_at = beat.now + REST * (beat.now - self.started)
        self.exclusive, self.rest_ns = False, 0
        return Mode(False, "") if back else None

    def _trial(self, beat: Beat) -> Script:
        beat = yield Mode(False, "being measured: side by side")
        beat = yield from self._wait(beat, SETTLE_NS)
        shared = yield from self._rates(beat)
        turns: dict[int, float] = {}
        if len(shared) >= 2:
            beat = yield Mode(True, "being measured: by turns", TURN_NS)
            begun = beat.now
            while not shared.keys() <= beat.had_turn and beat.now < begun + PATIENCE_NS:
                beat = yield None
            if shared.keys() <= beat.had_turn:
                turns = yield from self._rates(beat)
        beat = yield self._decide(shared, turns)
        took = beat.now - self.started
        self.rest_ns = min(max(REST * took, 2 * self.rest_ns), LONGEST_REST_NS)
        self.next_at = beat.now + self.rest_ns

    def _wait(self, beat: Beat, ns: int) -> Generator[Command | None, Beat, Beat]:
        until = beat.now + ns
        while beat.now < until:
            beat = yield None
        return beat

    def _rates(self, beat: Beat) -> Generator[Command | None, Beat, dict[int, float]]:
        """Calls per second during a phase of those that made any; {} where some do not answer."""
        first = yield from self._samples()
        yield from self._wait(beat, PHASE_NS)
        last = yield from self._samples()
        return {
            tenant: (last[tenant].calls - sample.calls) / (last[tenant].at - sample.at) * 1e9
            for tenant, sample in first.items()
            if tenant in last and last[tenant].at > sample.at and last[tenant].calls > sample.calls
        }

    def _samples(self) -> Generator[Command | None, Beat, Mapping[int, Sample]]:
        beat = yield Ask()
        asked = beat.now
        while not beat.samples and beat.now < asked + PATIENCE_NS:
            beat = yield None
        return beat.samples

    def _decide(self, shared: Mapping[int, float], turns: Mapping[int, float]) -> Mode:
        """By the mean over the tenants that do anything of how much more they get done."""
        active = shared.keys() & turns.keys()
        before = self.exclusive
        if len(active) < 2:
            self.exclusive = False
            return Mode(False, "the tenants' memory fits together, and not two of them are busy")
        gain = sum(turns[tenant] / shared[tenant] for tenant in active) / len(active)
        self.exclusive = gain > 1 + (-MARGIN if before else MARGIN)
        if self.exclusive != before:
            self.rest_ns = 0
        better = "by turns" if self.exclusive else "side by side"
        why = f"measured: {better} is better; by turns {gain:.2f} of the progress side by side"
        return Mode(self.exclusive, why)
