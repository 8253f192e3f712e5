"""gpu-leased: the daemon of a node. asyncio around the leases: sockets, systemd, the store."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from systemd import daemon as sd

from leased import __version__
from leased.admin.admin import Admin
from leased.admin.questions import Questions
from leased.admin.reload import AdminSocket, Reload, group_id, slurm_env, tried, warn_of_defaults
from leased.base.errors import Refused
from leased.config import config, trusted_files
from leased.connections.listener import Listener
from leased.core.arbiter import Rejoined, Tick
from leased.gpus import discovery
from leased.gpus.discovery import Found
from leased.gpus.health import Health
from leased.gpus.nvml import Nvml
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.device_monitor import DeviceMonitor
from leased.monitors.ended_jobs import EndedJobs
from leased.monitors.process_monitor import ProcessMonitor
from leased.monitors.suspended_jobs import LOOK_S, Suspended
from leased.monitors.trial_runner import TrialRunner
from leased.node.sockets import AdminConnection, ClientConnection, listen
from leased.processes import procfs
from leased.record import place as record_place
from leased.record.recorder import Recorder
from leased.slurm.commands import Slurm
from leased.slurm.usage_writer import UsageWriter
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

GRACE_NS = 1_000_000_000  # after a restart: holders come back before anybody is granted
CHECKPOINT_S = 1.0
SAVE_AT_ONCE = 16  # tenants
AGAIN_S = 1.0
TUNE_S = 0.25
CLUSTER_S = 60.0
EPOCH_MARGIN = 1_000_000  # more grants than can happen between two checkpoints


def notify(state: str, fds: Sequence[int] = ()) -> None:
    """Tell the service manager, if there is one; one that has gone is no fault of ours."""
    try:
        sd.notify(state, fds=list(fds))
    except OSError as fault:
        log.warning("cannot notify the service manager: %s", fault)


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


def inherited_sockets() -> dict[str, list[socket.socket]]:
    """What systemd hands over, by name: the sockets of the .socket units, connections it kept."""
    given: dict[str, list[socket.socket]] = {}
    for fd, name in sd.listen_fds_with_names(unset_environment=True).items():
        try:
            given.setdefault(name, []).append(socket.socket(fileno=fd))
        except OSError as fault:  # of others, who do not miss it
            log.error("what the service manager kept as %s is no socket: %s", name, fault)
            os.close(fd)
    return given


def booted_since(path: Path) -> bool:
    """Whether the machine has been booted since the file was last written; writes it.

    No: where the kernel does not say.
    """
    now = procfs.boot_id()
    before = procfs.whole(path, procfs.LINE_MOST)
    if now is None or (before is not None and before.strip() == now.encode()):
        return False
    with contextlib.suppress(OSError):  # a full disk: it is asked again at the next start
        path.write_text(now + "\n")
    return bool(before)  # an empty one could not be written for lack of room


class Daemon:
    """Everything of one running daemon."""

    def __init__(self, path: Path, settings: config.Config, nvml: Nvml, found: Found):
        self.path = path
        self.config = settings
        self.loop = asyncio.get_running_loop()
        self.nvml = nvml
        self.store = Store(settings.state_dir / "usage.db")
        open_before = self.store.open_tenants()
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
            grace_ns=GRACE_NS if open_before else 0,
            in_flight_ns=settings.in_flight_ns,
            drain_ns=settings.drain_ns,
            recorder=self.recorder,
        )
        self.leases.names_jobs = settings.holder_shown != "nothing"
        self.leases.loop.on_deadline = self._arm
        self.leases.stuck.later = self.loop.call_later
        self.leases.grants.on_overrun = self._overrun
        self.slurm = Slurm(slurm_env(settings))
        self.timer: asyncio.TimerHandle | None = None
        gid = group_id(settings)
        self.admin = Admin(settings, self.leases, self.store, self.reload, self.job_ended, gid)
        with contextlib.suppress(Refused):  # it has said so; jobs hear it when they register
            self.admin.renumber()
        rebooted = booted_since(settings.state_dir / "boot_id")
        for record in open_before:
            if rebooted:  # no job of before is left, whatever Slurm does with it
                self.admin.takeover.give_up(record)
            else:
                self.admin.takeover.restore(record)
        self.questions = Questions(
            self.leases, self.store, self.admin.find, lambda: self.admin.config
        )
        self.watch = ProcessMonitor(self.leases, self.admin.stepds, self.slurm, settings)
        self.admin.shows.strays = self.watch.strays.status
        self.admin.shows.cluster = self.admin.cluster.status
        self.health = Health(self.leases.gpus.faults)
        self.devices = DeviceMonitor(nvml, self.leases, self.watch, self.health)
        self.suspended = Suspended(self.leases, self.devices.percents)
        self.admin.shows.devices = self.devices
        self._say_what_is_wrong(found)
        self.tuning = TrialRunner(self.leases, tried(settings, self.leases.gpus))
        self.reloading = Reload(path, self.admin, self.watch, self.slurm, self.tuning)
        self.listeners: list[Listener] = []
        self.keeps = int(os.environ.get("FDSTORE", "0"))  # connections that systemd would keep
        self.unheard: set[ClientConnection] = set()
        self.may_end_grace = False
        self.tasks: set[asyncio.Task[None]] = set()
        self.writer = UsageWriter(self.store, lambda: self.slurm.env)
        self.ghosts = EndedJobs(
            *(self.leases, self.store, self.slurm, self.admin.lives_here, self.job_ended)
        )
        self.stopping = asyncio.Event()

    # -- life -------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until SIGTERM. Leases stay where they are: the clients come back."""
        self._listen()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGHUP, self.reload)
        self._start(self._checkpoint)
        self._start(self.writer.write_usage)
        self._start(self.ghosts.find_ghosts)
        self._start(self._learn_cluster)
        self._start(self.devices.run)
        self._start(self._tune)
        self._start(self._find_suspended)
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

    def _listen(self) -> None:
        run = self.config.runtime_dir
        run.mkdir(mode=0o755, parents=True, exist_ok=True)
        given = inherited_sockets()
        clients = given.pop("client", [])
        sockets = {name: found[0] for name, found in given.items()}
        tenant = sockets.get("tenant") or listen(run / "tenant.sock", 0o666)
        path = run / "admin.sock"
        admin = sockets.get("admin") or listen(path, 0o600)
        self.reloading.admin_socket = AdminSocket(path, ours="admin" not in sockets)
        self.reloading.admin_socket.open_to(self.admin.admin_gid)
        self.listeners = [
            Listener(tenant, self.loop, self._client),
            Listener(admin, self.loop, lambda s: AdminConnection(s, self.loop, self.admin.handle)),
        ]
        self._take_back(clients)

    def _client(self, sock: socket.socket) -> ClientConnection:
        made = ClientConnection(
            sock, self.loop, self.leases, self.admin.find, self.questions.handle
        )
        made.on_heard = self._heard
        return made

    # -- connections that outlive the daemon ---------------------------------------

    def _take_back(self, clients: list[socket.socket]) -> None:
        """Connections that systemd kept while there was no daemon: ask each for its state."""
        for sock in clients:
            connection = self.listeners[0].take(sock)
            if isinstance(connection, ClientConnection):
                self.unheard.add(connection)
                connection.isolated(connection.resync)
        if clients:
            log.info("%d connections of the daemon before are kept", len(clients))
        # With a full store some are missing here: they have the whole grace to come back.
        self.may_end_grace = 0 < len(clients) < self.keeps

    def _heard(self, connection: ClientConnection) -> None:
        """A client has said HELLO, or is gone."""
        if connection.open and self.keeps and not connection.restored:
            # systemd forgets it by itself when either end closes.
            notify("FDSTORE=1\nFDNAME=client", fds=[connection.sock.fileno()])
        if connection in self.unheard:
            self.unheard.discard(connection)
            if not self.unheard and self.may_end_grace:
                self.leases.run(Rejoined())

    def _start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it for ever. A fault in one piece of work is loud and stops no other."""

        async def forever() -> None:
            while True:
                try:
                    await work()
                except Exception:
                    log.exception("a fault in %s; it begins again", work.__name__)
                    await asyncio.sleep(AGAIN_S)

        self.tasks.add(self.loop.create_task(forever()))

    def _say_what_is_wrong(self, found: Found) -> None:
        """What was found at the start; DeviceMonitor says the rest."""
        if found.silent is not None:
            self.health.silent(found.silent)
        for gpu in self.leases.gpus.slurms():
            if gpu.uuid in found.faults:
                self.health.seen(gpu, found.faults[gpu.uuid], sure=True)

    def _stop(self) -> None:
        self._save()
        self.recorder.close()
        self.nvml.close()
        if self.timer:
            self.timer.cancel()
        for task in self.tasks:
            task.cancel()
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

    # -- time -------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer, for the arbiter's next deadline; none when there is none."""
        if self.timer:
            self.timer.cancel()
            self.timer = None
        due = self.leases.view.next_deadline()
        if due is not None:
            delay = max(0.0, (due - time.monotonic_ns()) / 1e9)
            self.timer = self.loop.call_later(delay, self.leases.run, Tick())

    async def _checkpoint(self) -> None:
        """Usage to disk, and a sign of life to systemd's watchdog."""
        watchdog = int(os.environ.get("WATCHDOG_USEC", "0"))
        turn = 0
        while True:
            # A few at a time: nobody waits for his lease because many are written.
            turns = max(1, math.ceil(len(self.leases.tenants) / SAVE_AT_ONCE))
            await asyncio.sleep(CHECKPOINT_S / turns)
            turn = (turn + 1) % turns
            some = list(self.leases.tenants)[turn::turns]
            # A full disk stops no lease; what it lacks is tried again here.
            if some or self.store.fault:
                self.store.save(self.leases.tenants.usage(some), self.leases.view.epoch)
            if watchdog:
                notify("WATCHDOG=1")

    async def _tune(self) -> None:
        """Side by side or by turns: see which is better where memory fits."""
        while True:
            await asyncio.sleep(TUNE_S)
            self.tuning.beat()

    async def _find_suspended(self) -> None:
        """See which jobs cannot act, so that nobody waits for them."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.suspended.beat()

    def _save(self) -> None:
        self.store.save(self.leases.tenants.usage(), self.leases.view.epoch)

    def _overrun(self, tenant: Tenant, again: bool) -> None:
        """What this site does about a job that does not give back its GPU."""
        if self.suspended.cannot_act(tenant):
            log.info("job %d is stopped or suspended: it is left alone", tenant.job_id)
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

    async def _learn_cluster(self) -> None:
        """Whose jobs are ours; also when the configuration names another Slurm."""
        while True:
            await self.admin.cluster.learn(self.slurm)
            await asyncio.sleep(CLUSTER_S)


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
