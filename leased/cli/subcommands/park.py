"""gpu-leasectl park: moves the memory of one of the user's jobs off its GPUs."""

from __future__ import annotations

from leased.cli import mine, parking

subcommand = parking.subcommand(
    "park",
    "move all memory of one of your jobs off its GPUs until its next launch",
    mine.park_text,
)
