"""Did the kernels of two jobs ever run at the same time? From the files that slices wrote.

`python -m tests.gpu.overlap FILE FILE` prints a line of JSON; exit status 1 if any did.
"""

from __future__ import annotations

import argparse
import json
import statistics
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.together import pairwise, zip_strict

FIELDS = 3  # start, end, multiprocessor
# No kernel of these programs takes so long, and no turn of theirs is as short: one that has was
# stopped in mid-kernel, and what it did before and afterwards took a few milliseconds at most.
STOPPED_NS = 100_000_000

Span = tuple[int, int]  # from and to, in ns of the device's clock


@dataclass(frozen=True)
class Verdict:
    """overlaps: kernels of the first job during which a kernel of the second ran.

    turns: how often the device went from one job to the other. gap: from the end
    of the last kernel of one to the start of the first of the other, in us.
    """

    slices: tuple[int, int]
    overlaps: int
    longest_overlap_us: float
    turns: int
    gap_us_min: float | None
    gap_us_median: float | None
    gap_us_max: float | None


def read_spans(path: Path) -> list[Span]:
    """The spans of a file, by their start, as until_stopped() has them."""
    numbers = array("Q")
    numbers.frombytes(path.read_bytes())
    return sorted(until_stopped(zip_strict(numbers[0::FIELDS], numbers[1::FIELDS])))


def until_stopped(spans: Iterable[Span]) -> list[Span]:
    """The spans, but a kernel that was stopped in mid-kernel has two, without length: the device
    was its job's then, and in between it was another's."""
    out: list[Span] = []
    for start, end in spans:
        stopped = end - start > STOPPED_NS
        out += [(start, start), (end, end)] if stopped else [(start, end)]
    return out


def merged(spans: list[Span]) -> list[Span]:
    """The same times as spans that do not touch: kernels of one job may run side by side."""
    out: list[Span] = []
    for start, end in spans:
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((start, end))
    return out


def overlap_ns(span: Span, others: list[Span], starts: list[int]) -> int:
    """For how long the span runs beside any of the others, which are merged."""
    total = 0
    at = max(0, bisect_right(starts, span[0]) - 1)
    while at < len(others) and others[at][0] < span[1]:
        total += max(0, min(span[1], others[at][1]) - max(span[0], others[at][0]))
        at += 1
    return total


def gaps_us(first: list[Span], second: list[Span]) -> list[float]:
    """Of every change of hands: how long no kernel ran (less than 0: both did)."""
    order = sorted([(span, 0) for span in first] + [(span, 1) for span in second])
    return [
        (span[0] - before[0][1]) / 1e3
        for before, (span, owner) in pairwise(order)
        if before[1] != owner
    ]


def judge(first: list[Span], second: list[Span]) -> Verdict:
    """Compare the spans of two jobs, each sorted."""
    others = merged(second)
    starts = [start for start, _ in others]
    overlaps = [ns for span in first if (ns := overlap_ns(span, others, starts))]
    gaps = gaps_us(merged(first), others)
    return Verdict(
        (len(first), len(second)),
        len(overlaps),
        max(overlaps, default=0) / 1e3,
        len(gaps),
        min(gaps, default=None),
        statistics.median(gaps) if gaps else None,
        max(gaps, default=None),
    )


def judge_files(first: Path, second: Path) -> Verdict:
    return judge(read_spans(first), read_spans(second))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs=2)
    verdict = judge_files(*parser.parse_args().files)
    print(json.dumps(asdict(verdict)))
    return 1 if verdict.overlaps else 0


if __name__ == "__main__":
    raise SystemExit(main())
