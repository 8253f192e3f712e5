"""Whether a job that requests more of a GPU's time than is left is refused, or waits."""

from __future__ import annotations

from leased.base.errors import Refused
from leased.config.config import Config
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant

REMEDY = "request less, or submit the job again when some of them have ended"


def check(leases: Leases, config: Config, tenant: Tenant) -> str:
    """A note for the user of a new tenant that will wait for its share; "": it does not have to
    wait. Refused: too little is left, and the site lets no job wait for it, or no further one."""
    why = leases.tenants.lacks_share(tenant)
    if why is None:
        return ""
    if config.request_full == "refuse":
        raise Refused(why, REMEDY)
    waiting = len(leases.view.rules.shares.waiting)
    if waiting >= config.request_waiting:
        raise Refused(
            f"{why}, and {waiting} jobs wait for such time already, as many as may", REMEDY
        )
    return f"{why}; this job waits until enough of them have ended"


def check_more(leases: Leases, further: Tenant) -> None:
    """Refused: too little is left of further GPUs of a job that runs. It cannot wait for them,
    since it would have to give up those that it has. further: the tenant with only these GPUs."""
    why = leases.tenants.lacks_share(further)
    if why is not None:
        words = f"this step needs a further GPU, and {why}"
        raise Refused(words, "let the first step of the job have all its GPUs, or request less")
