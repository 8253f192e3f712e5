"""What status says of a job's memory besides its size: why some is fixed, and whether clean memory
is known."""

from __future__ import annotations

from collections import Counter

from _gpulease import lib

from leased.api import answers
from leased.leasing.tenant import Tenant

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
