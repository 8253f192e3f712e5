"""Divides the figures of a job's usage among its steps: pure.

The figures of a chain contain one another (busy is a part of measured, which is a part of lease),
and keep to that in each step: what is divided is what each has beyond the next one. All parts
together are the job's figure, to the last unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leased.usage.usage import Usage

# By what they are divided by: the lease time of each step, its memory over time, what of that was
# on the device, the grants and the overruns that began with it.
LEASE, WANTED, RESIDENT, GRANTS, OVERRUNS = "lease", "wanted", "resident", "grants", "overruns"
CHAINS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    LEASE: (("lease_ns", "measured_ns", "busy_ns"), ("shared_ns",), ("energy_mj",)),
    WANTED: (("wanted_kib_ms",), ("moved_bytes", "moved_out_bytes"), ("clean_bytes",)),
    RESIDENT: (("resident_kib_ms",), ("idle_resident_ns",)),
    GRANTS: (("handoffs",),),
    OVERRUNS: (("overruns",),),
}
DIVIDED = tuple(name for chains in CHAINS.values() for chain in chains for name in chain)


def divide(whole: Usage, steps: Sequence[Usage], by: str, weights: Sequence[int]) -> None:
    """Bring the figures of one kind in `steps` to the sums that `whole` has, by these weights.

    Where all weights are 0 nothing is added, so that it is divided another time.
    """
    if len(steps) == 1:  # most jobs have one, and all steps are divided again each second
        for name in (name for chain in CHAINS[by] for name in chain if weights[0]):
            setattr(steps[0], name, getattr(whole, name))
        return
    for chain in CHAINS[by]:
        for step, layers in zip(steps, zip(*_layers(whole, steps, chain, weights))):
            for n, part in enumerate(layers):
                for name in chain[: n + 1]:
                    setattr(step, name, getattr(step, name) + part)


def _layers(
    whole: Usage, steps: Sequence[Usage], chain: Sequence[str], weights: Sequence[int]
) -> list[list[int]]:
    """Of each figure of the chain: by how much each step's amount beyond the next figure changes.

    The job's amount may fall, since NVML measures late what has been divided, or says late whose
    work it was. Then it is taken from steps by what they have of it. As far as other amounts have
    grown meanwhile those steps get it back there: it is the same lease.
    """
    had = [[_beyond(step, chain, n) for step in steps] for n in range(len(chain))]
    missing = [_beyond(whole, chain, n) - sum(amounts) for n, amounts in enumerate(had)]
    parts = [[-n for n in shares(min(max(0, -m), sum(h)), h)] for m, h in zip(missing, had)]
    taken = [-sum(of_step) for of_step in zip(*parts)]
    back = sum(taken)
    for n, more in enumerate(missing):
        if more > 0:
            known = min(more, back)
            back -= known
            given = zip(shares(known, taken), shares(more - known, weights))
            parts[n] = [sum(both) for both in given]
    return parts


def _beyond(usage: Usage, chain: Sequence[str], n: int) -> int:
    """The amount by which the n-th figure exceeds the next one."""
    outer: int = getattr(usage, chain[n])
    inner: int = getattr(usage, chain[n + 1]) if n + 1 < len(chain) else 0
    return outer - inner


def less(whole: Usage, others: Usage) -> Usage:
    """The figures that are divided, less what other steps have of them."""
    left = {name: getattr(whole, name) - getattr(others, name) for name in DIVIDED}
    return Usage(**left)


def shares(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide the amount into whole parts in proportion to the weights. They add up to the amount,
    or to 0 if all weights are 0. The remainder of the division goes to the largest weight."""
    total = sum(weights)
    if total <= 0:
        return [0] * len(weights)
    parts = [amount * weight // total for weight in weights]
    parts[max(range(len(weights)), key=weights.__getitem__)] += amount - sum(parts)
    return parts
