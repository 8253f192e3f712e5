"""How the jobs on a device use it now, in a word and a sentence, for people."""

from __future__ import annotations

from dataclasses import dataclass

from leased.base.words import named, size
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
    alone = device.names(job for job, lock in sorted(locks.items()) if lock == "on")
    if alone and allowed.word == SHARED:
        return Mode(EXCLUSIVE, f"lock:on counts for {named(alone)}")
    if allowed.word == SHARED and (shares := device.with_share()):
        return _with_share(device, device.names(shares))
    if set(locks.values()) == {"off"} and allowed.word == EXCLUSIVE:
        return Mode(SHARED, "lock:off counts for all jobs here")
    return allowed


def _with_figures(device: DeviceView) -> str:
    if device.too_much is None:
        return device.state.why
    has, room = map(size, device.too_much)
    return f"{device.state.why}: they have {has}, and the device has room for {room}"


def _with_share(device: DeviceView, names: list[str]) -> Mode:
    words = f"{named(names)} {'has' if len(names) == 1 else 'have'} a share of its time"
    if device.keeps_shares_beside:
        return Mode(SHARED, f"{words}, which is kept side by side")
    why = f"{words}, which is kept by turns"
    if device.uncontrolled:
        whose = named(device.names(device.uncontrolled))
        why += f", since the GPU cannot divide its time for {whose}"
    return Mode(EXCLUSIVE, why)
