"""First come, first served.

With k tenants before it, a waiter that could run has its turn after at most k + 1 times a
quantum, the time that a restore may take where jobs swap, and four times the drain limit.
"""

from __future__ import annotations

from typing import ClassVar

from leased.core.policy import Policy
from leased.policy.registry import register


@register
class FirstComeFirstServed(Policy):
    """The order in which tenants came is all it needs."""

    name: ClassVar[str] = "fcfs"
