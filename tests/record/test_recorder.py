"""The recorder: what it writes can be replayed, it is bounded, and no fault of a disk is more than
the end of the record."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leased.base.errors import Refused
from leased.core.arbiter import Arbiter
from leased.core.events import Tick
from leased.record import place, record_file, snapshot
from leased.record.recorder import Recorder
from leased.sim import replay
from tests.core.draws import random_scenario
from tests.core.silent import Silent
from tests.core.world import World

SEED = 8
AFTER = "leases go on, and it begins again when the configuration is read again"
MOST = 200_000  # bytes


def at_once(flush: Callable[[], None]) -> None:
    flush()


def play(recorder: Recorder, events: int = 1500) -> Arbiter:
    """A run of the adversary's without restarts; the arbiter at its end."""
    scenario = random_scenario(SEED)
    pokes = tuple(poke for poke in scenario.pokes if poke.what != "restart")
    world = World(
        replace(scenario, pokes=pokes),
        events,
        recorder.attach,
        recorder.take,
        judge=Silent,
    )
    world.run()
    return world.a


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record"


@pytest.fixture
def recorder(path: Path) -> Iterator[Recorder]:
    made = Recorder(at_once)
    made.configure(path, MOST)
    yield made
    made.close()


def replayed(path: Path) -> Arbiter:
    """The arbiter at the end of a file, all of whose steps are as they were recorded."""
    arbiter = None
    with path.open("rb") as lines:
        for step in replay.replay(lines, []):
            assert step.difference() is None
            arbiter = step.arbiter
    assert arbiter is not None
    return arbiter


def header(path: Path) -> dict[str, object]:
    with path.open("rb") as lines:
        found: dict[str, object] = json.loads(next(lines))
    return found


def test_a_run_is_recorded_and_the_arbiter_is_none_the_wiser(
    path: Path, recorder: Recorder
) -> None:
    recorder.configure(path, 100 * MOST)
    end = play(recorder)
    recorder.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert snapshot.take(replayed(path)) == snapshot.take(end)
    assert not place.before(path).exists()
    assert header(path)["state"] is None
    assert snapshot.take(play(Recorder(at_once))) == snapshot.take(end)


def test_two_files_by_turns_each_of_which_can_be_replayed(path: Path, recorder: Recorder) -> None:
    end = play(recorder)
    recorder.close()
    older = place.before(path)
    assert header(path)["state"] == snapshot.take(replayed(older))
    assert snapshot.take(replayed(path)) == snapshot.take(end)
    assert header(older)["state"] is not None, "there were more than two"
    longest = max(map(len, older.read_bytes().splitlines(keepends=True)[1:]))
    assert older.stat().st_size + path.stat().st_size <= MOST + 2 * longest
    assert stat.S_IMODE(older.stat().st_mode) == stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_record_that_is_turned_on_later_begins_with_the_state(
    path: Path, recorder: Recorder
) -> None:
    recorder.configure(None, MOST)
    end = play(recorder, 300)
    recorder.configure(path, MOST)
    later = end.now + 5
    recorder.take(later, Tick(), end.handle(Tick(), later))
    recorder.close()
    assert header(path)["state"] is not None
    assert snapshot.take(replayed(path)) == snapshot.take(end)


def test_the_record_of_a_previous_daemon_is_the_older_file(path: Path, recorder: Recorder) -> None:
    recorder.configure(path, 100 * MOST)
    play(recorder, 100)
    recorder.close()
    before = path.read_bytes()
    again = Recorder(at_once)
    again.configure(path, 100 * MOST)
    play(again, 50)
    again.close()
    assert place.before(path).read_bytes() == before
    assert before.splitlines()[-1] == b'{"end":"gpu-leased ended"}'


# -- faults -----------------------------------------------------------------------------

# A limit on the size of files stands for a full disk; argv: the file, the limit.
FULL = """
import json, logging, resource, sys
from pathlib import Path
from leased.record import snapshot
from leased.record.recorder import Recorder
from tests.record.test_recorder import at_once, play
logging.basicConfig(format="%(message)s", stream=sys.stderr)
recorder = Recorder(at_once)
recorder.configure(Path(sys.argv[1]), 1 << 30)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
end = play(recorder)
recorder.close()
sys.stdout.write(str(snapshot.take(end) == snapshot.take(play(Recorder(at_once)))))
"""


@pytest.mark.parametrize("limit", [1, 2000, 20_011])
def test_a_full_disk_ends_the_record_and_is_said_once(path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "True", "the arbiter goes on as without a record"
    assert done.stderr == (f"the record {path} ends: File too large; {AFTER}\n")
    content = path.read_bytes()
    assert len(content) <= limit
    if limit > 1000:
        assert content.endswith(b"\n"), "what did not fit is cut off"
        replayed(path)
    else:
        assert content == b""


def test_a_slow_disk_ends_the_record(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(record_file, "MOST_QUEUED", 10_000)
    goes_on, write = threading.Event(), record_file.write_all

    def slow(descriptor: int, data: bytes) -> None:
        goes_on.wait()
        write(descriptor, data)

    monkeypatch.setattr(record_file, "write_all", slow)
    recorder = Recorder(at_once)
    recorder.configure(path, 100 * MOST)
    play(recorder)
    assert recorder.file is None
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == [
        f"the record {path} ends: the disk is too slow for it; {AFTER}"
    ]
    recorder.configure(path, 100 * MOST)  # another one waits for the first
    goes_on.set()
    recorder.close()
    assert 10_000 < place.before(path).stat().st_size < 15_000
    replayed(place.before(path))
    assert header(path)["state"] is not None
    assert not [each for each in threading.enumerate() if each.name == "record"]


def test_a_state_that_is_too_large_ends_the_record(
    path: Path,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(descriptor: int, data: bytes) -> None:
        time.sleep(0.05)
        write_all(descriptor, data)

    write_all = record_file.write_all
    monkeypatch.setattr(record_file, "write_all", slow)
    recorder.configure(path, 2000)
    play(recorder, 200)
    recorder.close()
    assert "record_most is too small" in caplog.text
    assert len(caplog.records) == 1
    replayed(path)


def test_a_fault_is_over_when_the_configuration_is_read_again(
    path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int, data: bytes) -> None:
        raise OSError(errno.EIO, f"{len(data)} bytes are lost")

    monkeypatch.setattr(record_file, "write_all", broken)
    play(recorder, 50)
    recorder.close()
    monkeypatch.undo()
    recorder.configure(path, MOST)
    recorder.close()
    assert header(path)["state"] is not None


# -- where it may be --------------------------------------------------------------------


def occupied(path: Path, kind: str) -> None:
    if kind == "a directory":
        path.mkdir()
    elif kind == "a link":
        path.symlink_to("/etc/passwd")
    elif kind == "a FIFO":
        os.mkfifo(path)
    else:
        path.write_text("precious\n")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ["a directory", "a link", "a FIFO", "a text"])
def test_nothing_else_is_moved_or_written(
    path: Path, kind: str, older: bool, caplog: pytest.LogCaptureFixture
) -> None:
    there = place.before(path) if older else path
    occupied(there, kind)
    before = there.lstat()
    with pytest.raises(Refused, match=f"daemon.record: {there} is there and is not a record"):
        place.check(path, "daemon.record")
    recorder = Recorder(at_once)  # it was not there yet when that was looked at
    recorder.configure(path, MOST)
    play(recorder, 20)
    recorder.close()
    assert there.lstat() == before
    assert f"{there} is not a record" in caplog.text
    assert list(path.parent.iterdir()) == [there]


def test_records_and_empty_files_are_replaced(path: Path) -> None:
    for content in (b"", b'{"gpu_le', b'{"gpu_lease_record":7}\n'):
        path.write_bytes(content)
        place.check(path, "daemon.record")
    with pytest.raises(Refused, match="is not a directory"):
        place.check(path / "below", "daemon.record")
