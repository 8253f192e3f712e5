"""What the daemons of a test have recorded, each of which is replayed at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MOST = "1GiB"  # so that a daemon has one file
REPLAY_S = 120.0


@dataclass
class Records:
    """path: the file of the daemon that runs; kept: those of the ones before it."""

    path: Path
    kept: list[Path] = field(default_factory=list)

    def config(self) -> str:
        """What stands in [daemon]."""
        return f'record = "{self.path}"\nrecord_most = "{MOST}"\n'

    def keep(self) -> None:
        """A daemon has ended: the next one begins a new file."""
        if self.path.exists():  # some end before they have written anything
            place = self.path.with_name(f"{self.path.name}-of-daemon-{len(self.kept)}")
            self.kept.append(self.path.rename(place))

    def around(self, moment: int, ns: int) -> Iterator[str]:
        """What was recorded within so many ns of a moment of the monotonic clock."""
        for path in (*self.kept, self.path):
            for line in path.read_text().splitlines()[1:]:
                if abs(json.loads(line).get("now", 0) - moment) <= ns:
                    yield f"{path.name}: {line}"

    def check(self) -> list[str]:
        """Complaints about records that are not replayed as they were written."""
        every = [*self.kept, self.path]
        said = [f"{path.name}: {words}" for path in every if (words := _ask(path))]
        if not any(b'"type":"Grant"' in path.read_bytes() for path in every):
            said.append("no grant was recorded")
        return said


def _ask(path: Path) -> str | None:
    """What replay finds wrong with a record."""
    done = subprocess.run(
        [sys.executable, "-m", "leased.sim.replay", "--check", str(path)],
        capture_output=True,
        text=True,
        timeout=REPLAY_S,
        check=False,
    )
    print(f"{path.name}: {done.stdout}{done.stderr}".rstrip())
    return None if done.returncode == 0 else done.stdout + done.stderr
