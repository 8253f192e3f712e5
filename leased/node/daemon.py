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
from leased.admin.questions import Questions
from leased.admin.reload import AdminSocket, Reload, group_id, slurm_env, tried, warn_of_defaults
from leased.base.errors import Refused
from leased.config import config, trusted_files
from leased.connections.listener import Listener
from leased.copies.keeper_link import SOCKET as KEEPER_SOCKET
from leased.copies.keeper_link import KeeperLink
from leased.copies.node_memory import NodeMemory
from leased.gpus import discovery
from leased.gpus.discovery import Found
from leased.gpus.health import Health
from leased.gpus.nvml import Nvml
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.copies_ahead import LOOK_S as AHEAD_S
from leased.monitors.copies_ahead import CopiesAhead
from leased.monitors.device_monitor import DeviceMonitor
from leased.monitors.ended_jobs import EndedJobs
from leased.monitors.idle_jobs import LOOK_S as IDLE_S
from leased.monitors.idle_jobs import IdleJobs
from leased.monitors.process_monitor import ProcessMonitor
from leased.monitors.suspended_jobs import LOOK_S, SuspendedJobs
from leased.monitors.suspensions import ASK_S, Suspensions
from leased.monitors.trial_runner import TrialRunner
from leased.node.admin_connection import AdminConnection
from leased.node.boot import booted_since
from leased.node.checkpoint import Checkpoint
from leased.node.client_connection import ClientConnection
from leased.node.deadline_timer import DeadlineTimer
from leased.node.kept_clients import KeptClients
from leased.node.listening_socket import listen
from leased.node.service_manager import inherited_sockets, notify
from leased.node.tasks import Tasks
from leased.record import place as record_place
from leased.record.recorder import Recorder
from leased.slurm.commands import Slurm
from leased.slurm.suspend_grace import suspend_grace_ns
from leased.slurm.usage_writer import UsageWriter
from leased.store.records import TenantRecord
from leased.store.registrations import Registrations
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

GRACE_NS = 1_000_000_000  # after a restart: holders come back before anybody is granted
TRIAL_S = 0.25
CLUSTER_S = 60.0
EPOCH_MARGIN = 1_000_000  # more grants than can happen between two checkpoints


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


class Daemon:
    """Everything of one running daemon."""

    def __init__(self, path: Path, settings: config.Config, nvml: Nvml, found: Found):
        self.path = path
        self.config = settings
        self.nvml = nvml
        self.loop = asyncio.get_running_loop()
        self.stopping = asyncio.Event()
        self.tasks = Tasks(self.loop)
        self.listeners: list[Listener] = []
        self.slurm = Slurm(slurm_env(settings))
        self.store = Store(
            settings.state_dir / "usage.db", Registrations(settings.runtime_dir / "jobs")
        )
        open_before = self.store.open_tenants()
        self._make_leases(found, restarted=bool(open_before))
        self._make_admin()
        self._find_copies()
        self._take_over(open_before)
        self._make_monitors(found)
        self.reloading = Reload(path, self.admin, self.processes, self.slurm, self.trials)

    # -- its parts --------------------------------------------------------------

    def _make_leases(self, found: Found, *, restarted: bool) -> None:
        settings = self.config
        # By the clock too: where the disk was full the store may know of too low ones.
        first_epoch = max(self.store.epoch() + EPOCH_MARGIN, int(time.time() * 1e6))
        # On the disk before the first grant: a daemon after this one believes only lower ones.
        self.store.save({}, first_epoch)
        self.recorder = Recorder(self.loop.call_soon)
        self.recorder.configure(settings.record, settings.record_most)
        self.leases = Leases(
            found.gpus,
            time.monotonic_ns,
            first_epoch=first_epoch,
            grace_ns=GRACE_NS if restarted else 0,
            in_flight_ns=settings.in_flight_ns,
            drain_ns=settings.drain_ns,
            recorder=self.recorder,
        )
        self.leases.names_jobs = settings.holder_shown != "nothing"
        self.leases.tenants.cleans = settings.swap_clean
        self.timer = DeadlineTimer(self.loop, self.leases)
        self.leases.loop.on_deadline = self.timer.arm
        self.leases.stuck.later = self.loop.call_later
        self.leases.grants.on_overrun = self._overrun
        self.checkpoint = Checkpoint(self.leases, self.store)
        self.leases.loop.on_parked = self.checkpoint.save_parked
        self.kept_clients = KeptClients(self.leases)

    def _find_copies(self) -> None:
        """Host memory for what jobs swap, where its keeper runs."""
        link = KeeperLink(self.config.runtime_dir / KEEPER_SOCKET, self.loop)
        self.copies = NodeMemory(
            link,
            self.loop,
            lambda: host_memory.budget(self.admin.config),
            huge=lambda: self.admin.config.swap_huge_pages,
        )
        self.leases.keep_copies(self.copies, lambda: self.admin.config.swap_full)
        self.ahead = CopiesAhead(self.leases, lambda: host_memory.ahead_most(self.admin.config))
        self.admin.shows.ahead = self.ahead
        link.connect()

    def _make_admin(self) -> None:
        """Who answers requests and questions."""
        gid = group_id(self.config)
        self.admin = Admin(self.config, self.leases, self.store, self.reload, self.job_ended, gid)
        with contextlib.suppress(Refused):  # it has said so; jobs hear it when they register
            self.admin.renumber()
        self.questions = Questions(
            self.leases, self.store, self.admin.find, lambda: self.admin.config
        )

    def _take_over(self, records: list[TenantRecord]) -> None:
        """The tenants of the daemon before this one go on."""
        rebooted = booted_since(self.config.state_dir / "boot_id")
        if not rebooted:
            self.admin.takeover.restore_all(records)
            return
        for record in records:  # no job of before is left, whatever Slurm does with it
            self.admin.takeover.give_up(record)

    def _make_monitors(self, found: Found) -> None:
        """Who looks at processes, devices and jobs again and again."""
        self.processes = ProcessMonitor(self.leases, self.admin.stepds, self.slurm, self.config)
        self.health = Health(self.leases.gpus.faults)
        self.devices = DeviceMonitor(self.nvml, self.leases, self.processes, self.health)
        self._say_what_is_wrong(found)
        self.suspended = SuspendedJobs(self.leases, self.devices.percents)
        self.suspensions = Suspensions(
            *(self.leases, self.admin.stepds, self.slurm),
            lambda: suspend_grace_ns(self.slurm.env),
        )
        self.leases.clients.on_suspend = self.suspensions.begin
        self.idle_jobs = IdleJobs(
            self.leases, self.devices.percents, lambda: self.admin.config.park_after_ns
        )
        self.trials = TrialRunner(self.leases, tried(self.config, self.leases.gpus))
        self.ended_jobs = EndedJobs(
            *(self.leases, self.store, self.slurm, self.admin.lives_here, self.job_ended)
        )
        self.writer = UsageWriter(
            self.store,
            lambda: self.slurm.env,
            lambda: {gpu.uuid: gpu.index for gpu in self.leases.gpus.slurms()},
        )
        self.admin.shows.strays = self.processes.strays.status
        self.admin.shows.cluster = self.admin.cluster.status
        self.admin.shows.devices = self.devices

    # -- life -------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM. Leases stay where they are: the clients come back."""
        self._listen()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGHUP, self.reload)
        self._start_tasks()
        notify(
            f"READY=1\nSTATUS={len(self.leases.gpus.slurms())} GPUs, "
            f"{len(self.leases.tenants)} tenants"
        )
        log.info(
            "gpu-leased %s: %s",
            __version__,
            ", ".join(f"{g.index}: {g.name}" for g in self.leases.gpus.slurms()),
        )
        warn_of_defaults(self.config)
        await self.stopping.wait()
        notify("STOPPING=1")
        self._stop()

    def _start_tasks(self) -> None:
        """The work that goes on as long as the daemon does."""
        self.tasks.start(self.checkpoint.keep_saving)
        self.tasks.start(self.writer.write_usage)
        self.tasks.start(self.ended_jobs.find)
        self.tasks.start(self._learn_cluster)
        self.tasks.start(self.devices.run)
        self.tasks.every(TRIAL_S, self.trials.beat)
        self.tasks.every(LOOK_S, self.suspended.beat)
        self.tasks.every(LOOK_S, self.suspensions.beat)
        self.tasks.every(ASK_S, self.suspensions.ask)
        self.tasks.start(self.suspensions.watch)
        self.tasks.every(IDLE_S, self.idle_jobs.beat)
        self.tasks.every(AHEAD_S, self.ahead.beat)

    async def _learn_cluster(self) -> None:
        """Whose jobs are ours; also when the configuration names another Slurm."""
        while True:
            await self.admin.cluster.learn(self.slurm)
            await asyncio.sleep(CLUSTER_S)

    def _listen(self) -> None:
        self.config.runtime_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
        given = inherited_sockets()
        clients = given.pop("client", [])
        sockets = {name: found[0] for name, found in given.items()}
        tenant = sockets.get("tenant") or listen(self.config.tenant_socket, 0o666)
        path = self.config.admin_socket
        admin = sockets.get("admin") or listen(path, 0o600)
        self.reloading.admin_socket = AdminSocket(path, ours="admin" not in sockets)
        self.reloading.admin_socket.open_to(self.admin.admin_gid)
        self.listeners = [
            Listener(tenant, self.loop, self._client),
            Listener(admin, self.loop, lambda s: AdminConnection(s, self.loop, self.admin.handle)),
        ]
        self.kept_clients.take_back(self.listeners[0], clients)

    def _client(self, sock: socket.socket) -> ClientConnection:
        made = ClientConnection(
            sock, self.loop, self.leases, self.admin.find, self.questions.handle
        )
        made.on_heard = self.kept_clients.heard
        return made

    def _say_what_is_wrong(self, found: Found) -> None:
        """What was found at the start; DeviceMonitor says the rest."""
        if found.silent is not None:
            self.health.silent(found.silent)
        for gpu in self.leases.gpus.slurms():
            if gpu.uuid in found.faults:
                self.health.seen(gpu, found.faults[gpu.uuid], sure=True)

    def _stop(self) -> None:
        self.checkpoint.save_all()
        self.recorder.close()
        self.nvml.close()
        self.copies.close()
        self.timer.cancel()
        self.tasks.cancel()
        for listener in self.listeners:
            listener.close()
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

    def _overrun(self, tenant: Tenant, again: bool) -> None:
        """What this site does about a job that does not give back its GPU."""
        if self.suspended.stands_still(tenant):
            log.info(
                "job %d has overrun while it is stopped or suspended: it is not ended for that",
                tenant.job_id,
            )
            return
        rules = self.admin.config
        if not again and rules.overrun in ("signal", "cancel"):
            self.slurm.signal(tenant.job_id, rules.overrun_signal)
        elif again and rules.overrun == "cancel":
            self.slurm.cancel(tenant.job_id)

    # -- the end of jobs ----------------------------------------------------------

    def job_ended(self, job_id: int) -> None:
        """Close the tenant; its usage goes to the store, then to Slurm."""
        usage = self.leases.tenants.close(job_id)
        self.store.close_tenant(job_id, usage)
        self.writer.more.set()


async def serve(path: Path, settings: config.Config) -> None:
    for place, what in trusted_files.named(path, settings):
        trusted_files.check(place, what)
    if settings.record is not None:
        record_place.check(settings.record, "daemon.record")
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    nvml = Nvml()
    try:
        found = await discovery.find(nvml, settings)
        await Daemon(path, settings, nvml, found).run()
    finally:
        nvml.close()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu-leased", description="The GPU lease daemon of a node."
    )
    parser.add_argument("--config", type=Path, default=config.DEFAULT_PATH)
    parser.add_argument("--debug", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=__version__)
    arguments = parser.parse_args()
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
