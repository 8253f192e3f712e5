"""A job whose ranks count turns in files: tests and benchmarks that stop it see how far it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from leased.processes.stopped_processes import stands_still
from tests.slurm.processes import wait_until
from tests.support.together import zip_strict

STEP_S = 0.01  # between looks at files that change many times a second


@dataclass
class Job:
    """Rank N writes its pid to NAME.N.pid and its turn to NAME.N.turn. number: Slurm's."""

    number: int
    name: str
    ranks: int

    def turns(self) -> list[int]:
        """How far each of its ranks is."""
        files = [Path(f"{self.name}.{rank}.turn") for rank in range(self.ranks)]
        return [int(file.read_text()) if file.exists() else 0 for file in files]

    def is_stopped(self) -> bool:
        """None of its ranks does anything any more."""
        files = [Path(f"{self.name}.{rank}.pid") for rank in range(self.ranks)]
        return all(stands_still(int(file.read_text())) for file in files)

    def gets_on(self) -> None:
        """Wait until all its ranks have got on. AssertionError: it shows what they wrote."""
        before = self.turns()

        def on() -> bool:
            return all(now > then for now, then in zip_strict(self.turns(), before))

        try:
            wait_until(f"job {self.number} to get on", on, step=STEP_S)
        except TimeoutError as fault:
            raise AssertionError(f"{fault}: {Path(self.name + '.log').read_text()}") from None
