"""Reads the configuration again: most keys take effect at once, some at the next start.

All of it is checked before anything changes. So a configuration takes effect as a whole or not at
all, and a wrong one changes no lease.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from leased.admin.admin import Admin
from leased.admin.user_limits import UserLimits
from leased.base.errors import Refused
from leased.config import config, trusted_files
from leased.config.config import Config
from leased.gpus import devices
from leased.gpus.devices import Gpu
from leased.monitors.process_monitor import ProcessMonitor
from leased.record import place
from leased.slurm.commands import Slurm

log = logging.getLogger("gpu-leased")

# Where daemons of other nodes count on it, it stays as they have been told.
OF_ALL = [key for key in config.KEYS if key.path == "limits.drain"]


def group_id(settings: Config) -> int:
    """The admin group's number; -1: there is none. Refused: this node does not know it."""
    if not settings.admin_group:
        return -1
    try:
        return grp.getgrnam(settings.admin_group).gr_gid
    except KeyError:
        words = f"daemon.admin_group: this node has no group {settings.admin_group}"
        raise Refused(words, "make the group, or name another") from None


def check_files(path: Path, settings: Config) -> None:
    """Refused: a daemon cannot begin with these files. path: the configuration's own."""
    for file, what in trusted_files.named(path, settings):
        trusted_files.check(file, what)
    if settings.record is not None:
        place.check(settings.record, "daemon.record")


def slurm_env(settings: Config) -> dict[str, str]:
    """The environment of Slurm's commands beside the daemon's own."""
    return {"SLURM_CONF": settings.slurm_conf} if settings.slurm_conf else {}


@dataclass(frozen=True)
class AdminSocket:
    """admin.sock. ours: the daemon has made it, so the daemon sets its mode and group."""

    path: Path
    ours: bool

    def open_to(self, gid: int) -> None:
        """Let a group use it; -1: none."""
        if self.ours:
            self.path.chmod(0o600)  # never open to the group of before
            if gid >= 0:
                os.chown(self.path, -1, gid)
                self.path.chmod(0o660)
            return
        found = self.path.stat()
        if gid >= 0 and (found.st_gid != gid or not found.st_mode & stat.S_IWGRP):
            log.warning(
                "daemon.admin_group cannot open %s, which systemd has made: set SocketGroup= and "
                "SocketMode=0660 by systemctl edit gpu-leased-admin.socket, and restart it",
                self.path,
            )


def warn_of_defaults(settings: Config) -> None:
    """Warn if a job that asks for nothing would be refused. A site may want that, so it is
    allowed."""
    try:
        UserLimits.of(settings).check_defaults(settings.defaults)
    except Refused as fault:
        log.warning("jobs that ask for nothing are refused: %s", fault.sentence())


@dataclass(frozen=True)
class Checked:
    """A configuration that was checked, and can be used on this node."""

    config: Config
    admin_gid: int
    gpus: list[Gpu]


@dataclass
class Reload:
    """run() when the daemon is told to read its configuration again. check_start: Refused where the
    next daemon could not begin with it."""

    path: Path
    admin: Admin
    watch: ProcessMonitor
    slurm: Slurm
    check_start: Callable[[Config], None]
    admin_socket: AdminSocket | None = None

    def run(self) -> str | None:
        """Read it again. Returns what is wrong, in one sentence; then the old configuration
        stays."""
        try:
            trusted_files.check(self.path, "the configuration")
            checked = self._check(config.load(self.path))
        except Refused as fault:
            return self._keep(fault.sentence())
        except Exception as fault:  # a fault of ours; the daemon goes on as it was
            return self._keep(f"{self.path}: {type(fault).__name__}: {fault}")
        before = Checked(self.admin.config, self.admin.admin_gid, list(self.admin.leases.gpus))
        try:
            self._use(checked)
        except Exception as fault:
            self._use(before)
            return self._keep(f"{self.path} cannot be used: {type(fault).__name__}: {fault}")
        with contextlib.suppress(Refused):  # it has said so
            self.admin.renumber()
        log.info("configuration read again from %s", self.path)
        warn_of_defaults(checked.config)
        return None

    def _keep(self, why: str) -> str:
        log.error("the old configuration stays: %s", why)
        return why

    def _check(self, fresh: Config) -> Checked:
        """Refused: it cannot be used on this node."""
        now = self.admin.config
        check_files(self.path, fresh)
        self.check_start(fresh)
        at_start = [
            key for key in config.KEYS if key.at_start or (now.peers_port and key in OF_ALL)
        ]
        kept = {key.field: getattr(now, key.field) for key in at_start}
        for key in at_start:
            if getattr(fresh, key.field) != kept[key.field]:
                log.warning("%s takes effect at the next start of gpu-leased", key.path)
        set_ = self.admin.settings.applied
        gpus = [set_(devices.configured(gpu, fresh)) for gpu in self.admin.leases.gpus]
        return Checked(replace(fresh, **kept), group_id(fresh), gpus)

    def _use(self, checked: Checked) -> None:
        settings, leases = checked.config, self.admin.leases
        if self.admin_socket is not None:
            self.admin_socket.open_to(checked.admin_gid)
        self.admin.admin_gid = checked.admin_gid
        self.admin.config = settings
        leases.configure(settings)
        self.slurm.env = self.watch.slurm.env = slurm_env(settings)
        self.watch.configure(settings)
        for gpu in checked.gpus:
            leases.gpus.set(gpu)
