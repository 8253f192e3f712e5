"""How well a GPU is, for offline jobs beside online ones: MuxFlow's state machine.

    Init -> Healthy -> Unhealthy -> Overlimit -> Unhealthy -> Healthy
    Disabled: the device is not available, or has a fault; afterwards Init

Errors that the driver tells of (xid.py) disable the GPU where it has to be reset; most others are
bad signs for ten minutes.

A GPU that is unhealthy takes no new offline job. Where it is over its limits offline jobs are
evicted, and it stays so for a time that doubles with each entry within two hours. What is bad must
have lasted for a while before it counts, and what is well for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from leased.classes import xid

INIT_S = 10.0  # until what is seen of a device counts
# The duty of offline jobs is cut meanwhile, which may be enough.
ILL_S = 3.0
OVER_S = 60.0
WELL_S = 30.0
FIRST_S = 60.0  # over its limits
MOST_S = 3840.0
WITHIN_S = 7200.0

# From where on a sign is bad, and from where on it is far too much.
ONLINE_BUSY = 0.95, 2.0  # the part of the time that online jobs use: no limit is over that
CLOCK = 0.6, 0.4  # at most, of the highest SM clock, while the device works
MEMORY = 0.98, 2.0  # of the device's, that jobs hold
SLOWDOWN = 2.0, 4.0  # of what is allowed
ERRORS = 1, 3  # within so long
ERRORS_S = 600.0


class State(Enum):
    """In one word."""

    INIT = "init"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    OVERLIMIT = "overlimit"
    DISABLED = "disabled"


@dataclass(frozen=True)
class Signs:
    """Of one look; None: not known. fault: a sentence. online_busy: the part of the time in which
    the device worked for online jobs. clock: of the highest, while it works. memory: the part that
    is in use. slowdown: of online jobs, in units of what is allowed. xids: errors that the driver
    has told of since the last look."""

    fault: str | None = None
    online_busy: float | None = None
    clock: float | None = None
    memory: float | None = None
    slowdown: float | None = None
    xids: tuple[int, ...] = ()


@dataclass
class Health:
    """Of one device. since: of the state. bad, far: since when signs are bad, or far too much;
    well: since when none is. entries: when it went over its limits. stays_s: for how long it stays
    there. why: a phrase; "": there is nothing to say. broken: why it has to be reset; "": it has
    not. errors: when the driver told of those that count."""

    state: State = State.INIT
    since: int = 0
    bad: int | None = None
    far: int | None = None
    well: int | None = None
    entries: list[int] = field(default_factory=list)
    stays_s: float = 60.0
    why: str = ""
    broken: str = ""
    errors: list[int] = field(default_factory=list)

    def look(self, now: int, signs: Signs) -> bool:
        """Returns whether offline jobs are to be evicted now. now: ns."""
        self._note_errors(now, signs.xids)
        fault = signs.fault or self.broken
        if fault:
            self._become(State.DISABLED, now, fault)
            return False
        if self.state is State.DISABLED:
            self._become(State.INIT, now, "it is available again, and looked at")
        level, why = worst(signs, len(self.errors))
        self._note(now, level)
        return self._move(now, why)

    def _note_errors(self, now: int, xids: tuple[int, ...]) -> None:
        self.broken = next(filter(None, map(xid.broken, xids)), self.broken)
        lately = [at for at in self.errors if _for(at, now) < ERRORS_S]
        lately += [now for number in xids if xid.counts(number)]
        self.errors = lately[-ERRORS[1] :]

    def _note(self, now: int, level: int) -> None:
        self.bad = None if level < 1 else now if self.bad is None else self.bad
        self.far = None if level < 2 else now if self.far is None else self.far
        self.well = None if level else now if self.well is None else self.well

    def _move(self, now: int, why: str) -> bool:
        if self.state is State.INIT:
            if _for(self.since, now) >= INIT_S:
                self._become(State.HEALTHY, now, "")
        elif self.state is State.HEALTHY:
            if _for(self.bad, now) >= ILL_S:
                self._become(State.UNHEALTHY, now, why)
        elif self.state is State.UNHEALTHY:
            self.why = why or self.why
            if _for(self.far, now) >= OVER_S:
                return self._enter(now, why)
            if _for(self.well, now) >= WELL_S:
                self._become(State.HEALTHY, now, "")
        elif _for(self.since, now) >= self.stays_s:
            self._become(State.UNHEALTHY, now, self.why)
        return False

    def _enter(self, now: int, why: str) -> bool:
        self.entries = [entry for entry in self.entries if _for(entry, now) < WITHIN_S]
        self.stays_s = min(FIRST_S * 2 ** len(self.entries), MOST_S)
        self.entries.append(now)
        self._become(State.OVERLIMIT, now, why)
        return True

    def _become(self, state: State, now: int, why: str) -> None:
        if state is not self.state:
            self.state, self.since = state, now
            self.bad = self.far = self.well = None
        self.why = why

    @property
    def takes_offline(self) -> bool:
        """Whether a new offline job may begin there."""
        return self.state in (State.INIT, State.HEALTHY)


def worst(signs: Signs, errors: int = 0) -> tuple[int, str]:
    """0: all is well; 1: it is bad; 2: it is far too much. And why, as a phrase. errors: that the
    driver has told of lately."""
    found = [
        (_level(errors, *ERRORS), "the driver has told of errors of it"),
        (_level(signs.slowdown, *SLOWDOWN), "online jobs are slowed down too much"),
        (_level(_less(signs.clock), *map(_less_of, CLOCK)), "its clock is low"),
        (_level(signs.memory, *MEMORY), "its memory is full"),
        (_level(signs.online_busy, *ONLINE_BUSY), "online jobs use all of its time"),
    ]
    level, why = max(found, key=lambda one: one[0])
    return level, why if level else ""


def _level(value: float | None, bad: float, far: float) -> int:
    if value is None:
        return 0
    return (value >= bad) + (value >= far)


def _less(value: float | None) -> float | None:
    return None if value is None else -value


def _less_of(value: float) -> float:
    return -value


def _for(since: int | None, now: int) -> float:
    """For how many seconds."""
    return 0.0 if since is None else (now - since) / 1e9
