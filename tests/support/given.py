"""Options of tenants as tests give them."""

from __future__ import annotations

from leased.config.options import Options, Resolved


def given(lock: str = "auto", quantum_ns: int = 10**9, *, swaps: bool = False) -> Resolved:
    """Resolved options; what is left out is as where nobody says anything."""
    memory = "swap" if swaps else "managed"
    return Resolved.of(Options(quantum_ns=quantum_ns, lock=lock, memory=memory), Options())
