"""Moves one job at a time to another GPU of the node.

The phases, and what undoes each:
  begins    the driver is started and asked, the job is lent a carrier if its GPUs reach each other,
            and host memory is made for what will leave without one. What the host has of it already
            is unregistered meanwhile, which the driver needs: gigabytes take seconds
  drains    the job is parked: its gate is shut, its work finishes, its memory leaves for the new
            GPU by the carrier, or for the host by its own mover; undone by unparking it
  crosses   the driver locks, checkpoints, restores and unlocks each of its processes (plan.py);
            undone by the plan itself
  arrives   the books change; the job's memory comes back by the carrier at once, and from the
            host with its next lease
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from leased.api.answers import MOVE
from leased.base.errors import Refused
from leased.gpus import nvml_answers
from leased.gpus.devices import Gpu
from leased.gpus.nvml import Nvml, Silent
from leased.leasing import moved as books
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.moving import steps
from leased.moving.carriers import Carriers
from leased.moving.device_access import DeviceAccess
from leased.moving.drain import REST_S, Drain, Stays
from leased.moving.driver import Driver, DriverFault
from leased.moving.mark import Mark, MarkFile
from leased.moving.plan import RUNNING, Plan
from leased.moving.recovery import Recovery
from leased.processes.identity import ProcessId, process_id
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

KEPT = 64  # moves that are over, for those who ask how they ended
END_S = 10.0  # for the driver's steps, when the daemon ends
PHASES = ("driver", "ready", "turn", "away", "there")
MOVING, MOVED, STAYED = "moving", "moved", "stayed"


class Checks(NamedTuple):
    """Refused: something hinders a move (admin/moves.py). job: called just before the job is
    touched. drained: called when it has drained, which may take minutes: of the new GPU as it is
    then, and of what its processes have, which they tell a moment late. carried: how much may be
    on the new GPU before the job is (bytes): all of its memory where there is room for it, or 0."""

    job: Callable[[], None]
    drained: Callable[[], None]
    carried: Callable[[], int]


@dataclass
class Move:
    """A move that is under way or over. total: what the job sees of the new GPU (bytes). by: whose
    wish it is. state: MOVING, MOVED or STAYED. arrived: it is on the new GPU, also a moment before
    the end. touched_ns: since when it was about to stand still; 0: it was not. why: why it stayed.
    dead_s: for how long it could not work, without the time in which
    its memory comes back; driver_s: the driver's part of it. took: seconds of each phase: until
    `driver`, it was asked, `ready`, there was host memory, `turn`, the job could be parked,
    `away`, its memory had left, and `there`, the driver's part was done."""

    job: str
    old: Gpu
    new: Gpu
    total: int
    by: str
    checks: Checks
    state: str = MOVING
    arrived: bool = False
    touched_ns: int = 0
    why: str = ""
    dead_s: float = 0.0
    driver_s: float = 0.0
    took: dict[str, float] = field(default_factory=dict)
    pids: dict[int, ProcessId] = field(default_factory=dict)


class Mover:
    """driver: makes a context in which the driver is asked."""

    def __init__(
        self,
        leases: Leases,
        store: Store,
        nvml: Nvml,
        directory: Path,
        *,
        access: DeviceAccess,
        carriers: Carriers,
        driver: Callable[[], Driver] = Driver,
    ):
        self._leases = leases
        self._carriers = carriers
        self._drain = Drain(leases, MOVE)
        self._store = store
        self._nvml = nvml
        self._mark = MarkFile(directory)
        self._access = access
        self._driver = driver
        self._moves: dict[int, Move] = {}
        self._now: asyncio.Task[None] | None = None
        self._recovery = Recovery(leases, nvml, self._mark, access, driver)
        leases.clients.on_left = self._left

    def _left(self, tenant: Tenant, totals: Mapping[str, int]) -> None:
        self._leases.tenants.widen(tenant, totals)
        self._store.place(tenant.job_id, tenant.totals)

    # -- asked for -------------------------------------------------------------------

    def begin(self, tenant: Tenant, new: Gpu, total: int, by: str, checks: Checks) -> Move:
        """Move the job. Refused: another one is being moved."""
        if self.busy:
            raise Refused("another job of this node is being moved", "ask again in a few seconds")
        (old,) = tenant.gang
        gpu = self._leases.gpus[old]
        move = Move(tenant.job, gpu, new, total, by, checks)
        self._moves.pop(tenant.job_id, None)
        self._moves[tenant.job_id] = move
        while len(self._moves) > KEPT:
            del self._moves[next(iter(self._moves))]
        self._now = asyncio.get_running_loop().create_task(self._run(tenant, move))
        return move

    @property
    def busy(self) -> bool:
        """Whether a job is being moved."""
        return self._now is not None and not self._now.done()

    def moves(self, job_id: int) -> bool:
        """Whether the job is being moved, or may be between two GPUs still."""
        move = self._moves.get(job_id)
        moving = [one for one in self._moves.values() if one.state == MOVING]
        return self.busy and (not moving or move in moving)

    def last(self, job_id: int) -> Move | None:
        """The last move of a job, if it is known."""
        return self._moves.get(job_id)

    async def why_taken(self, gpu: Gpu) -> str:
        """Why no job can move to a GPU, as far as that is not of any job: a process of no sharing
        job uses it, or NVML does not say; "": nothing hinders it."""
        try:
            await self._check_free(gpu)
        except Stays as why:
            return str(why)
        return ""

    async def end(self) -> None:
        """The daemon ends: a move that is under way turns back, or arrives, first. What a former
        daemon has left is left to the next one if it takes too long."""
        if self._now is None or self._now.done():
            return
        if any(move.state == MOVING for move in self._moves.values()):
            self._now.cancel()
        await asyncio.wait([self._now], timeout=END_S)

    # -- a move ----------------------------------------------------------------------

    async def _run(self, tenant: Tenant, move: Move) -> None:
        job = move.job, tenant.uid
        log.info(
            "job %s (uid %d) is to move from GPU %d to GPU %d: %s",
            *(*job, move.old.index, move.new.index, move.by),
        )
        try:
            await self._move(tenant, move)
        except (Stays, Refused, DriverFault) as why:
            move.why = str(why)
        except OSError as fault:
            file = f"{fault.filename}: " if fault.filename else ""
            move.why = f"{file}{fault.strerror}"
        except asyncio.CancelledError:
            move.why = "gpu-leased ends"
        except Exception:
            move.why = "a fault in gpu-leased; see its log"
            log.exception("job %s (uid %d) could not be moved", *job)
        move.state = MOVED if move.arrived else STAYED
        if not move.arrived:
            log.warning("job %s (uid %d) stays on GPU %d: %s", *job, move.old.index, move.why)

    async def _move(self, tenant: Tenant, move: Move) -> None:
        clock, since = self._leases.clock, self._leases.clock()
        await self._drain.until_back(tenant, self._carriers)
        async with self._driver() as driver:
            await self._check(driver, tenant, move)
            try:
                self._drain.begin_rest(tenant)
                await self._lend(tenant, move)
                await self._drain.until_ready(tenant, REST_S)
                self._drain.prepare(tenant)
                asked = clock()
                await self._drain.until_ready(tenant)
                await self._check(driver, tenant, move)
                move.checks.job()
                move.touched_ns = clock()
                began = await self._drain.park(tenant)
                await self._check_free(move.new)
                move.checks.drained()
                crosses = clock()
                await self._cross(driver, tenant, move)
                ends = since, asked, move.touched_ns, began, crosses, clock()
                took = [(end - begin) / 1e9 for begin, end in zip(ends, ends[1:])]
                move.took = dict(zip(PHASES, took))
                move.dead_s, move.driver_s = (clock() - began) / 1e9, took[-1]
            finally:
                if self._leases.tenants.has(tenant):
                    if not move.arrived:
                        books.stays(tenant)
                        self._drain.unpark(tenant)
                    self._carriers.bring_back(tenant)

    async def _lend(self, tenant: Tenant, move: Move) -> None:
        """A carrier, if its memory need not go by the host, and has not gone there already."""
        most = move.checks.carried()
        if not most or self._leases.view.tenant(tenant.job_id).parked is not None:
            return
        try:
            await self._carriers.lend(tenant, (move.old.uuid, move.new.uuid), most)
        except DriverFault as fault:
            log.info("job %s: its memory moves by the host: %s", move.job, fault)

    def _processes(self, tenant: Tenant) -> dict[int, ProcessId]:
        found = {client.pid: process_id(client.pid) for client in tenant.clients}
        if not found or not all(found.values()):
            raise Stays("none of its processes uses the GPU, or one has just ended")
        return {pid: process for pid, process in found.items() if process is not None}

    async def _check(self, driver: Driver, tenant: Tenant, move: Move) -> None:
        """Note the job's processes. Stays: the driver cannot, or another process is in the way."""
        move.pids = self._processes(tenant)
        said = await driver.begin()
        if not said["has_map"]:
            raise Stays("the driver is too old: from 580 on it can restore a process elsewhere")
        for pid in move.pids:
            state = await driver.state(pid)
            if state != RUNNING:
                raise Stays(f"the driver says that its process {pid} is {state}")
        await self._check_gpus(move)
        self._drain.check_open(tenant)

    async def _check_gpus(self, move: Move) -> None:
        """Stays: one of its processes uses further GPUs, or a stranger the new one."""
        gpus = list(self._leases.gpus)
        seen = await self._seen(gpus)
        self._check_strangers(move.new, seen)
        for gpu in gpus:
            beside = move.pids.keys() & seen[gpu.uuid].keys() if gpu != move.old else set()
            if beside:
                raise Stays(f"its process {min(beside)} uses GPU {gpu.index} too")

    async def _check_free(self, gpu: Gpu) -> None:
        """Stays: see why_taken()."""
        self._check_strangers(gpu, await self._seen([gpu]))

    def _check_strangers(self, gpu: Gpu, seen: Mapping[str, Mapping[int, int]]) -> None:
        there = self._leases.tenants.sharing(gpu.uuid)
        known = {client.pid for tenant in there for client in tenant.clients}
        strangers = seen[gpu.uuid].keys() - known
        if strangers:
            raise Stays(
                f"process {min(strangers)}, which is of no sharing job, uses GPU {gpu.index}"
            )

    async def _seen(self, gpus: Sequence[Gpu]) -> dict[str, Mapping[int, int]]:
        """By UUID, the processes that use it."""
        try:
            answer = await self._nvml.look([gpu.uuid for gpu in gpus])
            ours = self._leases.gpus.ours
            return {
                gpu.uuid: nvml_answers.seen(answer, gpu.uuid, gpu.memory, ours).processes
                for gpu in gpus
            }
        except (Silent, nvml_answers.Unsound) as fault:
            raise Stays(f"NVML does not say who uses the GPUs: {fault}") from None

    # -- the driver's part -----------------------------------------------------------

    async def _cross(self, driver: Driver, tenant: Tenant, move: Move) -> None:
        """Stays: something has failed, and the job is where it was."""
        plan = Plan.of(move.pids)
        mark = self._mark.read()
        if mark is not None and mark.job_id != tenant.job_id and self._store.fault:
            raise Stays(f"that another job has moved cannot be stored: {self._store.fault}")
        gpus = move.old.uuid, move.new.uuid
        mark = Mark(tenant.job_id, *gpus, tuple(move.pids.values()), driver.process)
        self._mark.write(mark)
        # Whoever ends the daemon waits until no process is between the GPUs.
        try:
            self._access.widen(move.pids, move.new.minor)
        except Refused:
            self._mark.remove()
            raise
        try:
            taken = asyncio.ensure_future(steps.take_all(self._driver, driver, plan, *gpus))
            try:
                await asyncio.shield(taken)
            except asyncio.CancelledError:
                plan.turn_back("gpu-leased ends")
                await taken
        finally:
            self._settle(move.pids, move.new if plan.has_moved else move.old)
        if plan.has_moved and self._leases.tenants.has(tenant):
            move.arrived = True
            totals = books.arrives(tenant, *gpus, move.total)
            self._store.place(tenant.job_id, totals)
            books.moved(self._leases, tenant, move.old.uuid, totals, plan.processes.keys())
            if self._store.fault is None:
                self._mark.remove()
            log.info("job %s has moved to GPU %d", move.job, move.new.index)
            return
        if not plan.lost:
            self._mark.remove()
        elif await self._recovery.bring_back(mark, list(mark.processes)):
            plan.lost.clear()
        raise Stays(plan.why + steps.lost(plan) or "its processes have ended")

    def _settle(self, pids: Iterable[int], gpu: Gpu) -> None:
        """Processes are on that GPU: they may open its device file, and what Slurm allows."""
        try:
            self._access.settle(pids, [gpu.minor])
        except OSError as fault:
            log.error("device files of processes that were moved: %s", fault)

    # -- after a daemon that ended in the middle ------------------------------------------

    def recover(self) -> None:
        """Begin to do what a former daemon has left; see recovery.py."""
        self._now = asyncio.get_running_loop().create_task(self._recovery.run())
