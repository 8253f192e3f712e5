"""A process whose memory another one opens does not answer: it is said, and has an end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.emugpu.programs import finish, go_on, line
from tests.shim.memory.test_shared import SWAP
from tests.shim.memory.test_shared_jobs import CODE, OWNER, N
from tests.support.programs import tell

PART_WAIT = Path(__file__).resolve().parents[3] / "build/meson/tests/shim/memory/part_wait"
MAP_FAILED, INVALID_VALUE = 205, 1


def waited(happens: str) -> tuple[list[tuple[int, str]], int]:
    """What was said, and when (ms); and what the call returned."""
    done = subprocess.run([PART_WAIT, happens], check=True, capture_output=True, text=True)
    said = re.findall(r"^(\d+) ms: (.*)$", done.stdout, re.MULTILINE)
    result = re.search(r"^result (\d+)", done.stdout, re.MULTILINE)
    assert result, done.stdout
    return [(int(ms), words) for ms, words in said], int(result[1])


@pytest.mark.parametrize("happens", ["silent", "signals"])
def test_it_is_said_after_5_s_and_given_up_after_60(happens: str) -> None:
    said, result = waited(happens)
    assert [ms for ms, _ in said] == [5000, 60000]
    assert "is that process stopped?" in said[0][1]
    assert "open the memory again" in said[1][1]
    assert result == MAP_FAILED


def test_time_in_which_the_job_is_stopped_does_not_count() -> None:
    assert waited("stopped") == ([], INVALID_VALUE), "it looks again, and finds an end"


def test_memory_that_was_mapped_before_is_waited_for_as_long_as_its_keeper_lives() -> None:
    """Its job may be suspended; whoever gives it up loses what the chain has there."""
    said, result = waited("again")
    assert [ms for ms, _ in said] == [5000]
    assert "is the keeper's job suspended?" in said[0][1]
    assert result == INVALID_VALUE, "it looks again after a day, and finds an end"


def test_memory_of_a_process_that_goes_on_is_opened_late(tenant: Start) -> None:
    owner = tenant(1, SWAP, "-c", OWNER.replace("\ngive(p)", "\nsay(os.getpid()); give(p)"))
    number, handle = int(line(owner)), line(owner)
    opener = tenant(1, SWAP, "-c", CODE + f"q = ok(take()); assert same(q, 5, {N}); say('open')")
    os.kill(number, signal.SIGSTOP)
    try:
        tell(opener, handle)
        assert opener.stderr is not None
        said = opener.stderr.readline()
        assert "does not answer: is that process stopped?" in said
    finally:
        os.kill(number, signal.SIGCONT)
    assert line(opener) == "open"
    finish(opener)
    go_on(owner)
    finish(owner)
