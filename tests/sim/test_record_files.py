"""A record is read together with the older file beside it, where it goes on from that."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.core.events import Closed, Opened, Released, Requested
from leased.record import lines, place, snapshot
from leased.record.codec import Damaged
from leased.record.lines import End, Header, Start
from leased.sim.history import History, load
from leased.sim.jobs import S
from tests.sim.scripted import GPU, Script


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A record: two jobs take turns in the older file, and one goes on in the newer one."""
    script = Script()
    script.at(1, *(Opened(job, (GPU,), "on", 10 * S, False) for job in (1, 2)))
    script.at(2, Requested(1))
    script.release(5, 1)
    script.at(5, Requested(2))
    older, arbiter = script.record, script.arbiter
    state = snapshot.take(arbiter)
    script.record = [lines.header_line(Header("test", 1_000_005.0, Start.of(arbiter), state))]
    script.at(9, Released(2, script.epochs[2]), Closed(1), Closed(2))
    path = tmp_path / "record"
    path.write_bytes(b"".join(script.record))
    place.before(path).write_bytes(b"".join(older))
    return path


def held(history: History) -> dict[int, list[tuple[float, float]]]:
    """By job, in seconds."""
    return {
        run.job: [(hold.since / S, hold.until / S) for hold in run.holds] for run in history.runs
    }


def test_both_are_one_history(path: Path) -> None:
    notes: list[str] = []
    found = load(path, notes)
    assert held(found) == {1: [(2, 5)], 2: [(5, 9)]}
    assert found.written == 1_000_000.0
    assert not any("left out" in note for note in notes)


def test_without_the_older_one_the_newer_one_is_read_alone(path: Path) -> None:
    place.before(path).unlink()
    assert held(load(path, [])) == {1: [], 2: [(5, 9)]}


def test_the_older_one_is_read_alone_by_its_name(path: Path) -> None:
    assert held(load(place.before(path), [])) == {1: [(2, 5)], 2: [(5, 5)]}


@pytest.mark.parametrize("kind", ["of a previous daemon", "with a gap", "damaged"])
def test_an_older_file_that_is_not_continued_is_left_out_and_named(path: Path, kind: str) -> None:
    older = place.before(path)
    whole = older.read_bytes().splitlines(keepends=True)
    if kind == "of a previous daemon":
        script = Script()
        older.write_bytes(b"".join([*script.record, lines.end_line(End("gpu-leased ended"))]))
    elif kind == "with a gap":
        older.write_bytes(b"".join(whole[:-1]))
    else:
        older.write_bytes(b"".join([*whole[:-1], b"garbage\n"]))
    notes: list[str] = []
    assert held(load(path, notes)) == {1: [], 2: [(5, 9)]}
    assert any(note.startswith(f"{older} is left out: ") for note in notes)


def test_a_damaged_record_is_damaged_beside_a_whole_one(path: Path) -> None:
    path.write_bytes(b"garbage\n")
    with pytest.raises(Damaged, match="line 1"):
        load(path, [])
