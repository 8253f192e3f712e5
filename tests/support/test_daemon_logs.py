"""A failed test's report shows what the daemons wrote last."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.slurm.processes import Daemon
from tests.support import daemon_logs

SAYS = "print('line one'); print('line two')"


def test_the_last_lines_of_each_log_until_it_is_removed(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    Daemon.start("one-of-ours", [sys.executable, "-c", SAYS], log).process.wait()
    Daemon.start("silent", [sys.executable, "-c", ""], tmp_path / "two.log").process.wait()
    titled = f"the last lines of one-of-ours: {log}"
    assert (titled, "line one\nline two") in list(daemon_logs.sections())
    assert not any("silent" in title for title, _ in daemon_logs.sections())
    log.unlink()
    assert titled not in dict(daemon_logs.sections())
