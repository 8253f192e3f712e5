"""What users may choose by --gpu-share on this site."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from leased.base.errors import Refused
from leased.config.config import Config
from leased.config.options import Options, Resolved


@dataclass(frozen=True)
class UserLimits:
    """What a user may choose."""

    quantum_min_ns: int
    quantum_max_ns: int
    lock_off: bool
    oversub: bool
    exclusion: bool
    request_max: float

    @classmethod
    def of(cls, config: Config) -> UserLimits:
        return cls(**{each.name: getattr(config, each.name) for each in fields(cls)})

    def check(self, wanted: Resolved) -> None:
        """Refused: a job may not have that here."""
        low, high = self.quantum_min_ns, self.quantum_max_ns
        if not low <= wanted.quantum_ns <= high:
            raise Refused(
                f"tq:{seconds(wanted.quantum_ns)} is outside this site's limits",
                f"choose tq between {seconds(low)} and {seconds(high)}",
            )
        if wanted.lock == "off" and not self.lock_off:
            raise Refused("lock:off is not allowed on this site", "use lock:auto or lock:on")
        if wanted.oversub and not self.oversub:
            raise Refused("oversub:on is not allowed on this site", "leave it out")
        if wanted.exclusion and not self.exclusion:
            raise Refused(
                f"exclusion:{wanted.exclusion} is not allowed on this site",
                "leave it out, or ask for a whole GPU with --gres=gpu:1",
            )
        if wanted.request > self.request_max:
            raise Refused(
                f"request:{wanted.request:g} is more than a job may request on this site",
                f"request {self.request_max:g} or less",
            )
        if wanted.request > wanted.limit:
            raise Refused(
                f"request:{wanted.request:g} is above limit:{wanted.limit:g}",
                "a job cannot have more than its limit, its own or the site's; request less",
            )
        if wanted.lock == "off" and wanted.has_share:
            raise Refused(
                "a job with lock:off takes no turns, so it cannot have a share of the GPU's time",
                "use lock:auto or lock:on, or leave request and limit out",
            )

    def with_quantum(self, given: Resolved, said: Options) -> Resolved:
        """The short quantum that a job with a share has if it names none is within the limits."""
        if said.quantum_ns is not None or not given.has_share:
            return given
        most = max(self.quantum_min_ns, min(given.quantum_ns, self.quantum_max_ns))
        return replace(given, quantum_ns=most)

    def check_defaults(self, defaults: Options) -> None:
        """Refused: a job that asks for nothing would be refused."""
        if self.quantum_min_ns > self.quantum_max_ns:
            raise Refused(
                f"quantum-min {seconds(self.quantum_min_ns)} is above "
                f"quantum-max {seconds(self.quantum_max_ns)}",
                "set both, the smaller one as quantum-min",
            )
        try:
            self.check(Resolved.of(Options(), defaults))
        except Refused as fault:
            raise Refused(
                f"jobs that ask for nothing would be refused: {fault}",
                "change defaults.options in the configuration first, or choose another limit",
            ) from None


def seconds(ns: int) -> str:
    return f"{ns / 1e9:g}s"
