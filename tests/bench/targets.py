"""Figures of a benchmark beside their targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def beyond(
    rows: Mapping[str, float], targets: Mapping[str, float], least: Collection[str] = ()
) -> list[str]:
    """The figures that miss their targets, which are the most that they may be; of `least` the
    least."""
    return [
        name
        for name, bound in targets.items()
        if not (rows[name] >= bound if name in least else rows[name] <= bound)
    ]


def print_table(
    rows: Mapping[str, float], targets: Mapping[str, float], least: Collection[str] = ()
) -> None:
    missed, width = beyond(rows, targets, least), max(map(len, rows))
    print(f"{'':{width}}{'measured':>10}  {'target':>8}")
    for name, figure in rows.items():
        target = said = ""
        if name in targets:
            target = f"{'>=' if name in least else '<='} {targets[name]:g}"
            said = "missed" if name in missed else "met"
        print(f"{name:{width}}{round(figure, 4):>10}  {target:>8}  {said}".rstrip())
