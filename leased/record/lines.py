"""The lines of a record: the first says from which state it begins, each other one is an event.

A line is one JSON object. What a crash cut off at the end of the file is no line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from leased import policy
from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.events import Event, PolicySet
from leased.record import codec, snapshot
from leased.record.codec import Damaged

FORMAT = "gpu_lease_record"  # the first key of the first line; its value is the version
VERSION = 1
MARK = f'{{"{FORMAT}":'.encode()  # what every record begins with


@dataclass(frozen=True)
class Start:
    """How an arbiter begins that has not taken any event; see Arbiter for the fields.

    policies: their names, by device.
    """

    devices: Mapping[str, int]
    policies: Mapping[str, str]
    first_epoch: int
    now: int
    grace_until: int
    drain_ns: int

    @classmethod
    def of(cls, arbiter: Arbiter) -> Start:
        rooms = {uuid: device.residency.room for uuid, device in arbiter.devices.items()}
        return cls(
            rooms,
            dict(arbiter.rules.policies.chosen),
            arbiter.leasing.first_epoch,
            arbiter.now,
            arbiter.rules.grace_until,
            arbiter.rules.drain_ns,
        )

    def arbiter(self) -> Arbiter:
        """Damaged: a device or policy of it is not known."""
        fields = {name: value for name, value in vars(self).items() if name != "policies"}
        made = Arbiter(make_policy=policy.make, **fields)
        usual = made.rules.policies.chosen
        for device, name in self.policies.items():
            try:
                if usual[device] != name:
                    made.handle(PolicySet(device, name), self.now)
            except (KeyError, ValueError) as fault:
                raise Damaged(f"the arbiter cannot begin like this: {fault}") from None
        return made


@dataclass(frozen=True)
class Header:
    """release: of the program that wrote it. written: seconds since 1970, at start.now. state: of
    an arbiter in the middle of its run; None: it begins with the record."""

    release: str
    written: float
    start: Start
    state: Optional[list[Any]] = None

    def arbiter(self) -> Arbiter:
        """Damaged: no arbiter of this release can be in that state."""
        return self.start.arbiter() if self.state is None else snapshot.restore(self.state)


@dataclass(frozen=True)
class Outcome:
    """What an event led to: actions, or a fault of the arbiter's."""

    actions: tuple[Action, ...] = ()
    fault: Optional[str] = None

    def to_json(self) -> dict[str, Any]:
        if self.fault is not None:
            return {"fault": self.fault}
        return {"actions": [codec.to_json(action) for action in self.actions]}


@dataclass(frozen=True)
class Entry:
    """One event, when the arbiter took it, and what came of it. number: of its line."""

    number: int
    now: int
    event: Event
    outcome: Outcome


@dataclass(frozen=True)
class End:
    """The recorder stopped by itself."""

    why: str


# -- writing --------------------------------------------------------------------------


def text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), default=codec.plain)


def event_text(event: Event) -> str:
    return text(codec.to_json(event))


def outcome_lines(now: int, outcome: Outcome) -> list[str]:
    """One JSON object for each action, as a replay prints them."""
    if outcome.fault is not None:
        return [text({"now": now, "fault": outcome.fault})]
    return [text({"now": now, **codec.to_json(action)}) for action in outcome.actions]


def _line(value: Mapping[str, Any]) -> bytes:
    return text(value).encode() + b"\n"


def header_line(header: Header) -> bytes:
    return _line({FORMAT: VERSION, **vars(header), "start": vars(header.start)})


def entry_line(now: int, event: Event, outcome: Outcome) -> bytes:
    return _line({"now": now, "event": codec.to_json(event), **outcome.to_json()})


def end_line(end: End) -> bytes:
    return _line({"end": end.why})


# -- reading --------------------------------------------------------------------------

HEADER, NUMBER, TEXT, LIST = map(codec.reader_of, (Header, int, str, list[Any]))


def read(lines: Iterable[bytes]) -> Iterator[Header | Entry | End]:
    """A header, then all that follows. Damaged: says which line, and what is wrong there."""
    reader: Any = _header
    number = 0
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break  # a crash has cut it off
        try:
            found = reader(_object(line), number)
        except Damaged as fault:
            raise Damaged(f"line {number}: {fault}") from None
        yield found
        if isinstance(found, End):
            return
        reader = _entry
    if reader is _header:
        raise Damaged("there is no record in it")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise Damaged("this is not a line of a record") from None
    if not isinstance(found, dict):
        raise Damaged("this is not a line of a record")
    return found


def _header(value: dict[str, Any], _: int) -> Header:
    version = value.pop(FORMAT, None)
    if version is None:
        raise Damaged("no record of gpu-leased begins like this")
    if version != VERSION:
        raise Damaged(f"the record has version {version!r:.20}, this program reads {VERSION}")
    header: Header = HEADER(value)
    return header


def _entry(value: dict[str, Any], number: int) -> Entry | End:
    if value.keys() == {"end"}:
        return End(TEXT(value["end"]))
    outcome = value.keys() - {"now", "event"}
    if len(value) != 3 or outcome not in ({"actions"}, {"fault"}):
        raise Damaged(f"it has the fields {', '.join(sorted(value))!r:.100}")
    return Entry(number, NUMBER(value["now"]), codec.event_of(value["event"]), _outcome(value))


def _outcome(value: dict[str, Any]) -> Outcome:
    if "fault" in value:
        return Outcome(fault=TEXT(value["fault"]))
    return Outcome(tuple(codec.action_of(action) for action in LIST(value["actions"])))
