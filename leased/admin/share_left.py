"""What is left of GPUs' time for a job that requests a part: is it refused, or does it wait?"""

from __future__ import annotations

from leased.base.errors import Refused
from leased.config.config import Config
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant

REMEDY = "request less, or submit the job again when they have ended"


def check(leases: Leases, config: Config, tenant: Tenant) -> str:
    """A note for the user of a new tenant that will wait for its share; "": it will not. Refused:
    there is too little left, and the site lets no job wait for that, or no further one."""
    why = leases.tenants.lacks_share(tenant)
    if why is None:
        return ""
    if config.request_full == "refuse":
        raise Refused(why, REMEDY)
    waiting = len(leases.view.lacking_share)
    if waiting >= config.request_waiting:
        raise Refused(f"{why}, and as many jobs wait for that as may ({waiting})", REMEDY)
    return f"{why}; this job waits until enough of them have ended"


def check_more(leases: Leases, further: Tenant) -> None:
    """The same for further GPUs of a job that runs. It is refused them, as it would have to give up
    those that it has. further: the tenant, with these GPUs alone."""
    why = leases.tenants.lacks_share(further)
    if why is not None:
        raise Refused(
            f"a further step needs another GPU, and {why}",
            "let the first step of the job have all its GPUs, or request less",
        )
