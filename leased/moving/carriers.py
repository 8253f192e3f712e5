"""Starts processes that copy jobs' memory straight from GPU to GPU: carrier_child.py.

A job that moves is lent one where its GPUs reach each other's memory. It ends by itself when all
that has left by it is back. Where it ends before, the job's processes have their memory all the
same, on whichever GPU it is, and say STRANDED: then they are lent another one. So one that hangs
is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from leased.base import children
from leased.base.waiting import is_done_within
from leased.core.actions import Preload
from leased.leasing import memory_orders
from leased.leasing.leases import Leases
from leased.leasing.tenant import Client, Tenant
from leased.moving import driver
from leased.moving.carrier_child import ASK, OVER, WORKS
from leased.moving.driver import BEGIN_S, DriverFault
from leased.wire import daemon_messages
from leased.wire.device_bytes import uuid_bytes

log = logging.getLogger("gpu-leased")

CHILD = "from leased.moving.carrier_child import main; main()"
POLL_S = 0.003
SEND_S = 1.0  # for a process to read what it was sent before
AGAIN_S, AGAIN_MOST_S = 0.2, 60.0  # before stranded processes are lent a carrier; it doubles
ASK_S = 10.0  # between two questions whether a carrier still gets on
ANSWER_S = 10.0  # for it to say so


class Carriers:
    """All of the node."""

    def __init__(self, leases: Leases):
        self._leases = leases
        self._running: dict[int, set[asyncio.subprocess.Process]] = {}  # by job
        self._stranded: dict[int, set[Client]] = {}  # by job
        self._tasks: set[asyncio.Task[None]] = set()
        leases.clients.on_stranded = self._strand

    def carries(self, tenant: Tenant) -> bool:
        """Whether memory of the job is away by a carrier, or may be."""
        return bool(self._running.get(tenant.job_id) or self._stranded.get(tenant.job_id))

    async def lend(self, tenant: Tenant, between: Sequence[str], most: int) -> None:
        """Lend the job a carrier, until its move is over.

        between: the two GPUs, by UUID. most: bytes. DriverFault: there can be none between them.
        """
        await self._start(tenant, tenant.clients, between, most)

    def bring_back(self, tenant: Tenant) -> None:
        """What is away may come back before the job's turn; it has room where the job is. Nothing
        is taken away any more."""
        for process in self._running.get(tenant.job_id, ()):
            _tell(process, OVER)
        if self.carries(tenant):
            for uuid in tenant.gang:
                memory_orders.preload(tenant, Preload(tenant.job_id, uuid, sys.maxsize))

    async def end(self) -> None:
        """The daemon ends. Carriers end by themselves."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(
        self, tenant: Tenant, clients: Iterable[Client], between: Sequence[str], most: int
    ) -> list[Client]:
        """Returns the processes that have not taken their end of it."""
        clients = [client for client in clients if client.carries]
        if not clients:
            return []
        with contextlib.ExitStack() as ends:
            try:
                pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in clients]
            except OSError as fault:
                raise DriverFault(f"a carrier cannot be started: {fault}") from None
            for end in sum(pairs, ()):
                ends.enter_context(end)
            await self._run(tenant, [theirs for _, theirs in pairs], between, most)
            return [
                client
                for client, (ours, _) in zip(clients, pairs)
                if not await self._send(client, ours)
            ]

    async def _run(
        self, tenant: Tenant, ends: Sequence[socket.socket], between: Sequence[str], most: int
    ) -> None:
        """Start it, and wait until it is ready."""
        numbers = [end.fileno() for end in ends]
        uuids = ",".join(uuid_bytes(uuid).hex() for uuid in between)
        command = children.python(CHILD, str(most), uuids, *map(str, numbers))
        process = await driver.start("a carrier", *command, pass_fds=numbers)
        self._leases.gpus.ours.add(process.pid)
        self._running.setdefault(tenant.job_id, set()).add(process)
        self._keep(self._watch(tenant.job_id, process))
        assert process.stdout
        said = asyncio.ensure_future(process.stdout.readline())
        if not await is_done_within(said, BEGIN_S) or said.result() != b"ready\n":
            why = said.result().decode(errors="replace").strip() if said.done() else "it hangs"
            said.cancel()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            raise DriverFault(why or "it has ended")
        self._keep(self._look_after(tenant.job, process))

    async def _look_after(self, job: str, process: asyncio.subprocess.Process) -> None:
        """End it if it hangs, in the driver or altogether: its job would stand still as long."""
        assert process.stdout
        ended = asyncio.ensure_future(process.wait())
        while not await is_done_within(ended, ASK_S):
            _tell(process, ASK)
            said = asyncio.ensure_future(process.stdout.readline())
            if await is_done_within(said, ANSWER_S) and said.result() in (WORKS.encode(), b""):
                continue
            said.cancel()
            log.error("job %s: the process that carries its memory hangs, and is ended", job)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            return

    async def _send(self, client: Client, end: socket.socket) -> bool:
        """Whether the process has taken it. Where it has not, its memory goes by the host."""
        for _ in range(round(SEND_S / POLL_S)):
            if client.send_file(daemon_messages.CARRIER, end.fileno()):
                return True
            await asyncio.sleep(POLL_S)
        return False

    async def _watch(self, job_id: int, process: asyncio.subprocess.Process) -> None:
        try:
            await process.wait()
        finally:
            self._leases.gpus.ours.discard(process.pid)
            self._running[job_id].discard(process)
            if not self._running[job_id]:
                del self._running[job_id]

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- processes whose carrier has ended -------------------------------------------------

    def _strand(self, tenant: Tenant, client: Client) -> None:
        first = tenant.job_id not in self._stranded
        self._stranded.setdefault(tenant.job_id, set()).add(client)
        if first:
            self._keep(self._rescue(tenant))

    async def _rescue(self, tenant: Tenant) -> None:
        """Until they have a carrier. One at a time: each has memory on the GPUs."""
        job, pause = tenant.job_id, AGAIN_S
        try:
            while True:
                await asyncio.sleep(pause)  # all of the job's processes say it
                if self._running.get(job):
                    continue
                clients = [one for one in tenant.clients if one in self._stranded[job]]
                if not clients or not self._leases.tenants.has(tenant):
                    return
                self._stranded[job].clear()
                try:
                    left = await self._start(tenant, clients, (), 0)
                    self._stranded[job].update(left)
                    self.bring_back(tenant)
                except DriverFault as fault:
                    log.error("job %s: its memory cannot be brought back: %s", tenant.job, fault)
                    self._stranded[job].update(clients)
                    pause = min(2 * pause, AGAIN_MOST_S)
                    continue
                pause = AGAIN_S
                if not self._stranded[job]:
                    return
        finally:
            del self._stranded[job]


def _tell(process: asyncio.subprocess.Process, line: str) -> None:
    """One that has ended hears nothing."""
    assert process.stdin
    if not process.stdin.is_closing():
        process.stdin.write(line.encode())
