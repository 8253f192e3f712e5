"""A pause before something is tried again, which doubles whenever it was tried in vain."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_NS = 1_000_000_000
WELL = 16  # after this many times the pause without a fault, the next pause is the first one again


@dataclass
class Pause:
    """began: when it was last in vain (ns). length: of the pause that followed; 0: never. first: of
    the first one."""

    began: int = 0
    length: int = 0
    first: int = FIRST_NS

    def is_over(self, now: int) -> bool:
        return now < self.began or now - self.began >= self.length

    def begin(self, now: int, most: int) -> None:
        """It was tried in vain. most: no pause is longer (ns)."""
        well = self.length and now - self.began >= WELL * self.length
        self.length = self.first if well or not self.length else min(2 * self.length, most)
        self.began = now
