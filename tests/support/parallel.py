"""How the tests are spread over the workers of pytest-xdist, which take whole groups in order.

A group is what one worker runs, in order: the tests of a file, or of several files that
share a thing of which the machine has one. The longest groups come first, so that no worker is
left with a long one at the end.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

# Files that are one group, by their common prefix, and what they share.
SHARED = {
    "tests/saving/": "the names of runners' sockets, which have a job's number and a user's",
    "tests/security/test_slurm_": "one private Slurm",
    "tests/systemd/": "one container",
}
# They change cgroups of the machine beside those of their own Slurm's nodes.
CGROUPS_OF_SLURM = (
    "tests/slurm/test_cgroups.py",
    "tests/slurm/test_gpu_order.py",
    "tests/slurm/test_ssh_session.py",
    "tests/slurm/test_suspend_gpu.py",
)
# Files that are several groups: their tests take long and share little or nothing.
PARTS = {
    "tests/slurm/test_swap.py": 2,
    "tests/slurm/test_share.py": 2,
    "tests/slurm/test_accounting.py": 2,
    "tests/fault/test_store_faults.py": 4,
    "tests/fault/test_slurm_faults.py": 4,
    "tests/fault/test_config_nvml_faults.py": 2,
    "tests/gpus/test_nvml.py": 4,
    "tests/gpus/test_lost_gpu.py": 2,
    "tests/shim/lease/test_waiting.py": 3,
    "tests/shim/memory/swap/test_swap_jobs.py": 2,
    "tests/core/test_adversary.py": 3,
    "tests/fuzz/test_fuzz.py": 2,
}
# How long each file takes beside others, in seconds: written by tests/support/durations.py.
SECONDS: dict[str, int] = json.loads((Path(__file__).parent / "data" / "seconds.json").read_text())


def file_of(nodeid: str) -> str:
    """The file of a test, by the test's name."""
    return nodeid.partition("::")[0]


def group(file: str, number: int) -> str:
    """The group of a test, by its file's path in the checkout and its number in the file."""
    if file in CGROUPS_OF_SLURM:
        return "tests/slurm/cgroups"
    if file in PARTS:
        return f"{file} {number % PARTS[file]}"
    return next((prefix for prefix in SHARED if file.startswith(prefix)), file)


def seconds(file: str) -> float:
    """How long the group takes that a file belongs to, or one of its parts; 0: not long."""
    whole = group(file, 0)
    if file in PARTS:
        return SECONDS.get(file, 0) / PARTS[file]
    return sum(took for other, took in SECONDS.items() if group(other, 0) == whole)


def longest_first(nodeids: Iterable[str]) -> list[str]:
    """The files of these tests, in the order in which their groups are to begin."""
    files = dict.fromkeys(map(file_of, nodeids))
    return sorted(files, key=lambda file: (-seconds(file), group(file, 0)))


def numbered(files: Sequence[str]) -> list[int]:
    """For each test, given the file of each, its number in its file."""
    seen: Counter[str] = Counter()
    numbers = []
    for file in files:
        numbers.append(seen[file])
        seen[file] += 1
    return numbers
