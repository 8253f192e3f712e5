"""What status and mine say of jobs and devices in detail: of a job's memory, its share of the GPU's
time and its channel groups, and of a chain that has a GPU for itself."""

from __future__ import annotations

from collections import Counter

from _gpulease import lib

from leased.api import answers
from leased.api.answers import Share
from leased.chains.search import WHOLE, Division, Trial, plain
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.slices.controller import DISOBEYS
from leased.slices.job import ALWAYS
from leased.wire import client_messages

# By what processes report (enum gl_clean): whether clean memory is evicted without a copy, or why
# not.
CLEAN = {
    lib.GL_CLEAN_UNKNOWN: ("unknown", "no memory that could be clean has been evicted yet"),
    lib.GL_CLEAN_ON: ("on", ""),
    lib.GL_CLEAN_SITE: ("off", "the site has set limits.swap_clean = false"),
    lib.GL_CLEAN_DRIVER: ("off", "the driver does not run the kernel that computes fingerprints"),
    lib.GL_CLEAN_WRONG: ("off", "the GPU computed a wrong fingerprint of known bytes"),
    lib.GL_CLEAN_NO_RANDOM: ("off", "the kernel gives no random keys for fingerprints"),
}
LATER = ("off", "for a reason that only a later release of gpu-leased knows")


def chain(leases: Leases, uuid: str) -> answers.Chain | None:
    """How a chain's components divide the device, and by which trials that was found; None: no
    chain has it for itself."""
    there = leases.chains.of.get(uuid)
    if there is None:
        return None
    found, trials = there.optimiser.found, there.optimiser.trials
    first = trials[0].throughput if trials else 0.0
    throughput = there.optimiser.throughput
    parts = zip(there.components, there.optimiser.division)
    return {
        "name": there.chain,
        "components": [
            {"job": one.tenant.job, "pid": one.client.pid, "part": part / WHOLE}
            for one, part in parts
        ],
        "by": "parts" if there.by_parts else "slices",
        "calls_s": None if throughput is None else round(throughput, 1),
        "why": there.why,
        "bottleneck": found.bottleneck if found else None,
        "gain": round(found.gain, 4) if found else None,
        "trials": [round(trial.throughput / first, 4) if first else 0.0 for trial in trials],
        "plain": _places(trials, plain(len(there.components))),
        "kept": _places(trials, found.division) if found else [],
        "bound": there.optimiser.bound,
    }


def _places(trials: list[Trial], division: Division) -> list[int]:
    return [place for place, trial in enumerate(trials) if trial.division == division]


def channels(leases: Leases, tenant: Tenant) -> answers.Channels:
    """Whether the time slices of the tenant's channel groups can be set, or why not. If those of
    one process cannot be, the job's cannot."""
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


def fixed(tenant: Tenant) -> dict[str, dict[str, int]]:
    """By UUID and reason, the bytes that are fixed; amounts of 0 are left out."""
    found = {uuid: Counter[str]() for uuid in tenant.gang}
    for client in tenant.clients:
        for uuid, said in client.details.items():
            found[uuid].update(said.fixed)
    return {uuid: dict(+sizes) for uuid, sizes in found.items() if +sizes}


def clean(tenant: Tenant, cleans: bool, left: int) -> answers.Clean | None:
    """Whether memory that equals its copy is evicted without another copy; None: the tenant's
    memory is managed. cleans: whether the site wants that. left: bytes that were evicted so."""
    if not tenant.swaps:
        return None
    said = {details.clean for client in tenant.clients for details in client.details.values()}
    # If the processes disagree, a reason why there is no clean memory is shown.
    code = max(said, default=lib.GL_CLEAN_UNKNOWN)
    if code == lib.GL_CLEAN_UNKNOWN and not cleans:
        code = lib.GL_CLEAN_SITE
    state, why = CLEAN.get(code, LATER)
    return {"state": state, "why": why or None, "left_bytes": left}


def share(leases: Leases, tenant: Tenant) -> Share | None:
    """None: the job requests nothing and has no limit."""
    given = tenant.given
    if not given.has_share:
        return None
    state, rules = leases.view.tenant(tenant.job_id), leases.view.rules
    # So long they are at least, as the memory of its next one takes long to move.
    turn_ns = rules.floor_ns(rules.handoff_ns(state))
    until = state.barred_until
    return {
        "request": given.request,
        "limit": given.limit,
        "limited_s": None if until is None else round(max(0, until - leases.clock()) / 1e9, 3),
        "lacking": rules.shares.why_waiting(state),
        "turn_s": round(turn_ns / 1e9, 3) if turn_ns > given.quantum_ns else None,
    }
