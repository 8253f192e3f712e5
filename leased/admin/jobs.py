"""Which job of this node a process is of, and which jobs live."""

from __future__ import annotations

from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer
from leased.processes.stepds import Stepds
from leased.slurm.clusters import Cluster
from leased.store.store import Store
from leased.usage.step_usage import UNKNOWN


class Jobs:
    """stepds: their slurmstepds. cluster: the one whose jobs they are."""

    def __init__(self, leases: Leases, store: Store):
        self.leases = leases
        self.store = store
        self.stepds = Stepds(store)
        self.cluster = Cluster()
        leases.tenants.steps.name_of = self.step_name

    def find(self, peer: Peer) -> Tenant | None:
        """The tenant of a process, by what the kernel says of it."""
        job = self.stepds.job_of(peer.pid)
        return self.leases.tenants.get(job) if job is not None else None

    def step_name(self, pid: int) -> str:
        """The step of a process of a job."""
        step = self.stepds.step_of(pid)
        return step.name if step and step.name else UNKNOWN

    def lives(self, job_id: int) -> bool:
        """Whether a slurmstepd of the job, or a process that uses its GPUs, is known to live."""
        tenant = self.leases.tenants.get(job_id)
        return bool(tenant and tenant.clients) or self.stepds.lives(job_id)
