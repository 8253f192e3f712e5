"""How the jobs on a device use it now, in a word and a sentence, for people."""

from __future__ import annotations

from dataclasses import dataclass

from leased.base.words import named, size
from leased.core.state import ALONE, Tenant
from leased.leasing.arbiter_view import DeviceView

SHARED, EXCLUSIVE = "shared", "exclusive"


@dataclass(frozen=True)
class Mode:
    """word: shared, exclusive, draining or drained."""

    word: str
    why: str


def of(device: DeviceView) -> Mode:
    """What the device's memory and the site allow, unless the jobs there have chosen their lock."""
    allowed = Mode(device.state.mode, _with_figures(device))
    locks = device.locks()
    if device.state.drained or device.state.lock is not None or not locks:
        return allowed
    alone = [tenant for tenant in device.present() if locks[tenant.id] == "on"]
    if alone and allowed.word == SHARED:
        return Mode(EXCLUSIVE, f"lock:on counts for {_named(alone)}")
    shares = [tenant for tenant in device.present() if tenant.has_share]
    if allowed.word == SHARED and shares:
        return _with_share(device, shares)
    if set(locks.values()) == {"off"} and allowed.word == EXCLUSIVE:
        return Mode(SHARED, "lock:off counts for all jobs here")
    return allowed


def _with_figures(device: DeviceView) -> str:
    if device.too_much is None:
        return device.state.why
    has, room = map(size, device.too_much)
    return f"{device.state.why}: they have {has}, and the device has room for {room}"


def _named(tenants: list[Tenant]) -> str:
    """As squeue shows them."""
    return named([tenant.job or str(tenant.id) for tenant in tenants])


def _with_share(device: DeviceView, shares: list[Tenant]) -> Mode:
    words = f"{_named(shares)} {'has' if len(shares) == 1 else 'have'} a share of its time"
    if all(tenant.heeds != ALONE for tenant in shares):
        return Mode(SHARED, f"{words}, which is kept side by side")
    why = f"{words}, which is kept by turns"
    if whose := device.uncontrolled():
        why += f", since the GPU cannot divide its time for {_named(whose)}"
    return Mode(EXCLUSIVE, why)
