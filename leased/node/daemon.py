"""gpu-leased: the daemon of a node. asyncio around the leases: sockets, systemd, the store."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path

from leased import __version__
from leased.admin import host_memory
from leased.admin.admin import Admin
from leased.admin.idle_moves import IdleMoves
from leased.admin.jobs import Jobs
from leased.admin.moves import Moves
from leased.admin.questions import Questions
from leased.admin.reload import Reload, check_files, group_id, slurm_env, warn_of_defaults
from leased.admin.status import Seen
from leased.admin.user_limits import UserLimits
from leased.base.errors import Refused
from leased.base.only_one import only_one
from leased.base.service_manager import notify
from leased.base.words import count
from leased.config import config, trusted_files
from leased.connections.accounts import Accounts
from leased.copies.keeper_link import SOCKET as KEEPER_SOCKET
from leased.copies.keeper_link import KeeperLink
from leased.copies.node_memory import NodeMemory
from leased.core.events import Listens, Tick
from leased.gpus import discovery
from leased.gpus.discovery import Found
from leased.gpus.nvml import Nvml
from leased.leasing.leases import Leases
from leased.moving.carriers import Carriers
from leased.moving.device_access import DeviceAccess
from leased.moving.mover import Mover
from leased.moving.saver import Saver
from leased.mps import mps
from leased.mps.mps import Mps
from leased.node import across_nodes
from leased.node.boot import booted_since
from leased.node.checkpoint import Checkpoint, first_epoch
from leased.node.deadline_timer import DeadlineTimer, HearsFirst
from leased.node.listeners import GRACE_NS, Listeners
from leased.node.monitors import Monitors
from leased.node.overruns import Overruns
from leased.node.tasks import Tasks
from leased.record.recorder import Recorder
from leased.slurm import slurmconf
from leased.slurm.commands import Slurm
from leased.slurm.usage_writer import UsageWriter
from leased.store.registrations import Registrations
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

UNHEARD_NS = 1 << 62  # the grace of a daemon that does not listen yet: without an end


class Daemon:
    """One running daemon: makes its parts, starts them, and stops them."""

    def __init__(self, path: Path, settings: config.Config, nvml: Nvml, found: Found):
        self.config = settings  # as it was at the start
        self.nvml = nvml
        self.loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        self.tasks = Tasks(self.loop)
        self.accounts = Accounts(self.loop)
        self.slurm = Slurm(slurm_env(settings))
        self.store = Store(
            settings.state_dir / "usage.db", Registrations(settings.runtime_dir / "jobs")
        )
        records = self.store.open_tenants()
        self.recorder = Recorder(self.loop.call_soon)
        self.recorder.configure(settings.record, settings.record_most)
        self.leases = self._make_leases(found, restarted=bool(records))
        heard = HearsFirst(self.loop, lambda: self.leases.run(Tick()))
        self.timer = DeadlineTimer(
            self.loop,
            self.leases.loop.arbiter.next_deadline,
            lambda: heard.tick() if self.leases.view.in_grace else self.leases.run(Tick()),
        )
        self.checkpoint = Checkpoint(self.leases, self.store)
        self.jobs = Jobs(self.leases, self.store)
        self.mps = Mps(self.leases, lambda: self.in_force)
        self.monitors = Monitors(
            *(self.jobs, self.slurm, nvml, self.accounts),
            at_start=settings,
            node=self,
            mps=self.mps,
        )
        self.writer = UsageWriter(
            self.store, lambda: self.slurm.env, self._indices, self._node_name
        )
        self.admin = self._make_admin()
        self.copies = self._make_copies()
        self._connect_parts()
        self.admin.take_over(records, rebooted=booted_since(settings.state_dir / "boot_id"))
        self.monitors.report(found)
        self.across = across_nodes.make(
            *(self.loop, self.leases, self.slurm, settings, self.leases.view.epoch)
        )
        moves = self._make_moves()
        self.idle_moves = IdleMoves(moves)
        questions = Questions(
            *(self.leases, self.store, self.jobs.find, lambda: self.in_force), moves
        )
        self.listeners = Listeners(self.loop, self.admin, questions, self.accounts)
        self.reloading = Reload(
            path, self.admin, self.monitors.processes, self.slurm, across_nodes.check
        )

    # -- its parts --------------------------------------------------------------

    def _make_leases(self, found: Found, *, restarted: bool) -> Leases:
        leases = Leases(
            found.gpus,
            time.monotonic_ns,
            first_epoch=first_epoch(self.store),
            grace_ns=UNHEARD_NS if restarted else 0,
            in_flight_ns=self.config.in_flight_ns,
            drain_ns=self.config.drain_ns,
            recorder=self.recorder,
        )
        leases.use_limits(self.config)
        return leases

    def _make_admin(self) -> Admin:
        """The part that answers root's requests."""
        looks = self.monitors
        seen = Seen(
            *(looks.processes.status, self.writer.waiting, looks.devices, looks.copies_ahead),
            health=looks.class_health,
            mps=self.mps,
        )
        admin = Admin(
            *(self.config, self.jobs, self.reload, self.job_ended),
            admin_gid=group_id(self.config),
            seen=seen,
        )
        with contextlib.suppress(Refused):  # it has said so; jobs hear it when they register
            admin.renumber()
        return admin

    def _make_moves(self) -> Moves:
        """The part that moves jobs to other GPUs."""
        access = DeviceAccess(lambda: self.admin.renumber.constrained, self.jobs.stepds)
        self.carriers = Carriers(self.leases)
        self.mover = Mover(
            *(self.leases, self.store, self.nvml, self.config.state_dir),
            access=access,
            carriers=self.carriers,
        )
        saver = Saver(self.leases, self.carriers)
        admitted = self.admin.registration
        return Moves(
            *(self.leases, self.mover, saver, admitted.gangs, lambda: self.in_force),
            refuses_offline=admitted.refuses_offline,
            has_mps=lambda uuid: self.mps.has_mode(self.leases.gpus[uuid]),
            access=access,
        )

    def _make_copies(self) -> NodeMemory:
        """Host memory for copies, if gpu-leased-copies runs."""
        link = KeeperLink(self.config.runtime_dir / KEEPER_SOCKET, self.loop)
        copies = NodeMemory(
            link,
            self.loop,
            lambda: host_memory.budget(self.in_force),
            huge=lambda: self.in_force.swap_huge_pages,
        )
        self.leases.keep_copies(copies, lambda: self.in_force.swap_full)
        link.connect()
        return copies

    def _connect_parts(self) -> None:
        """Connect the leases with what acts on the node."""
        monitors = self.monitors
        overruns = Overruns(self.slurm, lambda: self.in_force, monitors.suspended.stands_still)
        self.leases.loop.on_deadline = self.timer.arm
        self.leases.loop.on_parked = self.checkpoint.save_parked
        self.leases.grants.on_overrun = overruns.handle
        self.leases.clients.on_suspend = monitors.suspensions.begin
        self.leases.stuck.later = self.loop.call_later
        self.timer.arm()  # for events that came before

    def _indices(self) -> dict[str, int]:
        """By UUID, the GPUs' indices as Slurm counts them."""
        return {gpu.uuid: gpu.index for gpu in self.leases.gpus.slurms()}

    def _node_name(self) -> str:
        """This node's name in Slurm, or the host's where that is not known."""
        try:
            return slurmconf.name_of_this_node(self.in_force.slurm_conf)
        except OSError:
            return socket.gethostname()

    # -- life -------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM. Leases stay where they are: the clients come back."""
        await self.mps.begin()
        if self.across is not None:
            await self.across.begin()
        self.mover.recover()
        self.reloading.admin_socket = self.listeners.open(self.config)
        self.leases.run(Listens(GRACE_NS))
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGHUP, self.reload)
        self.tasks.every(self.checkpoint.pause, self.checkpoint.beat)
        self.tasks.every(self.checkpoint.pause, self.checkpoint.write)
        self.tasks.start(self.writer.write_usage)
        self.monitors.start(self.tasks)
        self.tasks.every(mps.LOOK_S, self.mps.beat)
        self.tasks.every(self.idle_moves.pause, self.idle_moves.beat)
        gpus = self.leases.gpus.slurms()
        words = f"{count(len(gpus), 'GPU')}, {count(len(self.leases.tenants), 'job')}"
        notify(f"READY=1\nSTATUS={words}")
        named = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
        log.info("gpu-leased %s: %s", __version__, named)
        warn_of_defaults(self.config)
        await self.stopping.wait()
        notify("STOPPING=1")
        await self._stop()

    async def _stop(self) -> None:
        await self.mover.end()
        await self.carriers.end()
        await self.tasks.end()
        await self.mps.end()
        if self.across is not None:
            await self.across.end()
        self.checkpoint.save_all()
        self.recorder.close()
        self.nvml.close()
        self.copies.close()
        self.timer.cancel()
        self.listeners.close()
        self.store.close()

    def reload(self) -> str | None:
        """Read the configuration again. What is wrong with it, or None.

        Whatever happens: the service manager hears that it is over.
        """
        notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            return self.reloading.run()
        finally:
            notify("READY=1")

    @property
    def in_force(self) -> config.Config:
        return self.admin.config

    def limits(self) -> UserLimits:
        return self.admin.settings.limits()

    def job_ended(self, job_id: int) -> None:
        """Close the tenant; its usage goes to the store, then to Slurm."""
        self.store.close_tenant(job_id, *self.leases.tenants.close(job_id))
        self.writer.usage_added()


async def serve(path: Path, settings: config.Config) -> None:
    check_files(path, settings)
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.runtime_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    with only_one("gpu-leased", settings.state_dir, settings.runtime_dir):
        nvml = Nvml()
        try:
            found = await discovery.find(nvml, settings)
            await Daemon(path, settings, nvml, found).run()
        finally:
            nvml.close()


def set_up_logging(debug: bool) -> None:
    """The journal when systemd started us, standard error otherwise."""
    handler: logging.Handler
    if os.environ.get("JOURNAL_STREAM"):
        from systemd.journal import JournalHandler

        handler = JournalHandler(SYSLOG_IDENTIFIER="gpu-leased")
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if debug else logging.INFO)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-leased", description="The GPU lease daemon of a node."
    )
    config.add_option(parser)
    parser.add_argument("--debug", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def main() -> int:
    arguments = make_parser().parse_args()
    set_up_logging(arguments.debug)
    try:
        trusted_files.check(arguments.config, "the configuration")
        asyncio.run(serve(arguments.config, config.load(arguments.config)))
    except Refused as fault:
        print(f"gpu-leased: {fault.sentence()}", file=sys.stderr)
        return 1
    except (OSError, KeyError) as fault:
        print(f"gpu-leased: cannot start: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
