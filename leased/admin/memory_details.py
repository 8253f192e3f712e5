"""What status says of a job's memory besides its size: why it is fixed, and what is clean."""

from __future__ import annotations

from collections import Counter

from _gpulease import lib

from leased.api import answers
from leased.leasing.tenant import Tenant

# By what processes say (enum gl_clean): whether clean memory leaves without a copy, and why not.
CLEAN = {
    lib.GL_CLEAN_UNKNOWN: ("unknown", "no memory has left yet that could be clean"),
    lib.GL_CLEAN_ON: ("on", ""),
    lib.GL_CLEAN_SITE: ("off", "the site has set limits.swap_clean = false"),
    lib.GL_CLEAN_DRIVER: ("off", "the driver does not run the kernel that computes fingerprints"),
    lib.GL_CLEAN_WRONG: ("off", "the GPU computed a wrong fingerprint of known bytes"),
    lib.GL_CLEAN_NO_RANDOM: ("off", "the kernel gives no random keys for fingerprints"),
}
LATER = ("off", "the reason is one that only a later release of gpu-leased knows")


def fixed(tenant: Tenant) -> dict[str, dict[str, int]]:
    """By UUID and reason, the bytes that are fixed; without those that are 0."""
    found = {uuid: Counter[str]() for uuid in tenant.gang}
    for client in tenant.clients:
        for uuid, said in client.details.items():
            found[uuid].update(said.fixed)
    return {uuid: dict(+sizes) for uuid, sizes in found.items() if +sizes}


def clean(tenant: Tenant, cleans: bool, left: int) -> answers.Clean | None:
    """Whether what is as its copy is leaves without another one; None: its memory is managed.
    cleans: the site wants it. left: bytes that have left so."""
    if not tenant.swaps:
        return None
    said = {details.clean for client in tenant.clients for details in client.details.values()}
    # A reason why a process has no clean memory comes first.
    code = max(said, default=lib.GL_CLEAN_UNKNOWN)
    if code == lib.GL_CLEAN_UNKNOWN and not cleans:
        code = lib.GL_CLEAN_SITE
    state, why = CLEAN.get(code, LATER)
    return {"state": state, "why": why or None, "left_bytes": left}
