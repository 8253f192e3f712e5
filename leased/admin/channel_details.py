"""What status says of a job's channel groups: whether their time slices can be set, or why not, and
which ones have been chosen."""

from __future__ import annotations

from collections import Counter

from _gpulease import lib

from leased.api import answers
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.slices.controller import DISOBEYS
from leased.slices.job import ALWAYS
from leased.wire import client_messages


def of_tenant(leases: Leases, tenant: Tenant) -> answers.Channels:
    """Of all processes of the tenant; if one's groups cannot be controlled, the job's cannot."""
    said = [client.channels for client in tenant.clients if client.channels is not None]
    state, why, processes = _control(leases, tenant, said)
    gave_up = [one for one in said if one.given_up]
    return {
        "state": state,
        "why": why,
        "processes": processes,
        "given_up": sum(one.given_up for one in gave_up),
        "why_given_up": max(gave_up, key=lambda one: one.given_up).reason if gave_up else None,
    }


def _control(
    leases: Leases, tenant: Tenant, said: list[client_messages.Channels]
) -> tuple[str, str | None, int]:
    """The state, why, and how many processes say so."""
    refused = Counter(one.reason for one in said if one.state == lib.GL_CHANNELS_REFUSED)
    controlled = sum(one.state == lib.GL_CHANNELS_CONTROLLED for one in said)
    if refused:
        ((why, _),) = refused.most_common(1)
        return "refused", why, sum(refused.values())
    if leases.slices.disobeys(tenant):
        return "refused", DISOBEYS, controlled
    return "controlled" if controlled else "none", None, controlled


def slices(leases: Leases, tenant: Tenant) -> dict[str, answers.Slices]:
    """By UUID, how the tenant's groups run now."""
    chosen = {uuid: leases.slices.chosen(tenant.job_id, uuid) for uuid in tenant.gang}
    return {
        uuid: {
            "slice_s": choice.slice_us / 1e6 if choice.slice_us else None,
            "duty": choice.duty / ALWAYS,
            "why": choice.why,
        }
        for uuid, choice in chosen.items()
    }
