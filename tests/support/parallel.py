"""How the tests are spread over the workers of pytest-xdist, which take whole groups in order.

A group is what one worker runs, in order: the tests of a file, or of several files that
share a thing of which the machine has one. Long groups come first, so that no worker is
left with a long one at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

# Files that are one group, by their common prefix, and what they share.
SHARED = {
    "tests/security/test_slurm_": "one private Slurm",
}
# Slurm's cgroups have the same names in every private Slurm.
CGROUPS_OF_SLURM = (
    "tests/slurm/test_cgroups.py",
    "tests/slurm/test_gpu_order.py",
    "tests/slurm/test_ssh_session.py",
)
# Groups by how long they take, the longest first; those that are not here come after them.
LONG = (
    "tests/slurm/test_chaos.py",
    "tests/systemd/",
    "tests/security/test_slurm_",
    "tests/slurm/",
    "tests/fault/",
    "tests/unit/test_swap_shim.py",
    "tests/emugpu/test_lookup.py",
    "tests/security/",
    "tests/demo/",
    "tests/fuzz/",
    "tests/core/",
)


def group(file: str) -> str:
    """The group of a test file, by its path in the checkout."""
    if file in CGROUPS_OF_SLURM:
        return "tests/slurm/cgroups"
    return next((prefix for prefix in SHARED if file.startswith(prefix)), file)


def place(file: str) -> int:
    """Where a file's group comes in the order."""
    name = group(file)
    return next((n for n, prefix in enumerate(LONG) if name.startswith(prefix)), len(LONG))


def ordered(files: Sequence[str]) -> list[int]:
    """The numbers of the files in the order in which they run; equals keep theirs."""
    return sorted(range(len(files)), key=lambda n: place(files[n]))
