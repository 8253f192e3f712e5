"""What status says of a job's channel groups: whether their time slices can be set, or why not."""

from __future__ import annotations

from collections import Counter

from _gpulease import lib

from leased.api import answers
from leased.leasing.tenant import Tenant


def of_tenant(tenant: Tenant) -> answers.Channels:
    """Of all processes of the tenant; if one's groups cannot be controlled, the job's cannot."""
    said = [client.channels for client in tenant.clients if client.channels is not None]
    refused = Counter(one.reason for one in said if one.state == lib.GL_CHANNELS_REFUSED)
    if refused:
        ((why, _),) = refused.most_common(1)
        return {"state": "refused", "why": why, "processes": refused.total()}
    controlled = sum(one.state == lib.GL_CHANNELS_CONTROLLED for one in said)
    return {
        "state": "controlled" if controlled else "none",
        "why": None,
        "processes": controlled,
    }
