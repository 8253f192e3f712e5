"""Feed what gpu-leased has recorded to the same arbiter: python -m leased.sim.replay FILE.

What the arbiter wants done is printed as JSON lines, or compared with what the record says.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from leased import __version__
from leased.core.arbiter import Arbiter
from leased.core.events import Event
from leased.record import lines, snapshot
from leased.record.codec import Damaged
from leased.record.lines import End, Entry, Header, Outcome

AS_RECORDED, DIFFERS, UNREADABLE = 0, 1, 2


@dataclass(frozen=True)
class Step:
    """An event of the record, and the actions that the arbiter returns for it now."""

    entry: Entry
    outcome: Outcome
    arbiter: Arbiter

    def difference(self) -> str | None:
        """How the actions differ from those in the record; None: they do not."""
        recorded, now = (
            lines.text(outcome.to_json()) for outcome in (self.entry.outcome, self.outcome)
        )
        if recorded == now:
            return None
        event = lines.event_text(self.entry.event)
        return f"line {self.entry.number}: {event}\nrecorded: {recorded}\nreplayed: {now}"


def handle(arbiter: Arbiter, event: Event, now: int) -> Outcome:
    """The actions for an event, or the arbiter's fault."""
    try:
        return Outcome(tuple(arbiter.handle(event, now)))
    except Exception as fault:
        return Outcome(fault=type(fault).__name__)


def begin(record: Iterable[bytes], notes: list[str]) -> tuple[Header, Arbiter, Iterator[Step]]:
    """How a record begins, the arbiter of then, and the steps that it takes as they are read.
    Damaged: it is no record; later ones say so when they are read. notes: see replay()."""
    found = lines.read(record)
    header = next(found)
    assert isinstance(header, Header)
    if header.release != __version__:
        notes.append(f"recorded by release {header.release}, replayed by {__version__}")
    arbiter = header.arbiter()
    return header, arbiter, _steps(found, arbiter, notes)


def go_on(record: Iterable[bytes], arbiter: Arbiter, notes: list[str]) -> Iterator[Step] | None:
    """The steps of a record that begins in the state in which the arbiter is; None: it begins in
    another one. Damaged: as with begin()."""
    found = lines.read(record)
    header = next(found)
    assert isinstance(header, Header)
    if header.state != snapshot.take(arbiter):
        return None
    return _steps(found, arbiter, notes)


def _steps(
    found: Iterator[Header | Entry | End], arbiter: Arbiter, notes: list[str]
) -> Iterator[Step]:
    for entry in found:
        if isinstance(entry, Entry):
            yield Step(entry, handle(arbiter, entry.event, entry.now), arbiter)
        elif isinstance(entry, End):
            notes.append(f"the recorder stopped here: {entry.why}")


def replay(record: Iterable[bytes], notes: list[str]) -> Iterator[Step]:
    """All steps of a record. Damaged: the file is not a record. notes: remarks are added here."""
    yield from begin(record, notes)[2]


def printed(steps: Iterable[Step]) -> int:
    """Print the actions as JSON lines."""
    for step in steps:
        for line in lines.outcome_lines(step.entry.now, step.outcome):
            print(line)
    return AS_RECORDED


def checked(steps: Iterable[Step]) -> int:
    """Compare with the record, up to the first difference."""
    events = actions = 0
    for step in steps:
        difference = step.difference()
        if difference is not None:
            print(difference)
            return DIFFERS
        events += 1
        actions += len(step.outcome.actions)
    print(f"{events} events lead to the {actions} actions that were recorded")
    return AS_RECORDED


def run(path: Path, check: bool) -> int:
    notes: list[str] = []
    try:
        with path.open("rb") as record:
            steps = replay(record, notes)
            status = checked(steps) if check else printed(steps)
    except Damaged as fault:
        notes.append(str(fault))
        status = UNREADABLE
    except OSError as fault:
        notes.append(str(fault.strerror))
        status = UNREADABLE
    for note in notes:
        print(f"{path}: {note}", file=sys.stderr)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m leased.sim.replay", description=__doc__)
    parser.add_argument("file", type=Path, help="a record, see daemon.record in gpu-leased.toml")
    parser.add_argument(
        "--check", action="store_true", help="compare; exit status 1: another outcome"
    )
    arguments = parser.parse_args()
    try:
        status = run(arguments.file, arguments.check)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return AS_RECORDED
    return status


if __name__ == "__main__":
    raise SystemExit(main())
