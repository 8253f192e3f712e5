"""gpu-leased for tests and the demo: the real daemon on a private prefix."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.slurm.processes import Daemon, StopError, notified
from tests.support.work_dir import of_root

ROOT = Path(__file__).resolve().parents[2]
PRELOAD = of_root(ROOT / "build" / "meson" / "shim" / "libgpulease.so")
# The same with one thing more: it ends a program whose threads take locks out of order.
CHECKED = of_root(ROOT / "build" / "meson" / "shim" / "libgpulease-checked.so")
# And one that says why a process waits after half a second instead of five.
IMPATIENT = of_root(ROOT / "build" / "meson" / "shim" / "libgpulease-impatient.so")
START_S = 60.0
# NVML is given up sooner: far more than its emulation ever takes to answer.
GIVES_UP_SOON = tuple(
    f"leased.gpus.nvml.{patience}"
    for patience in ("LOOK_S=3", "LOOK_EACH_S=1.5", "DESCRIBE_S=4", "DESCRIBE_EACH_S=3")
)
# After a restart leases are granted sooner: a holder that is late has lost its own.
GRANTS_SOON = ("leased.node.listeners.GRACE_NS=2e8", "leased.core.deciding.COME_BACK_NS=2e8")
# Devices are looked at ten times as often: twenty looks that agree take a second.
LOOKS_OFTEN = tuple(
    f"leased.monitors.device_monitor.{pause}" for pause in ("LOOK_S=0.05", "ALL_S=0.5", "AGAIN_S=1")
)


def config_text(run_dir: Path, state_dir: Path, extra: str = "", preload: Path = PRELOAD) -> str:
    """gpu-leased.toml with paths under a prefix; extra: further tables."""
    return (
        "[daemon]\n"
        f'runtime_dir = "{run_dir}"\n'
        f'state_dir = "{state_dir}"\n'
        f'preload = "{preload}"\n' + extra
    )


def listening(path: Path, mode: int) -> socket.socket:
    """A socket as systemd would make it of a unit's ListenSequentialPacket=."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(str(path))
    path.chmod(mode)
    made.listen(512)
    return made


class Leased:
    """The daemon under a prefix. run_dir: short, for the sockets. env: its environment.

    activated: the sockets are ours, as they are systemd's where its units are used:
    whoever comes while the daemon is down waits in their backlogs.
    preload: the interposer that its jobs get. hurried: pauses to be shorter, see hurried.py.
    debug: its log says more. within: what its command begins with, as nsenter's. through: a module
    that runs it, with what that is told.
    """

    def __init__(
        self,
        prefix: Path,
        run_dir: Path,
        env: Mapping[str, str],
        extra: str = "",
        *,
        activated: bool = False,
        preload: Path = PRELOAD,
        hurried: Sequence[str] = (),
        debug: bool = False,
        within: Sequence[str] = (),
        through: Sequence[str] = (),
    ):
        self.within, self.through = list(within), list(through)
        self.hurried = list(hurried)
        self.debug = debug
        self.prefix = prefix
        self.run_dir = run_dir
        self.env = dict(env)
        self.config = prefix / "gpu-leased.toml"
        self.log = prefix / "gpu-leased.log"
        self.daemon: Daemon | None = None
        prefix.mkdir(parents=True, exist_ok=True)
        run_dir.mkdir(parents=True, exist_ok=True)
        self.config.write_text(config_text(run_dir, prefix / "state", extra, preload))
        self.sockets: dict[str, socket.socket] = {}
        self.kept: list[int] = []  # what systemd would give as connections of a previous daemon
        if activated:
            modes = {"tenant": 0o666, "admin": 0o600}
            self.sockets = {n: listening(run_dir / f"{n}.sock", modes[n]) for n in modes}

    @property
    def admin_socket(self) -> Path:
        return self.run_dir / "admin.sock"

    def __enter__(self) -> Leased:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            for held in self.sockets.values():
                held.close()

    def start(self) -> None:
        """Start it and return when it has told its service manager (us) that it is ready."""
        with notified(self.run_dir / "notify.sock") as notify:
            self.daemon = Daemon.start(
                "gpu-leased",
                self._command(),
                self.log,
                self.env | {"NOTIFY_SOCKET": notify.getsockname(), "PYTHONUNBUFFERED": "1"},
                [held.fileno() for held in self.sockets.values()] + self.kept,
            )
            self.daemon.wait_notified(notify, START_S)

    def _command(self) -> list[str]:
        command = ["leased.node.daemon", "--config", str(self.config)]
        if self.debug:
            command.append("--debug")
        if self.hurried:
            command = ["tests.slurm.hurried", *self.hurried, "--", *command]
        if self.through:
            command = [*self.through, "--", *command]
        command = [*self.within, sys.executable, "-m", *command]
        if not self.sockets and not self.kept:
            return command
        given = [f"{held.fileno()}={name}" for name, held in self.sockets.items()]
        given += [f"{descriptor}=client" for descriptor in self.kept]
        return [sys.executable, "-m", "tests.slurm.activate", *given, "--", *command]

    def kill(self) -> None:
        """End it as a crash would: SIGKILL."""
        assert self.daemon is not None
        os.kill(self.daemon.process.pid, signal.SIGKILL)
        self.daemon.process.wait()

    def stop(self) -> None:
        """StopError: it was there and did not end by SIGTERM, or not with status 0."""
        if self.daemon is None:
            return
        stopped, self.daemon = self.daemon, None
        was_there = stopped.running()
        stopped.stop()
        if was_there and stopped.process.returncode:
            raise StopError(
                f"gpu-leased ended with {stopped.process.returncode} at its stop:\n{stopped.tail()}"
            )
