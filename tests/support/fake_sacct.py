"""A sacct that prints what was recorded, or what a test has it say, whatever it is asked."""

from __future__ import annotations

from pathlib import Path

# Recorded on a private cluster: job 1 of a user without an association, 2, an array 3 of two tasks,
# 5, which has no shard, and both parts of 6.
RECORDED = Path(__file__).parents[1] / "slurm_room" / "data" / "sacct_22_05.txt"
BETWEEN = "|@|"  # ends each column there


def line(*columns: object) -> str:
    """A row, in the order of COLUMNS of leased/slurm/sacct.py."""
    return "".join(f"{column}{BETWEEN}" for column in columns) + "\n"


def fake(folder: Path, script: str = "") -> dict[str, str]:
    """An environment in which sacct prints the file folder/said, as recorded unless a test writes
    it anew, with the delimiter that it is given. script: run first; it may exit."""
    said, program = folder / "said", folder / "sacct"
    said.write_text(RECORDED.read_text())
    program.write_text(
        f'#!/bin/sh\n{script}\nfor each; do case "$each" in --delimiter=*) '
        f'end="${{each#*=}}";; esac; done\nsed "s/{BETWEEN}/$end/g" {said}\n'
    )
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}
