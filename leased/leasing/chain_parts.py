"""The parts of a GPU's multiprocessors that components of chains have under MPS, and who changes
them: the process itself, by contexts that it has made (gpu_lease.chain), or one that starts it
again (chain/component.c). Which process is below which is the kernel's word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from _gpulease import lib

from leased.chains.shares import Part
from leased.chains.shares import parts as parts_of
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.registry import Registry
from leased.leasing.tenant import Client, Restart, Tenant
from leased.processes.identity import ancestors
from leased.wire import daemon_messages

S = 1_000_000_000
LATE_NS = 300 * S  # a component that is started again comes back within that time
HOUR_NS, RESTARTS_MOST = 3600 * S, 100  # of a component within an hour


def works(client: Client) -> bool:
    """Whether the process is known to have submitted work."""
    return client.calls is not None and client.calls[0] > 0


@dataclass
class ChainParts:
    """One of the ways of leased/chains/shares.py. ancestors: of a process, itself first and
    then upwards."""

    loop: ArbiterLoop
    registry: Registry
    ancestors: Callable[[int], list[int]] = ancestors

    def said(self, tenant: Tenant, client: Client) -> None:
        """A process says that it changes its part, or that of one which it starts. A daemon before
        this one may have told it."""
        if client.part is None:
            self._tell(tenant, client, Part())

    def apply(self, uuid: str, division: Mapping[int, int]) -> None:
        """Keep the processes of a chain to a division."""
        parts = parts_of(division)
        for tenant in self.registry.sharing(uuid):
            for client in list(tenant.clients):
                part = parts.get(client.pid, Part())
                if client.part is not None and client.part != part:
                    self._tell(tenant, client, part)

    def by(self, tenant: Tenant, worker: Client) -> Client:
        """Who changes the part of a process that works. If nobody does, it is the process."""
        starters = {c.pid: c for c in tenant.clients if c.part is not None and not works(c)}
        if worker.part is not None or not starters:
            return worker
        above = (starters[pid] for pid in self.ancestors(worker.pid) if pid in starters)
        return next(above, worker)

    def waits(self, client: Client, workers: Collection[Client]) -> bool:
        """Whether those that work for it are not yet those that it has started again."""
        restart = client.restart
        if restart is None:
            return False
        if workers and not any(worker in restart.before for worker in workers):
            restart.before, restart.since = (), None
        return restart.since is not None

    def is_late(self, client: Client) -> bool:
        restart = client.restart
        since = restart.since if restart else None
        return since is not None and self.loop.clock() - since >= LATE_NS

    def is_tired(self, client: Client) -> bool:
        """Whether it was started again as often as it may be within an hour."""
        restart = client.restart
        recent = restart is not None and self.loop.clock() - restart.counted < HOUR_NS
        return restart is not None and recent and restart.times >= RESTARTS_MOST

    def _tell(self, tenant: Tenant, client: Client, part: Part) -> None:
        if client.part is not None and client.part.percent != part.percent:
            self._note(tenant, client)
        client.part = part
        uuid = tenant.gang[0]  # under MPS a process has one
        client.send(daemon_messages.run(uuid, lib.GL_RUN_PART, part.percent, part.begins))

    def _note(self, tenant: Tenant, client: Client) -> None:
        """If it starts another process, it starts it again now."""
        if works(client):
            return
        now = self.loop.clock()
        if client.restart is None or now - client.restart.counted >= HOUR_NS:
            client.restart = Restart(counted=now)
        restart = client.restart
        restart.times += 1
        restart.since = now if restart.since is None else restart.since
        there = [one for one in tenant.clients if works(one) and self.by(tenant, one) is client]
        restart.before = (*restart.before, *(one for one in there if one not in restart.before))
