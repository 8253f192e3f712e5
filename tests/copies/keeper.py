"""The keeper of memory for copies, for tests: the real one beside a daemon's sockets."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from leased.copies.keeper_link import SOCKET
from tests.slurm.processes import Daemon


class Keeper:
    """Runs within `with`. run_dir: the daemon's. group: the memory cgroup that it is alone in, as
    its unit would be."""

    def __init__(self, run_dir: Path, group: Path | None = None):
        self.group = group
        run_dir.mkdir(parents=True, exist_ok=True)
        self.path = run_dir / SOCKET
        self.log = run_dir / "keeper.log"
        self.daemon: Daemon | None = None

    def __enter__(self) -> Keeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self.daemon is not None
        return self.daemon.process.pid

    def start(self) -> None:
        command = [sys.executable, "-m", "leased.copies.keeper", "--socket", str(self.path)]
        if self.group is not None:
            enter = 'echo $$ >"$0" && exec "$@"'
            command = ["sh", "-c", enter, str(self.group / "cgroup.procs"), *command]
        self.path.unlink(missing_ok=True)
        self.daemon = Daemon.start("gpu-leased-copies", command, self.log)
        self.daemon.wait_ready(self._answers)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            return asking.connect_ex(str(self.path)) == 0

    def kill(self) -> None:
        assert self.daemon is not None
        self.daemon.process.kill()
        self.daemon.process.wait()

    def stop(self) -> None:
        stopped, self.daemon = self.daemon, None
        if stopped is not None:
            stopped.stop()
