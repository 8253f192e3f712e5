"""Options of tenants as tests give them."""

from __future__ import annotations

from dataclasses import replace

from leased.config.options import Options, Resolved


def given(
    lock: str = "auto",
    quantum_ns: int = 10**9,
    *,
    swaps: bool = False,
    request: float = 0.0,
    limit: float = 1.0,
    job_class: str = "none",
) -> Resolved:
    """Resolved options. What is left out has its default."""
    memory = "swap" if swaps else "managed"
    said = Options(quantum_ns=quantum_ns, lock=lock, memory=memory, request=request, limit=limit)
    return replace(Resolved.of(said, Options()), job_class=job_class)
