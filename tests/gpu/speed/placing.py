"""Where the processes of a measurement run: all on the same cores, at the same addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

MEASURED = 4  # cores for the programs that are measured
OWN = 2  # cores for each of several programs that run at once
ENOUGH = 8  # a machine of fewer has none to spare


def reserve_cores() -> set[int]:
    """The cores for what is measured; this process and what it starts keep off them.

    All that there are where there are too few.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < ENOUGH:
        return set(cores)
    os.sched_setaffinity(0, cores[:-MEASURED])
    return set(cores[-MEASURED:])


def share_of(cores: Collection[int], n: int, parts: int) -> list[int]:
    """The nth of so many parts. Neighbours, which may be threads of one core, stay together."""
    ordered = sorted(cores)
    return ordered[n * len(ordered) // parts : (n + 1) * len(ordered) // parts]


def own_cores(programs: int) -> list[list[int]]:
    """Two cores for each of so many programs that run at once; this process keeps off them.

    Where a machine has too few, all of its cores for each.
    """
    cores = sorted(os.sched_getaffinity(0))
    wanted = OWN * programs
    if len(cores) < wanted + ENOUGH:
        return [cores for _ in range(programs)]
    os.sched_setaffinity(0, cores[:-wanted])
    return [share_of(cores[-wanted:], n, programs) for n in range(programs)]


def group_processes(group: int) -> Iterator[int]:
    """The processes of a process group."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(ProcessLookupError):
                if os.getpgid(int(entry.name)) == group:
                    yield int(entry.name)


def pin(group: int, cores: Collection[int]) -> None:
    """Every thread of every process of the group, and what they start from now on."""
    for process in group_processes(group):
        with suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{process}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cores)


@cache
def fixed_addresses() -> tuple[str, ...]:
    """How a command begins whose addresses are not random; nothing where that is refused."""
    command = ("setarch", "-R")
    if shutil.which(command[0]) is None:
        return ()
    tried = subprocess.run([*command, "true"], check=False, capture_output=True)
    return () if tried.returncode else command
