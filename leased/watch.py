"""Carries what NVML and /proc say of processes to the strays, and what is to be done to Slurm."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pwd
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from leased import procfs
from leased.config import Config
from leased.devices import Gpu
from leased.identity import Step, process_id
from leased.leases import Leases
from leased.procfs import PROC
from leased.slurm import Slurm
from leased.stepds import Known, Stepds
from leased.strays import EXTERN, End, Found, Policy, Process, Strays

log = logging.getLogger("gpu-leased")

ASK_S = 5.0
COMMANDS = 8  # of Slurm's that may run at once; what does not get its turn comes again
NVIDIA = "/dev/nvidia"


def uids(names: tuple[str, ...]) -> frozenset[int]:
    """The users by name or number; a name that this node does not know stands for nobody."""
    found = set()
    for name in names:
        try:
            found.add(int(name) if name.isdigit() else pwd.getpwnam(name).pw_uid)
        except KeyError:
            log.debug("strays.allow: this node has no user %s", name)
    return frozenset(found)


def describe(
    pid: int, known: Known, interposer: str, real_gpu: bool, proc: Path = PROC
) -> Process | None:
    """The process that has this number now. interposer: its file name."""
    process = process_id(pid, proc)
    # A pid of NVML's that is of another pid namespace than ours names somebody else here,
    # who has no file of NVIDIA's driver open.
    if process is None or (real_gpu and not procfs.has_open(pid, NVIDIA, proc)):
        return None
    uid, command = procfs.real_uid(pid, proc), procfs.command(pid, proc)
    # Where that cannot be told nobody is accused.
    interposed = procfs.maps_file(pid, interposer, proc) is not False
    step = known.step_of(pid, proc)
    if uid is None or command is None or process_id(pid, proc) != process:
        return None  # it ends
    return Process(pid, process.start, uid, command, step, interposed)


class Watch:
    """Looks for strays at every poll of a device, and does with them what the site wants."""

    def __init__(self, leases: Leases, stepds: Stepds, slurm: Slurm, settings: Config):
        self.leases = leases
        self.stepds = stepds
        self.slurm = Slurm(slurm.env, COMMANDS)
        self.strays = Strays()
        self.real_gpu = Path("/dev/nvidiactl").exists()
        self.thread: threading.Thread | None = None
        self.configure(settings)

    def configure(self, settings: Config) -> None:
        """Take the site's settings, also later ones."""
        self.interposer = Path(settings.preload).name
        chosen = settings.strays
        self.strays.policy = Policy(chosen.action, chosen.grace_ns, uids(chosen.allow))

    async def look(self, gpu: Gpu, processes: Mapping[int, int]) -> None:
        """One poll of a device: bytes by pid, as NVML says."""
        if not self.leases.tenants_of(gpu.uuid):
            self.strays.leave(gpu.uuid)  # nobody shares it: whoever is there may be
            return
        if not processes and not self.strays.sees(gpu.uuid):
            return
        now = time.monotonic_ns()
        clients = self._clients(gpu)
        suspects = [pid for pid in processes if not clients.get(pid)]
        ripe = [pid for pid in suspects if self.strays.is_ripe(now, gpu.uuid, pid)]
        known = await self._describe(ripe) if ripe else {}
        if known is None:
            return
        clients = self._clients(gpu)  # some may have said HELLO meanwhile
        for action in self.strays.look(now, gpu.uuid, processes, clients, known.get):
            if isinstance(action, End):
                self._end(action)
                continue
            self._count(action)
            if action.named:
                self._name(gpu, action)

    def _clients(self, gpu: Gpu) -> dict[int, bool]:
        """Pids of connected processes; True where their job leases the device."""
        clients: dict[int, bool] = {}
        for tenant in self.leases.tenants.values():
            leases_it = gpu.uuid in tenant.gang
            for client in tenant.clients:
                clients[client.pid] = leases_it or clients.get(client.pid, False)
        return clients

    async def _describe(self, pids: list[int]) -> dict[int, Process | None] | None:
        """Who these are; None: the kernel does not say in time.

        To read a process' maps may wait for the process itself: so in a thread,
        and in no more than one.
        """
        if self.thread is not None and self.thread.is_alive():
            return None
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[dict[int, Process | None]] = loop.create_future()
        known, interposer, real_gpu = self.stepds.known(), self.interposer, self.real_gpu

        def tell(found: dict[int, Process | None]) -> None:
            if not answer.done():
                answer.set_result(found)

        def ask() -> None:
            found = {pid: describe(pid, known, interposer, real_gpu) for pid in pids}
            with contextlib.suppress(RuntimeError):  # the daemon has ended
                loop.call_soon_threadsafe(tell, found)

        self.thread = threading.Thread(target=ask, name="watch", daemon=True)
        self.thread.start()
        try:
            return await asyncio.wait_for(answer, ASK_S)
        except TimeoutError:
            log.error("/proc does not say who %s are; no look for strays until it does", pids)
            return None

    def _count(self, found: Found) -> None:
        """It is in the usage of its job, where that leases the device."""
        step = found.process.step
        tenant = self.leases.arbiter.tenants.get(step.job) if step else None
        if tenant is not None and found.device in tenant.usage:
            tenant.usage[found.device].strays += 1

    def _name(self, gpu: Gpu, found: Found) -> None:
        process, step = found.process, found.process.step
        assert step is not None
        log.warning(
            "job %d, step %s (uid %d): process %d (%s) uses GPU %d without a lease, %d MiB%s",
            *(step.job, step.name or "unknown", process.uid, process.pid, process.command),
            *(gpu.index, found.bytes >> 20),
            "; further ones of this job are only counted" if found.last else "",
        )
        if found.first:
            self.slurm.start(
                f"notify job {step.job}",
                *("scontrol", "notify", str(step.job)),
                f"gpu-lease: process {process.pid} ({process.command}) uses GPU {gpu.index} "
                f"without a lease: {_guess(step)}",
            )

    def _end(self, end: End) -> None:
        step = end.step
        log.warning(
            "job %d, step %s (uid %d) is ended: its process %d (%s) uses a GPU without a lease",
            *(step.job, step.name, end.process.uid, end.process.pid, end.process.command),
        )
        self.slurm.start(f"end {target(step)}", "scancel", target(step))


def _guess(step: Step) -> str:
    """Why a process of the step may be a stray, as its user can find out."""
    if step.name == EXTERN:
        return "in an ssh session run 'eval \"$(gpu-leasectl env)\"' before it"
    return "is LD_PRELOAD unset, or the program static or in a container?"


def target(step: Step) -> str:
    """What scancel is to end: the step; the job for those steps whose end is the job's as well
    (batch, interactive), which Slurm cannot end by name."""
    return f"{step.job}.{step.name}" if step.name and step.name.isdigit() else str(step.job)
