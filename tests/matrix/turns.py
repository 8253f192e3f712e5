"""All tests of whole jobs by turns: a run of CI has those of one turn on another Slurm.

`python3 -m tests.matrix.turns TURN` prints their files; any number is a turn. Each file has its
turn, and all turns take about the same time. What looks at two jobs in the same seconds
(test_chaos) has none, since other tests run meanwhile.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from tests.support.parallel import SECONDS

ROOT = Path(__file__).resolve().parents[2]
TURN_S = 60  # as long as the longest file
SHORT_S = 4  # of a file that takes too little to be in SECONDS
LEFT_OUT = {"tests/slurm/test_chaos.py"}


def files() -> list[str]:
    """The longest first."""
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "slurm").glob("test_*.py")}
    return sorted(found - LEFT_OUT, key=lambda file: (-SECONDS.get(file, SHORT_S), file))


def turns() -> list[list[str]]:
    """Each file goes to the turn that is the shortest until then."""
    took = [SECONDS.get(file, SHORT_S) for file in files()]
    made: list[list[str]] = [[] for _ in range(math.ceil(sum(took) / TURN_S))]
    lasts = [0] * len(made)
    for file, seconds in zip(files(), took):
        shortest = lasts.index(min(lasts))
        made[shortest].append(file)
        lasts[shortest] += seconds
    return made


def main() -> None:
    made = turns()
    print(*made[int(sys.argv[1]) % len(made)])


if __name__ == "__main__":
    main()
