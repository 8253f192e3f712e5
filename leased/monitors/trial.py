"""Finds out whether jobs whose memory fits together make more progress side by side or by turns.
Pure.

Kernels that fill a GPU run faster by turns than in the driver's time slices;
small ones run faster side by side, since they leave room for each other.
Only a trial can tell which. The measure is progress: the rate at which each
job submits work, which in the long run is the rate at which it gets it done.

A trial measures for a while side by side, and for a while by turns of TURN_NS each. Its
cost is the time that was lost in the worse of the two ways, in comparison with the better
one. After a trial that has lost the time t there is no other for REST times t, whichever
tenants come, so trials lose at most a fiftieth of the time; after one that has lost
nothing the next may follow at once. The same tenants are measured again after longer and
longer rests. If turns are better they stay as short as in the trial: no memory has to
move, so a handoff costs next to nothing, and no job has to wait for a whole quantum.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

STABLE_NS = 8_000_000_000  # before a trial the tenants must not have changed for this time
SETTLE_NS = 500_000_000
PHASE_NS = 2_000_000_000
TURN_NS = 100_000_000
PATIENCE_NS = 5_000_000_000  # how long to wait for all answers, or for each tenant's first turn
REST = 50
LONGEST_REST_NS = 1_800_000_000_000
MOST_TENANTS = 8  # with more a trial would take too long: each needs a few turns
MARGIN = 0.03  # the way changes only if the other one is better by this part


@dataclass(frozen=True)
class Sample:
    """The progress of a tenant. calls: submitted so far. at: when it said so, in ns."""

    at: int
    calls: int


@dataclass(frozen=True)
class Beat:
    """A snapshot of one device. tenants: those that share it with lock auto and may be tried.

    samples: answers to the last Ask, of all of them or {}; had_turn: who was
    granted the device since the last Mode. beside: at least two hold the device now.
    """

    now: int
    tenants: frozenset[int]
    samples: Mapping[int, Sample] = field(default_factory=dict)
    had_turn: frozenset[int] = frozenset()
    beside: bool = True


@dataclass(frozen=True)
class Ask:
    """A command: ask the tenants how many calls they have submitted."""


@dataclass(frozen=True)
class Mode:
    """A command: use the device like this. quantum_ns: how long each turn is."""

    exclusive: bool
    why: str
    quantum_ns: int | None = None


Command = Ask | Mode
Script = Generator[Command | None, Beat, None]


class Trial:
    """The trials of one device. Call beat() a few times a second."""

    def __init__(self) -> None:
        self.tenants: frozenset[int] = frozenset()
        self.since = 0  # when the tenants last changed
        self.next_at = 0  # no trial before this time, whoever the tenants are
        self.again_at = 0  # no trial of the same tenants before this time
        self.rest_ns = 0
        self.exclusive = False  # whether turns were found better
        self.script: Script | None = None
        self.turns_since: int | None = None  # set while turns are tried
        self.parted = False  # the tenants took turns while side by side was measured

    def beat(self, beat: Beat) -> Command | None:
        """The command that is due now, or None."""
        if beat.tenants != self.tenants:
            return self._others(beat)
        if self.script is not None:
            self.parted |= not beat.beside
            return self._go_on(beat)
        ready = max(self.next_at, self.again_at, self.since + STABLE_NS)
        # Those with shares may take turns for reasons of their policy: then there is nothing to
        # compare with.
        apart = not beat.beside and not self.exclusive
        if 2 <= len(self.tenants) <= MOST_TENANTS and beat.now >= ready and not apart:
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
        """The tenants have changed: jobs run side by side until these have been measured."""
        back = self.exclusive or self.script is not None
        self.script = None
        if self.turns_since is not None:
            self._lose(beat.now, self._least_gain(), beat.now - self.turns_since)
            self.turns_since = None
        self.tenants, self.since = beat.tenants, beat.now
        self.exclusive, self.rest_ns, self.again_at = False, 0, 0
        return Mode(False, "") if back else None

    def _least_gain(self) -> float:
        """The gain of turns to assume before a measurement: each of n has an n-th of its speed."""
        return 1 / max(1, len(self.tenants))

    def _lose(self, now: int, gain: float, tried_ns: int) -> None:
        """Add what was lost in `tried_ns` in which there was only `gain` times the progress."""
        self.next_at = max(self.next_at, now) + int(REST * tried_ns * max(0.0, 1 - gain))

    def _trial(self, beat: Beat) -> Script:
        started, before = beat.now, self.exclusive
        beat = yield Mode(False, "being measured: side by side")
        beat = yield from self._wait(beat, SETTLE_NS)
        self.parted = False
        shared = yield from self._rates(beat)
        if self.parted:
            yield from self._give_up(started, before)
            return
        turns: dict[int, float] = {}
        if len(shared) >= 2:
            beat = yield Mode(True, "being measured: by turns", TURN_NS)
            begun = self.turns_since = beat.now
            while not shared.keys() <= beat.had_turn and beat.now < begun + PATIENCE_NS:
                beat = yield None
            if shared.keys() <= beat.had_turn:
                turns = yield from self._rates(beat)
        gain = _gain(shared, turns)
        beat = yield self._decide(gain)
        self._account(beat.now, started, before, gain)

    def _give_up(self, started: int, before: bool) -> Script:
        """Go on as before the trial. Where turns were better, side by side has cost something."""
        why = "not measured: the jobs took turns by themselves"
        beat = yield Mode(before, why, quantum(before))
        self.again_at = beat.now + (REST * (beat.now - started) if before else STABLE_NS)

    def _account(self, now: int, started: int, before: bool, gain: float | None) -> None:
        """The trial has ended: compute when the next may begin, from what this one has lost."""
        turned = self.turns_since if self.turns_since is not None else now
        self.turns_since = None
        self._lose(now, self._least_gain() if gain is None else gain, now - turned)
        if before and gain:
            self._lose(now, 1 / gain, turned - started)
        self.rest_ns = min(max(REST * (now - started), 2 * self.rest_ns), LONGEST_REST_NS)
        self.again_at = now + self.rest_ns

    def _wait(self, beat: Beat, ns: int) -> Generator[Command | None, Beat, Beat]:
        until = beat.now + ns
        while beat.now < until:
            beat = yield None
        return beat

    def _rates(self, beat: Beat) -> Generator[Command | None, Beat, dict[int, float]]:
        """Calls per second in a phase, of the tenants that made any; {}: some did not answer."""
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

    def _decide(self, gain: float | None) -> Mode:
        """Choose the better way. gain: progress by turns over that side by side; None: unknown."""
        before, self.exclusive = self.exclusive, False
        if gain is None:
            return Mode(False, "the tenants' memory fits together, and at most one of them is busy")
        self.exclusive = gain > 1 + (-MARGIN if before else MARGIN)
        if self.exclusive != before:
            self.rest_ns = 0
        better = "by turns" if self.exclusive else "side by side"
        why = f"measured: {better} is better; turns give {gain:.2f} of the progress side by side"
        return Mode(self.exclusive, why, quantum(self.exclusive))


def quantum(exclusive: bool) -> int | None:
    """How long turns are, if there are any."""
    return TURN_NS if exclusive else None


def _gain(shared: Mapping[int, float], turns: Mapping[int, float]) -> float | None:
    """By how much faster the tenants make progress by turns, on average over those that make any;
    None: fewer than two do."""
    active = shared.keys() & turns.keys()
    if len(active) < 2:
        return None
    return sum(turns[tenant] / shared[tenant] for tenant in active) / len(active)
