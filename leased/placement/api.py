"""What a placement decides about: devices, what tenants ask of one, and the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Union

from leased.core.shares import MILLION, ROUNDED

Chain = tuple[int, str]  # a user, and the name of one of the chains of that user
Label = Union[str, Chain]
TOGETHER = USER, CHAIN, ANY = "user", "chain", "any"  # whose tenants may be on a device at once
ANYBODY = -1  # a user who is not known yet: Request.of_user()


@dataclass(frozen=True)
class Request:
    """What a tenant asks of one device.

    share: the part of the device's time that it is to have at least, from 0 to 1. memory: bytes
    that only it has; 0: its memory need not fit beside that of others. affinity: tenants with the
    same label are on one device. anti_affinity: those with the same label are on different devices.
    exclusion: only tenants with the same label are on its device. chain: it goes where others of
    the chain are, if any are somewhere. None: no such label. job_class: online, offline or none,
    which changes nothing of where it may be. user: whose it is.
    """

    share: float = 0.0
    memory: int = 0
    affinity: str | None = None
    anti_affinity: str | None = None
    exclusion: str | None = None
    chain: Optional[Chain] = None
    job_class: str = "none"
    user: int = ANYBODY

    @property
    def has_labels(self) -> bool:
        return any((self.affinity, self.anti_affinity, self.exclusion, self.chain))

    @property
    def seeks(self) -> Label | None:
        """With whom it is to be: those with its affinity label, or else its chain."""
        return self.affinity or self.chain

    def of_user(self, uid: int) -> Request:
        """As a job of that user asks for it."""
        return replace(self, user=uid, chain=(uid, self.chain[1]) if self.chain else None)


@dataclass(frozen=True)
class Device:
    """A device and what its tenants have asked for. capacity: bytes that they can have together.
    spare: so many more tenants may come (Slurm's shards); None: any number. shut: why nobody may
    come, whatever is left of it, in words; "": they may. together: whose tenants may be there at
    once: of one user, of one chain, or of any."""

    name: str
    capacity: int
    tenants: tuple[Request, ...] = ()
    spare: int | None = None
    shut: str = ""
    together: str = ANY

    @property
    def is_idle(self) -> bool:
        return not self.tenants

    @property
    def share(self) -> float:
        """The part of its time that nobody has requested."""
        return 1 - sum(tenant.share for tenant in self.tenants)

    @property
    def memory(self) -> int:
        """Bytes that nobody has asked for; below 0: they do not fit together."""
        return self.capacity - sum(tenant.memory for tenant in self.tenants)

    @property
    def affinity(self) -> frozenset[str]:
        return frozenset(t.affinity for t in self.tenants if t.affinity)

    @property
    def labels(self) -> frozenset[Label]:
        """Whoever seeks one of these belongs here."""
        return self.affinity | frozenset(t.chain for t in self.tenants if t.chain)

    @property
    def anti_affinity(self) -> frozenset[str]:
        return frozenset(t.anti_affinity for t in self.tenants if t.anti_affinity)

    @property
    def exclusion(self) -> frozenset[str]:
        """At most one, unless somebody has been placed there by other rules."""
        return frozenset(t.exclusion for t in self.tenants if t.exclusion)

    def shortage(self, request: Request) -> str | None:
        """What is not left of all that the request asks for, in words; None: it has room, whatever
        the labels say."""
        if self.shut:
            return self.shut
        if self.spare is not None and self.spare <= 0:
            return "all its shards are taken"
        left = round(self.share * MILLION)
        if round(request.share * MILLION) > left + ROUNDED:
            free = max(0, left) / MILLION
            return f"{free:g} of its time is left, and the job requests {request.share:g}"
        if request.memory and request.memory > self.memory:
            return "the job's memory does not fit into what is left of its memory"
        return None

    def joined(self, request: Request) -> Device:
        """The device with one tenant more."""
        spare = None if self.spare is None else self.spare - 1
        return replace(self, tenants=(*self.tenants, request), spare=spare)

    def left(self, request: Request) -> Device:
        """The device without one tenant of that kind. ValueError: there is none."""
        tenants = list(self.tenants)
        tenants.remove(request)
        spare = None if self.spare is None else self.spare + 1
        return replace(self, tenants=tuple(tenants), spare=spare)


@dataclass(frozen=True)
class Placed:
    """The device that the tenant gets."""

    device: Device


@dataclass(frozen=True)
class NoDevice:
    """Why the tenant cannot be placed now, for its user to read."""

    reason: str


Answer = Union[Placed, NoDevice]
