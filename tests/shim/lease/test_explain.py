"""When the user hears why a process waits: shim/lease/explain.c, in simulated time."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

FILTER = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/lease/explain_filter"
MS = 1_000_000
DRAINED, CROWDED = 1, 3
SYSTEMD_MS = 28_000  # WatchdogSec= and TimeoutAbortSec= of gpu-leased.service, and a start
LATE_MS = 2  # how much later than it asked for the interposer's thread comes


class Process:
    """A process that waits or not, before a daemon that answers at once, or not."""

    def __init__(self, filter_: subprocess.Popen[str]):
        self.filter = filter_
        self.now = 0  # in ms
        self.waits = True
        self.served = True
        self.code: int | None = 0  # what the daemon answers; None: nothing
        self.said: list[tuple[int, str]] = []  # when (ms), and what
        self.asked: list[int] = []
        self.steps = 0

    def write(self, *words: object) -> None:
        assert self.filter.stdin is not None
        print(*words, file=self.filter.stdin, flush=True)

    def run(self, ms: int) -> None:
        """So much time passes; the thread wakes when it wants to, or at the end."""
        end = self.now + ms
        while True:
            pause = self._advance()
            if pause is None or self.now + pause > end:
                self.now = end
                return
            self.now += pause

    def _advance(self) -> int | None:
        """One step; ms until the next, or None."""
        self.steps += 1
        view = int(self.waits), int(self.served)
        self.write("advance", self.now * MS, *view)
        assert self.filter.stdout is not None
        step, pause, word = self.filter.stdout.readline().split()
        if step == "ask":
            self.asked.append(self.now)
            if self.code is not None:
                self.write("answer", self.now * MS, self.code, f"code-{self.code}")
                return 0
        elif step != "nothing":
            self.said.append((self.now, word if step == "answer" else step))
        return int(pause) // MS + LATE_MS if int(pause) >= 0 else None


@pytest.fixture
def process() -> Iterator[Process]:
    with subprocess.Popen(
        [str(FILTER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as filter_:
        yield Process(filter_)
        filter_.terminate()


def test_a_daemon_that_is_not_there_is_said_once_after_5_s(process: Process) -> None:
    process.served = False
    process.run(4990)
    assert process.said == []
    process.run(1000)
    assert [what for _, what in process.said] == ["unserved"]
    assert 5000 <= process.said[0][0] < 5100
    process.run(3_600_000)
    assert len(process.said) == 1
    assert process.asked == []
    assert process.steps < 10, "it does not wake for nothing"


def test_a_process_that_waits_for_its_turn_is_told_nothing(process: Process) -> None:
    process.run(60_000)
    assert process.said == []
    assert 20 <= len(process.asked) <= 24, "one question every 2.5 s"


def test_the_daemon_is_not_asked_while_no_thread_waits(process: Process) -> None:
    process.waits = False
    process.run(3_600_000)
    assert (process.said, process.asked, process.steps) == ([], [], 1)


def test_each_reason_of_the_daemon_is_told_once(process: Process) -> None:
    process.code = DRAINED
    process.run(4990)
    assert process.said == []
    process.run(5000)
    assert [what for _, what in process.said] == ["code-1"]
    assert 5000 <= process.said[0][0] < 5100
    process.code = CROWDED
    process.run(60_000)
    assert [what for _, what in process.said] == ["code-1", "code-3"]
    process.code = 0
    process.run(60_000)
    process.code = DRAINED
    process.run(60_000)
    assert len(process.said) == 2


def test_a_reason_that_passes_in_a_moment_is_not_told(process: Process) -> None:
    for _ in range(20):
        process.code = CROWDED
        process.run(2500)
        process.code = 0
        process.run(2500)
    assert process.said == []


def test_a_wait_that_ends_in_time_is_not_said(process: Process) -> None:
    process.served = False
    for _ in range(20):
        process.waits = True
        process.run(4000)
        process.waits = False
        process.run(10)
    assert process.said == []


def test_a_daemon_that_stops_answering_is_said(process: Process) -> None:
    process.run(20_000)
    process.code = None
    process.run(60_000)
    assert [what for _, what in process.said] == ["silence"]
    assert process.said[0][0] >= 20_000 + SYSTEMD_MS
    # It wakes up, and says something else.
    process.code = DRAINED
    asked = len(process.asked)
    process.write("answer", process.now * MS, 0, "turn")
    process.run(20_000)
    assert len(process.asked) > asked
    assert [what for _, what in process.said] == ["silence", "code-1"]


def test_a_daemon_that_systemd_starts_anew_is_not_missed(process: Process) -> None:
    """An update of a node with much to do, or a daemon that hung."""
    process.run(20_000)
    process.code = None
    process.run(SYSTEMD_MS)
    process.code = 0
    process.write("forget", process.now * MS)
    process.run(60_000)
    assert process.said == []


def test_another_daemon_is_not_blamed_for_the_silence_of_the_last_one(process: Process) -> None:
    process.code = None
    process.run(3000)
    assert len(process.asked) == 1
    process.code = 0
    process.write("forget", process.now * MS)
    process.run(60_000)
    assert process.said == []
    assert len(process.asked) > 10
    # It is told of this one, if it is as silent.
    process.code = None
    process.write("forget", process.now * MS)
    process.run(60_000)
    assert [what for _, what in process.said] == ["silence"]


def test_the_patience_begins_anew_with_the_daemon(process: Process) -> None:
    """It was away for a moment: what it then says is not what was so before."""
    process.run(4000)
    process.served = False
    process.run(3000)
    process.served = True
    process.code = DRAINED
    process.run(4900)
    assert process.said == []
    process.run(1000)
    assert [what for _, what in process.said] == ["code-1"]


def test_codes_of_a_later_release_are_said_as_well(process: Process) -> None:
    process.code = 4_000_000_000
    process.run(10_000)
    assert [what for _, what in process.said] == ["code-4000000000"]
