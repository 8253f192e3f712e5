"""Runs the trials of all devices: gives each its tenants, and carries out its commands."""

from __future__ import annotations

import logging

from leased.core import arbiter
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.trial import Ask, Beat, Mode, Sample, Trial

log = logging.getLogger("gpu-leased")


class TrialRunner:
    """Call beat() a few times a second. allowed: by UUID, whether the site allows trials."""

    def __init__(self, leases: Leases, allowed: dict[str, bool]):
        self.leases = leases
        self.trials = {uuid: Trial() for uuid, may in allowed.items() if may}
        self.epochs = dict.fromkeys(
            self.trials, 0
        )  # the first epoch since the mode has been in force
        self.asked = dict.fromkeys(self.trials, False)

    def allow(self, allowed: dict[str, bool]) -> None:
        """The configuration has changed. Where trials are not allowed, jobs run side by side."""
        for uuid, may in allowed.items():
            if may and uuid not in self.trials:
                self.trials[uuid] = Trial()
                self.epochs[uuid], self.asked[uuid] = 0, False
            elif not may and uuid in self.trials:
                del self.trials[uuid]
                self.leases.run(arbiter.ModeSet(uuid, False, ""))

    async def beat(self) -> None:
        """Take the next step of the trials of all devices."""
        for uuid, trial in self.trials.items():
            if not trial.tenants and self.leases.view.device(uuid).n_holders < 2:
                continue
            command = trial.beat(self._beat(uuid))
            if isinstance(command, Ask):
                self.asked[uuid] = True
                self.leases.clients.ask_progress(uuid)
            elif isinstance(command, Mode):
                self.epochs[uuid] = self.leases.view.epoch
                self.leases.run(
                    arbiter.ModeSet(uuid, command.exclusive, command.why, command.quantum_ns)
                )

    def _beat(self, uuid: str) -> Beat:
        tenants = self._taking_part(uuid)
        samples = {job: self._sample(tenant) for job, tenant in tenants.items()}
        complete = self.asked[uuid] and all(sample is not None for sample in samples.values())
        if complete:
            self.asked[uuid] = False
            said = [f"job {job}: {s.calls} calls at {s.at} ns" for job, s in samples.items() if s]
            log.debug("%s is being measured: %s", uuid, ", ".join(said))
        view, first = self.leases.view, self.epochs[uuid]
        had_turn = {job for job in tenants if view.tenant(job).last_epoch >= first}
        return Beat(
            self.leases.clock(),
            frozenset(tenants),
            {job: sample for job, sample in samples.items() if sample} if complete else {},
            frozenset(had_turn),
            view.device(uuid).n_holders > 1,
        )

    def _taking_part(self, uuid: str) -> dict[int, Tenant]:
        """By job, the tenants of a trial: all of the device, if each can take part, else none.

        A tenant can if it has lock auto, this device alone, and has been granted it before.
        """
        device = self.leases.view.device(uuid)
        if not device.fits or device.drained:
            return {}
        found = {}
        for tenant in self.leases.tenants.sharing(uuid):
            state = self.leases.view.tenant(tenant.job_id)
            if tenant.clients and state.last_epoch:
                if state.lock != "auto" or len(tenant.gang) > 1:
                    return {}
                found[tenant.job_id] = tenant
        return found

    def _sample(self, tenant: Tenant) -> Sample | None:
        """The calls of all its processes together; None: one has not answered."""
        answers = [client.calls for client in tenant.clients]
        if not answers or any(answer is None for answer in answers):
            return None
        known = [answer for answer in answers if answer is not None]
        return Sample(max(at for _, at in known), sum(calls for calls, _ in known))
