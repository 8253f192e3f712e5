"""Finds processes without a lease by NVML and /proc, names them, and has Slurm end their steps."""

from __future__ import annotations

import logging
import pwd
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from leased.api import answers
from leased.config.config import Config
from leased.core.events import StraySeen
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.processes.identity import Step, process_id
from leased.processes.process_inspector import ProcessInspector
from leased.processes.stepds import Stepds
from leased.processes.stray import End, Found, Policy
from leased.processes.unleased_processes import EXTERN, UnleasedProcesses
from leased.slurm.commands import Slurm

log = logging.getLogger("gpu-leased")

COMMANDS = 8  # of Slurm that may run at once; steps for which none may start are ended later


def uids(names: tuple[str, ...]) -> frozenset[int]:
    """The uids of users, by name or number. Names that this node does not know are left out."""
    found = set()
    for name in names:
        try:
            found.add(int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            log.debug("strays.allow: this node has no user %s", name)
    return frozenset(found)


class ProcessMonitor:
    """Looks for processes without a lease at every poll of a device, and acts as the site wants.

    spared: whether a process, by its pid, is one of the daemon's own.
    """

    def __init__(
        self,
        leases: Leases,
        stepds: Stepds,
        slurm: Slurm,
        settings: Config,
        *,
        spared: Callable[[int], bool] = lambda _: False,
    ):
        self.leases = leases
        self.spared = spared
        self.stepds = stepds
        self.slurm = Slurm(slurm.env, COMMANDS)
        self.strays = UnleasedProcesses()
        self.witness = ProcessInspector(Path("/dev/nvidiactl").exists())
        self.configure(settings)

    def configure(self, settings: Config) -> None:
        """Take the site's settings, also later ones."""
        self.witness.interposer = Path(settings.preload).name
        chosen = settings.strays
        self.strays.policy = Policy(chosen.action, chosen.grace_ns, uids(chosen.allow))

    def status(self) -> answers.UnleasedProcesses:
        """The processes without a lease, for the answer to status."""
        return self.strays.status()

    def unconnected(self, gpu: Gpu, processes: Iterable[int]) -> set[int]:
        """Those that are of a job and have no connection: since the last daemon ended they were
        stopped, say. What they have on the device is not there for good."""
        left = set(processes)
        if left:
            tenants = self.leases.tenants.sharing(gpu.uuid)
            left -= {client.pid for tenant in tenants for client in tenant.clients}
        if not left:
            return left
        known = self.stepds.known()
        return {pid for pid in left if known.step_of(pid)}

    async def look(self, gpu: Gpu, processes: Mapping[int, int]) -> None:
        """A device has been polled. processes: bytes by pid, as NVML shows them."""
        if not self.leases.tenants.sharing(gpu.uuid):
            self.strays.forget(gpu.uuid)  # no job shares it: every process may use it
            return
        self._forget_ended(gpu, processes)
        if not processes and not self.strays.has_suspects(gpu.uuid):
            return
        now = time.monotonic_ns()
        clients = self._clients(gpu)
        processes = {p: n for p, n in processes.items() if clients.get(p) or not self.spared(p)}
        suspects = [pid for pid in processes if not clients.get(pid)]
        asked = [pid for pid in suspects if self.strays.will_ask(now, gpu.uuid, pid)]
        known = await self.witness.describe(asked, self.stepds.known()) if asked else {}
        clients = self._clients(gpu)  # some may have said HELLO meanwhile
        for action in self.strays.look(now, gpu.uuid, processes, clients, known.get):
            if isinstance(action, End):
                self._end(action)
                continue
            self._count(action)
            if action.named:
                self._name(gpu, action)

    def _clients(self, gpu: Gpu) -> dict[int, bool]:
        """By pid of the connected processes, whether their job leases the device; False for those
        whose connection has ended with a lease."""
        clients: dict[int, bool] = {}
        for tenant in self.leases.tenants.values():
            leases_it = gpu.uuid in tenant.gang
            for client in tenant.clients:
                clients[client.pid] = leases_it or clients.get(client.pid, False)
            for uuid, process in tenant.cut_off:
                if uuid == gpu.uuid and process_id(process.pid) == process:
                    clients.setdefault(process.pid, False)
        return clients

    def _forget_ended(self, gpu: Gpu, processes: Mapping[int, int]) -> None:
        """Processes that are on the device no more have not only lost their connections."""
        for tenant in self.leases.tenants.sharing(gpu.uuid):
            if tenant.cut_off:
                tenant.cut_off = {
                    (uuid, process)
                    for uuid, process in tenant.cut_off
                    if uuid != gpu.uuid or process.pid in processes
                }

    def _count(self, found: Found) -> None:
        """Add the stray to the usage of its job, if a job answers for it."""
        step = found.process.step
        if step and found.blamed:
            self.leases.run(StraySeen(step.job, found.device))

    def _name(self, gpu: Gpu, found: Found) -> None:
        process, step = found.process, found.process.step
        log.warning(
            "%s (uid %d): process %d (%s) %s GPU %d without a lease, %d MiB%s",
            f"job {self._named(step)}" if step else "of no job",
            *(process.uid, process.pid, process.command),
            *("has used" if found.brief else "uses", gpu.index, found.bytes >> 20),
            "; further ones of this job or user are only counted" if found.last else "",
        )
        if found.first and found.blamed and step:
            self.slurm.start(
                f"notify job {self.leases.tenants.name(step.job)}",
                *("scontrol", "notify", self.leases.tenants.name(step.job)),
                f"gpu-lease: process {process.pid} ({process.command}) uses GPU {gpu.index} "
                f"without a lease: {_guess(step)}",
            )

    def _end(self, end: End) -> None:
        step = end.step
        log.warning(
            "job %s (uid %d) is ended: its process %d (%s) uses a GPU without a lease",
            *(self._named(step), end.process.uid, end.process.pid, end.process.command),
        )
        ended = target(step, self.leases.tenants.name(step.job))
        self.slurm.start(f"end {ended}", "scancel", ended)

    def _named(self, step: Step) -> str:
        """As sacct shows it."""
        return f"{self.leases.tenants.name(step.job)}.{step.name or 'unknown'}"


def _guess(step: Step) -> str:
    """A question to the user: why a process of the step may be a stray."""
    if step.name == EXTERN:
        return "in an ssh session run 'eval \"$(gpu-leasectl env)\"' before it"
    return (
        "is LD_PRELOAD unset, or the program static or in a container, "
        "or has it closed its connection with gpu-leased?"
    )


def target(step: Step, job: str) -> str:
    """What scancel ends: the step, or the whole job for its batch or interactive step.

    Slurm cannot end those by name, and the job ends with them. job: as squeue shows it, since the
    number of an array's last task means all of them.
    """
    return f"{job}.{step.name}" if step.name and step.name.isdigit() else job
