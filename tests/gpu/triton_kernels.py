"""Kernels in Triton for the workloads; they run on a GPU, or in Triton's interpreter."""

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]


def _smooth(source, target, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """target[i] = (source[i - 1] + 2 source[i] + source[i + 1]) / 4, as a ring."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    left = tl.load(source + (at + n - 1) % n, mask=inside)
    middle = tl.load(source + at, mask=inside)
    right = tl.load(source + (at + 1) % n, mask=inside)
    tl.store(target + at, 0.25 * left + 0.5 * middle + 0.25 * right, mask=inside)


def _add_row_sums(source, sums, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """sums[row] += the sum of row `row` of a matrix that is WIDTH wide."""
    row = tl.program_id(0)
    values = tl.load(source + row * WIDTH + tl.arange(0, WIDTH))
    tl.store(sums + row, tl.load(sums + row) + tl.sum(values))


# Not as decorators: strict typing refuses those that have no types.
smooth = triton.jit(_smooth)
add_row_sums = triton.jit(_add_row_sums)
