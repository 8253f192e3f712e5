"""gpu-leasectl unpark: a parked job's memory comes back to its GPUs."""

from __future__ import annotations

from leased.cli import mine, parking

subcommand = parking.subcommand(
    "unpark",
    "bring back the memory of a parked job, as far as there is room",
    mine.unpark_text,
)
