"""First come, first served.

With k tenants before it, a waiter that could run has its turn after at most k + 1 times a
quantum, the time that a restore may take where jobs swap, and four times the drain limit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from leased.core.policy import Had, Spec, View
from leased.policy.registry import register


@register
class FirstComeFirstServed:
    """It remembers nothing: the order in which tenants came is all it needs."""

    name: ClassVar[str] = "fcfs"
    charges: ClassVar[bool] = False
    prompt: ClassVar[bool] = False
    shares: ClassVar[bool] = False

    def admit(self, view: View, tenant: Spec) -> str | None:
        return None

    def opened(self, tenant: Spec) -> None:
        pass

    def closed(self, tenant: int) -> None:
        pass

    def charged(self, tenant: int, had: Had, now: int) -> None:
        pass

    def order(self, view: View, tenant: Spec) -> int:
        return tenant.arrival

    def quantum(self, view: View, holder: Spec, waiter: Spec | None, asked_ns: int) -> int:
        return asked_ns

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        return False

    def patience(self, view: View, holder: Spec, waiter: Spec, handoff_ns: int) -> int:
        """As long as the handoff takes. Waiting then costs at most twice what it would have cost to
        know the pause beforehand (the rule of ski rental)."""
        return handoff_ns

    def wake_at(self, view: View, waiter: Spec) -> int | None:
        return None

    def barred_until(self, view: View, waiter: Spec) -> int | None:
        return None

    def is_limited(self, holder: Spec) -> bool:
        return False

    def dump(self, tenants: Collection[int] | None = None) -> bytes:
        return b""

    def load(self, data: bytes) -> bool:
        return True
