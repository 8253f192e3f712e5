"""How busy a device was since the last poll of NVML, and how much energy it took."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.core.events import WorkMeasured
from leased.usage.gauge import WorkPart

OLD_NS = 2_000_000_000  # after a longer pause NVML's figure does not stand for all of it
MOST_W = 10_000  # no GPU takes more


@dataclass
class WorkMeter:
    """before: by UUID, when it was last read (ns), and its energy then (mJ; None: not said)."""

    before: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    def read(
        self,
        uuid: str,
        busy: int | None,
        energy_mj: int | None,
        now: int,
        parts: tuple[WorkPart, ...] = (),
    ) -> WorkMeasured | None:
        """What to add since the last poll; None: this is the first one, or NVML says nothing.

        busy: percent, as NVML says of the last moment. parts: whose work it was.
        """
        last, self.before[uuid] = self.before.get(uuid), (now, energy_mj)
        if last is None or now <= last[0]:
            return None
        passed = now - last[0]
        taken = _taken(last[1], energy_mj, passed)
        percent = busy if passed <= OLD_NS else None
        if percent is None and taken is None:
            return None
        return WorkMeasured(uuid, passed, percent, taken, () if percent is None else parts)


def _taken(before: int | None, after: int | None, ns: int) -> int | None:
    """mJ between two polls; None: NVML does not say, the counter restarted, or it is absurd."""
    if before is None or after is None or not 0 <= after - before <= MOST_W * ns // 1_000_000:
        return None
    return after - before
