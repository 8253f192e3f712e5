"""Opens the tenants of the previous daemon again, with the options that they had."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace

from leased.admin.gang import Gangs
from leased.base.requests import shown
from leased.base.words import count, jobs
from leased.config import options
from leased.config.options import Options, Resolved
from leased.core.policy import PolicyState
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.store.records import TenantRecord
from leased.store.store import Store
from leased.usage.usage import Usage

log = logging.getLogger("gpu-leased")


class Takeover:
    """defaults: the site's, for records of releases that did not store every key."""

    def __init__(self, leases: Leases, store: Store, gangs: Gangs, defaults: Callable[[], Options]):
        self.leases = leases
        self.store = store
        self.gangs = gangs
        self.defaults = defaults
        self.forgotten: list[str] = []  # jobs for which the stored state of a policy cannot be used

    def restore_all(self, records: Iterable[TenantRecord]) -> None:
        """Open them in the order in which their jobs began, so that the same jobs wait for their
        shares."""
        for record in sorted(records, key=lambda record: self.store.opened(record.job_id) or 0):
            self.restore(record)
        if self.forgotten:
            log.warning(
                "what the policies had stored of %s (%s) cannot be used: their turns are counted "
                "from now on",
                *(count(len(self.forgotten), "job"), jobs(sorted(self.forgotten))),
            )
            self.forgotten.clear()

    def restore(self, record: TenantRecord) -> None:
        """Open the tenant again, with its usage so far.

        A record of another release may have options that this one does not know: the job runs on
        with the others. If a record cannot be used at all, the processes of its job are refused.
        """
        try:
            self._restore(record)
        except Exception:
            log.exception(
                "job %s cannot be taken over from the previous daemon: its processes are refused, "
                "and its usage up to now goes to Slurm's accounting",
                record.job,
            )
            self.give_up(record)

    def _restore(self, record: TenantRecord) -> None:
        gpus = self.leases.gpus
        gang = [gpus[uuid] for uuid in record.gang if gpus.has(uuid)]
        if not gang:  # none of its GPUs works any more
            self.give_up(record)
            return
        said, unknown = options.understood(record.options)
        given = Resolved.of(said, self.defaults())
        if given.memory == "auto":  # the record is of a release without this key
            given = replace(given, memory="managed")
        totals = self.gangs.totals(gang, given, record.totals)
        tenant = Tenant(
            record.job_id, record.uid, given, totals, job=record.job, nodes=record.nodes
        )
        if unknown:
            log.error(
                "job %s has the options %s, which this release does not know: it goes on "
                "without them",
                *(record.job, shown(",".join(unknown))),
            )
        else:
            self.store.resolve(record.job_id, given.text(), dict(record.totals) | totals)
        tenant.former = dict.fromkeys(record.usage.keys() - tenant.gang, max(totals.values()))
        remembered = self._remembered(tenant, record)
        self.leases.tenants.open(tenant, record.usage, remembered, record.parked_by, record.steps)

    def _remembered(self, tenant: Tenant, record: TenantRecord) -> PolicyState | None:
        """The stored state of its policy, if this release can use it."""
        before = record.remembered
        if before is not None and not self.leases.tenants.understands(tenant, before):
            self.forgotten.append(record.job)
            return None
        return before

    def give_up(self, record: TenantRecord) -> None:
        """Close the tenant: its usage is final."""
        usage = {uuid: Usage() for uuid in record.gang} | dict(record.usage)
        self.store.close_tenant(record.job_id, usage)
