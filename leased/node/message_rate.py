"""How many messages a client may send: a token bucket (RFC 2697 calls its size the burst)."""

from __future__ import annotations

BURST = 4096  # messages that a client may send at once
RATE_PER_S = 4096.0  # how many it may send in each second after that


class MessageRate:
    """The messages of one client. Times in seconds of the event loop's clock."""

    def __init__(self, now: float):
        self._credit = float(BURST)  # messages
        self._at = now

    def allows(self, now: float) -> bool:
        """Count one message. Returns whether it is within the rate."""
        self._credit = min(BURST, self._credit + (now - self._at) * RATE_PER_S) - 1
        self._at = now
        return self._credit >= 0
