"""Options of tenants as tests give them."""

from __future__ import annotations

from leased.config.options import Options, Resolved


def given(
    lock: str = "auto", quantum_ns: int = 10**9, *, swaps: bool = False, request: float = 0.0
) -> Resolved:
    """Resolved options; what is left out is as where nobody says anything."""
    memory = "swap" if swaps else "managed"
    said = Options(quantum_ns=quantum_ns, lock=lock, memory=memory, request=request)
    return Resolved.of(said, Options())
