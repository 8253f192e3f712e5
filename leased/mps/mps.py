"""Which GPUs of the node are shared by MPS, who may have them, and what their jobs need.

A GPU's mode is [device] space of the configuration, and changes when no job is on it. What a job
was given stays with it (Resolved.space), so the next daemon knows the mode of a GPU with jobs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from leased.api import answers
from leased.base.errors import Later, Refused
from leased.config import options
from leased.config.config import Config, DeviceConfig
from leased.config.options import MPS, TIME, Options, Resolved
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.mps.control import Control
from leased.mps.server import ENDED, NOT_YET, Server
from leased.mps.together import Coming, Together
from leased.placement.api import ANY
from leased.processes import procfs

log = logging.getLogger("gpu-leased")

LOOK_S = 1.0
BEGIN_S = 5.0  # how long the daemon's start waits for control programs
FOLDER = "mps"
OURS = "GPU_LEASE_MPS"  # so that the plugin knows what to remove from a job's environment
LOST_SHOWN = 8
AWAITED_S = 30.0  # a job that was told to ask again has done so by then
DRAINED, CHANGES = "the GPU is drained", "it is being ended"
# Why it does not run, where that takes a moment and is nobody's fault.
SOON = (DRAINED, CHANGES, NOT_YET, ENDED)


@dataclass
class Mps:
    """servers: by UUID, of the GPUs in this mode. there: by UUID, the jobs that have had processes
    there since the last look, with their users. before: the same, between the look before and that
    one. lost: by UUID, jobs whose work the last fault has ended. under_way: by UUID, looks that
    have not ended: a control program may hang."""

    leases: Leases
    config: Callable[[], Config]
    servers: dict[str, Server] = field(default_factory=dict)
    together: Together = field(default_factory=Together)
    there: dict[str, dict[str, int]] = field(default_factory=dict)
    before: dict[str, dict[str, int]] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.leases.clients.on_attached = self._note_job

    # -- the servers -----------------------------------------------------------------

    async def begin(self) -> None:
        """Before jobs are taken: end what an earlier daemon has left of another configuration, and
        start what is missing."""
        for gpu in self.leases.gpus.slurms():
            left = self._control(gpu)
            if left.pid() is not None and not self._is_wanted(gpu, left):
                self.under_way[gpu.uuid] = asyncio.create_task(left.quit())
        await self.beat(BEGIN_S)

    async def beat(self, patience_s: float = LOOK_S) -> None:
        """Look at the GPUs in this mode. Call it every LOOK_S. A look that takes longer than
        patience_s goes on, and holds up no other GPU."""
        for gpu in self.leases.gpus.slurms():
            looked = gpu.uuid in self.servers or self.has_mode(gpu)
            if looked and gpu.uuid not in self.under_way:
                self.under_way[gpu.uuid] = asyncio.create_task(self._look(gpu))
        if not self.under_way:
            return
        done, late = await asyncio.wait(self.under_way.values(), timeout=patience_s)
        self.under_way = {uuid: task for uuid, task in self.under_way.items() if task in late}
        await asyncio.gather(*done)

    async def end(self) -> None:
        """Break off the looks that have not ended, with what they have started."""
        for task in self.under_way.values():
            task.cancel()
        await asyncio.gather(*self.under_way.values(), return_exceptions=True)

    def _wanted(self, gpu: Gpu) -> DeviceConfig:
        return self.config().for_device(gpu.index, gpu.uuid)

    def has_mode(self, gpu: Gpu) -> bool:
        """Whether the GPU is to be in this mode: for the jobs that are there, or else by the
        configuration."""
        there = self.leases.tenants.sharing(gpu.uuid)
        return any(t.given.space == MPS for t in there) if there else self._wanted(gpu).space == MPS

    def _is_wanted(self, gpu: Gpu, left: Control) -> bool:
        """Whether a control program of an earlier daemon's is as it has to be now."""
        if self.leases.tenants.sharing(gpu.uuid) or not self.has_mode(gpu):
            return self.has_mode(gpu)
        return left.takes_any_user() == (self._wanted(gpu).mps_together == ANY)

    async def _look(self, gpu: Gpu) -> None:
        allowed = self._wanted(gpu).mps_together
        server = self.servers.get(gpu.uuid)
        if server is not None and not self.leases.tenants.sharing(gpu.uuid):
            if not self.has_mode(gpu) or server.allowed != allowed:
                await server.end(CHANGES)
                del self.servers[gpu.uuid]
            elif self._rests(gpu, server):
                await server.end(DRAINED)  # so that the driver can be unloaded
                return
        if gpu.uuid not in self.servers and self.has_mode(gpu):
            self.servers[gpu.uuid] = Server(self._control(gpu), gpu.index, allowed)
        server = self.servers.get(gpu.uuid)
        if server is None:
            return
        faults = await server.look(self.clock())
        there = self._clients(gpu) | self.there.pop(gpu.uuid, {})
        if faults:
            self._note_fault(gpu, there | self.before.get(gpu.uuid, {}))
        self.before[gpu.uuid] = there

    def _rests(self, gpu: Gpu, server: Server) -> bool:
        """The GPU is drained, and no job is about to come."""
        awaited = server.awaited_at is not None and self.clock() - server.awaited_at < AWAITED_S
        return self.leases.view.device(gpu.uuid).state.drained and not awaited

    def _control(self, gpu: Gpu) -> Control:
        config = self.config()
        return Control(config.mps_control, config.runtime_dir / FOLDER, gpu.uuid)

    def _clients(self, gpu: Gpu) -> dict[str, int]:
        """By name, the users of the jobs that have processes on the GPU."""
        return {t.job: t.uid for t in self.leases.tenants.sharing(gpu.uuid) if t.clients}

    def _note_job(self, tenant: Tenant) -> None:
        """A process of the job has come. It may have a fault, and be gone before the next look; the
        server writes of that a moment later."""
        if tenant.given.space == MPS:
            self.there.setdefault(tenant.gang[0], {})[tenant.job] = tenant.uid

    def _note_fault(self, gpu: Gpu, hit: dict[str, int]) -> None:
        """hit: by name, the users of the jobs that were there; some have ended by now."""
        self.lost[gpu.uuid] = sorted(hit)[:LOST_SHOWN]
        self.together.fault(hit.values(), self.clock())
        log.warning(
            "GPU %d: a fault of one process has ended the work of all under MPS: %s",
            *(gpu.index, ", ".join(f"job {name}" for name in self.lost[gpu.uuid]) or "no job"),
        )

    # -- jobs --------------------------------------------------------------------------

    def admit(self, said: Options, given: Resolved, uid: int, gang: Collection[Gpu]) -> Resolved:
        """The options of a new job with the mode of its GPUs. Refused: it may not be there."""
        modes = {gpu.uuid in self.servers for gpu in gang}
        index = min((gpu.index for gpu in gang), default=0)
        if True not in modes:
            self._check_without(said, index)
            return replace(given, space=TIME, sm=1.0)
        self._check_width([gpu.uuid for gpu in gang])
        if said.space == TIME:
            raise Refused(
                f"space:time, but GPU {index} is shared by MPS",
                "leave space out, or submit the job for another node",
            )
        server = self.servers[next(iter(gang)).uuid]
        if server.why == DRAINED:  # the job waits as on any drained GPU, but as a client of MPS
            server.awaited_at = self.clock()
        if not server.runs:
            fault = Refused(
                f"GPU {index} is shared by MPS, which does not run: {server.why}",
                "tell the administrator, and submit the job again",
            )
            raise Later(str(fault), fault.hint) if server.why in SOON else fault
        there = self.leases.tenants.sharing(server.control.uuid)
        job = Coming(uid, (server.control.uuid,), given.chain)
        self.together.check(index, server.allowed, job, there, self.clock())
        return replace(given, space=MPS)

    @staticmethod
    def _check_without(said: Options, index: int) -> None:
        """Refused: the job needs MPS, and the GPU is not shared by it."""
        if said.space == MPS:
            raise Refused(
                f"space:mps, but GPU {index} is not shared by MPS",
                "leave space out, or ask the administrator which nodes have it "
                "([device] space in gpu-leased.toml)",
            )
        if said.sm is not None and said.sm < 1:
            raise Refused(
                f"sm:{said.sm:g} needs a GPU that is shared by MPS, and GPU {index} is not",
                "leave sm out; limit:0.3 gives a part of the GPU's time",
            )

    @staticmethod
    def _check_width(gang: Collection[str]) -> None:
        if len(gang) > 1:
            raise Refused(
                "a process under MPS finds the server of one GPU only, and this job has "
                f"{len(gang)} GPUs of the node",
                "ask for shards of one GPU, or for a node without MPS",
            )

    def check_more(self, tenant: Tenant, others: Iterable[Gpu]) -> None:
        """Refused: a further step of the job may not have these GPUs too."""
        more = [gpu.uuid for gpu in others]
        if more and (tenant.given.space == MPS or any(uuid in self.servers for uuid in more)):
            self._check_width([*tenant.gang, *more])

    def environment(self, tenant: Tenant, options_text: str) -> dict[str, str]:
        """What the tasks of a step need. options_text: the step's own, whose sm counts. Refused:
        these options are wrong, or need MPS."""
        said = options.parse(options_text)
        if tenant.given.space != MPS:
            self._check_without(replace(said, space=None), self._index(tenant))
            return {}
        uuid = tenant.gang[0]
        server = self.servers.get(uuid)
        pipes = str(server.control.pipes if server else self.config().runtime_dir / FOLDER / uuid)
        part = tenant.given.sm if said.sm is None else said.sm
        return {
            "CUDA_MPS_PIPE_DIRECTORY": pipes,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": f"{100 * part:g}",
            "CUDA_VISIBLE_DEVICES": uuid,  # the server knows no other GPU
            OURS: pipes,
        }

    def _index(self, tenant: Tenant) -> int:
        by_uuid = {gpu.uuid: gpu.index for gpu in self.leases.gpus.slurms()}
        return min(by_uuid.get(uuid, 0) for uuid in tenant.gang)

    # -- for people ----------------------------------------------------------------------

    def status(self, uuid: str) -> answers.Mps | None:
        """What status says of a GPU; None: it is not shared by MPS."""
        server = self.servers.get(uuid)
        if server is None:
            return None
        return {
            "why": server.why or None,
            "together": server.allowed,
            "ended": server.ended,
            "faults": server.faults,
            "lost": self.lost.get(uuid, []),
        }

    def is_server(self, pid: int) -> bool:
        """Whether the process is a server that a control program of ours has started."""
        found = procfs.stat(pid) if self.servers else None
        return found is not None and any(
            server.control.pid() == found.parent for server in self.servers.values()
        )
