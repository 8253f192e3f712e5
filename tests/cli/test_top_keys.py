"""gpu-leasectl top on a terminal: with a real daemon, and its keys with one that is made up."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from leased.cli.subcommand import ExitStatus
from tests.conftest import ROOT
from tests.slurm.leased import Leased

ORDER = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# It asks nobody: what it is told to do it says in the last line, as the real one does.
PROGRAM = """
from leased.base.errors import Refused
from leased.cli import top
from leased.cli.names import Names
from tests.cli.fake_status import status

def act(order):
    if order.device == "9":
        raise Refused("no device 9", "there are 0 and 1")
    return f"told: {order.op} {order.device}"

async def no_names(jobs):
    return {}

top.run(status, once=False, as_json=False, interval_s=3600, act=act, names=Names(no_names))
print("and it has ended")
"""


@dataclass
class Terminal:
    """top on a terminal of 80x24."""

    ours: int
    process: subprocess.Popen[bytes]
    seen: bytes = field(default=b"")

    def until(self, wanted: str, times: int = 1) -> str:
        """What has come since the last time, until it has these words so often, between which there
        may be orders for the terminal, or one of these."""
        end = time.monotonic() + 120
        while True:
            text = self.seen.decode(errors="replace")
            if max(text.count(wanted), ORDER.sub("", text).count(wanted)) >= times:
                self.seen = b""
                return text
            assert time.monotonic() < end, text
            if select.select([self.ours], [], [], 1.0)[0]:
                self.seen += os.read(self.ours, 65536)

    def press(self, keys: str) -> None:
        os.write(self.ours, keys.encode())


@contextlib.contextmanager
def running(*arguments: str, env: Mapping[str, str] = os.environ) -> Iterator[Terminal]:
    """Python on a terminal."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    # Whatever started these tests in the background may ignore the signal for all below it.
    process = subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env={**env, **size},
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with running("-c", PROGRAM) as made:
        yield made


def test_it_redraws_until_it_is_interrupted(kept_leased: Leased) -> None:
    command = ("-m", "leased.cli.ctl", "--config", str(kept_leased.config))
    with running(*command, "top", "--interval", "0.1", env=kept_leased.env) as terminal:
        assert "\x1b[?1049h" in terminal.until("gpu-leased 0", 3)
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("\x1b[?1049l")  # the terminal is as it was
        assert terminal.process.wait(60) == ExitStatus.DONE


def test_keys_sort_drain_and_quit_at_once(terminal: Terminal) -> None:
    """The next look is an hour away: what is seen is drawn as the keys are pressed."""
    terminal.until("s sort by job")
    terminal.press("s")
    terminal.until("s sort by lease")
    terminal.press("d")
    terminal.until("drain which GPU?")
    terminal.press("0\r")
    terminal.until("y/n")
    terminal.press("n")
    terminal.until("nothing is changed: drain 0 was not confirmed")
    terminal.press("d0\r")
    terminal.until("y/n")
    terminal.press("y")
    terminal.until("told: drain 0")
    terminal.press("r9\ry")
    terminal.until("no device 9; there are 0 and 1")
    terminal.press("q")
    terminal.until("and it has ended")
    assert terminal.process.wait(120) == 0
