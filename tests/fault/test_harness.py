"""That the others go on is seen, and so is that they do not."""

from __future__ import annotations

import os
import signal

import pytest

from tests.fault import harness
from tests.fault.harness import FaultyNode


def test_everybody_goes_on_over_a_restart(node: FaultyNode) -> None:
    with node.everybody_goes_on():
        node.restart()
    assert node.tenants() == list(harness.JOBS)


def test_a_daemon_that_stands_still_is_noticed(
    node: FaultyNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "PATIENCE_S", 1.0)
    assert node.leased.daemon is not None
    pid = node.leased.daemon.process.pid
    try:
        with pytest.raises(pytest.fail.Exception, match="were not granted since"):  # noqa: SIM117
            with node.everybody_goes_on():
                os.kill(pid, signal.SIGSTOP)
    finally:
        os.kill(pid, signal.SIGCONT)
