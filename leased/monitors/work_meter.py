"""What NVML has said of a device's work since the look before: how busy it was, what it took."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.core.device_events import WorkMeasured

OLD_NS = 2_000_000_000  # after which what NVML says of now is not what was since the last look
MOST_W = 10_000  # no GPU takes more


@dataclass
class WorkMeter:
    """before: by UUID, when it was read last (ns) and its energy then (mJ; None: not said)."""

    before: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def read(
        self, uuid: str, busy: int | None, energy_mj: int | None, now: int
    ) -> WorkMeasured | None:
        """busy: percent of the last moment. None: this is the first look, or nothing is said."""
        last, self.before[uuid] = self.before.get(uuid), (now, energy_mj)
        if last is None or now <= last[0]:
            return None
        passed = now - last[0]
        taken = _taken(last[1], energy_mj, passed)
        percent = busy if passed <= OLD_NS else None
        if percent is None and taken is None:
            return None
        return WorkMeasured(uuid, passed, percent, taken)


def _taken(before: int | None, after: int | None, ns: int) -> int | None:
    """mJ between two looks. None: not said, or the counter began anew, or it is garbage."""
    if before is None or after is None or not 0 <= after - before <= MOST_W * ns // 1_000_000:
        return None
    return after - before
