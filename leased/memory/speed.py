"""How fast memory moves between a device and the host: a guess at first, then measured."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30
FIRST_GUESS_BYTES_S = 10.0 * GIB
MEASURE_FROM_BYTES = 16 << 20
# No link is faster; a prefetch that was had nothing to move.
FASTEST_BYTES_S = 512 * GIB
UPWARDS, DOWNWARDS = 0.75, 0.125  # how much of a difference is believed
SURE = 8  # measurements that a good guess stands for

# What a lane of PCI Express carries each way, in bytes a second, by generation; and how much
# of that copies reach (an H200: 51.6 GiB/s of 58.7).
LANE_BYTES_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
REACHED = 0.87


@dataclass
class Speed:
    """Bytes a second. seen: from how many measurements; said: by the site, so it stays."""

    bytes_s: float = FIRST_GUESS_BYTES_S
    seen: int = 0
    said: bool = False

    @classmethod
    def of_site(cls, gib_s: float) -> Speed:
        return cls(gib_s * GIB, said=True)

    @classmethod
    def of_lanes(cls, generation: int, lanes: int) -> Speed:
        """The speed of a PCI Express link as NVML describes it, or a guess where it does not."""
        if generation not in LANE_BYTES_S or lanes < 1:
            return cls()
        return cls(LANE_BYTES_S[generation] * lanes * REACHED, SURE)

    def learn(self, moved: int, ns: int) -> None:
        """So many bytes came in so many ns.

        The value rises fast and falls slowly: a link is never faster than it is, but single moves
        are slowed down, for example by new host memory or by a tenant that evicts late.
        """
        if self.said or moved < MEASURE_FROM_BYTES or ns <= 0:
            return
        change = moved / ns * 1e9 - self.bytes_s
        if self.bytes_s + change > FASTEST_BYTES_S:
            return
        self.seen += 1
        self.bytes_s += change * max(UPWARDS if change > 0 else DOWNWARDS, 1 / self.seen)
